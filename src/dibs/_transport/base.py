"""What both transports to one server have: its address, its limits, who watches its keys."""

import select
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from .._core.capabilities import Engine, Negotiation
from .._core.causes import cause_for
from .._core.connection import Breaker, Limits
from .._core.request import Reply, Request
from .._core.tracking import read_push
from .._forks import reopen_after_fork
from .._locks import Guard
from ..errors import Cause
from .targets import Address

Wake = Callable[[], None]


class Watchers:
    """Key → the callbacks to call when it changes. They do not block; any thread may call them."""

    def __init__(self) -> None:
        self._wakes: dict[bytes, dict[Wake, None]] = {}
        """In the order in which they came: who watches first is woken first."""
        self._guard = Guard()

    def __bool__(self) -> bool:
        return bool(self._wakes)

    def add(self, key: bytes, wake: Wake) -> None:
        """Call *wake* when *key* changes, or when a change may have been missed."""
        with self._guard:
            self._wakes.setdefault(key, {})[wake] = None

    def add_all(self, asked: list[tuple[Request, Wake]]) -> list[Request]:
        """Call each *wake* when the key of its request changes. Returns the requests."""
        for request, wake in asked:
            self.add(request.key, wake)
        return [request for request, _ in asked]

    def discard(self, key: bytes, wake: Wake) -> None:
        """Do not call *wake* any more."""
        with self._guard:
            wakes = self._wakes.get(key)
            if wakes is not None:
                wakes.pop(wake, None)
                if not wakes:
                    del self._wakes[key]

    def pushed(self, push: list[Reply]) -> None:
        """Wake those who watch a key that this push of the server names."""
        keys = read_push(push)
        with self._guard:
            known = list(self._wakes) if keys is None else keys
            wakes = [wake for key in known for wake in self._wakes.get(key, ())]
        for wake in wakes:
            wake()

    def changed(self, key: bytes) -> None:
        """Wake those who watch *key*: this process changed it."""
        self.pushed([b"invalidate", [key]])

    def wake_all(self) -> None:
        """Wake all: a change may have been missed."""
        with self._guard:
            everybody = [wake for wakes in self._wakes.values() for wake in wakes]
        for wake in everybody:
            wake()


class BaseTransport(ABC):
    """Requests in, replies out, or `Outage`: at once, if the server is known to be out."""

    _watchers: Watchers

    def __init__(
        self,
        address: Address | None,
        limits: Limits,
        on_outage: Callable[[Cause], None],
        on_recovered: Callable[[Cause, float], None],
    ) -> None:
        self.engine: Engine | None = None
        """What the server can do; None: no connection has been open yet."""
        self.opened_at = 0.0
        """When the newest connection was opened."""
        self.restart_server: Callable[[], None] | None = None
        """Called, on a thread, before another try to reach a server that is out."""
        self.send_on: Callable[[Request], None] | None = None
        """Called with a request that nobody waits for, if its key is on another node."""
        self._address = address
        self._limits = limits
        self._on_outage = on_outage
        self._on_recovered = on_recovered
        self._negotiation = Negotiation()
        self._closing = False
        """True: nobody new is let in; what is on its way is still delivered (asyncio)."""
        self._closed = False
        self._begin_unconnected()
        reopen_after_fork(self)

    @abstractmethod
    def _begin_unconnected(self) -> None:
        """Nothing is connected: at construction, and in a forked child."""

    @property
    @abstractmethod
    def breakers(self) -> list[Breaker]:
        """The circuit breaker of each server; here of one."""

    @property
    @abstractmethod
    def may_arrive_late(self) -> bool:
        """Return True if a request was repeated, and one of its copies may still be executed."""

    @abstractmethod
    def open(self) -> None:
        """In a forked child: begin anew. The connections are the parent's."""

    def move_to(self, address: Address) -> None:
        """From now on the server is there. Before the first use only."""
        self._address = address

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        self._watchers.discard(key, wake)

    def changed(self, key: bytes) -> None:
        """Call who watches *key*, without waiting for the server to tell."""
        self._watchers.changed(key)

    def _silence_cause(self) -> Cause:
        return cause_for("silent", f"no answer within {self._limits.budget:g} s")


# ---- what the system knows of a socket

_SIOCOUTQ = 0x5411
"""Linux: bytes in the send queue that the peer has not acknowledged."""


def unsent_bytes(sock: Any) -> int:
    """Return the bytes written that the peer has not acknowledged; 0 if the system does not say."""
    if sys.platform != "linux" or sock is None:
        return 0
    import fcntl

    try:
        return struct.unpack("i", fcntl.ioctl(sock.fileno(), _SIOCOUTQ, b"\0\0\0\0"))[0]
    except (OSError, ValueError):  # closed meanwhile, or not a TCP socket
        return 0


def is_readable(sock: Any) -> bool:
    """Return True if there are bytes to read, the peer has closed it, or it is broken."""
    try:
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([sock], [], [], 0)[0])
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return bool(poller.poll(0))
    except (OSError, ValueError):  # it is closed here
        return True
