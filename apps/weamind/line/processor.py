"""Processes one event: is it for this bot, is it new, and then its handler."""

import time
from typing import Any

from ..core.metrics import Metrics
from .bot import Bot
from .deduplication import Deduplication
from .service import handle_event, type_of


class EventProcessor:
    """Processes events, any number of them at once."""

    def __init__(self, bot: Bot, deduplication: Deduplication, *, counted_in: Metrics) -> None:
        self._bot = bot
        self._deduplication = deduplication
        self._metrics = counted_in

    async def work(self, event: Any) -> str:
        """Do what *event* asks for, once; return the outcome as a code."""
        if getattr(event, "mode", None) == "standby":  # another bot has the chat
            return "standby"
        async with self._deduplication.first_time(event) as is_new:
            if not is_new:
                return "duplicate"
            return await self._handled(event)

    async def _handled(self, event: Any) -> str:
        since = time.perf_counter()
        try:
            return "done" if await handle_event(event, self._bot) else "ignored"
        finally:
            took = time.perf_counter() - since
            self._metrics.duration.labels(type_of(event)).observe(took)
