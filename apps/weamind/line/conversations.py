"""What is remembered of each private chat, for ten minutes, by all processes together."""

from dibs import AsyncDibs

from .conversation import NOTHING, Conversation

KEY = "line:conversation:v1:{user_id}"
KEPT_FOR = 600.0
"""Seconds after the last answer: then a question starts from nothing."""


class Conversations:
    """Stored in the store of *dibs*. While it is down, every text is on its own."""

    def __init__(self, dibs: AsyncDibs) -> None:
        self._kept = dibs.cached(KEY, ttl=KEPT_FOR, on_outage="open", type=Conversation)(_nothing)

    async def of(self, user_id: str | None) -> Conversation:
        """What was said before. None as a user: nothing, as in a group."""
        if user_id is None:
            return NOTHING
        found = await self._kept.peek(user_id)
        return NOTHING if found is None else found.value

    async def note(self, user_id: str | None, conversation: Conversation) -> None:
        """Remember what was said."""
        if user_id is not None:
            await self._kept.set(user_id, value=conversation)


async def _nothing(user_id: str) -> Conversation:
    return NOTHING
