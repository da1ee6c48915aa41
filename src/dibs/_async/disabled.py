"""The transport of a process in which dibs is switched off: every call is an outage, at once."""

from typing import Any, NoReturn

from .._core.capabilities import Engine
from .._core.causes import cause_for
from .._core.connection import Breaker, Outage
from .._core.request import Request
from .._core.tracking import Tracked, Watching
from .._transport.base import Wake

_CAUSE = cause_for("disabled")


class AsyncDisabledTransport:
    """Never connects. The verbs of a `Transport`."""

    engine: Engine | None = None
    opened_at = 0.0
    breakers: tuple[Breaker, ...] = ()
    may_arrive_late = False

    async def ready(self, now: float) -> Engine:
        """Raise Outage: dibs is disabled."""
        _refuse()

    async def send(self, request: Request, now: float) -> Any:
        """Raise Outage: dibs is disabled."""
        _refuse()

    async def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """Raise Outage: dibs is disabled."""
        _refuse()

    async def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Raise Outage: dibs is disabled."""
        _refuse()

    async def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """Raise Outage: dibs is disabled."""
        _refuse()

    async def track_all(self, asked: list[tuple[Request, Wake]], now: float) -> list[Tracked]:
        """Raise Outage: dibs is disabled."""
        _refuse()

    def post(self, request: Request) -> None:
        """Do nothing: there is nothing to undo."""

    def deliver_later(self, request: Request) -> None:
        """Do nothing: nothing was taken."""

    def changed(self, key: bytes) -> None:
        """Do nothing: no server is watched."""

    def is_behind(self, now: float) -> bool:
        """Return False if nothing is reported."""
        return False

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """Do nothing: no server is watched."""

    def reconnect(self) -> None:
        """Do nothing: there is no connection."""

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def _refuse() -> NoReturn:
    raise Outage(_CAUSE, sent=False)
