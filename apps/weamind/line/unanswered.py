"""Events that were cut short by the end of a process: kept, and answered by the next one.

LINE has had its 200 for them, and does not send them again. They are in the database until another
process, or the same one after its start, takes them; a reply token is good for about a minute.
"""

import asyncio
import json
import logging
from collections.abc import Sequence

from ..core.metrics import Metrics
from ..user.users import Users, UsersUnavailable
from . import texts
from .events import Event, dump_event, parse_event
from .messages import text_message
from .sender import Sender
from .workers import WorkerPool

LOOK_EVERY = 5.0
"""Seconds between two checks for events of other processes."""
OLDEST = 600.0
"""Seconds after which an event is no longer answered."""
_log = logging.getLogger(__name__)


class Unanswered:
    """Stores unanswered events at the end, and answers them at the start."""

    def __init__(self, users: Users, sender: Sender, *, counted_in: Metrics) -> None:
        self._users = users
        self._sender = sender
        self._metrics = counted_in

    async def keep(self, events: Sequence[Event]) -> None:
        """Store *events*, to be answered after the start; or answer them now, if that fails."""
        try:
            await self._users.keep([json.dumps(dump_event(event)) for event in events])
        except UsersUnavailable:
            _log.error("%d events could not be kept; their senders get a message", len(events))
            await asyncio.gather(*map(self._apologise, events))
        else:
            _log.warning("%d events are kept, to be answered after the start", len(events))
            self._metrics.events.labels("kept").inc(len(events))

    async def _apologise(self, event: Event) -> None:
        if event.reply_token is not None:
            await self._sender.reply(event.reply_token, [text_message(texts.RESTARTING)])

    async def resume(self, workers: WorkerPool) -> None:
        """Give stored events to *workers*; those that they do not accept are stored again."""
        try:
            found, old = await self._users.take(OLDEST)
        except UsersUnavailable:
            return  # said by the database; the next look may find it
        if old:
            _log.error("%d events are too old to be answered, and are given up", old)
            self._metrics.events.labels("expired").inc(old)
        events = [parse_event(json.loads(each)) for each in found]
        if events:
            _log.warning("%d events of a process that ended are answered now", len(events))
            if not workers.accept(events):
                await self.keep(events)

    async def watch(self, workers: WorkerPool) -> None:
        """Check again and again: another process may end while this one runs."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self.resume(workers)
            except Exception as error:  # one look that fails must not be the last one
                _log.error("a look for unanswered events failed: %s", type(error).__name__)
