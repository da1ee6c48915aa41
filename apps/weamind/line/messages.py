"""Messages and quick replies as LINE's JSON. Pure: no I/O."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..places.place import Place
from . import japanese, texts
from .postbacks import postback_data
from .question import Question

Message = dict[str, Any]
Item = dict[str, Any]
MOST_ITEMS = 13
"""LINE shows no more quick replies."""
_LONGEST_LABEL = 20
_LONGEST_QUOTE = 20
"""How many characters of a person's text are repeated."""
_SIGNS = (("home", "🏠"), ("office", "🏢"))


def text_message(text: str, items: Iterable[Item] = ()) -> Message:
    """A text, with quick replies below it."""
    message: Message = {"type": "text", "text": text}
    listed = list(items)[:MOST_ITEMS]
    return message | {"quickReply": {"items": listed}} if listed else message


# ---- quick replies


def tap(label: str, action: str, **fields: str | int) -> Item:
    """A button whose data comes back as a postback; its label is shown as if it were said."""
    label = label[:_LONGEST_LABEL]
    data = postback_data(action, **fields)
    action_object = {"type": "postback", "label": label, "data": data, "displayText": label}
    return {"type": "action", "action": action_object}


def send_location(label: str = "傳送位置") -> Item:
    """A button that opens LINE's map; LINE itself draws a pin on it."""
    return {"type": "action", "action": {"type": "location", "label": label}}


def open_page(label: str, uri: str) -> Item:
    """A button that opens a page."""
    return {"type": "action", "action": {"type": "uri", "label": label, "uri": uri}}


def ask_about(place: Place, question: Question | None = None) -> Item:
    """A button that asks for the weather of *place*; *question*: what about it."""
    asked = {} if question is None else question_fields(question)
    return tap(place.name, "weather", type="place", place=place.code, **asked)


def question_fields(question: Question) -> dict[str, str]:
    """The fields that a button carries, so that a question is not lost while the bot asks back."""
    when = {"when": question.when.label} if question.when else {}
    language = {"language": "ja"} if question.is_japanese else {}
    topics = ",".join((question.topic, *question.also))
    return language if question.is_plain else {"topic": topics, **when, **language}


def paged(items: Sequence[Item], number: int, turn: Callable[[str, int], Item]) -> list[Item]:
    """One page of *items*, as many as fit; *turn* makes the buttons to the pages beside it."""
    if len(items) <= MOST_ITEMS:
        return list(items)
    size = MOST_ITEMS - 2
    last = (len(items) - 1) // size
    number = min(max(number, 0), last)
    before = [turn("⬅️ 上一頁", number - 1)] if number > 0 else []
    after = [turn("下一頁 ➡️", number + 1)] if number < last else []
    return before + list(items[number * size : (number + 1) * size]) + after


# ---- whole answers


def places_message(
    text: str, places: Iterable[Place], question: Question | None = None, *, numbered: bool = True
) -> Message:
    """A question with one button for each place; the names are in the text, too."""
    listed = list(places)
    return text_message(
        _listed(text, listed, numbered=numbered), [ask_about(each, question) for each in listed]
    )


def _listed(text: str, places: Sequence[Place], *, numbered: bool) -> str:
    """*text* with the places below it: not all of LINE's apps show buttons."""
    signs = (f"{number}. " if numbered else "・" for number in range(1, len(places) + 1))
    lines = [f"{sign}{place.name}" for sign, place in zip(signs, places, strict=True)]
    return "\n".join([text, *lines])


def which_message(
    places: Sequence[Place], question: Question | None = None, *, numbered: bool = True
) -> Message:
    """Which of *places* is meant; of one alone, whether it is. *numbered*: a number will do."""
    if question is not None and question.is_japanese:
        return places_message(japanese.WHICH, places, question, numbered=numbered)
    if len(places) == 1:
        one = texts.THIS_PLACE.format(place=places[0].name)
        return text_message(one, [ask_about(places[0], question)])
    return places_message(texts.WHICH_PLACE, places, question, numbered=numbered)


def which_to_set_message(kind: str, places: Sequence[Place]) -> Message:
    """Which of *places* is to be their home or office."""
    items = [tap(each.name, "set", type=kind, place=each.code) for each in places]
    question = texts.WHICH_TO_SET.format(kind=texts.KINDS[kind])
    return text_message(_listed(question, places, numbered=True), items)


def where_message(question: Question | None = None) -> Message:
    """The weather of which place? Their own are a tap away."""
    if question is not None and question.is_japanese:
        return text_message(japanese.WHERE, [send_location()])
    return text_message(texts.WHERE, [*_own_places(question), send_location()])


def smalltalk_message(name: str) -> Message:
    """A short answer, and what the bot is for a tap away; not where the weather does not help."""
    if name in ("closure", "distress"):
        return text_message(texts.SMALLTALK[name])
    items = [*_own_places(), send_location(), tap("使用說明", "other", type="help")]
    return text_message(texts.SMALLTALK[name], items)


def sticker_message() -> Message:
    """A friendly answer to a sticker."""
    return text_message(texts.STICKER, [*_own_places(), send_location()])


def unknown_message(said: str, *, private: bool) -> Message:
    """Say that there is no such place, and repeat the text. In a group locations are not read."""
    said = " ".join(said.split())
    said = said if len(said) <= _LONGEST_QUOTE else said[: _LONGEST_QUOTE - 1] + "…"
    if not private:
        return text_message(texts.UNKNOWN_TEXT_IN_GROUP.format(said=said))
    return text_message(texts.UNKNOWN_TEXT.format(said=said), [send_location()])


def _own_places(question: Question | None = None) -> list[Item]:
    asked = {} if question is None else question_fields(question)
    return [
        tap(f"{sign} {texts.KINDS[kind]}", "weather", type=kind, **asked) for kind, sign in _SIGNS
    ]


def location_message() -> Message:
    """Ask for the current location."""
    return text_message(texts.SEND_LOCATION, [send_location()])


def other_message() -> Message:
    """List what else can be done."""
    items = [
        tap("使用說明", "other", type="help"),
        tap("設定住家與公司", "settings"),
        tap("最近查詢", "recent_queries"),
        tap("刪除我的資料", "delete"),
    ]
    return text_message(texts.OTHER, items)


def welcome_message() -> Message:
    """The first thing that a new friend reads."""
    return text_message(texts.WELCOME, [*_kinds(), send_location()])


def delete_message() -> Message:
    """Ask whether they are sure."""
    items = [tap("確定刪除", "delete", sure="yes"), tap("取消", "delete", sure="no")]
    return text_message(texts.DELETE_SURE, items)


def no_place_message(kind: str) -> Message:
    """Say that nothing is set yet."""
    return text_message(texts.NO_PLACE_YET.format(kind=texts.KINDS[kind]), [_set(kind)])


# ---- the settings, as a chat


def settings_message(
    home: Place | None, office: Place | None, liff_id: str | None, *, unset: str = texts.NOT_SET
) -> Message:
    """What is set, and what to change. *unset*: the text for a place that is not set."""
    page = f"https://liff.line.me/{liff_id}"
    names = [unset if place is None else place.name for place in (home, office)]
    return text_message(
        texts.SETTINGS.format(home=names[0], office=names[1]),
        [*_kinds(), *([open_page("在網頁上設定", page)] if liff_id else [])],
    )


def counties_message(kind: str, counties: Sequence[Place], number: int) -> Message:
    """Ask for the county."""

    def turn(label: str, page: int) -> Item:
        return tap(label, "settings", type=kind, page=page)

    items = [tap(each.name, "settings", type=kind, county=each.code) for each in counties]
    question = texts.WHICH_COUNTY.format(kind=texts.KINDS[kind])
    return text_message(question, paged(items, number, turn))


def towns_message(kind: str, county: Place, towns: Sequence[Place], number: int) -> Message:
    """Ask for the town of a county."""

    def turn(label: str, page: int) -> Item:
        return tap(label, "settings", type=kind, county=county.code, page=page)

    items = [tap(each.town or each.name, "set", type=kind, place=each.code) for each in towns]
    names = "、".join(each.town or each.name for each in towns)
    question = f"{texts.WHICH_TOWN.format(county=county.name)}\n{names}"
    return text_message(question, paged(items, number, turn))


def place_set_message(kind: str, place: Place, *, asks_on: bool) -> Message:
    """Confirm a setting.

    *asks_on*: the other one may be set next; in a group that would be refused.
    """
    said = texts.PLACE_SET.format(kind=texts.KINDS[kind], place=place.name)
    other = _set("office" if kind == "home" else "home")
    return text_message(said, [ask_about(place), *([other] if asks_on else [])])


def _kinds() -> list[Item]:
    return [_set("home"), _set("office")]


def _set(kind: str) -> Item:
    label = {"home": "🏠 設定住家", "office": "🏢 設定公司"}[kind]
    return tap(label, "settings", type=kind)
