"""What every handler can use: people, forecasts, the lock, and how to reply."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from ..core.turns import ProcessingLock, Turn
from ..user.users import Users
from ..weather.forecasts import Forecasts
from .conversation import NOTHING, Conversation
from .conversations import Conversations
from .messages import Message
from .sender import Sender

DOTS_AFTER = 0.5
"""Seconds of work before the loading dots are shown."""


@dataclass(frozen=True, slots=True)
class Bot:
    """One bot; its creator opens and closes its parts."""

    users: Users
    forecasts: Forecasts
    sender: Sender
    lock: ProcessingLock
    locks_everything: bool = False
    """True: texts, locations and every tap take the lock, not only those that are tapped fast."""
    liff_id: str | None = None
    conversations: Conversations | None = None
    """The previous messages of private chats; None: every text is on its own."""
    turn: Turn | None = None
    """The turn in which it works, if it needs one: its answer comes after every "please wait"."""

    def in_turn(self, turn: Turn) -> "Bot":
        """The same bot, while it works in *turn*."""
        return replace(self, turn=turn)

    async def reply(self, event: object, *messages: Message) -> None:
        """Answer *event*, once; never raises."""
        if self.turn is not None:
            await self.turn.answers()
        token = getattr(event, "reply_token", None)
        await self.sender.reply(token, messages, to=chat_of(event))

    async def before(self, event: object) -> Conversation:
        """What was said before *event*."""
        kept = self.conversations
        return NOTHING if kept is None else await kept.of(private_user(event))

    async def asks(self, event: object, message: Message, conversation: Conversation) -> None:
        """Answer *event* with a question, and remember what was asked."""
        await asyncio.gather(self.reply(event, message), self.note(event, conversation))

    async def note(self, event: object, conversation: Conversation) -> None:
        """Remember what was said, for the next text."""
        if self.conversations is not None:
            await self.conversations.note(private_user(event), conversation)

    @asynccontextmanager
    async def dots(self, event: object) -> AsyncIterator[None]:
        """Loading dots while the block takes long, and none after it.

        So the answer belongs after the block: dots that appeared after it would stay.
        """
        user_id = private_user(event)
        if user_id is None:
            yield
            return
        dots = _Dots(self.sender, user_id)
        try:
            yield
        finally:
            await dots.stop()


class _Dots:
    """Dots that are shown after a while, unless they are stopped before."""

    def __init__(self, sender: Sender, user_id: str) -> None:
        self._begun = False
        self._task = asyncio.create_task(self._show(sender, user_id), name="loading dots")

    async def _show(self, sender: Sender, user_id: str) -> None:
        await asyncio.sleep(DOTS_AFTER)
        self._begun = True
        await sender.show_loading(user_id)

    async def stop(self) -> None:
        """Prevent further dots. A request that was sent to LINE cannot be undone."""
        if not self._begun:
            self._task.cancel()
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()


def user_of(event: object) -> str | None:
    """The user of an event; None: LINE does not say."""
    return getattr(getattr(event, "source", None), "user_id", None)


def is_private(event: object) -> bool:
    """True: it is a private chat."""
    return getattr(getattr(event, "source", None), "type", None) == "user"


def private_user(event: object) -> str | None:
    """The user of an event in a private chat."""
    return user_of(event) if is_private(event) else None


def chat_of(event: object) -> str | None:
    """The id of the chat of an event."""
    source = getattr(event, "source", None)
    for name in ("group_id", "room_id", "user_id"):
        if found := getattr(source, name, None):
            return found
    return None
