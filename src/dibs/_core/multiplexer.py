"""The state machine of the asyncio connection: the requests of many tasks on one connection.

`Multiplexer` has the connections to one server; the requests on one of them are its `Channel` (see
`_core/request.py`). See `_core/connection.py` for the rules that threads share.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..errors import Cause
from .connection import (
    MOST_CLOSED,
    MOST_LOSSES,
    Circuit,
    Next,
    Outage,
    TimeLimit,
    allowance,
    is_elsewhere,
    worth_repeating,
)
from .request import (
    Channel,
    ClientInfo,
    Pending,
    Request,
    can_end,
    fail,
    is_wanted,
    kill_request,
    repeated,
)


class Redelivery:
    """Waits for a request that has no caller, and has it sent again if need be."""

    __slots__ = ("_request", "_send_again", "_send_on")

    def __init__(
        self,
        send_again: Callable[[Request], None],
        send_on: Callable[[Request], None] | None,
        request: Request,
    ) -> None:
        self._send_again = send_again
        self._send_on = send_on
        """Sends it to another node, in a cluster."""
        self._request = request

    def done(self) -> bool:
        """Return False if it must be delivered."""
        return False

    def set_result(self, result: Any, /) -> None:
        """The server answered."""
        repeat = worth_repeating(self._request, result)
        if repeat is not None:
            self._send_again(repeat)
        elif self._send_on is not None and is_elsewhere(result):
            self._send_on(self._request)

    def set_exception(self, exception: Exception, /) -> None:
        """Do nothing: what must be delivered is in the outbox."""


class _Ending:
    """Waits until the server has ended connections that were left. It is not sent again itself."""

    __slots__ = ("_clients", "_ended")

    def __init__(
        self, ended: Callable[[list[ClientInfo], list[Any]], None], clients: list[ClientInfo]
    ) -> None:
        self._ended = ended
        self._clients = clients

    def done(self) -> bool:
        """Return False if the reply is wanted."""
        return False

    def set_result(self, result: Any, /) -> None:
        """The server answered."""
        self._ended(self._clients, result if len(self._clients) > 1 else [result])

    def set_exception(self, exception: Exception, /) -> None:
        """Do nothing: the next connection asks again."""


C = TypeVar("C", bound=Channel)


class Multiplexer(Circuit, Generic[C]):
    """One server, one current connection for all tasks, and the requests that wait for one."""

    def __init__(self, budget: float) -> None:
        super().__init__()
        self.current: C | None = None
        """The connection on which requests are written; None: there is none."""
        self.superseded: set[C] = set()
        """Connections that the server cannot be asked to end, and whose requests were repeated
        elsewhere. They may still deliver them."""
        self.backlog: list[Pending] = []
        """Requests that wait for a connection."""
        self._silence = TimeLimit(budget)
        """How long nothing has come, although something is unanswered."""
        self._seen: Pending | None = None
        """The oldest written request at the last look."""
        self._end = self._delivered = 0
        """How many bytes the server must have got to know that request; how many it had got."""
        self._silent_on: list[Request] = []
        """What was repeated first because a connection was silent, and what stands before it."""
        self._was_sent = False
        """True: the backlog holds requests that were on a connection that broke."""
        self._broke_on: Request | None = None
        """The oldest request on the connection that broke last."""
        self._failures = 0
        """How many connections in a row could not be opened."""
        self._losses = 0
        """How many connections in a row broke with that request as the oldest one."""

    @property
    def look_every(self) -> float:
        """Seconds between two calls of `look`."""
        return self._silence.slice

    @property
    def wants_connection(self) -> bool:
        """Return True if there is none, or the current one has been silent for half a budget."""
        return self.current is None or self._silence.is_half_over()

    def started(self) -> None:
        """The first look is due in `look_every` seconds."""
        self._watch_silence(self.current)

    def look(self, elapsed: float, delivered: int) -> Next | None:
        """Is the server silent? None: nothing is unanswered, look again after the next request.

        *elapsed*: seconds since the last look. *delivered*: bytes that have left this machine.
        """
        channel = self.current
        if channel is None or not channel.queue:
            self._seen = None
            return None
        if channel.has_received:
            self._silent_on = []
        if self._has_progressed(channel, delivered):
            self._watch_silence(channel)
            return Next.NOTHING
        if self._silence.count(elapsed):
            return Next.TRIP
        if not self._silence.is_half_over():
            return Next.NOTHING
        # The second connection gets the other half of the budget, also if it opens at once.
        is_second = channel.queue[0][1] in self._silent_on
        return Next.TRIP if is_second else Next.OPEN

    def _has_progressed(self, channel: C, delivered: int) -> bool:
        """True: bytes arrived, another request is the oldest now, or it is still being sent."""
        head, has_received = channel.head, channel.has_received
        channel.has_received = False
        before, self._delivered = self._delivered, delivered
        is_sending = before < self._end and before < delivered
        return has_received or head is None or head is not self._seen or is_sending

    def _watch_silence(self, channel: C | None) -> None:
        """Count the silence from now on."""
        head = None if channel is None else channel.head
        self._silence.reset(0.0 if head is None else allowance(len(head[1].payload)))
        if channel is not None and head is not self._seen:
            self._end = channel.written
        self._seen = head

    def opened(self) -> Next:
        """A connection is open."""
        return Next.USE if self.wants_connection else Next.CLOSE

    def use(self, channel: C, now: float) -> list[Pending]:
        """*channel* is current from now on. What must be written to it, in this order.

        First of all the server ends the connections that were left; from now on only *channel*
        answers. Where it cannot be asked to, the old one is `superseded`: it may still answer
        first, and what it answers twice is ignored.
        """
        old, self.current = self.current, channel
        repeats: list[Pending] = []
        if old is not None:
            repeats = self._repeated_from(old, channel, now)
            channel.has_received = False  # that was the handshake
        ending = self._end_abandoned(channel, now)
        if old is not None:
            self._silent_on = [request for _, request in [*ending, *repeats[:1]]]
        from_outbox: list[Pending] = [(None, request) for request in self.outbox.take(now)]
        backlog, self.backlog = self.backlog, []
        self._was_sent = False
        self._failures = 0
        self._silence.reset()
        self._seen = None
        return [*ending, *from_outbox, *repeats, *filter(is_wanted, backlog)]

    def _repeated_from(self, old: C, channel: C, now: float) -> list[Pending]:
        """Return what is still wanted of *old*, in whose place *channel* is."""
        if can_end(old.client, channel.client):
            return self._still_wanted(old, now, is_open=True)
        self.superseded.add(old)
        return [repeated(pending) for pending in old.queue if is_wanted(pending)]

    def _still_wanted(self, channel: C, now: float, *, is_open: bool = False) -> list[Pending]:
        """Return what is still wanted of *channel*, which is used no more; it is sent again."""
        if channel.head is not None:
            self.abandoned.add(channel.client, now, is_open=is_open)
        return [repeated(each) for each in channel.clear() if not isinstance(each[0], _Ending)]

    def _end_abandoned(self, channel: C, now: float) -> list[Pending]:
        """Make what ends connections that were left with requests, before those are sent again."""
        clients = self.abandoned.due_on(channel.client, now)
        if not clients:
            return []

        def ended(clients: list[ClientInfo], replies: list[Any]) -> None:
            self.abandoned.ended(clients, replies)
            if channel is self.current:
                # No sign of life: the repeated request has what is left of the budget.
                channel.has_received = False
                self._seen = channel.head

        return [(_Ending(ended, clients), kill_request(clients))]

    def failed_to_open(self, *, was_closed: bool = False) -> Next:
        """Return a connection could not be opened.

        *was_closed*: the server closed it; try again first.
        """
        self._failures += 1
        if was_closed and self._failures < MOST_CLOSED:
            return Next.NOTHING
        return Next.TRIP if self.current is None and not self.breaker.is_open else Next.NOTHING

    def lost(self, channel: C, error: Exception, now: float) -> Next:
        """A connection broke; what it had not answered is asked again on the next one."""
        if channel is not self.current:
            if channel not in self.superseded:  # it was still being opened
                for pending in channel.clear():
                    fail(pending, error)
            self.superseded.discard(channel)
            return Next.NOTHING
        self.current = None
        unanswered = self._still_wanted(channel, now)
        if not unanswered and not self.backlog:
            return Next.NOTHING
        self.backlog[:0] = unanswered
        self._was_sent = self._was_sent or bool(unanswered)
        return Next.TRIP if unanswered and self._is_last_loss(unanswered[0][1]) else Next.OPEN

    def _is_last_loss(self, oldest: Request) -> bool:
        """True: *oldest* has now lost too many connections, and nothing was answered in between."""
        self._losses = self._losses + 1 if oldest is self._broke_on else 1
        self._broke_on = oldest
        return self._losses >= MOST_LOSSES

    def leave(self, now: float) -> C | None:
        """The server is elsewhere: the connection to close; its requests wait for the next one."""
        channel, self.current = self.current, None
        if channel is not None:
            unanswered = self._still_wanted(channel, now)
            self._was_sent = self._was_sent or bool(unanswered)
            self.backlog[:0] = unanswered
        return channel

    def fail_all(self, now: float, cause: Cause) -> list[C]:
        """The server is out: every waiter gets an `Outage`. The connections to close."""
        channels = [*self.superseded, *([] if self.current is None else [self.current])]
        sent = [pending for channel in channels for pending in self._still_wanted(channel, now)]
        unsent, self.backlog = self.backlog, []
        self.current, self.superseded = None, set()
        for pending in sent:
            fail(pending, Outage(cause, sent=True))
        for pending in unsent:
            fail(pending, Outage(cause, sent=self._was_sent))
        # A request that was repeated is on two connections, and delivered once.
        for request in {id(request): request for _, request in sent + unsent}.values():
            self.outbox.add(request, now)
        self._was_sent = False
        self._broke_on = None
        return channels

    def reject(self, error: Exception) -> None:
        """The settings are wrong: every waiter gets *error*."""
        waiting, self.backlog = self.backlog, []
        for pending in waiting:
            fail(pending, error)
