"""What a text asks for. In a group most texts are for others. Pure: no I/O."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from unicodedata import normalize

from ..places import atlas
from ..places.place import Place
from ..places.search import Search
from ..places.spelling import fold, gist, traditional
from ..weather.forecast import TAIPEI
from .abroad import abroad, abroad_in
from .question import PLAIN, Question, find_question, is_about_weather, is_asking
from .regions import region
from .setting import read_settings
from .smalltalk import is_distress, smalltalk, smalltalk_in

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
    "確定刪除": "action=delete",  # after the question, `resume` takes it for the answer
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
    "no home": "action=unset&type=home",
    "no office": "action=unset&type=office",
    "recent": "action=recent_queries",
    "location": "action=weather&type=current",
}
"""Small talk that means a button."""
_AROUND_WORDS = """
有人知道 有沒有人知道 有誰知道 誰知道 不知道 想請問 我想問 想問 問一下 請教 麻煩 拜託 謝謝 感謝
大家 各位 小幫手 機器人 我們 朋友 出去玩 去玩 玩 出門 旅遊 旅行 出差 爬山 登山 露營 騎車 開車 逛街
走走 看海 上課 上學 約會 跑步 的話 大概 左右 應該 感覺 外面 戶外 需不需要 需要 適不適合 適合 能不能
可不可以 最近 這裡 這邊 一下 那邊 那裡 今年 你好 您好 哈囉 嗨 早安 午安 晚安 給我 跟我說 還是 還有
是不是 什麼時候 何時 幾點 要不要 中秋節 中秋 過年 春節 除夕 連假 端午節 清明節 清明 國慶
雙十 暑假 寒假 台鐵 捷運 搭火車 坐火車 接小孩 帶小孩 小孩 去接 到時候 到時 看得到 雲海 螢火蟲
換成 換 改成 我住 我搬到 我搬來 搬到 搬來 要爬 去爬 爬
烤肉 野餐 賞櫻 賞楓 賞花 泡湯 玩水 衝浪 浮潛 潛水 釣魚 打球 散步 慢跑 遛狗 拍照 看夜景 看煙火 演唱會
也會 也是 也要 也有 也能 也 告訴我 我人 哪邊 哪裡 哪個 哪一個 比較
那 呢 嗎 結果 所以 不過 然後 啊 喔 欸 誒 又 幹 靠 真的 好像
"""
_ENGLISH_AROUND_WORDS = """
hi hello hey do does did i need should bring take wear me my and or there can could you tell show
get any a an to going gonna this be on ok okay very much so right today's what's how's it's
"""
_AROUND = re.compile(
    "|".join(sorted(_AROUND_WORDS.split(), key=len, reverse=True))
    + r"|[ㄅ-ㄩ]|[ぁ-ん]+|[勒咧捏無毋袂](?=\W*$)"
    + rf"|(?<![a-z'-])(?:{'|'.join(_ENGLISH_AROUND_WORDS.split())})(?![a-z'-])"
)
"""What people say around a place and a question, beyond what the search leaves out by itself."""
_ANYWHERE = re.compile("(?:山上|山区|海边|户外|学校|郊外|去?哪[里边儿]?.{0,2})?")
"""Folded: where people are, or want to know, and no name, in a question."""
_THERE = "(?:那邊|附近|那裡|的)?"
_OWN = (
    (
        "office",
        re.compile(
            rf"(?:我的?)?(?:公司|辦公室|上班的地方){_THERE}|下班|(?:去)?上班"
            r"|(?<![a-z])(?:my )?(?:office|work)(?![a-z])"
        ),
    ),
    (
        "home",
        re.compile(
            r"(?:我的?)?(?:住家|家裡|家裏|我家|家附近|家那邊|家門口|(?<![一-龥])家(?![一-龥]))"
            rf"{_THERE}|回家|(?<![a-z])(?:my )?home(?![a-z])"
        ),
    ),
)


EACH = "each"


@dataclass(frozen=True, slots=True)
class Intent:
    """forecast: of `places[0]`. forecasts: of all `places`. choose: which of them; with EACH as
    `data`, all of them were named.

    command: what the button `data` does. own: of the home or office that `data` names; empty: of no
    place, then `places` has the last ones, if they are known. set: `places` as the kind in `data`.
    smalltalk: of the kind `data`. abroad, unknown: `data` is what was asked for. nothing: it was
    not meant for us. `question`: what about the weather.
    """

    kind: Literal[
        "forecast",
        "forecasts",
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
) -> Intent:
    """What *text* asks for.

    In a group, a text is for us if it mentions us, or if it asks about the weather of a place that
    it surely names. A place alone is how people there talk to each other.
    """
    said = text[:LONGEST]
    # Wide letters and signs are as good as narrow ones, simplified questions as traditional ones.
    text = traditional(normalize("NFKC", said).lower())
    now = now or datetime.now(TAIPEI)
    if not (private or mentioned):
        return _unaddressed(text, search, now)
    if is_distress(text):
        return Intent("smalltalk", data="distress")
    command = COMMANDS.get(text.strip(_SIGNS))
    if command is not None:
        return Intent("command", data=command)
    return (
        _setting(text, search) or _talk(said, text, search, now) or _asked(said, text, search, now)
    )


# ---- in a chat between two, or with a mention


def _setting(text: str, search: Callable[[str], Search]) -> Intent | None:
    """住家設為板橋. None: it is none, or of no place that we know."""
    for said in dict.fromkeys((text, *_CLAUSE.split(text))):
        for kind, name in read_settings(said.strip(f"{_SIGNS},;")):
            found = search(name)
            if found.places:
                return Intent("set", found.places[:1] if found.sure else found.places, kind)
    return None


def _talk(said: str, text: str, search: Callable[[str], Search], now: datetime) -> Intent | None:
    """Small talk, unless it names a place; a picture of an umbrella is a question."""
    name = smalltalk(said)
    if not text.strip():
        name = "hello"
    if name == "smile" and find_question(text, now)[0]:
        return None
    if name is None or search(text).sure:
        return None
    return _meaning(name)


def _meaning(name: str) -> Intent:
    meant = _MEANT.get(name)
    return Intent("smalltalk", data=name) if meant is None else Intent("command", data=meant)


def _asked(said: str, text: str, search: Callable[[str], Search], now: datetime) -> Intent:
    question, rest = find_question(text, now)
    if question is not None and question.topic == "closure" and not question.also:
        return Intent("smalltalk", data="closure")
    question_or_card = question or PLAIN
    kind, rest = _own_place(rest)
    left = gist(_AROUND.sub(" ", rest))
    if (question or kind) and _ANYWHERE.fullmatch(left):
        return Intent("own", data=kind or "", question=question_or_card)
    if (place := abroad(left)) or (place := abroad(rest)):
        return Intent("abroad", data=place)
    if counties := region(left) or region(rest):
        return Intent("choose", counties, question=question_or_card)
    several = _several(rest, search)
    if 1 < len(several) <= _MOST_AT_ONCE and _are_apart(several):
        kind = "choose" if question is None else "forecasts"
        return Intent(kind, several, EACH, question_or_card)
    found = _places(text, rest, search, is_asked=question is not None)
    if found.sure:
        return Intent("forecast", found.places[:1], question=question_or_card)
    if place := abroad_in(rest):
        return Intent("abroad", data=place)
    if found.places:
        return Intent("choose", found.places, question=question_or_card)
    if question is None and (name := smalltalk_in(text)):
        return _meaning(name)
    return _not_found(said, rest, question, kind)


def _not_found(said: str, rest: str, question: Question | None, kind: str | None) -> Intent:
    """A long sentence about the weather, with no place in it: ask where. About us: we cannot."""
    if question is None and _TO_US.search(said):
        return Intent("smalltalk", data="only")
    left = said if question is None else _AROUND.sub(" ", rest)
    left = left.strip(" ,，。.!?！？~～、") or said.strip()
    if question is not None and (kind or len(fold(left)) > _LONGEST_NAME or len(fold(left)) < 2):
        return Intent("own", data=kind or "", question=question)
    return Intent("unknown", data=" ".join(left.split()))


_TO_US = re.compile("[你妳您].*(?:[嗎?？]|什麼|甚麼|誰|怎麼)")
LONGEST = 120
"""Only so many characters of a text are read: who asks does it within the first lines."""
_LONGEST_NAME = 7
"""What has more characters is a sentence, and not the name of a place."""


def _own_place(text: str) -> tuple[str | None, str]:
    """Which of their own places it is about, the first that is named, and the text without them."""
    found = [(match.start(), kind) for kind, own in _OWN if (match := own.search(text))]
    for _, own in _OWN:
        text = own.sub(" ", text)
    return (min(found)[1] if found else None), text


def _places(text: str, rest: str, search: Callable[[str], Search], *, is_asked: bool) -> Search:
    """The best of what the whole text, what is left of it, and less of it may mean."""
    if len(several := _several(rest, search)) > 1:
        return Search(several, sure=False)
    tried = [search(each) for each in dict.fromkeys((rest, text, _AROUND.sub(" ", rest)))]
    for found in tried:
        if found.sure:
            return found
    offered = next((found for found in tried if found.places), tried[0])
    by_word = _by_word(rest, search)
    if by_word and len(by_word.places) > 1:
        return by_word
    if is_asked and len(offered.places) == 1 and _is_named(offered.places[0], rest):
        return Search(offered.places, sure=True)
    return by_word or offered if is_asked else offered


_AND = re.compile(
    r"和|跟|與|到|或是?|還是|以及|及|、|,|&|\+|\bvs\b|(?<![a-z])(?:and|or|to)(?![a-z])"
)
_MOST_ANDS = 6


def _several(text: str, search: Callable[[str], Search]) -> tuple[Place, ...]:
    """The places that *text* surely names one after the other: 板橋和中和. Empty: it does not."""
    for match in [*_AND.finditer(text)][:_MOST_ANDS]:
        before, after = text[: match.start()].replace("從", " "), text[match.end() :]
        if first := _named(before, search):
            others = _named(after, search) or _several(after, search)
            if others:
                return tuple(dict.fromkeys((*first, *others)))
    return ()


_MOST_AT_ONCE = 3
"""Places that one question is answered for; LINE takes five messages in a reply."""


def _are_apart(places: Sequence[Place]) -> bool:
    """False: some have the same name, and one of them is meant: 嘉義."""
    names = {(each.landmark or each.town or each.county)[:2] for each in places}
    return len(names) == len(places)


def _named(text: str, search: Callable[[str], Search]) -> tuple[Place, ...]:
    """What *text* surely names: one place, or those of that very name: 嘉義. Empty: nothing."""
    plain = _AROUND.sub(" ", text)
    found, name = search(plain), gist(plain)
    if found.sure:
        return found.places[:1]
    are_namesakes = all(fold(each.town or each.county).startswith(name) for each in found.places)
    return found.places if name and are_namesakes else ()


def _by_word(text: str, search: Callable[[str], Search]) -> Search | None:
    """The one place, or the few, that a word of *text* surely is; None: no word is any."""
    words = re.split(r"[\s,。!?;、]+", _AROUND.sub(" ", text))
    found = [search(word) for word in words if len(word) > 1]
    places = tuple(dict.fromkeys(each.places[0] for each in found if each.sure))
    return Search(places, sure=len(places) == 1) if places else None


def _is_named(place: Place, text: str) -> bool:
    """Whether its name, without 市 or 區, is in *text*."""
    name = place.landmark or place.town or place.county
    short = name if place.landmark or len(name) < 3 else name[:-1]
    english = "" if place.landmark else atlas.english(place).split()[0]
    return any(fold(each) in fold(text) for each in (short, english) if each)


# ---- in a group, without a mention


def _unaddressed(text: str, search: Callable[[str], Search], now: datetime) -> Intent:
    """Only a question about the weather that surely names a place, and of a time to come."""
    if not is_asking(text):
        return Intent("nothing")
    intents = (_unaddressed_clause(each, search, now) for each in (text, *_CLAUSE.split(text)))
    return next((intent for intent in intents if intent.kind != "nothing"), Intent("nothing"))


_CLAUSE = re.compile(r"(?<=[,。!?;])|\s+")


def _unaddressed_clause(text: str, search: Callable[[str], Search], now: datetime) -> Intent:
    question, rest = find_question(text, now)
    if question is None or not (is_asking(text) and is_about_weather(text)):
        return Intent("nothing")
    if question.when is not None and question.when.is_over(now):
        return Intent("nothing")
    found = max(
        (search(each) for each in (text, rest, _AROUND.sub(" ", rest))), key=lambda each: each.sure
    )
    if found.sure and question.topic == "closure" and not question.also:
        return Intent("smalltalk", data="closure")
    if found.sure:
        return Intent("forecast", found.places[:1], question=question)
    if _share_a_name(found, rest):
        return Intent("choose", found.places, question=question)
    return Intent("nothing")


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
