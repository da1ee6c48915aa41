"""Codes and words for the weather → a word in Traditional Chinese and a picture."""

from collections.abc import Iterable

from .forecast import Sky

_LONGEST_TEXT = 20
_PLAIN = "🔹"
"""For weather that we have no picture of."""

_WMO = {
    0: Sky("晴朗", "☀️"),
    1: Sky("晴時多雲", "🌤️"),
    2: Sky("多雲", "⛅"),
    3: Sky("陰天", "☁️"),
    45: Sky("有霧", "🌫️"),
    48: Sky("霧淞", "🌫️"),
    51: Sky("零星毛毛雨", "🌦️"),
    53: Sky("毛毛雨", "🌦️"),
    55: Sky("綿綿細雨", "🌧️"),
    56: Sky("凍毛毛雨", "🌧️"),
    57: Sky("強凍毛毛雨", "🌧️"),
    61: Sky("小雨", "🌧️"),
    63: Sky("有雨", "🌧️"),
    65: Sky("大雨", "🌧️"),
    66: Sky("凍雨", "🌧️"),
    67: Sky("強凍雨", "🌧️"),
    71: Sky("小雪", "🌨️"),
    73: Sky("下雪", "🌨️"),
    75: Sky("大雪", "❄️"),
    77: Sky("雪粒", "🌨️"),
    80: Sky("短暫陣雨", "🌦️"),
    81: Sky("陣雨", "🌧️"),
    82: Sky("強陣雨", "🌧️"),
    85: Sky("陣雪", "🌨️"),
    86: Sky("強陣雪", "❄️"),
    95: Sky("雷雨", "⛈️"),
    96: Sky("雷雨夾冰雹", "⛈️"),
    99: Sky("強雷雨夾冰雹", "⛈️"),
}
_WMO_TENS = {
    4: _WMO[45],
    5: _WMO[53],
    6: Sky("下雨", "🌧️"),
    7: Sky("下雪", "🌨️"),
    8: _WMO[81],
    9: _WMO[95],
}
"""WMO table 4677 has a meaning for every code; Open-Meteo uses those above. These are the families
of the others; below 40 there is none that would tell people what to wear."""

_CWA_TEXTS = {
    1: "晴天",
    2: "晴時多雲",
    3: "多雲時晴",
    4: "多雲",
    5: "多雲時陰",
    6: "陰時多雲",
    7: "陰天",
    **dict.fromkeys((8, 9, 10, 19, 20, 29, 30), "短暫陣雨"),
    **dict.fromkeys((11, 12, 13, 14), "有雨"),
    **dict.fromkeys((15, 16, 17, 18, 21, 22, 33, 34), "陣雨或雷雨"),
    **dict.fromkeys((23, 37), "有雨或雪"),
    **dict.fromkeys((24, 25, 26, 27, 28), "有霧"),
    **dict.fromkeys((31, 32, 38, 39), "有雨有霧"),
    **dict.fromkeys((35, 36, 41), "雷雨有霧"),
    42: "下雪",
}
"""What stands in when a code comes without its words."""
_CWA_EMOJI = (
    ("雷", "⛈️"),
    ("雪", "🌨️"),
    ("晴短暫", "🌦️"),
    ("晴午後", "🌦️"),
    ("短暫", "🌦️"),
    ("局部", "🌦️"),
    ("雨", "🌧️"),
    ("霧", "🌫️"),
    ("霾", "🌫️"),
    ("陰時多雲", "🌥️"),
    ("多雲時陰", "🌥️"),
    ("陰", "☁️"),
    ("晴時多雲", "🌤️"),
    ("多雲", "⛅"),
    ("晴", "☀️"),
)
"""The first word that occurs decides: the worst comes first."""
_AT_NIGHT = {"☀️": "🌙", "🌤️": "🌙", "⛅": "☁️", "🌥️": "☁️", "🌦️": "🌧️"}


def from_wmo(code: int | None, *, night: bool) -> Sky | None:
    """What a WMO weather code looks like. None: no code, or none that says anything."""
    if code is None or not 0 <= code <= 99:
        return None
    sky = _WMO.get(code) or _WMO_TENS.get(code // 10)
    return sky and _by_night(sky, night=night)


def worst(codes: Iterable[int | None]) -> int | None:
    """The WMO code that matters most; they rise with what one gets wet from. None: all unknown."""
    return max((code for code in codes if code is not None), default=None)


def from_cwa(text: object, code: object, *, night: bool) -> Sky | None:
    """What the weather office says, with a picture. None: it says nothing."""
    words = _words(text) or _words_for(code)
    if not words:
        return None
    emoji = next((emoji for word, emoji in _CWA_EMOJI if word in words), _PLAIN)
    return _by_night(Sky(words, emoji), night=night)


def _words(text: object) -> str:
    if not isinstance(text, str) or not any("\u4e00" <= letter <= "\u9fff" for letter in text):
        return ""  # a number, "-99" or "" in the place of words
    return "".join(letter for letter in text if letter.isprintable()).strip()[:_LONGEST_TEXT]


def _words_for(code: object) -> str:
    digits = str(code).strip() if isinstance(code, str | int) else ""
    return _CWA_TEXTS.get(int(digits), "") if digits.isdecimal() and len(digits) <= 2 else ""


def _by_night(sky: Sky, *, night: bool) -> Sky:
    return Sky(sky.text, _AT_NIGHT.get(sky.emoji, sky.emoji)) if night else sky
