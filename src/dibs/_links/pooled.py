"""The threads link: a few connections, one thread at a time on each.

A request goes to an idle connection. If half the budget passes without a reply, or the
connection breaks, it is asked again on a fresh one (each of our requests may be repeated without
harm); the first connection is looked at once more before giving up. Connections are opened on a
thread beside the caller, because name servers and handshakes know nothing of budgets.
"""

import contextlib
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from .._core.breaker import PROBE_BUDGET, PROBE_EVERY, Breaker, Crowded, Outage
from .._core.capabilities import Greeting
from .._core.causes import cause_for
from .._core.engine import Engine
from .._core.request import REPEATED, Request, together
from .._core.watch import Tracked, Watching, read_watch, untracked, watch_request
from ..errors import DibsError, UsageError
from .debts import Debts
from .faults import BELOW, cause_of, mistake_in_settings
from .ghosts import Ghosts
from .greeting import open_wire
from .listener import Listener
from .opening import Opening
from .targets import Place
from .watchers import Wake, Watchers
from .wire import Wire

_MOST_IDLE = 64
"""Connections kept for later; a burst of more threads opens more and closes them again."""
_OPENING_AT_ONCE = 4
"""Connections that are opened at the same time."""


class PooledLink:
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
        self._patience = budget / 2
        self._idle: list[Wire] = []
        self._ghosts = Ghosts()
        self._lobby = threading.Condition()
        self._crowd = self._opening = 0
        """How many wait in the lobby for a connection, and how many are being opened."""
        self._debts = Debts()
        self._watchers = Watchers()
        self._listener: Listener | None = None
        self._probe: threading.Thread | None = None
        self._guard = threading.Lock()
        self._breaker_guard = threading.Lock()
        self._wake_probe = threading.Event()
        self._greeting = Greeting()
        self._closed = False

    def move_to(self, place: Place) -> None:
        """From now on the server is there. Before the first use only."""
        self._place = place

    # ---- asking

    def send(self, request: Request, now: float) -> Any:
        """The reply (a list, if there are several). Outage: none came within the budget."""
        if self._breaker.opened_at is not None:
            self._debts.owe(request)
            raise Outage(self._breaker.cause, sent=False)
        if self._ghosts and request.until:
            self._ghosts.lay(request)
        try:
            wire = self._idle.pop()
        except IndexError:
            return self._send_fresh(request, now, None, sent=False)
        if monotonic() - now > self._budget / 8:
            # Connecting, or an earlier answer, has used up a part of the budget.
            wire.set_patience(max((now + self._budget - monotonic()) / 2, 0.001))
        try:
            reply = wire.exchange(request)
        except BELOW as error:
            return self._send_again(request, now, wire, error)
        except BaseException:
            wire.close()
            raise
        if wire.patience is not self._patience or self._crowd or self._closed:
            self._keep(wire)
        else:
            self._idle.append(wire)
        return reply

    def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """The replies to many requests of one reply each, in one write."""
        if len(requests) == 1:
            return [self.send(requests[0], now)]
        return self.send(together(requests), now)

    def ready(self, now: float) -> Engine:
        """What the server can do; connects if need be. Outage, UsageError: it cannot be reached."""
        if self.engine is None:
            if self._breaker.is_open:
                raise Outage(self._breaker.cause, sent=False)
            try:
                self._keep(self._lend(now + self._budget))
            except Outage as outage:
                if not isinstance(outage, Crowded):
                    self._trip(outage.cause)
                raise
        assert self.engine is not None
        return self.engine

    def post(self, request: Request) -> None:
        """Deliver *request* though nobody waits for it: now, or when the server is back."""
        if self._closed or self._breaker.is_open:
            self._debts.owe(request)
            return
        with contextlib.suppress(Outage, UsageError):  # send() has written it down
            self.send(request, monotonic())

    def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Have *wake* called when *key* changes, until `unwatch`. Outage: ask again later."""
        return read_watch(self.track(watch_request(key), wake, now))

    def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """The replies to *request*; *wake* is called when its key changes afterwards.

        Where no connection can be had for listening, nobody tells: the caller polls.
        """
        self._watchers.add(request.key, wake)
        if self.engine is not None and not self.engine.tracking:
            return untracked(self.send(request, now), request)
        try:
            listener = self._listening(now)
            return listener.track(request, now + self._budget)
        except BELOW:
            return untracked(self.send(request, monotonic()), request)

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        self._watchers.discard(key, wake)

    def distrust(self) -> None:
        """The server answers, but is not the one we want: connect anew, it may be elsewhere now."""
        self._drop_idle()

    def _listening(self, now: float) -> Listener:
        """The listener; a new one where there is none or the last one's connection broke."""
        with self._guard:
            listener = self._listener
            if listener is None or not listener.is_alive:
                if self._breaker.is_open:
                    raise EOFError
                wire, error = Opening(self._connect).wait(self._budget / 2)
                if wire is None:
                    raise EOFError from error
                self._listener = listener = Listener(wire, self._watchers)
            return listener

    # ---- asking again

    def _send_again(self, request: Request, now: float, wire: Wire, error: BaseException) -> Any:
        """The reply, from a fresh connection. One that only hangs may still answer."""
        if isinstance(error, TimeoutError):
            return self._send_fresh(request, now, wire, sent=True)
        wire.close()
        self._drop_idle()
        return self._send_fresh(request, now, None, sent=True)

    def _send_fresh(self, request: Request, now: float, hanging: Wire | None, *, sent: bool) -> Any:
        """The reply, from a connection that is new or has just become idle."""
        deadline = now + self._budget
        fresh: Wire | None = None
        try:
            fresh = self._lend(deadline)
            fresh.set_patience(max(deadline - monotonic(), 0.001))
            reply = fresh.exchange(request)
        except (*BELOW, Outage) as error:
            return self._last_look(request, hanging, fresh, error, sent=sent)
        except BaseException:
            for wire in (fresh, hanging):
                if wire is not None:
                    wire.close()
            raise
        if hanging is not None:
            self._drop_idle()
            self._ghosts.keep(request.key, hanging)
        self._keep(fresh)
        return REPEATED if sent and request.until and reply == 0 else reply

    def _last_look(
        self,
        request: Request,
        hanging: Wire | None,
        fresh: Wire | None,
        error: Exception,
        *,
        sent: bool,
    ) -> Any:
        """The first connection's reply, if it has come after all; else it is an outage."""
        if fresh is not None:
            fresh.close()
        if hanging is not None:
            try:
                hanging.set_patience(0.001)
                reply = hanging.read(request, monotonic())
            except BELOW:
                hanging.close()
            else:
                self._keep(hanging)
                return reply
        cause = error.cause if isinstance(error, Outage) else self._why(error)
        if sent or not isinstance(error, Crowded):
            self._trip(cause)
        self._debts.owe(request)
        raise Outage(cause, sent=sent or fresh is not None) from None

    def _why(self, error: BaseException) -> str:
        silent = cause_for("silent", f"no answer within {self._budget:g} s")
        return silent if isinstance(error, TimeoutError) else cause_of(error)

    def _keep(self, wire: Wire) -> None:
        """Back to the idle ones, with the usual patience, and to whoever waits for one."""
        if self._closed or len(self._idle) >= _MOST_IDLE:
            wire.close()
            return
        if wire.patience is not self._patience:
            wire.set_patience(self._patience)
        self._idle.append(wire)
        if self._crowd:
            with self._lobby:
                self._lobby.notify()

    def _drop_idle(self) -> None:
        """One connection broke or hangs: its neighbours are no better."""
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    # ---- connecting

    def _lend(self, deadline: float) -> Wire:
        """An idle connection or a new one, in time. Outage: not in time.

        Only a few are opened at once: two hundred threads that start together would otherwise
        spend their budgets on two hundred handshakes. The others wait for one that is done with.
        """
        with self._lobby:
            self._crowd += 1
            try:
                while not self._idle and self._opening >= _OPENING_AT_ONCE:
                    if not self._lobby.wait(max(deadline - monotonic(), 0)):
                        raise Crowded(cause_for("saturated"), sent=False)
                if self._idle:
                    return self._idle.pop()
                self._opening += 1
            finally:
                self._crowd -= 1
        return self._open(deadline)

    def _open(self, deadline: float) -> Wire:
        """A new connection, in time. Outage: not in time. UsageError: the settings are wrong."""
        if self._closed:
            self._opened()
            raise UsageError("this Dibs is closed")
        left = max(deadline - monotonic(), 0.001)
        wire, error = Opening(self._connect, self._opened).wait(left)
        if wire is not None:
            return wire
        if error is None and left < self._budget / 2:
            raise Crowded(cause_for("saturated"), sent=False)
        mistake = None if error is None else mistake_in_settings(error)
        if mistake is not None and self.engine is None:
            raise UsageError(str(mistake))
        raise Outage(self._why(error or TimeoutError()), sent=False)

    def _opened(self) -> None:
        with self._lobby:
            self._opening -= 1
            self._lobby.notify()

    def _connect(self) -> Wire:
        """A new connection that has answered what its server can do."""
        assert self._place is not None
        wire = open_wire(self._place, self._greeting, max(self._budget, PROBE_BUDGET))
        self.engine = wire.engine
        return wire

    # ---- outage

    def _trip(self, cause: str) -> None:
        """Open the breaker, and look in the background when the server is back."""
        with self._breaker_guard:
            news = self._breaker.trip(monotonic(), cause)
            if news and not self._closed:
                self._drop_idle()
                self._probe = threading.Thread(
                    target=self._keep_probing, name="dibs probe", daemon=True
                )
                self._probe.start()
        self._watchers.wake_all()

    def _keep_probing(self) -> None:
        while not self._closed:
            try:
                if self._recover(self._connect()):
                    return
            except Exception:  # whatever it is: nobody else looks
                self._wake_probe.wait(PROBE_EVERY)
                self._revive()

    def _revive(self) -> None:
        if self.revive is not None and not self._closed:
            with contextlib.suppress(DibsError):
                self.revive()

    def _recover(self, wire: Wire) -> bool:
        """Deliver what is owed; then, in one step with looking that nothing more is, go on."""
        try:
            while self._debts:
                self._pay(wire)
        except BaseException:
            wire.close()
            raise
        with self._breaker_guard:
            if self._debts:
                wire.close()
                return False
            lasted = self._breaker.heal(monotonic())
        self._keep(wire)
        if lasted is not None:
            self._on_recovered(self._breaker.cause, lasted)
        return True

    def owe(self, request: Request) -> None:
        """Deliver *request* when there is another connection."""
        self._debts.owe(request)

    def _pay(self, wire: Wire) -> None:
        """Deliver what could not be delivered while the server was out, in one write."""
        due = self._debts.take()
        if due:
            try:
                wire.exchange(together(due))
            except BaseException:
                self._debts.give_back(due)
                raise

    # ---- the end

    def close(self) -> None:
        """Close all connections and end all threads."""
        self._closed = True
        self._wake_probe.set()
        self._drop_idle()
        self._ghosts.close()
        with self._lobby:
            self._lobby.notify_all()
        if self._listener is not None:
            self._listener.close()
        probe = self._probe
        if probe is not None and probe is not threading.current_thread():
            # Not for long: it may be in the middle of a look, and it is a daemon.
            probe.join(timeout=0.1)
        for client in self._place.ours if self._place is not None else ():
            client.close()

    def abandon(self) -> None:
        """In a forked child: forget everything; only our copies of the sockets are closed."""
        self._drop_idle()
        if self._listener is not None:
            self._listener.abandon()
        self._listener = self._probe = None
        self._debts = Debts()
        self.engine = None
        self._ghosts = Ghosts()
        self._crowd = self._opening = 0
        self._lobby = threading.Condition()
        self._watchers = Watchers()
        self._breaker = Breaker()
        self._guard = threading.Lock()
        self._breaker_guard = threading.Lock()
