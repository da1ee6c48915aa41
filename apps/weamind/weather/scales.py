"""What figures mean to people: the official classes of air quality, UV index and wind."""

from bisect import bisect_right

_AIR = (
    (0, "良好"),
    (51, "普通"),
    (101, "對敏感族群不健康"),
    (151, "對所有族群不健康"),
    (201, "非常不健康"),
    (301, "危害"),
)
"""Of the Ministry of Environment: from which index on."""
_UV = ((0, "低量級"), (3, "中量級"), (6, "高量級"), (8, "過量級"), (11, "危險級"))
"""Of the weather administration, after the WHO."""
_BEAUFORT = (0.3, 1.6, 3.4, 5.5, 8.0, 10.8, 13.9, 17.2, 20.8, 24.5, 28.5, 32.7)
"""From how many metres per second on it is force 1, 2, 3 …"""


def air_class(aqi: int) -> str:
    """普通, for an air quality index of 80."""
    return _class(_AIR, aqi)


def uv_class(index: int) -> str:
    """高量級, for a UV index of 7."""
    return _class(_UV, index)


def beaufort(speed: float) -> int:
    """The force of a wind in metres per second, 0 to 12."""
    return bisect_right(_BEAUFORT, speed)


def _class(scale: tuple[tuple[int, str], ...], value: int) -> str:
    return scale[bisect_right([least for least, _ in scale], value) - 1][1]
