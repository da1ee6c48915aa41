"""Which leases this process has, and how it asks the store for more."""

import functools
import logging
import math
import os
import socket
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

from .._core.breaker import Outage
from .._core.engine import Engine, with_scripts
from .._core.lease import (
    Holding,
    Plan,
    Won,
    acquire_request,
    fenced_request,
    make_token,
    mistake,
    peek_request,
    read_acquire,
    read_peek,
    release_request,
    store_is_out,
)
from .._core.request import ErrorReply, Reply, Request, first_error
from .._family import remember
from .._links.targets import Cluster, Embedded, Place, find, place_of
from .._tasks import Flight, Guard, Link, monotonic, off_loop, redis, sleep
from ..errors import DibsError, Unavailable, UsageError
from ..events import Event, Kind, Listener, tell
from .cache import AsyncCache
from .held import AsyncHeld
from .keeper import AsyncKeeper
from .lease import AsyncLease, AsyncRenewedLease
from .wakeups import AsyncWaiting

if TYPE_CHECKING:
    from .._links.embedded import Engine as EmbeddedServer
    from .cluster import AsyncClusterLink
    from .disabled import AsyncDisabledLink

M = TypeVar("M")

CLOSED = "this AsyncDibs is closed"
_DISABLED = (
    "dibs is disabled by DIBS_DISABLED: nothing is guarded, nothing is cached (%s); "
    "unset it and start again"
)

_log = logging.getLogger("dibs")


class AsyncLedger:
    """The inside of an `AsyncDibs`: the link to the store, the leases, those who wait for one."""

    def __init__(
        self,
        target: object,
        budget: float,
        listeners: tuple[Listener, ...],
        *,
        is_disabled: bool = False,
    ) -> None:
        self.listeners = listeners
        self.is_disabled = is_disabled
        self.guard = Guard()
        self.keeper = AsyncKeeper(self)
        self.waiting = AsyncWaiting(self)
        self.cache = AsyncCache(self)
        self._target = find(target, redis)
        self.link = self._make_link(budget)
        self._embedded: EmbeddedServer | None = None
        self._embedded_is_ours = False
        self._starting: Flight | None = None
        self.held = AsyncHeld(self)
        self._held = self.held.entries
        self.dropped: deque[tuple[str, float]] = deque(maxlen=10_000)
        """What was collected without being ended: its name, and how long it was held."""
        self.is_closed = False
        self._new_identity()
        remember(self)

    def _make_link(self, budget: float) -> "Link | AsyncClusterLink | AsyncDisabledLink":
        """Not connected yet; the embedded engine's place is not even known yet."""
        target = self._target
        if self.is_disabled:
            from .disabled import AsyncDisabledLink

            _log.warning(_DISABLED, repr(target))
            return AsyncDisabledLink()
        if isinstance(target, Cluster):
            # Imported here: most users never need it, and it costs their start-up time.
            from .cluster import AsyncClusterLink

            return AsyncClusterLink(target, budget, self._recovered)
        place = target if isinstance(target, Place) else None
        return Link(place, budget, self._recovered)

    # ---- taking

    def take(self, plan: Plan) -> Awaitable[AsyncLease | Holding]:
        """A lease; or who has it, at once or after `plan.wait`. Unavailable: the policy says so."""
        if plan.wait or self.listeners:
            return self._take_and_tell(plan)
        return self.attempt(plan)

    async def _take_and_tell(self, plan: Plan) -> AsyncLease | Holding:
        since = monotonic()
        outcome = await (self.waiting.take(plan, self.attempt) if plan.wait else self.attempt(plan))
        if self.listeners:
            self._tell_outcome(plan, outcome, monotonic() - since if plan.wait else 0.0)
        return outcome

    def attempt(self, plan: Plan) -> Awaitable[AsyncLease | Holding]:
        """One try. Held by this process: answered without asking anybody."""
        return self.acquire(plan, None, read_acquire)

    async def acquire(
        self, plan: Plan, token: bytes | None, read: Callable[[list[Reply], bytes], Won | M]
    ) -> AsyncLease | Holding | M:
        """A lease, or what *read* makes of the value that is there. *token*: None makes one."""
        now = monotonic()
        key = plan.key
        if self.is_closed:
            raise UsageError(CLOSED)
        if key in self._held:
            here = self.held.refusal(key, now)
            if here is not None:
                return here
        if token is None:
            token = self.new_token()
        link = self.link
        try:
            engine = link.engine
            if engine is None:
                now, engine = await self.opened()
            if plan.fence_key is None:
                request = acquire_request(engine, key, token, plan.ttl_ms)
            else:
                request = fenced_request(key, plan.fence_key, token, plan.ttl_ms)
            replies = await link.send(request, now)
            if type(replies[0]) is ErrorReply:
                replies = await self.mend(request, replies, now)
        except Outage as outage:
            if outage.sent:
                self.take_back(key, token)
            else:
                await sleep(0)  # a caller that tries again and again must not starve the others
            return self._unguarded(plan, token, now, outage.cause)
        except DibsError:
            raise
        except BaseException:
            # Cancelled, or a signal handler raised: the key may be ours, and nobody would know.
            self.take_back(key, token)
            raise
        outcome = read(replies, token)
        if not isinstance(outcome, Won):
            return outcome
        if plan.renew:
            lease = AsyncRenewedLease(self, plan, token, now, fence=outcome.fence)
            self._held[key] = weakref.ref(lease)
        else:
            self._held[key] = lease = AsyncLease(self, plan, token, now, fence=outcome.fence)
        if len(self._held) > self.held.sweep_at:
            self.held.sweep(now)
        return lease

    def new_token(self) -> bytes:
        """Proof of ownership, never used before."""
        return make_token(self._prefix, next(self._numbers), self._holder)

    def held_here(self, key: bytes) -> Holding | None:
        """What this process knows of *key* without asking anybody."""
        return self.held.known(key, monotonic())

    def known_record(self, key: bytes) -> tuple[bytes, float] | None:
        """The value of *key* and for how long, where this process itself has written it."""
        if self.is_closed:
            raise UsageError(CLOSED)
        return self.held.record(key, monotonic())

    def owns(self, lease: AsyncLease) -> bool:
        """False: this is a forked child, and *lease* is its parent's."""
        return lease._token.startswith(self._prefix)  # pyright: ignore[reportPrivateUsage]

    def take_back(self, key: bytes, token: bytes) -> None:
        """Whether the key was taken is not known: give it back, now or when the store is back.

        However late that is: a server that was stopped takes the key when it goes on.
        """
        if self.link.engine is not None:
            self.link.post(release_request(self.link.engine, key, token, math.inf))

    def _unguarded(self, plan: Plan, token: bytes, now: float, cause: str) -> AsyncLease:
        self.tell("outage", plan.name, cause=cause)
        if plan.on_outage == "closed":
            raise Unavailable(cause, plan.name) from None
        return AsyncLease(self, plan, token, now, guarded=False)

    # ---- asking

    async def peek(self, key: bytes, name: str) -> Holding | None:
        """Who has *key*, and for how long; None: nobody. Unavailable: the store is out."""
        entry = self.held.entry(key)
        try:
            now, _ = await self.opened()
            replies = await self.ask(peek_request(key), now)
        except Outage as outage:
            self.tell("outage", name, cause=outage.cause)
            if self.is_disabled:
                return None
            raise Unavailable(outage.cause, name) from None
        self.held.found(entry, replies[0])
        return read_peek(replies)

    async def opened(self) -> tuple[float, Engine]:
        """The time, and what the store can do. Outage: it was not reached within the budget.

        The embedded engine is started first, at its own pace: that is not an outage.
        """
        if self.is_closed:
            raise UsageError(CLOSED)
        if isinstance(self._target, Embedded) and not (self._embedded_is_ours or self.is_disabled):
            await self._start_embedded(self._target)
        now = monotonic()
        return now, await self.link.ready(now)

    async def ask(self, request: Request, now: float) -> Any:
        """The reply, or a list of them. Outage: none. UsageError: the server refused it."""
        return await self.mend(request, await self.link.send(request, now), now)

    async def ask_all(self, requests: list[Request], now: float) -> list[Any]:
        """The replies to many requests of one reply each, in one write.

        Outage or UsageError, as values: what became of that one. Outage, raised: of all of them.
        """
        replies = await self.link.send_all(requests, now)
        pairs = zip(requests, replies, strict=True)
        return [await self._mend_quietly(request, reply, now) for request, reply in pairs]

    async def _mend_quietly(self, request: Request, reply: Any, now: float) -> Any:
        try:
            return await self.mend(request, reply, now)
        except (Outage, UsageError) as error:
            return error

    async def mend(self, request: Request, reply: Any, now: float) -> Any:
        """*reply*, if it is no error; else what the server says after it was given our scripts."""
        error = first_error(reply)
        if error is not None and error.code == "NOSCRIPT":
            replies = await self.link.send(with_scripts(request), now)
            reply = replies[-request.replies :] if request.replies > 1 else replies[-1]
            error = first_error(reply)
        if error is None:
            return reply
        if not store_is_out(error):
            raise mistake(error)
        self.link.owe(request)
        if error.code == "READONLY":
            self.link.distrust()
        raise Outage(str(error), sent=True)

    async def _start_embedded(self, target: Embedded) -> None:
        """All who come at once wait for the same start: two private servers would be no guard."""
        with self.guard:
            flight = self._starting
            if flight is None or not flight.is_open:
                flight = self._starting = Flight(functools.partial(self._start_now, target))
        await flight.join()

    async def _start_now(self, target: Embedded) -> None:
        # Imported here: most users never need it, and it costs their start-up time.
        from .._links.embedded import start

        if self._embedded_is_ours:
            return
        inherited = self._embedded  # by a forked child: the server is there, the hold on it is not
        join = functools.partial(start, target.folder) if inherited is None else inherited.rejoin
        self._embedded = server = await off_loop(join)
        assert isinstance(self.link, Link)
        self.link.move_to(place_of(server.url, redis))
        self.link.revive = self._revive_embedded
        self._embedded_is_ours = True

    def _revive_embedded(self) -> None:
        """Start the server again if it is gone. What it held is lost; its leases run out."""
        if self._embedded is not None and not self._embedded.alive:
            self._embedded = self._embedded.rejoin()

    # ---- telling

    def tell(self, kind: Kind, name: str, **facts: Any) -> None:
        """Make an event, if anybody listens."""
        if self.listeners:
            self.tell_dropped()
            tell(self.listeners, Event(kind=kind, name=name, at=time(), **facts))

    def tell_dropped(self) -> None:
        """Tell of leases and claims that nobody has any more."""
        while self.dropped:
            name, held = self.dropped.popleft()
            _log.warning("%s was dropped without being ended; its key expires by itself", name)
            cause = "nobody has it any more"
            event = Event(kind="leaked", name=name, at=time(), held=held, cause=cause)
            tell(self.listeners, event)

    def _tell_outcome(self, plan: Plan, outcome: AsyncLease | Holding, waited: float) -> None:
        if isinstance(outcome, Holding):
            self.tell("busy", plan.name, waited=waited, retry_after=outcome.remaining)
        else:
            facts = {"guarded": outcome.guarded, "fence": outcome.fence}
            self.tell("acquired", plan.name, waited=waited, **facts)

    def _recovered(self, cause: str, lasted: float) -> None:
        self.tell("recovered", "*", cause=cause, lasted=lasted)

    # ---- beginning and end

    def _new_identity(self) -> None:
        self._prefix = os.urandom(9).hex().encode()
        self._numbers = count(1)
        self.holder = f"{socket.gethostname()}:{os.getpid()}"
        self._holder = self.holder.encode()

    async def aclose(self) -> None:
        """Stop renewing, deliver what is on its way, close. Leases that are held run out."""
        self.is_closed = True
        self.tell_dropped()
        await self.cache.aclose()
        self.cache.abandon()  # what is in memory would still be served
        await self.keeper.aclose()
        await self.link.aclose()
        self.waiting.wake_all()
        if self._embedded is not None:
            await off_loop(self._embedded.close)

    def abandon(self) -> None:
        """In a forked child: connections, leases, waiters and the engine are the parent's."""
        self.held.abandon()
        self.dropped.clear()
        self.guard = Guard()
        self.keeper.abandon()
        self.waiting.abandon()
        self.cache.abandon()
        self.link.abandon()
        if self._embedded is not None:
            self._embedded.abandon()
        self._embedded_is_ours = False
        self._starting = None
        self._new_identity()

    def __repr__(self) -> str:
        return f"at {self._target!r}, {len(self._held)} held"
