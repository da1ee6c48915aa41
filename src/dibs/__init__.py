"""I call dibs: the first caller of a key does the work, all others get a quick, true answer."""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import Busy, DibsError, Duplicate, LeaseLost, Mismatch, Unavailable, UsageError

if TYPE_CHECKING:
    from ._async.dibs import AsyncDibs
    from ._async.lease import AsyncLease
    from ._sync.dibs import Dibs
    from ._sync.lease import Lease
    from .events import Event

__all__ = [
    "AsyncDibs",
    "AsyncLease",
    "Busy",
    "Dibs",
    "DibsError",
    "Duplicate",
    "Event",
    "Lease",
    "LeaseLost",
    "Mismatch",
    "Unavailable",
    "UsageError",
]

# Few programs need both halves, and each costs start-up time: fetched when first asked for.
_ROOMS = {
    "AsyncDibs": "_async.dibs",
    "AsyncLease": "_async.lease",
    "Dibs": "_sync.dibs",
    "Event": "events",
    "Lease": "_sync.lease",
}


def __getattr__(name: str) -> object:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{room}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
