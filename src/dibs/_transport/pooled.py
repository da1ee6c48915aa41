"""The threads transport: a few connections, one thread at a time on each.

A request goes to an idle connection. If nothing comes for half a budget, or the connection
breaks, it is sent again on another one, on which the server is first asked to end the old one (see
`_core/request.py`). The state machine (`_core/connection.py`) decides; this module reads, writes
and keeps threads waiting.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .._core.capabilities import NO_OP, Engine
from .._core.causes import cause_for
from .._core.connection import (
    PROBE_EVERY,
    Attempt,
    Breaker,
    Circuit,
    Next,
    Outage,
    TimeLimit,
    is_elsewhere,
    unserved,
)
from .._core.request import REPEATED, Request, apart, can_end, kill_request, together
from .._core.tracking import Tracked, Watching, read_watch, untracked, watch_request
from .._locks import Guard, Signal, start_thread
from .._system import monotonic
from ..errors import Cause, DibsError, UsageError
from .base import BaseTransport, Wake, Watchers
from .connection_errors import CONNECTION_ERRORS, cause_of, settings_error
from .handshake import open_for_threads
from .pool import MOST_IDLE, Opening, Pool, PoolTimeout, Silent, ThreadConnection
from .subscriber import Subscriber

_MAX_ATTEMPTS = 4
"""Attempts at the same time."""


class Probe:
    """Opens connections until one can be used.

    An attempt that hangs does not delay the next one: on a network that loses packets the newest
    attempt is often the first to succeed.
    """

    def __init__(
        self,
        connect: Callable[[], ThreadConnection],
        recover: Callable[[ThreadConnection], bool],
        restart_server: Callable[[], None],
        is_needed: Callable[[], bool],
        limit: float,
    ) -> None:
        self._connect = connect
        self._recover_with = recover
        self._restart_server = restart_server
        self._is_needed = is_needed
        self._pause = limit / _MAX_ATTEMPTS
        self._changed = Signal()
        self._guard = Guard()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def start(self) -> None:
        """Start, unless it runs. If no thread can be started, the next call tries again."""
        with self._guard:
            if self._thread is not None or self._is_closed:
                return
            with contextlib.suppress(RuntimeError):
                self._thread = start_thread(self._run, "dibs probe")

    def close(self) -> None:
        """End the thread, which is a daemon: if an attempt hangs, it is not waited for."""
        self._is_closed = True
        self._changed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=0.1)

    def _run(self) -> None:
        attempts: list[Opening] = []
        try:
            while not self._is_closed:
                if len(attempts) < _MAX_ATTEMPTS:
                    attempts.append(attempt := Opening(self._connect, self._ended))
                    attempt.start()
                self._changed.wait(self._pause)
                self._changed.clear()
                if self._has_recovered(attempts):
                    return
        finally:
            with self._guard:
                self._thread = None
            for attempt in attempts:
                attempt.cancel()
            # A `start` that was called while this thread was ending has started nothing.
            if self._is_needed():
                self.start()

    def _ended(self, attempt: Opening) -> None:
        self._changed.set()

    def _has_recovered(self, attempts: list[Opening]) -> bool:
        """Return True if the server is back.

        Otherwise remove the attempts that failed, and pause.
        """
        ended = [attempt for attempt in attempts if attempt.wait(0)]
        for attempt in ended:
            attempts.remove(attempt)
            connection = attempt.take()
            if connection is not None and self._is_usable(connection):
                return True
        if ended and not self._is_closed:
            self._changed.wait(PROBE_EVERY)
            self._restart_server()
        return False

    def _is_usable(self, connection: ThreadConnection) -> bool:
        try:
            usable = self._recover_with(connection)
        except Exception:  # whatever it is: this thread has to go on
            usable = False
        if not usable:
            connection.close()
        return usable


_MAX_CONNECTIONS = 16
_KEPT = 5.0
"""Seconds that a connection is kept: what it has not delivered by then is lost."""


class Superseded:
    """The server may execute a request from its first connection after the release of its key.

    So the release is sent on that connection, too.
    """

    def __init__(self) -> None:
        self.connections: OrderedDict[bytes, tuple[ThreadConnection, float]] = OrderedDict()
        self._guard = Guard()

    def keep(self, key: bytes, connection: ThreadConnection) -> None:
        """Keep *connection* until *key* is released. The oldest is closed if there are many."""
        with self._guard:
            before = self._take(key)
            self.connections[key] = (connection, monotonic() + _KEPT)
        if before is not None:
            before.close()
        self._close_expired(at_most=_MAX_CONNECTIONS)

    def follow(self, request: Request) -> None:
        """Send *request*, which releases its key, on the first connection too; then close that."""
        connection = self._take(request.key)
        if connection is not None:
            with contextlib.suppress(*CONNECTION_ERRORS):
                connection.write(request)
            connection.close()
        self._close_expired(at_most=_MAX_CONNECTIONS)

    def _take(self, key: bytes) -> ThreadConnection | None:
        with self._guard:
            return self.connections.pop(key, (None, 0.0))[0]

    def _close_expired(self, at_most: int) -> None:
        now = monotonic()
        while (connection := self._take_oldest(at_most, now)) is not None:
            connection.close()

    def _take_oldest(self, at_most: int, now: float) -> ThreadConnection | None:
        """Return the oldest one, if it is one too many or over; it is not kept any more."""
        with self._guard:
            for key, (_, until) in self.connections.items():
                is_kept = len(self.connections) <= at_most and until > now
                return None if is_kept else self._take(key)
        return None

    def close(self) -> None:
        """Close all connections."""
        self._close_expired(at_most=-1)


class PooledTransport(BaseTransport):
    """A few connections, each used by one thread at a time; replies are read by who asked."""

    def _begin_unconnected(self) -> None:
        """Nothing is connected: at construction, and in a forked child."""
        self.engine = None
        self._circuit = Circuit()
        # These are looked at for every request.
        self._breaker = self._circuit.breaker
        self._abandoned = self._circuit.abandoned.clients
        self._pool = Pool(self._open, self._known_outage)
        self._superseded = Superseded()
        self._following = self._superseded.connections
        self._watchers = Watchers()
        self._subscriber: Subscriber | None = None
        self._subscribing = Guard()
        self._tripping = Guard()
        self._probe = Probe(
            self._open,
            self._recover_with,
            self._restart_server,
            self._is_probe_needed,
            self._limits.connect,
        )

    @property
    def breakers(self) -> list[Breaker]:
        """The circuit breaker of the server."""
        return [self._circuit.breaker]

    @property
    def may_arrive_late(self) -> bool:
        """Return True if a request was repeated, and one of its copies may still be executed."""
        return bool(self._superseded.connections)

    # ---- asking

    def send(self, request: Request, now: float) -> Any:
        """Return the reply (a list, if there are several).

        Raises Outage if the server is out, or silent.
        """
        if self._breaker.opened_at is not None:
            raise self._refusal_of(request)
        pool = self._pool
        idle = pool.idle
        if now > pool.sweep_at:
            pool.sweep(now)
        try:
            connection = idle.pop()
        except IndexError:
            connection = self._take(request)
        try:
            if self._abandoned:
                reply = self._exchange_on(connection, request)
            else:
                reply = connection.exchange(request)
        except CONNECTION_ERRORS as error:
            failure = error
        except BaseException:  # a signal handler raised
            self._abandon_connection(connection)
            self.deliver_later(request)
            raise
        else:
            # The generation last, so that no other thread runs between this and `append`.
            if len(idle) >= MOST_IDLE or pool.waiters or connection.generation != pool.generation:
                pool.put(connection)
            else:
                idle.append(connection)
            if self._following and request.until:
                # After the reply: executed there first, it would have nothing to release here.
                self._superseded.follow(request)
            return reply
        # Not where it was caught: it would become the context of what is raised later.
        if self._following and request.until:
            self._superseded.follow(request)
        return self._send_again(request, connection, failure)

    def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """Return the replies to many requests, in one write; a list for each that has several."""
        if len(requests) == 1:
            return [self.send(requests[0], now)]
        return apart(requests, self.send(together(requests), now))

    def ready(self, now: float) -> Engine:
        """Return what the server can do; connects if need be.

        Raises Outage or UsageError if it cannot be reached.
        """
        while self.engine is None:
            if self._circuit.breaker.is_open:
                raise self._refusal_of(None)
            self._pool.put(self._take(None))
        return self.engine

    def post(self, request: Request) -> None:
        """Deliver *request* though nobody waits for it: now, or when the server is back."""
        with contextlib.suppress(Outage, UsageError):  # then it is in the outbox
            if is_elsewhere(self.send(request, monotonic())):
                self._send_on([request])

    def _send_on(self, requests: list[Request]) -> None:
        """Their keys are on other nodes of a cluster."""
        if self.send_on is not None:
            for request in requests:
                self.send_on(request)

    def deliver_later(self, request: Request) -> None:
        """Deliver *request*, which was not served: a little later, on a thread of its own."""
        self._circuit.outbox.add(request, monotonic())
        if self._circuit.outbox:
            self._probe.start()

    def _refusal_of(self, request: Request | None) -> Exception:
        """The answer while the server is out; what must be delivered is kept."""
        if self._closed:
            return UsageError("this Dibs is closed")
        refusal = Outage(self._circuit.breaker.cause, sent=False)
        if request is not None:
            refusal = self._circuit.refuse(request, monotonic())
        self._probe.start()  # unless it runs: a thread could not be started, perhaps
        return refusal

    def _take(self, request: Request | None) -> ThreadConnection:
        """Return a connection for *request*, which is kept for later if there is none."""
        try:
            return self._usable_connection(TimeLimit(self._limits.connect))
        except BaseException:  # an outage, or a signal handler raised
            if request is not None:
                self.deliver_later(request)
            raise

    def _usable_connection(self, time_limit: TimeLimit) -> ThreadConnection:
        """Return a connection. Raises Outage if there is none, in time.

        Raises UsageError if the settings are wrong.
        """
        try:
            return self._pool.take(time_limit)
        except Outage:
            raise
        except CONNECTION_ERRORS as error:
            raise self._failed_to_open(error) from None

    def _failed_to_open(self, error: Exception) -> Exception:
        mistake = settings_error(error)
        if mistake is not None and self.engine is None:
            return UsageError(str(mistake))
        cause = cause_of(error)
        self._trip_breaker(cause)
        return Outage(cause, sent=False)

    # ---- asking again

    def _send_again(self, request: Request, first: ThreadConnection, error: Exception) -> Any:
        """Return the reply, from another connection.

        One that is only silent may still answer, until the request is written to the other one.
        """
        attempt = Attempt(self._circuit)
        hanging: ThreadConnection | None = None
        connection: ThreadConnection | None = first
        try:
            while self._action_after(attempt, error) is Next.OPEN:
                if isinstance(error, Silent):
                    hanging = connection
                    self._pool.remove(connection)
                else:
                    self._drop_connection(connection)
                connection = None
                half = self._limits.budget / 2
                time_limit = TimeLimit(half if attempt.was_silent else self._limits.connect)
                connection = self._pool.take(time_limit, new=attempt.needs_new_connection)
                if hanging is not None and can_end(hanging.client, connection.client):
                    self._abandon_connection(hanging, is_open=True)
                    hanging = None
                if attempt.was_silent:
                    self._pool.drop_idle()
                try:
                    left = max(half - time_limit.counted, time_limit.slice)
                    return self._reply_to_repeated(request, connection, hanging, left)
                except CONNECTION_ERRORS as again:
                    error = again
        except PoolTimeout as saturated:
            if hanging is None:  # that says nothing about the server
                self.deliver_later(request)
                raise Outage(saturated.cause, sent=True) from None
            return self._last_look(attempt, request, hanging, self._cause_of(error))
        except Outage as known:  # by another thread, meanwhile
            return self._last_look(attempt, request, hanging, known.cause)
        except CONNECTION_ERRORS as refused:
            return self._last_look(attempt, request, hanging, self._cause_of(refused))
        except BaseException:
            for each in (connection, hanging):
                if each is not None:
                    self._abandon_connection(each)
            self.deliver_later(request)
            raise
        if hanging is not None:  # it may answer, and the copy on the other one arrive later
            self._superseded.keep(request.key, connection)
        return self._last_look(attempt, request, hanging or connection, self._cause_of(error))

    def _action_after(self, attempt: Attempt, error: Exception) -> Next:
        return attempt.silent() if isinstance(error, Silent) else attempt.lost()

    def _drop_connection(self, connection: ThreadConnection | None) -> None:
        """It broke, and the idle ones may be broken as well."""
        if connection is not None:
            self._abandon_connection(connection)
        self._pool.drop_idle()

    def _abandon_connection(self, connection: ThreadConnection, *, is_open: bool = False) -> None:
        """Close it, with a request on it; the server is to end it before anything is repeated."""
        self._circuit.abandoned.add(connection.client, monotonic(), is_open=is_open)
        connection.close()

    def _exchange_on(
        self, connection: ThreadConnection, request: Request, limit: float | None = None
    ) -> Any:
        """Return the reply; connections that were left are ended before, in the same write."""
        abandoned = self._circuit.abandoned
        clients = abandoned.due_on(connection.client, monotonic())
        if not clients:
            return connection.exchange(request, limit)
        ended, reply = connection.exchange_after(kill_request(clients), request, limit)
        abandoned.ended(clients, ended)
        return reply

    def _reply_to_repeated(
        self,
        request: Request,
        connection: ThreadConnection,
        hanging: ThreadConnection | None,
        limit: float,
    ) -> Any:
        """Return the reply to a repeated request: a 0 may mean that the first time has done it."""
        reply = self._exchange_on(connection, request, limit)
        if hanging is not None:
            self._superseded.keep(request.key, hanging)
        self._pool.put(connection)
        return REPEATED if request.until and reply == 0 else reply

    def _last_look(
        self,
        attempt: Attempt,
        request: Request,
        hanging: ThreadConnection | None,
        cause: Cause,
    ) -> Any:
        """Return the reply on *hanging*, if it has come after all; else it is an outage."""
        if hanging is not None:
            try:
                if hanging.unread:
                    raise Silent
                reply = hanging.read(request, 0.0)
            except BaseException as error:
                self._abandon_connection(hanging)
                if not isinstance(error, CONNECTION_ERRORS):  # a signal handler raised
                    self.deliver_later(request)
                    raise
            else:
                self._pool.add(hanging)
                self._pool.put(hanging)
                return reply
        if not attempt.is_outdated:
            self._trip_breaker(cause)
        self.deliver_later(request)
        raise Outage(cause, sent=True) from None

    def _cause_of(self, error: BaseException) -> Cause:
        return self._silence_cause() if isinstance(error, TimeoutError) else cause_of(error)

    # ---- changes of keys

    def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Have *wake* called when *key* changes, until `unwatch`.

        Raises Outage if ask again later.
        """
        return read_watch(self.track(watch_request(key), wake, now))

    def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """Return the replies to *request*; *wake* is called when its key changes afterwards.

        Where no connection can be had for that, changes are not reported: the caller polls.
        """
        return self.track_all([(request, wake)], now)[0]

    def track_all(self, asked: list[tuple[Request, Wake]], now: float) -> list[Tracked]:
        """Return the same for many requests, in one write."""
        requests = self._watchers.add_all(asked)
        if self.engine is None or self.engine.tracking:
            with contextlib.suppress(*CONNECTION_ERRORS, Outage):
                return self._ready_subscriber().track(requests)
        return list(map(untracked, self.send_all(requests, monotonic()), requests))

    def is_behind(self, now: float) -> bool:
        """Return whether the server may have reported changes of keys that were not read yet."""
        subscriber = self._subscriber
        return subscriber is not None and subscriber.is_behind(now)

    def _ready_subscriber(self) -> Subscriber:
        """Return the subscriber.

        A new one where there is none or the last one's connection broke.
        """
        with self._subscribing:
            found = self._subscriber
            if found is None or not found.is_alive:
                if self._circuit.breaker.is_open:
                    raise EOFError
                connection = self._usable_connection(TimeLimit(self._limits.connect))
                self._pool.remove(connection)
                # Known before its thread starts: whatever comes between, `close` finds it.
                found = Subscriber(connection, self._watchers, self._limits.budget)
                self._subscriber = found
                self._start(found, connection)
            return found

    def _start(self, subscriber: Subscriber, connection: ThreadConnection) -> None:
        try:
            subscriber.start()
        except RuntimeError:  # no more threads
            self._subscriber = None
            self._pool.add(connection)
            self._pool.put(connection)
            raise EOFError from None
        except BaseException:  # a signal handler raised; the thread may run all the same
            subscriber.close()
            raise
        if connection.generation != self._pool.generation:  # closed, or elsewhere, meanwhile
            subscriber.close()

    def reconnect(self) -> None:
        """The server answers, but is not the one we want: connect anew, it may be elsewhere now."""
        self._pool.renew()
        if self._subscriber is not None:
            self._subscriber.close()

    # ---- opening

    def _open(self) -> ThreadConnection:
        """Return a new connection that has answered what its server can do."""
        generation = self._pool.generation  # before it is known that this is not closed
        if self._closed:
            raise UsageError("this Dibs is closed")
        assert self._address is not None
        opened = open_for_threads(self._address, self._negotiation, self._limits)
        opened.generation = generation
        self.engine = opened.engine
        self.opened_at = monotonic()
        self._pool.add(opened)
        return opened

    def _known_outage(self) -> Outage | None:
        breaker = self._circuit.breaker
        return Outage(breaker.cause, sent=False) if breaker.is_open or self._closed else None

    # ---- outage

    def _trip_breaker(self, cause: Cause) -> None:
        """The server is out: nobody waits for it any more, and it is tried again."""
        with self._tripping:
            is_news = self._circuit.trip(monotonic(), cause)
        if is_news:
            self._on_outage(cause)
            self._pool.drop_idle()
            self._pool.wake_all()
            self._probe.start()
        self._watchers.wake_all()

    def _restart_server(self) -> None:
        """Have the server started again, where it is ours to start."""
        if not self._circuit.breaker.is_open:
            return
        # What came back since: it would take the place of the connection that is tried next.
        self._pool.drop_idle()
        if self.restart_server is not None and not self._closed:
            with contextlib.suppress(DibsError):
                self.restart_server()

    def _recover_with(self, connection: ThreadConnection) -> bool:
        """Deliver the outbox; in one step with seeing that it is empty, close the breaker.

        What the server cannot serve yet does not keep it from serving others.
        """
        outbox = self._circuit.outbox
        is_served = True
        try:
            if self._abandoned:
                self._exchange_on(connection, NO_OP, self._limits.connect)
            while outbox and is_served:
                is_served = self._deliver_outbox(connection)
        except BaseException:
            self._abandon_connection(connection)
            raise
        with self._tripping:
            if outbox and is_served:
                return False
            lasted = self._circuit.breaker.close(monotonic())
        if is_served:
            self._pool.put(connection)
        if lasted is not None:
            self._on_recovered(self._circuit.breaker.cause, lasted)
        return is_served

    def _deliver_outbox(self, connection: ThreadConnection) -> bool:
        """Return False if some of it could not be served, and is in the outbox again."""
        requests = self._circuit.outbox.take(monotonic())
        again = requests
        try:
            if requests:
                replies = self._exchange_on(connection, together(requests), self._limits.connect)
                again, elsewhere = unserved(requests, replies)
                self._send_on(elsewhere)
        finally:
            self._circuit.outbox.give_back(again)
        return not again

    def _is_probe_needed(self) -> bool:
        """Return True if the server is out, or the outbox is not empty."""
        return self._circuit.breaker.is_open or bool(self._circuit.outbox)

    # ---- the end

    def close(self) -> None:
        """Close all connections and end all threads."""
        self._closed = True
        self._circuit.trip(monotonic(), cause_for("closed"))
        self._pool.close()
        self._superseded.close()
        if self._subscriber is not None:
            self._subscriber.close()
        self._probe.close()
        self._watchers.wake_all()

    def open(self) -> None:
        """In a forked child: begin anew. Only this process's copies of the sockets are closed."""
        self._pool.drop_idle()
        if self._subscriber is not None:
            self._subscriber.close_copy()
        self._begin_unconnected()
