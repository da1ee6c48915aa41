"""Numbers and times from answers that cannot be trusted: what cannot be true is not known."""

import math
import re
from datetime import datetime

from .forecast import TAIPEI

_WINDS = ("北", "東北", "東", "東南", "南", "西南", "西", "西北")
_NUMBER = re.compile(r"[+-]?[0-9]{1,6}(\.[0-9]{1,6})?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-]..:?..)?")


def number(raw: object, *, least: float, most: float) -> float | None:
    """A number, also one in a string. None: it is none, or "-99" and other ways to say nothing."""
    if isinstance(raw, str) and _NUMBER.fullmatch(raw.strip()):
        raw = float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    return float(raw) if least <= raw <= most and math.isfinite(raw) else None


def celsius(raw: object) -> float | None:
    """A temperature that Taiwan can have, from the top of 玉山 to the hottest noon."""
    return number(raw, least=-30, most=50)


def felt_celsius(raw: object) -> float | None:
    """A temperature as it feels, with wind or damp air."""
    return number(raw, least=-50, most=70)


def percent(raw: object) -> int | None:
    """A whole per cent."""
    value = number(raw, least=0, most=100)
    return None if value is None else rounded(value)


def wind_speed(raw: object) -> float | None:
    """Metres per second, also "<= 1" and ">= 11": up to what the strongest typhoon has."""
    if isinstance(raw, str):
        raw = raw.lstrip("<>=≦≧ ")
    return number(raw, least=0, most=110)


def uv_index(raw: object) -> int | None:
    """A UV index, which is a whole number where people read it."""
    value = number(raw, least=0, most=25)
    return None if value is None else rounded(value)


def aqi(raw: object) -> int | None:
    """An air quality index."""
    value = number(raw, least=0, most=1000)
    return None if value is None else rounded(value)


def compass(raw: object) -> str | None:
    """Where the wind comes from, for degrees from the north: 45 is 東北風."""
    value = number(raw, least=0, most=360)
    return None if value is None else f"{_WINDS[rounded(value / 45) % 8]}風"


def code(raw: object) -> int | None:
    """A WMO weather code."""
    value = number(raw, least=0, most=99)
    return int(value) if value is not None and value.is_integer() else None


def rounded(value: float) -> int:
    """The nearest whole number, as people round: 22.5 is 23."""
    return math.floor(value + 0.5)


def taiwan_time(raw: object) -> datetime | None:
    """A time to the minute, in Taiwan's zone, which it is in if it says nothing else."""
    if not isinstance(raw, str) or not _TIME.fullmatch(raw):
        return None
    try:
        time = datetime.fromisoformat(raw)
        return time.astimezone(TAIPEI) if time.tzinfo else time.replace(tzinfo=TAIPEI)
    except (ValueError, OverflowError):
        return None


def field(node: object, name: str) -> object:
    """What *node* has under `Name` or `name`: the weather office has used both. None: nothing."""
    if not isinstance(node, dict):
        return None
    return node.get(name, node.get(name[0].lower() + name[1:]))


def nodes(node: object, name: str) -> list[dict[str, object]]:
    """The objects in the list that *node* has under *name*; none, if it is no such thing."""
    items = field(node, name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
