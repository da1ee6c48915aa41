"""What a text asks for. In a group most texts are for others. Nothing here asks anybody."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from unicodedata import normalize

from ..places.place import Place
from ..places.search import Search
from ..places.spelling import gist

COMMANDS = {
    "住家": "action=weather&type=home",
    "住家天氣": "action=weather&type=home",
    "公司": "action=weather&type=office",
    "公司天氣": "action=weather&type=office",
    "目前位置": "action=weather&type=current",
    "最近查詢": "action=recent_queries",
    "設定": "action=settings",
    "設定住家": "action=settings&type=home",
    "設定公司": "action=settings&type=office",
    "其他": "action=other",
    "使用說明": "action=other&type=help",
    "說明": "action=other&type=help",
    "help": "action=other&type=help",
    "刪除我的資料": "action=delete",
}
"""Texts that do what a button does."""
_WEATHER_WORDS = (
    "天氣", "天气", "氣象", "气象", "預報", "预报", "下雨", "氣溫", "气温", "溫度",
    "weather", "forecast",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wish:
    """forecast: of `places[0]`. choose: which of `places`. command: what the button `data` does.

    where: about the weather, of no place. unknown: no place that we know. nothing: it was not meant
    for us.
    """

    kind: Literal["forecast", "choose", "command", "where", "unknown", "nothing"]
    places: tuple[Place, ...] = ()
    data: str = ""


def understand(
    text: str, *, private: bool, mentioned: bool, search: Callable[[str], Search]
) -> Wish:
    """What *text* asks for.

    In a group, a text is for us if it mentions us, or if it has a word about weather and surely
    names a place. A place alone is how people there talk to each other.
    """
    text = normalize("NFKC", text).lower()  # wide letters and signs are as good as narrow ones
    if private or mentioned:
        command = COMMANDS.get(text.strip(" \t\n「」。!?"))
        if command is not None:
            return Wish("command", data=command)
        if _is_about_weather(text) and not gist(text):
            return Wish("where")
        return _found(search(text))
    if not _is_about_weather(text):
        return Wish("nothing")
    found = search(text)
    return _found(found) if found.sure else Wish("nothing")


def _is_about_weather(text: str) -> bool:
    return any(word in text for word in _WEATHER_WORDS)


def _found(found: Search) -> Wish:
    if not found.places:
        return Wish("unknown")
    return Wish("forecast" if found.sure else "choose", found.places)


def is_mentioned(message: object) -> bool:
    """True: the bot itself is mentioned."""
    return any(getattr(each, "is_self", False) for each in _mentionees(message))


def without_mentions(message: object) -> str:
    """The text without the names of those whom it mentions; positions count UTF-16 units."""
    units = (getattr(message, "text", None) or "").encode("utf-16-le", "surrogatepass")
    for each in sorted(_mentionees(message), key=lambda one: one.index, reverse=True):
        units = units[: each.index * 2] + units[(each.index + each.length) * 2 :]
    return units.decode("utf-16-le", "replace")


def _mentionees(message: object) -> list[Any]:
    found = getattr(getattr(message, "mention", None), "mentionees", None)
    return list(found or ())
