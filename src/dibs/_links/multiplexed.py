"""The asyncio link: one connection for all tasks.

What the tasks of one loop tick ask goes out in one write; replies are matched in order. Every
request has the same budget, so only the oldest one needs a clock. Half way through it a second
connection is tried and everything unanswered is asked again there (each of our requests may be
repeated without harm); at its end the breaker opens and everybody is told.
"""

import asyncio
import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Any

from .._core.breaker import PROBE_BUDGET, PROBE_EVERY, Breaker, Outage
from .._core.engine import ASK, Engine, read_engine
from .._core.request import Reply, Request, together
from .._core.watch import Tracked, Watching, read_tracked, read_watch, tracked, watch_request
from ..errors import DibsError, UsageError
from . import adopted
from .debts import Debts
from .faults import cause_of, lacks_hello, mistake_in_settings
from .line import Line, Pending, fail, is_wanted, repeated, resend
from .targets import Place
from .watchers import Wake, Watchers

_NOTHING = Request(b"", 0, b"")
_LOSSES = 3
"""How many connections may break in a row, with requests on them, before it is an outage."""


class MultiplexedLink:
    """Requests in, replies out, within the budget – or `Outage`; at once if the breaker is open."""

    def __init__(
        self, place: Place | None, budget: float, on_recovered: Callable[[str, float], None]
    ) -> None:
        self.engine: Engine | None = None
        self.revive: Callable[[], None] | None = None
        """Called, on a thread, before another try to reach a server that is out."""
        self._place = place
        self._budget = budget
        self._on_recovered = on_recovered
        self._breaker = Breaker()
        self._line: Line | None = None
        self._old_lines: set[Line] = set()
        """Lines that were given up, but may still answer, or still deliver what was asked."""
        self._adopted_at = 0.0
        self._backlog: list[Pending] = []
        self._debts = Debts()
        self._watchers = Watchers()
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._losses = 0
        self._protocol = 3
        self._closing = False
        """Nobody new is let in; what is on its way is still delivered."""
        self._closed = False

    def move_to(self, place: Place) -> None:
        """From now on the server is there. Before the first use only."""
        self._place = place

    # ---- asking

    def send(self, request: Request, now: float) -> "asyncio.Future[Any]":
        """The reply (a list, if there are several). Outage: none came within the budget."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._closing:
            self._bind(loop)
        if self._breaker.opened_at is not None:
            self._debts.owe(request)
            raise Outage(self._breaker.cause, sent=False)
        future: asyncio.Future[Any] = loop.create_future()
        if self._line is not None:
            self._line.send((future, request, now))
            if self._old_lines and request.until:
                self._lay_ghosts(request, now)
        else:
            self._backlog.append((future, request, now))
            self._connect()
        if self._timer is None:
            self._timer = loop.call_later(self._budget / 2, self._look)
        return future

    async def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """The replies to many requests of one reply each, in one write."""
        if len(requests) == 1:
            return [await self.send(requests[0], now)]
        return await self.send(together(requests), now)

    async def ready(self, now: float) -> Engine:
        """What the server can do; connects if need be. Outage, UsageError: it cannot be reached."""
        while self.engine is None:
            await self.send(_NOTHING, now)
        return self.engine

    def post(self, request: Request) -> None:
        """Deliver *request* though nobody waits for it: now, or when the server is back."""
        if self._closed or self._breaker.is_open:
            self._debts.owe(request)
        elif self._line is not None:
            now = monotonic()
            self._line.send((None, request, now))
            if self._old_lines:
                self._lay_ghosts(request, now)
        else:
            self._debts.owe(request)
            self._connect()

    async def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Have *wake* called when *key* changes, until `unwatch`. Outage: ask again later."""
        return read_watch(await self.track(watch_request(key), wake, now))

    async def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """The replies to *request*; *wake* is called when its key changes afterwards."""
        self._watchers.add(request.key, wake)
        if self._line is None:
            await self.send(_NOTHING, now)
        line = self._line
        first = line is None or not line.is_tracking
        if line is not None:
            line.is_tracking = True
        replies = await self.send(tracked(request, first=first), now)
        return read_tracked(replies, request, pushes=line is not None and line.pushes)

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        self._watchers.discard(key, wake)

    def distrust(self) -> None:
        """The server answers, but is not the one we want: connect anew, it may be elsewhere now."""
        line, self._line = self._line, None
        if line is not None:
            self._backlog[:0] = line.give_up()
            line.close()
            if self._backlog:
                self._connect()

    def owe(self, request: Request) -> None:
        """Deliver *request* when there is another connection."""
        self._debts.owe(request)

    # ---- what lines report

    def pushed(self, push: list[Reply]) -> None:
        """The server said that keys changed."""
        self._watchers.pushed(push)

    def line_lost(self, line: Line, error: BaseException) -> None:
        """A connection broke: what it had not answered is asked again on the next one."""
        self._old_lines.discard(line)
        if line is not self._line:
            return
        self._line = None
        self._watchers.wake_all()
        unanswered = line.give_up()
        # Losses that are far apart have nothing to do with each other.
        self._losses = self._losses + 1 if monotonic() - self._adopted_at < self._budget else 1
        if unanswered:
            self._backlog[:0] = [repeated(pending) for pending in unanswered]
            if self._losses < _LOSSES:
                self._connect()
            else:
                self._trip(cause_of(error))

    # ---- the clock

    def _look(self) -> None:
        """Is the oldest request too old? Runs while there is any, every half budget."""
        assert self._loop is not None
        self._timer = None
        oldest = self._oldest()
        if oldest is None:
            return
        age = monotonic() - oldest
        if age >= self._budget:
            self._trip(f"no answer within {self._budget:g} s")
            return
        late = age >= self._budget / 2
        if late:
            # Also where one is being opened: it may hang as well as any other.
            self._connect(at_once=2)
        due = self._budget if late else self._budget / 2
        self._timer = self._loop.call_later(max(due - age, 0.001), self._look)

    def _oldest(self) -> float | None:
        # Not the old line's: what it has not answered is on the new line as well, if still wanted.
        oldest = self._line.oldest if self._line is not None else None
        waiting = [since for _, _, since in self._backlog[:1]]
        return min(waiting if oldest is None else [oldest, *waiting], default=None)

    def _trip(self, cause: str) -> None:
        """Tell everybody who waits, remember what must be delivered, and look in the background."""
        sent: list[Pending] = []
        for line in self._all_lines():
            sent += line.give_up()
            line.abort()
        self._line = None
        self._old_lines.clear()
        unsent, self._backlog = self._backlog, []
        self._breaker.trip(monotonic(), cause)
        for pending in sent:
            fail(pending, Outage(cause, sent=True))
        for pending in unsent:
            # After a loss the backlog holds what was on the broken line, too.
            fail(pending, Outage(cause, sent=self._losses > 0))
        for _, request, _ in sent + unsent:
            self._debts.owe(request)
        self._losses = 0
        self._watchers.wake_all()
        self._connect()

    def _all_lines(self) -> list[Line]:
        return [*self._old_lines, *([self._line] if self._line is not None else [])]

    def _lay_ghosts(self, request: Request, now: float) -> None:
        """A request that was repeated may still be on its way on its first line, and would take
        the key after its release: the release follows it there, too."""
        for line in self._old_lines:
            line.send((None, request, now))

    # ---- connecting

    def _connect(self, at_once: int = 1) -> None:
        if len(self._connecting) < at_once and not self._closed:
            assert self._loop is not None
            task = self._loop.create_task(self._keep_connecting(), name="dibs connect")
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _keep_connecting(self) -> None:
        """Until there is a line. The first failure opens the breaker; then it is a probe."""
        while True:
            try:
                async with asyncio.timeout(max(self._budget, PROBE_BUDGET)):
                    line = await self._open()
            except Exception as error:
                if self._is_mistake(error) or self._is_well(self._line):
                    return
                if self._line is None:
                    self._trip(cause_of(error))
                await asyncio.sleep(PROBE_EVERY)
                await self._revive()
            else:
                self._adopt(line)
                return

    async def _revive(self) -> None:
        """Have the server started again, where it is ours to start."""
        if self.revive is not None:
            with contextlib.suppress(DibsError):
                await asyncio.to_thread(self.revive)

    def _is_mistake(self, error: BaseException) -> bool:
        """A mistake in the settings is told as such – unless these settings have worked before."""
        mistake = mistake_in_settings(error)
        if mistake is None or self.engine is not None or self._breaker.is_open:
            return False
        unsent, self._backlog = self._backlog, []
        for pending in unsent:
            fail(pending, UsageError(str(mistake)))
        return True

    async def _open(self) -> Line:
        """A new connection that has answered what its server can do."""
        assert self._place is not None
        connection = self._place.connection(None, self._protocol)
        try:
            await connection.connect()
        except BaseException as error:
            adopted.drop(connection)
            if not lacks_hello(error) or self._protocol == 2:
                raise
            self._protocol = 2
            return await self._open()
        line = Line(self, connection)
        try:
            future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            line.send((future, ASK, monotonic()))
            line.engine = read_engine(await future)
        except BaseException:
            line.abort()
            raise
        return line

    def _adopt(self, line: Line) -> None:
        """Use the new line, and ask there again what the old one has not answered."""
        assert self._loop is not None
        if self._closed or self._is_well(self._line):
            line.close()
            return
        old, self._line, self.engine = self._line, line, line.engine
        self._adopted_at = monotonic()
        unanswered: list[Pending] = []
        if old is not None:
            # Not closed yet: it may still answer first. What it says twice is ignored.
            unanswered = [repeated(pending) for pending in old.queue if is_wanted(pending)]
            self._old_lines.add(old)
            self._loop.call_later(max(4 * self._budget, 1.0), old.abort)
            self._watchers.wake_all()
        debts = self._debts.take()
        backlog, self._backlog = self._backlog, []
        now = monotonic()
        for debt in debts:
            line.send((None, debt, now))
        for pending in unanswered + backlog:
            resend(line, pending)
        lasted = self._breaker.heal(now)
        if lasted is not None:
            self._on_recovered(self._breaker.cause, lasted)

    def _is_well(self, line: Line | None) -> bool:
        if line is None:
            return False
        return line.oldest is None or monotonic() - line.oldest < self._budget / 2

    # ---- beginning and end

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """The first use in this loop. An earlier loop must be closed: its line died with it."""
        if self._closing:
            raise UsageError("this AsyncDibs is closed")
        if self._loop is not None and not self._loop.is_closed():
            raise UsageError("an AsyncDibs belongs to one event loop; make one for each")
        self._loop = loop
        self._line = self._timer = None
        self._connecting = set()
        self._old_lines.clear()
        self._backlog.clear()
        self._breaker = Breaker()

    async def aclose(self) -> None:
        """Deliver what is on its way, within the budget; then close."""
        if self._closing:
            return
        self._closing = True
        if self._loop is None or self._loop.is_closed():
            return  # never used, or its lines died with their loop
        if self._backlog or (self._line is not None and self._line.queue):
            await self._drain()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        connecting = list(self._connecting)
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)
        lines = self._all_lines()
        self._line = None
        self._old_lines.clear()
        for line in lines:
            self._backlog += line.give_up()
            await line.closed(self._budget)
        for pending in self._backlog:
            fail(pending, Outage("closed", sent=True))
        self._backlog.clear()
        self._watchers.wake_all()
        for client in self._place.ours if self._place is not None else ():
            await client.aclose()
        # One tick, so that the transports are closed when we return.
        await asyncio.sleep(0)

    async def _drain(self) -> None:
        """Until all that was asked before is answered, on this line or the next."""
        assert self._loop is not None
        last: asyncio.Future[Any] = self._loop.create_future()
        pending = (last, ASK, monotonic())
        if self._line is not None:
            self._line.send(pending)
        else:
            self._backlog.append(pending)
        await asyncio.wait([last], timeout=self._budget)
        if last.done():
            last.exception()  # seen: an outage is no news to somebody who leaves

    def abandon(self) -> None:
        """In a forked child: forget everything. Closing would reach into the parent's loop."""
        _inherited.append((self._line, self._old_lines, self._connecting, self._timer))
        self._line = self._timer = self._loop = None
        self._connecting = set()
        self._old_lines = set()
        self._backlog, self._debts = [], Debts()
        self.engine = None
        self._breaker = Breaker()


_inherited: list[object] = []
"""Kept for ever, so that nothing of a parent's event loop is finalised in its child."""
