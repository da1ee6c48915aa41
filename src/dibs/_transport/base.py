"""What both transports to one server have: its address, its limits, and whom to report to."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from .._core.capabilities import Engine, Negotiation
from .._core.causes import cause_for
from .._core.connection import Breaker, Limits
from .._core.request import Request
from .._forks import reopen_after_fork
from ..errors import Cause
from .subscriber import Wake, Watchers
from .targets import Address


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
        self._begin()
        reopen_after_fork(self)

    @abstractmethod
    def _begin(self) -> None:
        """Nothing is connected: at construction, and in a forked child."""

    @property
    @abstractmethod
    def breakers(self) -> list[Breaker]:
        """The circuit breaker of each server; here of one."""

    @property
    @abstractmethod
    def may_arrive_late(self) -> bool:
        """True: a request was repeated, and one of its copies may still be executed."""

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

    def _silent(self) -> Cause:
        return cause_for("silent", f"no answer within {self._limits.budget:g} s")
