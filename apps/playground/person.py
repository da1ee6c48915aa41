"""Ann or Ben, in their own process: `python -m apps.playground.person TARGET`.

Lines of JSON on stdin and stdout:

in    {"visitor", "key", "ttl", "wait"}   ask for the key    {"visitor", "leave": true}   let go
out   {"visitor", "visit": {…}}   what has changed   {"visitor", "event": {…}}   what dibs said

The process ends with its stdin. Times are those of the monotonic clock, which is one for all
processes of a machine.
"""

import asyncio
import dataclasses
import json
import logging
import os
import sys
from contextvars import ContextVar
from time import monotonic
from typing import Any

from dibs import AsyncDibs, AsyncLease, Busy, Event

from .engine import reach

Facts = dict[str, Any]

_visitor: ContextVar[str | None] = ContextVar("visitor", default=None)
"""For whom the current task works: an event carries a name, never a key."""


class Visit:
    """One request for a key: granted or refused, held until the lease ends or `leave` is called.

    So it is over within wait + ttl.
    """

    def __init__(self, dibs: AsyncDibs, visitor: str, *, key: str, ttl: float, wait: float) -> None:
        self._visitor = visitor
        self._has_lease = False
        self._leave = asyncio.Event()
        self._tell(is_="waiting", asked_at=monotonic())
        self.task = asyncio.create_task(self._run(dibs, key, ttl, wait))
        self.task.add_done_callback(self._ended)

    async def _run(self, dibs: AsyncDibs, key: str, ttl: float, wait: float) -> None:
        _visitor.set(self._visitor)
        try:
            async with dibs.hold(key, ttl=ttl, wait=wait) as lease:
                left_at = await self._stay(lease)
                is_late = lease.lost
            how = "late" if is_late else "released" if lease.guarded else "unguarded"
            self._tell(is_="left", how=how, left_at=left_at)
        except Busy as busy:
            facts = {"retry_after": busy.retry_after, "holder": busy.holder, "error": f"{busy}."}
            self._tell(is_="refused", answered_at=monotonic(), **facts)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Handle the end of a task, also of one that was cancelled before it began."""
        if task.cancelled():
            self._tell(is_="left", how="gave up")

    async def _stay(self, lease: AsyncLease) -> float:
        self._has_lease = True
        now = monotonic()
        ends_at = now + lease.remaining
        self._tell(is_="in", answered_at=now, ends_at=ends_at, guarded=lease.guarded)
        try:
            await asyncio.wait_for(self._leave.wait(), lease.remaining)
        except TimeoutError:
            pass  # the time is up: what follows is a late release, and dibs will say so
        return min(monotonic(), ends_at)

    def leave(self) -> None:
        """Release the lease, or stop waiting."""
        self._leave.set()
        if not self._has_lease:
            self.task.cancel()

    def _tell(self, *, is_: str, **facts: Any) -> None:
        _say({"visitor": self._visitor, "visit": {"is": is_, **facts}})


def _on_event(event: Event) -> None:
    """A listener. `recovered` is sent to every visitor; other events to the one they belong to."""
    facts = dataclasses.asdict(event)
    known = {name: value for name, value in facts.items() if value is not None}
    _say({"visitor": _visitor.get(), "event": known})


def _say(message: Facts) -> None:
    print(json.dumps(message), flush=True)


async def _run_commands(dibs: AsyncDibs, lines: asyncio.StreamReader) -> None:
    visits: dict[str, Visit] = {}
    while line := await lines.readline():
        command = json.loads(line)
        visitor = command.pop("visitor")
        if "leave" not in command:
            visits[visitor] = Visit(dibs, visitor, **command)
        elif visitor in visits:
            visits[visitor].leave()
        visits = {name: each for name, each in visits.items() if not each.task.done()}


async def _serve(target: str) -> None:
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async with AsyncDibs(target, listeners=[_on_event]) as dibs:
        await reach(dibs)
        _say({"ready": True})
        await _run_commands(dibs, lines)
        os._exit(0)  # the page has ended all visits, or was killed


if __name__ == "__main__":
    # Outages are made on purpose here, and shown on the page.
    logging.getLogger("dibs").setLevel(logging.ERROR)
    asyncio.run(_serve(sys.argv[1]))
