# Generated from src/dibs/_async/store.py by unasync.py – do not edit.
"""The store of a client: its connection, its scripts, and what its error replies mean."""

import logging
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .._core.capabilities import Engine, ScriptMemory, by_script, with_scripts, with_scripts_once
from .._core.causes import cause_for
from .._core.cluster_slots import Reaction, Reconnections, reaction_to
from .._core.connection import Limits, Outage, protocol_error
from .._core.lease import SetExpiry, mistake, store_is_out
from .._core.options import OutagePolicy
from .._core.request import Request, deciding_error
from .._events import EventSink, OutageLog
from .._threads import LoopBinding, Transport, monotonic, redis
from .._transport.targets import Address, Cluster, Embedded, SentinelService, parse_target
from ..errors import Cause, Unavailable, UsageError

if TYPE_CHECKING:
    from .cluster import ClusterTransport
    from .disabled import DisabledTransport
    from .embedded import EmbeddedServer
    from .sentinel import Sentinels

P = ParamSpec("P")
R = TypeVar("R")

CLOSED = "this Dibs is closed and cannot be opened again: make another one"
_DISABLED = (
    "dibs is disabled by DIBS_DISABLED: nothing is guarded, nothing is cached, leaders and "
    "schedules wait (%s); unset it and start again"
)

_log = logging.getLogger("dibs")


class Store:
    """Sends requests to a server, a cluster, or the master of a Sentinel service."""

    def __init__(
        self,
        target: object,
        limits: Limits,
        events: EventSink,
        policy: OutagePolicy = "open",
        *,
        is_disabled: bool = False,
    ) -> None:
        self.is_disabled = is_disabled
        self.is_closed = False
        self.binding = LoopBinding()
        self.outages = OutageLog(policy)
        self._events = events
        self._target = parse_target(target, redis)
        self._sentinels: Sentinels | None = None
        self._embedded: EmbeddedServer | None = None
        self.scripts = ScriptMemory()
        self._reconnections = Reconnections()
        self.transport = self._make_transport(limits)
        parts = (self._sentinels, self.transport, self._embedded)
        self._unclosed = weakref.finalize(self, _close_behind, self.binding, repr(self), *parts)
        self._unclosed.atexit = False
        if is_disabled:
            self._unclosed.detach()

    def _make_transport(
        self, limits: Limits
    ) -> "Transport | ClusterTransport | DisabledTransport":
        """Not connected yet; the embedded server's address is not even known yet."""
        target = self._target
        # Weakly: connections and threads refer to the transport, and must not keep its users.
        facts = (_weak(self._outage_began), _weak(self._recovered))
        if self.is_disabled:
            from .disabled import DisabledTransport

            _log.warning(_DISABLED, repr(target))
            return DisabledTransport()
        if isinstance(target, Cluster):
            # Imported here: most users never need it, and it costs their start-up time.
            from .cluster import ClusterTransport

            return ClusterTransport(target, limits, *facts)
        if isinstance(target, SentinelService):
            from .sentinel import Sentinels

            self._sentinels = watched = Sentinels(target, _weak(self._switched))
            watched.transport = Transport(watched.address, limits, *facts)
            return watched.transport
        address = target if isinstance(target, Address) else None
        transport = Transport(address, limits, *facts)
        if isinstance(target, Embedded):
            from .embedded import EmbeddedServer

            self._embedded = EmbeddedServer(target, transport)
        return transport

    # ---- asking

    @property
    def is_cluster(self) -> bool:
        """Return whether keys of two slots cannot be in one request."""
        return isinstance(self._target, Cluster)

    def nodes(self, now: float) -> dict[str, Any]:
        """Return a transport for each master, by its address; a single server has an empty one."""
        from .cluster import ClusterTransport

        if isinstance(self.transport, ClusterTransport):
            return self.transport.masters(now)
        return {"": self.transport}

    def enter(self) -> None:
        """Let a caller in.

        Raises UsageError if the client was closed, or belongs to another event loop.
        """
        if self.is_closed:
            raise UsageError(CLOSED)
        self.binding.enter()

    def opened(self) -> tuple[float, Engine]:
        """The time, once a connection is open, and what the store can do. Outage: there is none.

        The embedded server is started first, at its own pace: that is not an outage.
        """
        self.enter()
        if self._embedded is not None and not self._embedded.is_started:
            self._embedded.start()
        engine = self.transport.ready(monotonic())
        return monotonic(), engine

    def ask(self, request: Request, now: float) -> Any:
        """Return the reply, or a list of them. Raises Outage if none.

        Raises UsageError if the server refused it.
        """
        request = self.prepared(request, now)
        return self.check_reply(request, self.transport.send(request, now), now)

    def ask_all(self, requests: list[Request], now: float) -> list[Any]:
        """Return the replies to many requests, in one write; a list for each that has several.

        An Outage or UsageError among them is that of one request; an Outage that is raised, of all.
        """
        if self.scripts.send_whole(self.transport.engine, now):
            requests = _with_scripts_each(requests)
        replies = self._given_scripts(
            requests, self.transport.send_all(requests, now), now
        )
        for place, reply in enumerate(replies):
            if deciding_error(reply) is not None:
                replies[place] = self._check_quietly(requests[place], reply, now)
        return replies

    def prepared(self, request: Request, now: float) -> Request:
        """Return *request*, in the form that the server takes: with whole scripts, if need be."""
        return (
            with_scripts(request)
            if self.scripts.send_whole(self.transport.engine, now)
            else request
        )

    # ---- replies

    def read(self, read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what *read* makes of a reply: the one place where a verb reads any.

        Outage: it cannot be read. What else is under way on that connection is asked on another.
        """
        try:
            return read(*args, **kwargs)
        except Exception as error:
            failure = protocol_error(error)
        if isinstance(failure, Outage) and failure.cause.code == "protocol":
            self._react("reconnect")
        raise failure

    def _given_scripts(
        self, requests: list[Request], replies: list[Any], now: float
    ) -> list[Any]:
        """Return *replies*, where the server lacked scripts those after it was given them.

        Each script is sent once; a server that still lacks it, as another node of a cluster, gets
        it with every request.
        """
        for give in (with_scripts_once, _with_scripts_each):
            lacking = self._lacking_scripts(requests, replies, now)
            if not lacking:
                break
            is_refused = self.scripts.send_whole(self.transport.engine, now)
            originals = [requests[place] for place in lacking]
            retries = (_with_scripts_each if is_refused else give)(originals)
            answers = self.transport.send_all(retries, now)
            for place, reply in zip(lacking, answers, strict=True):
                replies[place] = reply
                self.scripts.gave(requests[place], monotonic())
        return replies

    def _lacking_scripts(
        self, requests: list[Request], replies: list[Any], now: float
    ) -> list[int]:
        """Return the places of requests whose script the server does not know."""
        return [
            place
            for place, reply in enumerate(replies)
            if (error := deciding_error(reply)) and self.scripts.lacks(requests[place], error, now)
        ]

    def _check_quietly(self, request: Request, reply: Any, now: float) -> Any:
        try:
            return self.check_reply(request, reply, now)
        except (Outage, UsageError) as error:
            return error

    def check_reply(self, request: Request, reply: Any, now: float) -> Any:
        """Return *reply*, if it is no error.

        Else what the server says after it was given our scripts.
        """
        error = deciding_error(reply)
        if error is not None and self.scripts.lacks(request, error, now):
            reply = self.transport.send(with_scripts(request), now)
            self.scripts.gave(request, monotonic())
            error = deciding_error(reply)
        if error is not None and (script := by_script(request, error)) is not None:
            reply = self.transport.send(script, now)
            error = deciding_error(reply)
        if error is None:
            return reply
        code = store_is_out(error)
        if code == "oom" and isinstance(request, SetExpiry):
            script = request.by_script(self.transport.engine)
            if script is not None:
                return self.ask(script, now)
        if code is None:
            raise mistake(error)
        self.transport.deliver_later(request)
        reaction = reaction_to(code)
        if reaction is not None:
            self._react(reaction)
        raise Outage(str(error), sent=True, code=code)

    def _react(self, reaction: Reaction) -> None:
        """The server may not be the master, or not for long: find out, but not all the time."""
        now = monotonic()
        if not self._reconnections.may_look(now):
            return
        if reaction == "ask" and self._sentinels is not None:
            self._sentinels.suspect()
        elif self._reconnections.may_reconnect(now, self.transport.opened_at):
            self.transport.reconnect()

    # ---- outages

    def outage(self, name: str, cause: str, policy: OutagePolicy) -> None:
        """An outage touched a call. Unavailable: the policy is "closed"; else it goes on.

        UsageError: it is none, because this client was closed meanwhile.
        """
        if self.is_closed:
            raise UsageError(CLOSED) from None
        is_closed = policy == "closed"
        self._events.emit("outage", name, cause=cause, guarded=True if is_closed else None)
        if not self.is_disabled:
            self.outages.touched(cause, monotonic(), is_unguarded=not is_closed)
        if is_closed:
            raise Unavailable(cause, name) from None

    def _outage_began(self, cause: Cause) -> None:
        if self.is_closed:
            return  # no caller is affected
        self.outages.began(cause, monotonic())

    def _recovered(self, cause: Cause, lasted: float) -> None:
        self.outages.ended(monotonic())
        self._events.emit("recovered", "*", cause=cause, lasted=lasted)

    @property
    def recoveries(self) -> int:
        """A number that is another one after an outage has ended."""
        return sum([breaker.recoveries for breaker in self.transport.breakers])

    def _switched(self, cause: str) -> None:
        self._events.emit("switched", "*", cause=cause_for(cause))

    # ---- beginning and end

    def open(self) -> None:
        """In a forked child: its outages and its event loop are its own."""
        self.binding.open()
        self.outages.open()

    def close(self) -> None:
        """Deliver what is on its way, and close."""
        self._unclosed.detach()
        if self._sentinels is not None:
            self._sentinels.close()
        self.transport.close()

    def leave(self) -> None:
        """Leave the embedded server, if there is one; it ends with its last user."""
        if self._embedded is not None:
            self._embedded.close()

    def __repr__(self) -> str:
        return repr(self._target)


def _weak(method: Callable[..., None]) -> Callable[..., None]:
    """Calls *method* as long as its object is there."""
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> None:
        found = reference()
        if found is not None:
            found(*args)

    return call


def _close_behind(
    binding: LoopBinding,
    name: str,
    sentinels: "Sentinels | None",
    transport: Any,
    embedded: "EmbeddedServer | None",
) -> None:
    """End the connections, tasks and threads of a client that was dropped."""

    def close() -> None:
        if sentinels is not None:
            sentinels.close()
        transport.close()
        if embedded is not None:
            embedded.close()

    is_used = transport.engine is not None or any(each.is_open for each in transport.breakers)
    if is_used and not sys.is_finalizing() and binding.start_behind(close):
        message = f"unclosed Dibs at {name}: nothing refers to it any more, so it is closed"
        warnings.warn(message, ResourceWarning, stacklevel=2)


def _with_scripts_each(requests: list[Request]) -> list[Request]:
    return [with_scripts(request) for request in requests]
