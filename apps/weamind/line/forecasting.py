"""The answer to "what will the weather be there?"."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime

from ..places.atlas import by_code
from ..places.place import Place
from ..user.database import Person
from ..user.users import UsersUnavailable
from ..weather.cards import forecast_message
from ..weather.failure_text import failure_text
from ..weather.forecast import TAIPEI, Forecast
from ..weather.provider import WeatherUnavailable
from .answer import answer_line, comparison, short_line
from .bot import Bot, private_user
from .conversation import answered
from .messages import Item, Message, ask_about, question_fields, send_location, tap, text_message
from .question import PLAIN, Question

_TIMEOUT = 1.0
"""How long a forecast waits for the places that are offered below it, in seconds."""
_log = logging.getLogger(__name__)


async def answer_forecast(
    event: object,
    place: Place,
    bot: Bot,
    *,
    person: Person | None = None,
    question: Question = PLAIN,
) -> None:
    """Reply with the forecast of *place*, or why there is none. Private queries are recorded.

    *person*: what is known about them, if it was loaded already. *question*: what was asked; it is
    answered in a line above the card.
    """
    async with bot.dots(event):
        found, met = await asyncio.gather(_found(place, bot), _met(event, bot, person))
    messages = _messages(found, place, question, offered(met, place))
    await asyncio.gather(
        bot.reply(event, *messages),
        _remember(event, place, bot),
        bot.note(event, answered([place], question)),
    )


async def answer_forecasts(
    event: object, places: Sequence[Place], bot: Bot, *, question: Question
) -> None:
    """Reply with the forecasts of *places*, two or three: a line for each, and the cards."""
    async with bot.dots(event):
        found, met = await asyncio.gather(
            asyncio.gather(*(_found(place, bot) for place in places)), _met(event, bot, None)
        )
    messages = _messages_of_several(found, question, offered(met, places[0]))
    await asyncio.gather(
        bot.reply(event, *messages),
        *(_remember(event, place, bot) for place in places),
        bot.note(event, answered(places, question)),
    )


def _messages_of_several(
    found: Sequence[Forecast | WeatherUnavailable], question: Question, items: list[Item]
) -> list[Message]:
    now = datetime.now(TAIPEI)
    lines = [
        short_line(each, question, now=now) if isinstance(each, Forecast) else failure_text(each)
        for each in found
    ]
    cards = [
        forecast_message(each, now=now) | {"altText": line}
        for each, line in zip(found, lines, strict=True)
        if isinstance(each, Forecast)
    ]
    known = [each for each in found if isinstance(each, Forecast)]
    compared = comparison(known, question, now=now) if len(known) == len(found) else None
    first, *others = (
        text_message("\n".join(dict.fromkeys(filter(None, (compared, *lines))))),
        *cards,
    )
    last = {"quickReply": {"items": items}} if items else {}
    return [first, *others[:-1], others[-1] | last] if others else [first | last]


def offered(person: Person | None, place: Place) -> list[Item]:
    """The places that they asked about before, and the map.

    Not in a group, where others read them.
    """
    if person is None:
        return []
    recent = map(by_code, person.recent(without=place.code))
    return [*(ask_about(each) for each in recent if each is not None), send_location()]


async def _found(place: Place, bot: Bot) -> Forecast | WeatherUnavailable:
    try:
        return await bot.forecasts.get(place)
    except WeatherUnavailable as error:
        return error


def _messages(
    found: Forecast | WeatherUnavailable, place: Place, question: Question, items: list[Item]
) -> list[Message]:
    if not isinstance(found, Forecast):
        asked = question_fields(question)
        again = tap("🔄 再試一次", "weather", type="place", place=place.code, **asked)
        return [text_message(failure_text(found), [again, *items])]
    now = datetime.now(TAIPEI)
    card = forecast_message(found, now=now, quick_reply=items or None)
    line = answer_line(found, question, now=now)
    return [card] if line is None else [text_message(line), card | {"altText": line}]


async def _met(event: object, bot: Bot, person: Person | None) -> Person | None:
    """The person who asks. None: in a group. A database that is down or slow costs no forecast."""
    user_id = private_user(event)
    if user_id is None or person is not None:
        return person
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await bot.users.meet(user_id)
    except (UsersUnavailable, TimeoutError):
        return Person()


async def _remember(event: object, place: Place, bot: Bot) -> None:
    user_id = private_user(event)
    if user_id is not None:
        try:
            await bot.users.record(user_id, place.code)
        except UsersUnavailable:
            _log.warning("a query was not remembered")
