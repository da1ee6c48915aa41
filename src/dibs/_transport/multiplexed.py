"""The asyncio transport: one connection for all tasks.

What the tasks of one loop tick ask goes out in one write; replies are matched in order. The
state machine (`_core/connection.py`) decides when the server is silent, when requests are
repeated on a second connection and when it is an outage; this module opens, writes, reads and
sets timers.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from .._core.capabilities import NO_OP, Engine, Handshake
from .._core.causes import cause_for
from .._core.connection import PROBE_EVERY, Breaker, Limits, Next, TimeLimit, pause_after
from .._core.multiplexer import Multiplexer, Redelivery
from .._core.request import (
    PARSER_ERRORS,
    Channel,
    Pending,
    ProtocolError,
    Reply,
    Request,
    apart,
    is_wanted,
    reply_parser,
    together,
)
from .._core.tracking import (
    Tracked,
    Watching,
    read_tracked,
    read_watch,
    tracked,
    untracked,
    watch_request,
)
from .._locks import Guard
from .._system import monotonic
from ..errors import Cause, DibsError, UsageError
from . import redis_internals
from .base import BaseTransport, Wake, Watchers, is_readable, unsent_bytes
from .concurrency import check_loop, no_loop_error, start_task
from .connection_errors import cause_of, settings_error
from .handshake import open_async
from .targets import Address

# ---- one connection

OnPush = Callable[[list[Reply]], None]
OnLost = Callable[["AsyncConnection", BaseException], None]

_READ = 65536
"""How many bytes are read at once."""


class AsyncConnection(Channel, asyncio.BufferedProtocol):
    """Requests out in order, replies back in order, pushes apart from them.

    A request on an idle connection is written at once, so that one task alone pays no extra tick.
    Where several tasks are busy, what they ask in one tick goes out together.
    """

    def __init__(self, connection: Any, on_push: OnPush, on_lost: OnLost) -> None:
        """*on_push*: called when the server reports changed keys. *on_lost*: when it is closed."""
        super().__init__()
        self.engine: Engine | None = None
        self.pushes = int(connection.protocol) >= 3
        self.is_tracking = False
        """True: the server was asked to report changes on this connection."""
        self._on_push = on_push
        self._on_lost = on_lost
        loop = asyncio.get_running_loop()
        self._call_soon = loop.call_soon
        self._gone: asyncio.Future[None] = loop.create_future()
        self._connection = connection
        self._parser = reply_parser()
        self._asyncio_transport, early = redis_internals.transport_of(connection)
        # One buffer for ever: asyncio's own would take and give back 256 KiB for every read.
        # A view of it, because the TLS layer writes into slices, and a slice of a bytearray is
        # a copy.
        self._buffer = memoryview(bytearray(_READ))
        self._may_write = True
        self._asyncio_transport.set_protocol(self)
        if early:
            self._feed_parser(early, len(early))

    async def ask_engine(self, *, plain: bool = False, ending: bool = False) -> Engine:
        """Ask what it can do. UsageError: it cannot be worked with. EOFError: it was closed."""
        handshake = Handshake(plain=plain, pushes=self.pushes, ending=ending)
        while self.engine is None:
            reply: asyncio.Future[Any] = self._gone.get_loop().create_future()
            self.send((reply, handshake.request))
            try:
                replies = await reply
            except (EOFError, ConnectionError) as error:
                raise handshake.closed() or error from None
            self.engine = handshake.received(replies if handshake.is_list else [replies])
        self.client = handshake.client
        return self.engine

    # ---- writing

    def send(self, pending: Pending) -> None:
        """Put a request on the wire."""
        queue, unsent, payload = self.queue, self.unsent, pending[1].payload
        if unsent:
            unsent.append(payload)
        elif queue or self.is_shared or not self._may_write:
            unsent.append(payload)
            self._call_soon(self._flush_unsent)
        else:
            self.written += len(payload)
            self._asyncio_transport.write(payload)
        queue.append(pending)

    def _flush_unsent(self) -> None:
        if self._may_write and self.unsent:
            data = b"".join(self.unsent)
            self.unsent.clear()
            self.written += len(data)
            self._asyncio_transport.write(data)

    @property
    def delivered(self) -> int:
        """Return how many bytes the server's machine has received, as far as this one knows."""
        transport = self._asyncio_transport
        buffered = transport.get_write_buffer_size()
        return self.written - buffered - unsent_bytes(transport.get_extra_info("socket"))

    @property
    def has_unread(self) -> bool:
        """Return whether there is something to read, or it is broken."""
        sock = self._asyncio_transport.get_extra_info("socket")
        return sock is not None and is_readable(sock)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._flush_unsent()

    # ---- reading

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._feed_parser(self._buffer, nbytes)

    def _feed_parser(self, data: bytes | memoryview, size: int) -> None:
        try:
            self._parser.feed(data, 0, size)
            self.receive(self._parser.gets, self._on_push)
        except (ConnectionError, IndexError, *PARSER_ERRORS) as error:
            # Bytes that are no reply, or a reply to nothing: it cannot be trusted any more.
            self.abort()
            self._on_lost(self, ProtocolError(str(error)))

    # ---- the end

    def connection_lost(self, exc: Exception | None) -> None:
        redis_internals.disown(self._connection)
        if not self._gone.done():
            self._gone.set_result(None)
        self._on_lost(self, exc or EOFError())

    @property
    def is_closing(self) -> bool:
        """True: it was closed, here or by the server; what is written to it reaches nobody."""
        return self._asyncio_transport.is_closing()

    def close(self) -> None:
        """Write what is not yet written, then close."""
        self._may_write = True
        self._flush_unsent()
        self._asyncio_transport.close()
        redis_internals.disown(self._connection)

    async def wait_closed(self, seconds: float) -> None:
        """Close, and wait until it is (TLS is shut down first), but not longer than *seconds*."""
        self.close()
        await asyncio.wait([self._gone], timeout=seconds)
        self.abort()

    def shut_down(self) -> None:
        """Its loop is closed: end the conversation, so that the server need not keep it."""
        with contextlib.suppress(OSError, AttributeError, TypeError):
            self._asyncio_transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """Close at once."""
        self._asyncio_transport.abort()
        redis_internals.disown(self._connection)


# ---- opening one

_MAX_ATTEMPTS = 4
"""Attempts at the same time."""


class AsyncOpening:
    """One attempt after the other; each may take *limit* seconds.

    While the server is known to be out, an attempt that hangs does not delay the next one: on a
    network that loses packets the newest attempt is often the first to succeed.
    """

    def __init__(
        self,
        open: Callable[[], Coroutine[Any, Any, AsyncConnection]],
        limit: float,
        *,
        is_needed: Callable[[], bool],
        is_out: Callable[[], bool],
    ) -> None:
        self._open = open
        self._limit = limit
        self._is_needed = is_needed
        self._is_out = is_out
        self._attempts: dict[asyncio.Task[AsyncConnection], TimeLimit] = {}
        self._ending: set[asyncio.Task[AsyncConnection]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        use: Callable[[AsyncConnection], None],
        failed: Callable[[BaseException], bool],
        restart_server: Callable[[], Awaitable[None]],
    ) -> None:
        """Start, unless it runs. If *failed* returns False, there is no other attempt."""
        if self._task is None:
            self._task = start_task(self._keep_trying(use, failed, restart_server), "dibs connect")

    async def stop(self) -> None:
        """Cancel all attempts, and wait until they have ended."""
        tasks = [*self._attempts, *self._ending, *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _keep_trying(
        self,
        use: Callable[[AsyncConnection], None],
        failed: Callable[[BaseException], bool],
        restart_server: Callable[[], Awaitable[None]],
    ) -> None:
        begin_at = 0.0
        failures = 0
        try:
            while self._is_needed():
                now = monotonic()
                if not self._attempts or (now >= begin_at and self._is_out()):
                    self._begin_attempt()
                    begin_at = now + self._limit / _MAX_ATTEMPTS
                error = await self._wait_for_one(use)
                if error is not None:
                    if not failed(error):
                        return
                    failures += 1
                    await asyncio.sleep(self._pause_after(failures))
                    await restart_server()
        finally:
            self._task = None
            for attempt in self._attempts:
                self._cancel_attempt(attempt)
            self._attempts = {}

    def _pause_after(self, failures: int) -> float:
        """Short while callers wait: it is not known yet whether the server is out."""
        return PROBE_EVERY if self._is_out() else min(pause_after(failures), PROBE_EVERY)

    def _begin_attempt(self) -> None:
        if len(self._attempts) < _MAX_ATTEMPTS:
            attempt = start_task(self._open(), "dibs open")
            self._attempts[attempt] = TimeLimit(self._limit)

    async def _wait_for_one(self, use: Callable[[AsyncConnection], None]) -> BaseException | None:
        """Wait for a slice. Returns why an attempt failed; None: none has, or one succeeded."""
        attempts = self._attempts
        since, a_slice = monotonic(), next(iter(attempts.values())).slice
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(attempts, timeout=a_slice, return_when=first)
        elapsed = monotonic() - since
        failure: BaseException | None = None
        for attempt in [each for each in attempts if each in done or attempts[each].count(elapsed)]:
            del attempts[attempt]
            if not attempt.done():
                self._cancel_attempt(attempt)
                failure = TimeoutError()
            elif (failure := _error_of(attempt)) is None:
                use(attempt.result())
        return failure

    def _cancel_attempt(self, attempt: "asyncio.Task[AsyncConnection]") -> None:
        if attempt.get_loop().is_closed():
            return  # both are being collected
        attempt.cancel()
        self._ending.add(attempt)
        attempt.add_done_callback(self._attempt_ended)

    def _attempt_ended(self, attempt: "asyncio.Task[AsyncConnection]") -> None:
        self._ending.discard(attempt)
        if _error_of(attempt) is None:  # it succeeded before it was cancelled
            attempt.result().close()


def _error_of(attempt: "asyncio.Task[AsyncConnection]") -> BaseException | None:
    if attempt.cancelled():
        return TimeoutError()
    error = attempt.exception()
    # The server may have closed it since, and `lost` was called before anybody used it.
    return EOFError() if error is None and attempt.result().is_closing else error


# ---- the transport

_NOTHING = Request(b"", 0, b"")
_PING_EVERY = 1.0
"""Seconds between two signs of life on a connection that only waits for pushes."""


class MultiplexedTransport(BaseTransport):
    """One connection for all tasks of an event loop, and a second one while the first is silent."""

    def __init__(
        self,
        address: Address | None,
        limits: Limits,
        on_outage: Callable[[Cause], None],
        on_recovered: Callable[[Cause, float], None],
    ) -> None:
        self._binding = Guard()
        super().__init__(address, limits, on_outage, on_recovered)

    def _begin_unconnected(self) -> None:
        """Nothing is connected: at construction, in a new event loop, in a forked child."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._machine = machine = Multiplexer[AsyncConnection](self._limits.budget)
        self._watchers = Watchers()
        self._opening = AsyncOpening(
            self._open,
            self._limits.connect,
            is_needed=lambda: machine.wants_connection and not self._closed,
            is_out=lambda: machine.breaker.is_open,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._pinger: asyncio.TimerHandle | None = None
        self._redelivery: asyncio.TimerHandle | None = None

    @property
    def breakers(self) -> list[Breaker]:
        """The circuit breaker of the server."""
        return [self._machine.breaker]

    @property
    def may_arrive_late(self) -> bool:
        """Return True if a request was repeated, and one of its copies may still be executed."""
        return bool(self._machine.superseded)

    # ---- asking

    def send(self, request: Request, now: float) -> "asyncio.Future[Any]":
        """The reply (a list, if there are several). Outage: the server is out, or silent."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise no_loop_error() from None
        if loop is not self._loop or self._closing:
            self._bind_to_loop(loop)
        machine = self._machine
        if machine.breaker.opened_at is not None:
            self._connect()  # unless it does so already: its task may have been cancelled
            raise machine.refuse(request, now)
        future: asyncio.Future[Any] = loop.create_future()
        connection = machine.current
        if connection is None:
            machine.backlog.append((future, request))
            self._connect()
            return future
        connection.send((future, request))
        if machine.superseded and request.until:
            # After the reply: executed there first, it would say here that nothing was released.
            future.add_done_callback(lambda _: self._copy_to_superseded(request))
        if self._timer is None:
            self._start_looking()
        return future

    async def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """Return the replies to many requests, in one write; a list for each that has several."""
        if len(requests) == 1:
            return [await self.send(requests[0], now)]
        return apart(requests, await self.send(together(requests), now))

    async def ready(self, now: float) -> Engine:
        """Say what it can do; connects if need be. Outage, UsageError: it cannot be reached."""
        while self.engine is None:
            await self.send(_NOTHING, now)
        return self.engine

    def post(self, request: Request) -> None:
        """Deliver *request* though nobody waits for it: now, or when the server is back."""
        machine = self._machine
        loop = self._loop
        if machine.current is not None and not self._closed and loop and not loop.is_closed():
            self._write_pending(machine.current, self._sent_again((None, request)))
            self._copy_to_superseded(request)
            return
        machine.outbox.add(request, monotonic())
        if not machine.breaker.is_open and not self._closing:
            with contextlib.suppress(RuntimeError):  # no loop runs: delivered with the next use
                self._bind_if_new(asyncio.get_running_loop())
                self._connect()

    def deliver_later(self, request: Request) -> None:
        """Deliver *request*, which was not served: a little later, or with the next connection."""
        self._machine.outbox.add(request, monotonic())
        is_due = self._machine.outbox and self._machine.current is not None
        # One timer for all of them: with one for each, they would be sent without a pause.
        if is_due and self._redelivery is None and self._loop is not None:
            self._redelivery = self._loop.call_later(PROBE_EVERY, self._deliver_outbox)

    def _deliver_outbox(self) -> None:
        self._redelivery = None
        connection = self._machine.current
        if connection is None and self._machine.outbox:
            self._connect()  # it broke meanwhile, and nobody else may use this server again
        elif connection is not None and not self._closed:
            for request in self._machine.outbox.take(monotonic()):
                self._write_pending(connection, self._sent_again((None, request)))

    def _sent_again(self, pending: Pending) -> Pending:
        """*pending*, sent again if the server does not serve it, also where nobody waits for it."""
        waiter, request = pending
        if waiter is not None and not (request.until and waiter.done()):
            return pending
        return Redelivery(self.deliver_later, self.send_on, request), request

    def _write_pending(self, connection: AsyncConnection, pending: Pending) -> None:
        """Send, if it is still wanted. A request without replies only waits for a connection."""
        waiter, request = pending
        if request.replies and is_wanted(pending):
            connection.send(pending)
            if self._timer is None:
                self._start_looking()
        elif waiter is not None and not waiter.done():
            waiter.set_result([])

    def _copy_to_superseded(self, request: Request) -> None:
        """Send a release also where its acquire was sent first: it may still be executed there."""
        for connection in self._machine.superseded:
            connection.send((None, request))

    # ---- changes of keys

    async def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Have *wake* called when *key* changes, until `unwatch`. Outage: ask again later."""
        return read_watch(await self.track(watch_request(key), wake, now))

    async def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """Return the replies to *request*; *wake* is called when its key changes afterwards."""
        return (await self.track_all([(request, wake)], now))[0]

    async def track_all(self, asked: list[tuple[Request, Wake]], now: float) -> list[Tracked]:
        """Return the same for many requests, in one write."""
        requests = self._watchers.add_all(asked)
        if self._machine.current is None:
            await self.send(_NOTHING, now)
        connection = self._machine.current
        if connection is None or connection.engine is None or not connection.engine.tracking:
            return list(map(untracked, await self.send_all(requests, now), requests))
        first, connection.is_tracking = not connection.is_tracking, True
        replies = await self.send(tracked(requests, first=first), now)
        self._keep_pinging()
        return read_tracked(replies, requests, pushes=True)

    def is_behind(self, now: float) -> bool:
        """Return whether the server may have reported changes of keys that were not read yet."""
        connection = self._machine.current
        return connection is not None and connection.has_unread

    def _pushed(self, push: list[Reply]) -> None:
        self._watchers.pushed(push)

    def _keep_pinging(self) -> None:
        """A connection that breaks without notice would bring no pushes, and nobody would know."""
        if self._pinger is None and self._loop is not None:
            self._pinger = self._loop.call_later(_PING_EVERY, self._send_ping)

    def _send_ping(self) -> None:
        self._pinger = None
        connection = self._machine.current
        if connection is not None and self._watchers and not self._closing:
            if not connection.queue:
                connection.send((None, NO_OP))
                if self._timer is None:
                    self._start_looking()
            self._keep_pinging()

    # ---- silence and loss

    def _start_looking(self) -> None:
        assert self._loop is not None
        self._machine.started()
        self._looked_at = monotonic()
        self._timer = self._loop.call_later(self._machine.look_every, self._look_for_silence)

    def _look_for_silence(self) -> None:
        """Is the server silent? Runs while anything is unanswered."""
        assert self._loop is not None
        now = monotonic()
        elapsed, self._looked_at = now - self._looked_at, now
        connection = self._machine.current
        delivered = 0 if connection is None else connection.delivered
        found = self._machine.look(elapsed, delivered)
        self._timer = None
        if found is None:
            return
        self._timer = self._loop.call_later(self._machine.look_every, self._look_for_silence)
        self._do(found, self._silence_cause())

    def _connection_lost(self, connection: AsyncConnection, error: BaseException) -> None:
        """A connection broke: what it had not answered is asked again on the next one."""
        if connection is self._machine.current:
            self._watchers.wake_all()
        fault = error if isinstance(error, Exception) else ConnectionError()
        self._do(self._machine.lost(connection, fault, monotonic()), cause_of(error))

    def reconnect(self) -> None:
        """The server answers, but is not the one we want: connect anew, it may be elsewhere now."""
        connection = self._machine.leave(monotonic())
        if connection is not None:
            connection.close()
            self._watchers.wake_all()
            if self._machine.backlog:
                self._connect()

    def _do(self, found: Next, cause: Cause) -> None:
        if found is Next.TRIP:
            self._trip_breaker(cause)
        elif found is Next.OPEN:
            self._connect()

    def _trip_breaker(self, cause: Cause) -> None:
        """The server is out: everybody who waits gets an answer, and it is tried again."""
        now = monotonic()
        if self._machine.trip(now, cause):
            self._on_outage(cause)
        for connection in self._machine.fail_all(now, cause):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watchers.wake_all()
        self._connect()

    # ---- opening

    def _connect(self) -> None:
        if not self._closed:
            self._opening.start(self._opened, self._failed_to_open, self._restart_server)

    def _failed_to_open(self, error: BaseException) -> bool:
        """Return a connection could not be opened. True: try again, because one is still needed."""
        if self._is_mistake(error):
            return False
        cause = cause_of(error)
        if self._machine.failed_to_open(was_closed=cause.code == "disconnected") is Next.TRIP:
            self._trip_breaker(cause)
        return self._machine.wants_connection

    async def _restart_server(self) -> None:
        """Have the server started again, where it is ours to start."""
        if self.restart_server is not None and self._machine.breaker.is_open:
            with contextlib.suppress(DibsError, OSError):
                await asyncio.to_thread(self.restart_server)

    def _is_mistake(self, error: BaseException) -> bool:
        """A mistake in the settings is a UsageError, unless these settings have worked before."""
        mistake = settings_error(error)
        if mistake is None or self.engine is not None or self._machine.breaker.is_open:
            return False
        self._machine.reject(UsageError(str(mistake)))
        return True

    async def _open(self) -> AsyncConnection:
        """Return a new connection that has answered what its server can do."""
        assert self._address is not None

        def make(connection: Any) -> AsyncConnection:
            return AsyncConnection(connection, self._pushed, self._connection_lost)

        return await open_async(self._address, self._negotiation, self._limits, make)

    def _opened(self, connection: AsyncConnection) -> None:
        """Use the new connection, if one is still needed."""
        assert self._loop is not None
        machine = self._machine
        if self._closed or machine.opened() is Next.CLOSE:
            connection.close()
            return
        self.opened_at = now = monotonic()
        old = machine.current
        self.engine = connection.engine
        connection.is_shared = True  # all of it in one write
        connection.sent_again = self._sent_again
        for pending in machine.use(connection, now):
            self._write_pending(connection, self._sent_again(pending))
        if old in machine.superseded:
            # The server cannot be asked to end it: it may still answer first, or deliver.
            self._loop.call_later(max(4 * self._limits.budget, 1.0), old.abort)
        elif old is not None:
            old.abort()
        if old is not None:
            self._watchers.wake_all()
        if (lasted := machine.breaker.close(now)) is not None:
            self._on_recovered(machine.breaker.cause, lasted)

    # ---- beginning and end

    def _bind_to_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """The first use in this loop. An earlier loop must be closed."""
        if self._closing:
            raise UsageError("this AsyncDibs is closed")
        self._bind_if_new(loop)

    def _bind_if_new(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._binding:  # two threads may come from a closed loop at the same time
            check_loop(self._loop, loop)
            if self._loop is not None and self._loop is not loop:
                self._leave_closed_loop()
            self._loop = loop

    def _leave_closed_loop(self) -> None:
        """The connections ended with their loop. What must be delivered still is, in the next."""
        before = self._machine
        for connection in before.fail_all(monotonic(), cause_for("closed")):
            connection.shut_down()
        self._begin_unconnected()
        self._machine.outbox = before.outbox
        self._machine.abandoned = before.abandoned
        # Whether the server is still out is not known here; that it was out is.
        self._machine.breaker = before.breaker
        before.breaker.half_open()

    async def aclose(self) -> None:
        """Deliver what is on its way, within the budget; then close."""
        if self._closing:
            return
        self._closing = True
        if self._loop is None or self._loop.is_closed():
            return  # never used, or its connections ended with their loop
        await self._wait_for_answers()
        self._closed = True
        for timer in (self._timer, self._pinger, self._redelivery):
            if timer is not None:
                timer.cancel()
        await self._opening.stop()
        connections = self._machine.fail_all(monotonic(), cause_for("closed"))
        for connection in connections:
            await connection.wait_closed(self._limits.budget)
        self._watchers.wake_all()
        # One tick, so that the transports are closed when we return.
        await asyncio.sleep(0)

    async def _wait_for_answers(self) -> None:
        """Until all that was asked before is answered, on this connection or the next."""
        assert self._loop is not None
        machine = self._machine
        waiting = machine.backlog if machine.current is None else machine.current.queue
        if not any(is_wanted(pending) for pending in waiting):
            return
        last: asyncio.Future[Any] = self._loop.create_future()
        if machine.current is not None:
            machine.current.send((last, NO_OP))
        else:
            machine.backlog.append((last, NO_OP))
        await asyncio.wait([last], timeout=self._limits.budget)
        if last.done():
            last.exception()  # seen: an outage is no news to somebody who leaves
        last.cancel()

    def open(self) -> None:
        """In a forked child: begin anew. Closing would reach into the parent's event loop."""
        timers = (self._timer, self._pinger, self._redelivery)
        _inherited.append((self._machine, self._opening, timers))
        self._binding = Guard()
        self._begin_unconnected()
        self.engine = None


_inherited: list[object] = []
"""Kept for ever, so that nothing of a parent's event loop is finalised in its child."""
