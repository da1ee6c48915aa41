"""Which leases this process has, and how it asks the store for more."""

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

from .._core.breaker import Limits, Outage
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.engine import Engine, ScriptMemory, with_scripts
from .._core.lease import (
    Holding,
    OutagePolicy,
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
from .._core.request import ErrorReply, Reply, Request, deciding_error
from .._core.topology import RECONNECT_EVERY, Doubt, doubt
from .._forks import remember
from .._outages import OutageLog
from .._tasks import Guard, Link, monotonic, redis, sleep
from .._transport.targets import Cluster, Embedded, Place, Service, find
from ..errors import Cause, DibsError, Unavailable, UsageError
from ..events import Event, Kind, Listener, tell
from .cache import AsyncCache
from .held import AsyncHeld
from .lease import AsyncLease, AsyncRenewedLease
from .renewer import AsyncRenewer
from .waiters import AsyncWaiters

if TYPE_CHECKING:
    from .cluster import AsyncClusterLink
    from .disabled import AsyncDisabledLink
    from .embedded import AsyncEmbeddedServer
    from .sentinel import AsyncSentinels

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
        limits: Limits,
        listeners: tuple[Listener, ...],
        policy: OutagePolicy = "open",
        *,
        off: bool = False,
    ) -> None:
        self.listeners = listeners
        self.is_disabled = off
        self.outages = OutageLog(policy)
        self.guard = Guard()
        self.renewer = AsyncRenewer(self)
        self.waiters = AsyncWaiters(self)
        self.cache = AsyncCache(self)
        self._target = find(target, redis)
        self._sentinels: AsyncSentinels | None = None
        self._embedded: AsyncEmbeddedServer | None = None
        self._doubted_at = -math.inf
        self.link = self._make_link(limits)
        self.held = AsyncHeld(self)
        self._held = self.held.entries
        self._scripts = ScriptMemory()
        self.dropped: deque[tuple[str, float]] = deque(maxlen=10_000)
        """What was collected without being ended: its name, and how long it was held."""
        self.is_closed = False
        self._new_identity()
        remember(self)

    def _make_link(self, limits: Limits) -> "Link | AsyncClusterLink | AsyncDisabledLink":
        """Not connected yet; the embedded engine's place is not even known yet."""
        target = self._target
        facts = (self._went_out, self._recovered)
        if self.is_disabled:
            from .disabled import AsyncDisabledLink

            _log.warning(_DISABLED, repr(target))
            return AsyncDisabledLink()
        if isinstance(target, Cluster):
            # Imported here: most users never need it, and it costs their start-up time.
            from .cluster import AsyncClusterLink

            return AsyncClusterLink(target, limits, *facts)
        if isinstance(target, Service):
            from .sentinel import AsyncSentinels

            self._sentinels = watched = AsyncSentinels(target, self._switched)
            watched.link = Link(watched.place, limits, *facts)
            return watched.link
        place = target if isinstance(target, Place) else None
        link = Link(place, limits, *facts)
        if isinstance(target, Embedded):
            from .embedded import AsyncEmbeddedServer

            self._embedded = AsyncEmbeddedServer(target, link)
        return link

    # ---- taking

    def take(self, plan: Plan) -> Awaitable[AsyncLease | Holding]:
        """A lease; or who has it, at once or after `plan.wait`. Unavailable: the policy says so."""
        if plan.wait or self.listeners:
            return self._take_and_tell(plan)
        return self.attempt(plan)

    async def _take_and_tell(self, plan: Plan) -> AsyncLease | Holding:
        since = monotonic()
        outcome = await (self.waiters.take(plan, self.attempt) if plan.wait else self.attempt(plan))
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
            if engine.whole_scripts or engine.refused or self._scripts.whole_until:
                request = self._allowed(engine, plan, request, now)
            replies = await link.send(request, now)
            if type(replies[0]) is ErrorReply:
                replies = await self.check_reply(request, replies, now)
        except Outage as outage:
            if outage.sent:
                self.release_later(key, token)
            else:
                await sleep(0)  # a caller that tries again and again must not starve the others
            return self._unguarded(plan, token, now, outage.cause)
        except DibsError:
            raise
        except BaseException:
            # Cancelled, or a signal handler raised: the key may be ours, and nobody would know.
            self.release_later(key, token)
            raise
        outcome = read(replies, token)
        if not isinstance(outcome, Won):
            return outcome
        if plan.renew:
            lease = AsyncRenewedLease(self, plan, token, now, fence=outcome.fence)
            self._held[key] = weakref.ref(lease)
        else:
            self._held[key] = lease = AsyncLease(self, plan, token, now, fence=outcome.fence)
        if self.outages.is_open:
            self.outages.served(now)
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

    def release_later(self, key: bytes, token: bytes) -> None:
        """Whether the key was taken is not known: give it back, now or when the store is back.

        However late that is: a server that was stopped takes the key when it goes on.
        """
        if self.link.engine is not None:
            self.link.post(release_request(self.link.engine, key, token, math.inf))

    def _unguarded(self, plan: Plan, token: bytes, now: float, cause: str) -> AsyncLease:
        self.went_out(plan.name, cause, plan.on_outage)
        return AsyncLease(self, plan, token, now, guarded=False)

    def went_out(self, name: str, cause: str, policy: OutagePolicy) -> None:
        """An outage touched a call. Unavailable: the policy is "closed"; else it goes on."""
        self.tell("outage", name, cause=cause)
        is_closed = policy == "closed"
        if not self.is_disabled:
            self.outages.touched(cause, monotonic(), is_unguarded=not is_closed)
        if is_closed:
            raise Unavailable(cause, name) from None

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
        if self._embedded is not None and not self._embedded.is_started:
            await self._embedded.start()
        now = monotonic()
        return now, await self.link.ready(now)

    async def ask(self, request: Request, now: float) -> Any:
        """The reply, or a list of them. Outage: none. UsageError: the server refused it."""
        if self._scripts.whole(self.link.engine, now):
            request = with_scripts(request)
        return await self.check_reply(request, await self.link.send(request, now), now)

    def _allowed(self, engine: Engine, plan: Plan, request: Request, now: float) -> Request:
        """*request*, in the form that the server takes. UsageError: it refuses what comes later."""
        if plan.renew:
            must_allow(engine, "renew")
        return with_scripts(request) if self._scripts.whole(engine, now) else request

    async def ask_all(self, requests: list[Request], now: float) -> list[Any]:
        """The replies to many requests of one reply each, in one write.

        Outage or UsageError, as values: what became of that one. Outage, raised: of all of them.
        """
        replies = await self.link.send_all(requests, now)
        pairs = zip(requests, replies, strict=True)
        return [await self._check_quietly(request, reply, now) for request, reply in pairs]

    async def _check_quietly(self, request: Request, reply: Any, now: float) -> Any:
        try:
            return await self.check_reply(request, reply, now)
        except (Outage, UsageError) as error:
            return error

    async def check_reply(self, request: Request, reply: Any, now: float) -> Any:
        """*reply*, if it is no error; else what the server says after it was given our scripts."""
        error = deciding_error(reply)
        if error is not None and self._scripts.lacks(request, error, now):
            reply = await self.link.send(with_scripts(request), now)
            error = deciding_error(reply)
        if error is None:
            return reply
        code = store_is_out(error)
        if code is None:
            raise mistake(error)
        self.link.deliver_later(request)
        what = doubt(code)
        if what is not None:
            self._follow(what)
        raise Outage(str(error), sent=True, code=code)

    def _follow(self, what: Doubt) -> None:
        """The server may not be the master, or not for long: find out, but not all the time."""
        now = monotonic()
        if now - self._doubted_at < RECONNECT_EVERY:
            return
        self._doubted_at = now
        if what == "ask" and self._sentinels is not None:
            self._sentinels.suspect()
        else:
            self.link.reconnect()

    # ---- telling

    def tell(self, kind: Kind, name: str, **facts: Any) -> None:
        """Make an event, if anybody listens."""
        if self.listeners:
            self.tell_dropped()
            if "cause" in facts:
                sentence = Cause(facts["cause"])
                facts.update(cause=sentence.code, detail=str(sentence))
            tell(self.listeners, Event(kind=kind, name=name, at=time(), **facts))

    def tell_dropped(self) -> None:
        """Tell of leases and claims that nobody has any more."""
        while self.dropped:
            name, held = self.dropped.popleft()
            _log.warning("%s was dropped without being ended; its key expires by itself", name)
            why = cause_for("dropped")
            facts: dict[str, Any] = {"held": held, "cause": why.code, "detail": str(why)}
            tell(self.listeners, Event(kind="leaked", name=name, at=time(), **facts))

    def _tell_outcome(self, plan: Plan, outcome: AsyncLease | Holding, waited: float) -> None:
        if isinstance(outcome, Holding):
            self.tell("busy", plan.name, waited=waited, retry_after=outcome.remaining)
        else:
            facts = {"guarded": outcome.guarded, "fence": outcome.fence}
            self.tell("acquired", plan.name, waited=waited, **facts)

    def _went_out(self, cause: Cause) -> None:
        self.outages.began(cause, monotonic())

    def _recovered(self, cause: Cause, lasted: float) -> None:
        self.outages.ended(monotonic())
        self.tell("recovered", "*", cause=cause, lasted=lasted)

    def _switched(self, cause: str) -> None:
        self.tell("switched", "*", cause=cause_for(cause))

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
        await self.renewer.aclose()
        if self._sentinels is not None:
            await self._sentinels.aclose()
        await self.link.aclose()
        self.waiters.wake_all()
        if self._embedded is not None:
            await self._embedded.aclose()

    def abandon(self) -> None:
        """In a forked child: connections, leases, waiters and the engine are the parent's."""
        self.outages.abandon()
        self.held.abandon()
        self.dropped.clear()
        self.guard = Guard()
        self.renewer.abandon()
        self.waiters.abandon()
        self.cache.abandon()
        if self._sentinels is not None:
            self._sentinels.abandon()
        self.link.abandon()
        if self._embedded is not None:
            self._embedded.abandon()
        self._new_identity()

    def __repr__(self) -> str:
        return f"at {self._target!r}, {len(self._held)} held"
