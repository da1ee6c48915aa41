"""What the bot does about an event. Handlers take LINE's own SDK objects as well as ours.

Every tap that asks for a forecast or for a person's queries takes the processing lock first; with
`PROCESSING_LOCK_SCOPE=all`, every request does. Follow and unfollow never do.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from ..places.atlas import locate
from ..places.search import search
from ..user.users import UsersUnavailable
from . import japanese, texts
from .bot import Bot, is_private, user_of
from .conversation import NOTHING, closes, open_choice, open_question, resume
from .forecasting import answer_forecast, answer_forecasts
from .japanese import is_japanese
from .messages import (
    Message,
    other_message,
    send_location,
    smalltalk_message,
    sticker_message,
    text_message,
    unknown_message,
    welcome_message,
    which_message,
)
from .personal import (
    OwnPlace,
    answer_asked,
    answer_delete,
    answer_own,
    answer_recent,
    answer_set,
    answer_setting,
    answer_settings,
    answer_unset,
    answer_weather,
    look_up,
    question_in,
)
from .postbacks import parse_postback
from .understanding import Intent, is_mentioned, understand, without_mentions

Handler = Callable[[Any, Bot], Awaitable[None]]


def should_use_processing_lock(postback_data: dict[str, str]) -> bool:
    """True: a tap that can be repeated fast, and that costs something each time."""
    action = postback_data.get("action")
    if action == "weather":
        return postback_data.get("type") in ("home", "office")
    return action == "recent_queries"


Work = Callable[[Bot], Awaitable[None]]


async def _in_turn(event: Any, bot: Bot, work: Work, *, what: str = "") -> None:
    """Do *work*, unless the same person's is under way: then ask them to wait.

    *what*: a name for what people tap again and again; just after its answer, nothing is done.
    """
    async with bot.lock.turn(getattr(event, "source", None), what=what) as turn:
        if turn.granted:
            await work(bot.in_turn(turn))
        elif turn.asks_to_wait:
            await bot.reply(event, text_message(texts.BUSY))


# ---- messages


async def handle_message_event(event: Any, bot: Bot) -> None:
    """Answer a text with the forecast of its place; other messages with a hint, in private."""
    kind = getattr(event.message, "type", None)
    if kind != "text":
        if is_private(event):
            hint = text_message(texts.UNKNOWN_KIND, [send_location()])
            await bot.reply(event, sticker_message() if kind == "sticker" else hint)
        return
    mentioned = is_mentioned(event.message)
    text = without_mentions(event.message)
    intent = understand(text, private=is_private(event), mentioned=mentioned, search=search)
    if intent.kind != "nothing":
        await _unless_busy(event, bot, lambda bot: _go_on(event, bot, intent, text))


async def _go_on(event: Any, bot: Bot, intent: Intent, text: str) -> None:
    """Act on *intent* as a part of the conversation, where there is one."""
    before = await bot.before(event)
    intent = resume(intent, text, before)
    if is_japanese(text):
        intent = replace(intent, question=replace(intent.question, is_japanese=True))
    if closes(before, intent):
        await bot.note(event, NOTHING)
    await _act_on(event, bot, intent)


async def _unless_busy(event: Any, bot: Bot, work: Work) -> None:
    """Do *work*; with the lock, where everything is locked."""
    await (_in_turn(event, bot, work) if bot.locks_everything else work(bot))


async def _act_on(event: Any, bot: Bot, intent: Intent) -> None:
    if intent.kind == "forecast":
        await answer_forecast(event, intent.places[0], bot, question=intent.question)
    elif intent.kind == "forecasts":
        await answer_forecasts(event, intent.places, bot, question=intent.question)
    elif intent.kind == "choose":
        numbered = is_private(event)  # in a group the next text may be another person's
        message = which_message(intent.places, intent.question, numbered=numbered)
        await bot.asks(event, message, open_choice("which", intent.places, intent.question))
    elif intent.kind == "command":
        await _dispatch_postback(event, bot, parse_postback(intent.data))
    elif intent.kind == "own":
        await answer_asked(event, bot, intent)
    elif intent.kind == "set":
        await answer_setting(event, bot, intent.data, intent.places)
    else:
        await bot.reply(event, _plain_reply(intent, private=is_private(event)))


def _plain_reply(intent: Intent, *, private: bool) -> Message:
    """The answers that need no lookup."""
    if intent.question.is_japanese and intent.data != "distress":
        return text_message(_plain_japanese(intent))
    if intent.kind == "abroad":
        return text_message(texts.ABROAD.format(place=intent.data))
    if intent.kind == "smalltalk" and private:
        return smalltalk_message(intent.data)
    if intent.kind == "smalltalk":  # no buttons: what they do is refused in a group
        hello = intent.data in ("hello", "who")
        return text_message(texts.WELCOME_TO_GROUP if hello else texts.SMALLTALK[intent.data])
    return unknown_message(intent.data, private=private)


def _plain_japanese(intent: Intent) -> str:
    if intent.kind == "smalltalk":
        return japanese.THANKS if intent.data == "thanks" else japanese.HELP
    return japanese.ABROAD if intent.kind == "abroad" else japanese.UNKNOWN


async def handle_location_message_event(event: Any, bot: Bot) -> None:
    """Answer with the forecast of the town at that point.

    In a group people show each other where to meet.
    """
    if not is_private(event):
        return
    await _unless_busy(event, bot, lambda bot: _answer_location(event, bot))


async def _answer_location(event: Any, bot: Bot) -> None:
    nowhere = math.nan
    latitude, longitude = event.message.latitude, event.message.longitude
    place = locate(
        nowhere if latitude is None else latitude, nowhere if longitude is None else longitude
    )
    if place is None:
        await bot.reply(event, text_message(texts.OUTSIDE))
    else:
        question = open_question(await bot.before(event))
        await answer_forecast(event, place, bot, question=question)


# ---- taps


async def handle_postback_event(event: Any, bot: Bot) -> None:
    """Do what the tapped button says; the taps that are repeated fast, one at a time."""
    data = parse_postback(getattr(event.postback, "data", None))
    if data.get("action") == "weather" and data.get("type") in texts.KINDS:
        await _handle_own_place(event, bot, data)
    elif should_use_processing_lock(data):
        work = data["action"]
        await _in_turn(event, bot, lambda bot: _dispatch_postback(event, bot, data), what=work)
    else:
        await _unless_busy(event, bot, lambda bot: _dispatch_postback(event, bot, data))


async def _handle_own_place(event: Any, bot: Bot, data: dict[str, str]) -> None:
    """A person without that place is asked to set it, once, and not to wait."""
    source, kind = getattr(event, "source", None), data["type"]
    async with bot.lock.in_order(source):
        found = await look_up(event, bot, kind)
    if not isinstance(found, OwnPlace):  # without the lock: no tap is asked to wait
        if await bot.lock.says_once(source, kind):
            await bot.reply(event, found)
        return
    async with bot.lock.turn(source, what=kind) as turn:
        if turn.granted:
            await answer_own(event, bot.in_turn(turn), found, question_in(data))
        elif turn.asks_to_wait:
            await bot.reply(event, text_message(texts.BUSY))


async def _dispatch_postback(event: Any, bot: Bot, postback_data: dict[str, str]) -> None:
    answer = _ACTIONS.get(postback_data.get("action", ""), _answer_unknown)
    await answer(event, bot, postback_data)


async def _answer_other(event: Any, bot: Bot, data: dict[str, str]) -> None:
    if not is_private(event):  # the rest is refused there
        await bot.reply(event, text_message(texts.WELCOME_TO_GROUP))
    elif data.get("type") == "help":
        await bot.reply(event, text_message(texts.HELP))
    else:
        await bot.reply(event, other_message())


async def _answer_unknown(event: Any, bot: Bot, data: dict[str, str]) -> None:
    await bot.reply(event, text_message(texts.UNKNOWN_TAP))


_ACTIONS: dict[str, Callable[[Any, Bot, dict[str, str]], Awaitable[None]]] = {
    "weather": answer_weather,
    "recent_queries": answer_recent,
    "settings": answer_settings,
    "set": answer_set,
    "unset": answer_unset,
    "delete": answer_delete,
    "other": _answer_other,
}


# ---- coming and going


async def handle_follow_event(event: Any, bot: Bot) -> None:
    """Record a new or returning friend, and welcome them."""
    user_id = user_of(event)
    try:
        if user_id is not None:
            await bot.users.follow(user_id, getattr(event, "timestamp", None))
    except UsersUnavailable:
        pass  # they are welcome all the same, and known when they first ask
    await bot.reply(event, welcome_message())


async def handle_unfollow_event(event: Any, bot: Bot) -> None:
    """Record that a person has left. There is no answer."""
    user_id = user_of(event)
    if user_id is not None:
        await bot.users.unfollow(user_id, getattr(event, "timestamp", None))


async def handle_join_event(event: Any, bot: Bot) -> None:
    """Say how to talk to the bot in a group."""
    await bot.reply(event, text_message(texts.WELCOME_TO_GROUP))


# ---- which handler


_HANDLERS: dict[str, Handler] = {
    "text": handle_message_event,
    "message": handle_message_event,
    "location": handle_location_message_event,
    "postback": handle_postback_event,
    "follow": handle_follow_event,
    "unfollow": handle_unfollow_event,
    "join": handle_join_event,
}


def type_of(event: Any) -> str:
    """Which handler an event is for; other: none of them."""
    kind = getattr(event, "type", None)
    part = getattr(event, str(kind), None) if kind in ("message", "postback") else event
    if part is None or kind not in _HANDLERS:
        return "other"
    inner = getattr(part, "type", None)
    return inner if kind == "message" and inner in ("text", "location") else str(kind)


async def handle_event(event: Any, bot: Bot) -> bool:
    """Do what *event* asks for. False: it is of a type that asks for nothing."""
    handler = _HANDLERS.get(type_of(event))
    if handler is None:
        return False
    await handler(event, bot)
    return True
