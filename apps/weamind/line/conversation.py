"""What a text means after what was said before: it answers a question, or goes on with one.

Pure: what is remembered, and the time, are arguments.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from unicodedata import normalize

from ..places import atlas
from ..places.place import Place
from ..places.spelling import fold
from .messages import question_fields
from .postbacks import parse_postback, postback_data
from .question import OF_TODAY, PLAIN, Question
from .understanding import EACH, Intent

Asked = Literal["", "where", "which", "home", "office", "delete"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the bot remembers of a chat: codes and times, and no text of a person."""

    asked: Asked = ""
    """What the bot wants to know: where, which of `choices`, which of them is the home or office,
    or whether to delete everything. Empty: nothing."""
    places: tuple[str, ...] = ()
    """The codes of the places that the last answer was about."""
    question: Question = PLAIN
    """The last question, answered or open."""
    choices: tuple[str, ...] = ()
    """Codes of the places that were offered."""


NOTHING = Conversation()
"""Nothing was said before."""


def answered(places: Sequence[Place], question: Question) -> Conversation:
    """After a forecast."""
    return Conversation(places=tuple(each.code for each in places), question=question)


def open_choice(
    asked: Asked, places: Sequence[Place] = (), question: Question = PLAIN
) -> Conversation:
    """After a question of the bot."""
    return Conversation(asked, question=question, choices=tuple(each.code for each in places))


def resume(intent: Intent, text: str, before: Conversation) -> Intent:
    """What *intent*, the meaning of *text* alone, is after *before*."""
    said = normalize("NFKC", text).strip(_SIGNS).lower()
    if before.asked == "delete" and (sure := _is_sure(said)):
        return Intent("command", data=postback_data("delete", sure=sure))
    if before.choices and (place := _chosen(said, before.choices)):
        return _choose(place, before, intent)
    if before.asked in ("home", "office"):
        return _to_set(intent, before.asked)
    if before.asked in ("where", "which"):
        return _with_open_question(intent, before.question)
    return _follow_up(intent, said, before)


def closes(before: Conversation, intent: Intent) -> bool:
    """True: who was asked whether to delete everything says something else: it is asked no more."""
    is_answer = parse_postback(intent.data).get("action") == "delete"
    return before.asked == "delete" and not is_answer


def open_question(before: Conversation) -> Question:
    """The question that a place alone, such as a location, answers."""
    return before.question if before.asked in ("where", "which") else PLAIN


# ---- yes or no


_SIGNS = " \t\n「」。!?~.,、"
_YES = re.compile(
    r"我?(?:確定|確認)要?(?:刪除|刪掉)?|(?:是的?|對|好|要|yes)?[,，]?\s*(?:刪除|刪掉)"
)
"""好 alone may be about something else."""
_NO = re.compile(
    r"(?:取消|不要|不用|不刪|否|不是|不|算了|先不要|no|cancel)(?:刪除|刪掉|刪)?[了啊喔]*"
)


_RIGHT = re.compile(
    r"(?:對|是|嗯|恩|好|沒錯|没错|正確|就是|yes|yeah|yep|ok|right|はい|そう)[的啊呀喔對嗯恩です]*"
)
"""To 您是說板橋嗎？"""


def _is_sure(said: str) -> str:
    """yes, no, or empty: neither."""
    return "yes" if _YES.fullmatch(said) else "no" if _NO.fullmatch(said) else ""


# ---- one of several


_NUMBER = re.compile(r"第?\s*([0-9]{1,2}|[一二兩三四五六七八九十])\s*(?:個|號|項|\.)?")
_KINDS = {"市": "市", "市區": "市", "city": "市", "縣": "縣", "県": "縣", "county": "縣"}
"""新竹市 or 新竹縣."""
_DIGITS = {name: number for number, name in enumerate("一二三四五六七八九十", 1)} | {"兩": 2}


def _chosen(said: str, choices: Sequence[str]) -> Place | None:
    """The one of *choices* that *said* is: by its number, or by a part of its name."""
    places = [place for code in choices if (place := atlas.by_code(code))]
    if len(places) == 1 and _RIGHT.fullmatch(said):
        return places[0]
    if match := _NUMBER.fullmatch(said):
        number = int(match[1]) if match[1].isdecimal() else _DIGITS[match[1]]
        return places[number - 1] if 1 <= number <= len(places) else None
    name = fold(said)
    if kind := _KINDS.get(said):
        of_kind = [each for each in places if each.name.endswith(kind)]
        return of_kind[0] if len(of_kind) == 1 else None
    if len(name) < 2:
        return None
    found = [each for each in places if name in fold(each.name)]
    exact = [each for each in found if name in (fold(each.name), fold(each.town or each.county))]
    return exact[0] if len(exact) == 1 else found[0] if len(found) == 1 else None


def _to_set(intent: Intent, kind: str) -> Intent:
    """板橋, after the question where the home is; of a county, which township."""
    if intent.kind not in ("forecast", "choose") or not intent.question.is_plain:
        return intent
    if intent.kind == "forecast" and intent.places[0].town is None:
        county = intent.places[0].code
        return Intent("command", data=postback_data("settings", type=kind, county=county))
    return Intent("set", intent.places, kind)


def _choose(place: Place, before: Conversation, intent: Intent) -> Intent:
    if before.asked in ("home", "office"):
        return Intent("set", (place,), before.asked)
    return Intent("forecast", (place,), question=merged(intent.question, before.question))


# ---- a place for a question, a question for a place


def merged(question: Question, before: Question) -> Question:
    """*question*, and of *before* what it does not say itself."""
    when = question.when or before.when
    if question.topic != "weather":
        return replace(question, when=when, is_japanese=before.is_japanese)
    return replace(before, when=when)


def _with_open_question(intent: Intent, question: Question) -> Intent:
    if intent.kind == "command":
        return replace(intent, data=_with_fields(intent.data, question))
    if intent.kind in _OF_PLACES or (intent.kind == "own" and intent.data):
        return _about(intent, question)
    return intent


_OF_PLACES = ("forecast", "forecasts", "choose")


def _about(intent: Intent, before: Question) -> Intent:
    """*intent* with the question before it; of places that were all named, it is about each."""
    question = merged(intent.question, before)
    is_each = intent.kind == "choose" and intent.data == EACH and not question.is_plain
    return replace(intent, kind="forecasts" if is_each else intent.kind, question=question)


def _with_fields(data: str, question: Question) -> str:
    """The button 住家 or 公司, typed: it carries the question, as the button does."""
    fields = parse_postback(data)
    if fields.get("action") != "weather" or "topic" in fields:
        return data
    return postback_data(**(fields | question_fields(question)))


_GOES_ON = re.compile(
    r"^(?:那麼?(?!瑪夏|霸|羅|拔)|換|還有|然後|改|啊|how about|what about|and )|[呢咧勒捏]$"
    r"|^[^のはが]{1,8}は$|也[會是要有能]"
)
"""那高雄呢, 後天呢, 高雄は, 高雄也會嗎: about the same as before."""


def _follow_up(intent: Intent, said: str, before: Conversation) -> Intent:
    goes_on = _GOES_ON.search(said) is not None
    # In the language of this text: a bare place answers in that of the question, this does not.
    before = replace(before, question=replace(before.question, is_japanese=False))
    if intent.kind in _OF_PLACES and goes_on:
        return _about(intent, before.question)
    places = tuple(place for code in before.places if (place := atlas.by_code(code)))
    if intent.kind != "own" or intent.data or not places:
        return intent
    if intent.question.is_plain and not goes_on:  # 天氣: of the home, for those who have one
        return replace(intent, places=places)
    question = _going_on(intent.question, before, goes_on=goes_on)
    return Intent("forecasts" if len(places) > 1 else "forecast", places, question=question)


def _going_on(question: Question, before: Conversation, *, goes_on: bool) -> Question:
    """會冷嗎 is about the same day; 明天天氣如何 is no question about rain, 後天呢 is.

    Only a day goes on: not this very moment, and not a whole week.
    """
    if goes_on:
        return merged(question, before.question)
    if question.topic == "weather" or question.topic in OF_TODAY:
        return question
    same_day = (
        before.question.when if before.question.when and before.question.when.is_one_day else None
    )
    return replace(question, when=question.when or same_day)
