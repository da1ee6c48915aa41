"""What concerns one person: home and office, recent queries, settings, and deleting their data.

Only in a private chat: in a group others would read it.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..places import atlas
from ..places.place import Place
from ..user.database import Person
from ..user.users import UsersUnavailable
from ..weather.forecast import TAIPEI
from . import texts
from .bot import Bot, is_private, private_user, user_of
from .conversation import NOTHING, open_choice
from .forecasting import answer_forecast
from .messages import (
    Message,
    counties_message,
    delete_message,
    location_message,
    no_place_message,
    place_set_message,
    places_message,
    settings_message,
    text_message,
    towns_message,
    where_message,
    which_to_set_message,
)
from .question import PLAIN, Question, read_question
from .understanding import Intent

Data = dict[str, str]


async def answer_weather(event: object, bot: Bot, data: Data) -> None:
    """Reply with the forecast for home, office or a place; or ask for the current location."""
    kind = data.get("type")
    if kind in texts.KINDS:
        found = await look_up(event, bot, kind)
        if isinstance(found, OwnPlace):
            await answer_own(event, bot, found, question_in(data))
        else:
            await bot.reply(event, found)
    elif kind == "current":
        refusal = text_message(texts.NO_LOCATION_IN_GROUP)
        await bot.reply(event, location_message() if is_private(event) else refusal)
    elif kind == "place" and (place := place_in(data)):
        await answer_forecast(event, place, bot, question=question_in(data))
    else:
        await bot.reply(event, text_message(texts.UNKNOWN_TAP))


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """A person's home or office, and what else is known about them."""

    place: Place
    person: Person


async def look_up(event: object, bot: Bot, kind: str) -> OwnPlace | Message:
    """Their home or office; or the message to send, because there is none to show."""
    person = await _person(event, bot)
    if isinstance(person, str):
        return text_message(person)
    code = person.home if kind == "home" else person.office
    place = atlas.by_code(code) if code else None
    return no_place_message(kind) if place is None else OwnPlace(place, person)


async def answer_own(event: object, bot: Bot, own: OwnPlace, question: Question = PLAIN) -> None:
    """Reply with the forecast of their place."""
    await answer_forecast(event, own.place, bot, person=own.person, question=question)


async def answer_asked(event: object, bot: Bot, intent: Intent) -> None:
    """A question without a place: about the home or office that was named, or about their home.

    Who has none is answered for the last place, or asked where. In a group a place has to be named.
    """
    kind, question = intent.data, intent.question
    if not is_private(event):
        await bot.reply(event, text_message(texts.WHERE_IN_GROUP))
        return
    found = await look_up(event, bot, kind or "home")
    if isinstance(found, OwnPlace):
        await answer_own(event, bot, found, question)
    elif kind:
        await bot.reply(event, found)
    elif intent.places:
        await answer_forecast(event, intent.places[0], bot, question=question)
    else:
        await bot.asks(event, where_message(question), open_choice("where", question=question))


async def answer_setting(event: object, bot: Bot, kind: str, places: Sequence[Place]) -> None:
    """住家設為板橋: set it; of several such places, ask which."""
    if private_user(event) is None:
        await bot.reply(event, text_message(texts.ONLY_IN_PRIVATE))
    elif len(places) > 1:
        asked = "office" if kind == "office" else "home"
        await bot.asks(event, which_to_set_message(kind, places), open_choice(asked, places))
    else:
        await answer_set(event, bot, {"type": kind, "place": places[0].code})


def question_in(data: Data) -> Question:
    """The question that the data of a tapped button carries."""
    question = read_question(data.get("topic"), data.get("when"), datetime.now(TAIPEI))
    return replace(question, is_japanese=data.get("language") == "ja")


async def answer_recent(event: object, bot: Bot, data: Data) -> None:
    """Offer the places that they asked about last."""
    person = await _person(event, bot)
    if isinstance(person, str):
        await bot.reply(event, text_message(person))
        return
    found = [place for code in person.recent() if (place := atlas.by_code(code))]
    if found:
        message = places_message(texts.RECENT, found)
        await bot.asks(event, message, open_choice("which", found))
    else:
        await bot.reply(event, text_message(texts.NO_QUERIES_YET))


async def answer_settings(event: object, bot: Bot, data: Data) -> None:
    """Reply with one step of the settings: home or office, which county, which town."""
    kind = data.get("type")
    if private_user(event) is None:
        await bot.reply(event, text_message(texts.ONLY_IN_PRIVATE))
    elif kind in ("home", "office"):
        message, places = _next_step(kind, data)
        await bot.asks(event, message, open_choice(kind, places))
    else:
        await bot.reply(event, await _first_step(event, bot))


async def _first_step(event: object, bot: Bot) -> Message:
    person = await _person(event, bot)
    if isinstance(person, str):  # to choose, they need not be read
        return settings_message(None, None, bot.liff_id, unset=texts.NOT_READ)
    home, office = (atlas.by_code(code) if code else None for code in (person.home, person.office))
    return settings_message(home, office, bot.liff_id)


def _next_step(kind: str, data: Data) -> tuple[Message, Sequence[Place]]:
    """What to ask next, and the places that a text may name as home or office."""
    page = int(data["page"]) if re.fullmatch("[0-9]{1,3}", data.get("page", "")) else 0
    county = atlas.by_code(data.get("county", ""))
    if county is None or county.town is not None:
        return counties_message(kind, atlas.counties(), page), ()
    towns = atlas.towns_of(county.county)
    return towns_message(kind, county, towns, page), towns


async def answer_set(event: object, bot: Bot, data: Data) -> None:
    """Set a place as home or office."""
    kind, place, user_id = data.get("type"), place_in(data), user_of(event)
    if kind not in ("home", "office") or place is None:
        await bot.reply(event, text_message(texts.UNKNOWN_TAP))
    elif user_id is None:
        await bot.reply(event, text_message(texts.ONLY_IN_PRIVATE))
    else:
        async with bot.dots(event):
            is_set = await _set_place(user_id, kind, place.code, bot)
        message = place_set_message(kind, place, asks_on=is_private(event))
        await bot.reply(event, message if is_set else text_message(texts.NO_ACCESS))


async def answer_unset(event: object, bot: Bot, data: Data) -> None:
    """Remove a person's home or office."""
    kind, user_id = data.get("type"), private_user(event)
    if kind not in ("home", "office"):
        said = texts.UNKNOWN_TAP
    elif user_id is None:
        said = texts.ONLY_IN_PRIVATE
    else:
        removed = texts.PLACE_REMOVED.format(kind=texts.KINDS[kind])
        said = removed if await _set_place(user_id, kind, None, bot) else texts.NO_ACCESS
    await bot.reply(event, text_message(said))


async def _set_place(user_id: str, kind: str, code: str | None, bot: Bot) -> bool:
    try:
        await bot.users.set_place(user_id, "home" if kind == "home" else "office", code)
    except UsersUnavailable:
        return False
    return True


async def answer_delete(event: object, bot: Bot, data: Data) -> None:
    """Ask whether they are sure; then delete all their data."""
    user_id, sure = private_user(event), data.get("sure")
    if user_id is None:
        message = text_message(texts.ONLY_IN_PRIVATE)
    elif sure == "yes":
        async with bot.dots(event):
            message = text_message(await _delete(user_id, bot))
    elif sure == "no":
        message = text_message(texts.NOT_DELETED)
    else:
        await bot.asks(event, delete_message(), open_choice("delete"))
        return
    await asyncio.gather(bot.reply(event, message), bot.note(event, NOTHING))


async def _delete(user_id: str, bot: Bot) -> str:
    try:
        await bot.users.delete(user_id)
    except UsersUnavailable:
        return texts.NOT_DELETED_NOW
    return texts.DELETED


def place_in(data: Data) -> Place | None:
    """The place whose code is in *data*, if there is such a place."""
    return atlas.by_code(data.get("place", ""))


async def _person(event: object, bot: Bot) -> Person | str:
    """What is known about them, or the message to send instead."""
    user_id = private_user(event)
    if user_id is None:
        return texts.ONLY_IN_PRIVATE
    try:
        async with bot.dots(event):
            return await bot.users.meet(user_id)
    except UsersUnavailable:
        return texts.NO_ACCESS
