"""What a text asks for. In a group most texts are for others. Nothing here asks anybody."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from unicodedata import normalize

from ..places.place import Place
from ..places.search import Search
from ..places.spelling import fold, gist
from ..weather.forecast import TAIPEI
from .abroad import abroad, abroad_in
from .question import PLAIN, Question, find_question, is_asking
from .setting import read_settings
from .smalltalk import smalltalk

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
_SIGNS = " \t\n「」。!?~"
_MEANT = {
    "help": "action=other&type=help",
    "menu": "action=other",
    "delete": "action=delete",
    "settings": "action=settings",
    "home": "action=settings&type=home",
    "office": "action=settings&type=office",
}
"""Small talk that means a button."""
_AROUND_WORDS = """
有人知道 有沒有人知道 有誰知道 誰知道 不知道 想請問 我想問 想問 問一下 請教 麻煩 拜託 謝謝 感謝
大家 各位 小幫手 機器人 我們 朋友 出去玩 去玩 玩 出門 旅遊 旅行 出差 爬山 登山 露營 騎車 開車 逛街
走走 看海 上課 上學 約會 跑步 的話 大概 左右 應該 感覺 外面 戶外 需不需要 需要 適不適合 適合 能不能
可不可以 最近 這裡 這邊 一下 那邊 那裡 今年 你好 您好 哈囉 嗨 早安 午安 晚安 給我 跟我說 還是 還有
是不是 那 呢 嗎 結果 所以 不過 然後 啊 喔 欸 誒 ㄟ hi hello hey
"""
_AROUND = re.compile("|".join(sorted(_AROUND_WORDS.split(), key=len, reverse=True)))
"""What people say around a place and a question, beyond what the search leaves out by itself."""
_THERE = "(?:那邊|附近|那裡|的)?"
_OWN = (
    ("office", re.compile(rf"(?:我的?)?(?:公司|辦公室|上班的地方){_THERE}|下班|(?:去)?上班")),
    (
        "home",
        re.compile(
            r"(?:我的?)?(?:住家|家裡|家裏|我家|家附近|家那邊|家門口|(?<![一-龥])家(?![一-龥]))"
            rf"{_THERE}|回家"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """forecast: of `places[0]`. choose: which of `places`. command: what the button `data` does.

    own: of the home or office that `data` names; empty: of no place. set: `places` as the kind in
    `data`. smalltalk: of the kind `data`. abroad, unknown: `data` is what was asked for.
    nothing: it was not meant for us. `question`: what about the weather.
    """

    kind: Literal[
        "forecast",
        "choose",
        "command",
        "own",
        "set",
        "smalltalk",
        "abroad",
        "unknown",
        "nothing",
    ]
    places: tuple[Place, ...] = ()
    data: str = ""
    question: Question = PLAIN


def understand(
    text: str,
    *,
    private: bool,
    mentioned: bool,
    search: Callable[[str], Search],
    now: datetime | None = None,
) -> Wish:
    """What *text* asks for.

    In a group, a text is for us if it mentions us, or if it asks about the weather of a place that
    it surely names. A place alone is how people there talk to each other.
    """
    said = text
    text = normalize("NFKC", text).lower()  # wide letters and signs are as good as narrow ones
    now = now or datetime.now(TAIPEI)
    if not (private or mentioned):
        return _overheard(text, search, now)
    command = COMMANDS.get(text.strip(_SIGNS))
    if command is not None:
        return Wish("command", data=command)
    return _setting(text, search) or _talk(said, text, search, now) or _asked(text, search, now)


# ---- in a chat between two, or with a mention


def _setting(text: str, search: Callable[[str], Search]) -> Wish | None:
    """住家設為板橋. None: it is none, or of no place that we know."""
    for kind, name in read_settings(text.strip(_SIGNS)):
        found = search(name)
        if found.places:
            return Wish("set", found.places[:1] if found.sure else found.places, kind)
    return None


def _talk(said: str, text: str, search: Callable[[str], Search], now: datetime) -> Wish | None:
    """Small talk, unless it names a place; a picture of an umbrella is a question."""
    name = smalltalk(said)
    if not text.strip():
        name = "hello"
    if name == "smile" and find_question(text, now)[0]:
        return None
    if name is None or search(text).sure:
        return None
    meant = _MEANT.get(name)
    return Wish("smalltalk", data=name) if meant is None else Wish("command", data=meant)


def _asked(text: str, search: Callable[[str], Search], now: datetime) -> Wish:
    question, rest = find_question(text, now)
    question_or_card = question or PLAIN
    kind, rest = _own_place(rest)
    left = gist(_AROUND.sub(" ", rest))
    if not left and (question or kind):
        return Wish("own", data=kind or "", question=question_or_card)
    if (place := abroad(left)) or (place := abroad(rest)):
        return Wish("abroad", data=place)
    found = _places(text, rest, search, is_asked=question is not None)
    if found.sure:
        return Wish("forecast", found.places[:1], question=question_or_card)
    if place := abroad_in(rest):
        return Wish("abroad", data=place)
    if found.places:
        return Wish("choose", found.places, question=question_or_card)
    return _not_found(text, rest, question, kind)


def _not_found(text: str, rest: str, question: Question | None, kind: str | None) -> Wish:
    """A long sentence about the weather, with no place in it: ask where."""
    left = _AROUND.sub(" ", rest).strip(" ,，。.!?！？~～、") or text.strip()
    if question is not None and (kind or len(fold(left)) > _LONGEST_NAME or len(fold(left)) < 2):
        return Wish("own", data=kind or "", question=question)
    return Wish("unknown", data=" ".join(left.split()))


_LONGEST_NAME = 7
"""What has more characters is a sentence, and not the name of a place."""


def _own_place(text: str) -> tuple[str | None, str]:
    """Whether it is about their own place, and the text without that."""
    for kind, pattern in _OWN:
        if match := pattern.search(text):
            return kind, f"{text[: match.start()]} {text[match.end() :]}"
    return None, text


def _places(text: str, rest: str, search: Callable[[str], Search], *, is_asked: bool) -> Search:
    """The best of what the whole text, what is left of it, and less of it may mean."""
    tried = [search(each) for each in dict.fromkeys((rest, text, _AROUND.sub(" ", rest)))]
    for found in tried:
        if found.sure:
            return found
    offered = next((found for found in tried if found.places), tried[0])
    if is_asked and len(offered.places) == 1 and _is_named(offered.places[0], rest):
        return Search(offered.places, sure=True)
    return offered


def _is_named(place: Place, text: str) -> bool:
    """Whether its name, without 市 or 區, is in *text*."""
    name = place.town or place.county
    return fold(name[:-1] if len(name) > 2 else name) in fold(text)


# ---- in a group, without a mention


def _overheard(text: str, search: Callable[[str], Search], now: datetime) -> Wish:
    """Only a question about the weather that surely names a place, and of a time to come."""
    question, rest = find_question(text, now)
    if question is None or not is_asking(text):
        return Wish("nothing")
    if question.when is not None and question.when.is_over(now):
        return Wish("nothing")
    found = max(
        (search(each) for each in (text, rest, _AROUND.sub(" ", rest))), key=lambda each: each.sure
    )
    if found.sure:
        return Wish("forecast", found.places[:1], question=question)
    if _share_a_name(found, rest):
        return Wish("choose", found.places, question=question)
    return Wish("nothing")


def _share_a_name(found: Search, text: str) -> bool:
    """信義區, of which there are two; 東區 is how people call a part of any town."""
    names = {place.town for place in found.places}
    name = names.pop() if len(names) == 1 else None
    return name is not None and len(name) > 2 and gist(text) in (fold(name), fold(name[:-1]))


# ---- mentions


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
