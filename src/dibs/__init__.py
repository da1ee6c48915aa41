"""I call dibs: the first caller of a key does the work, all others get a quick, true answer."""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import Busy, DibsError, Duplicate, LeaseLost, Mismatch, Unavailable, UsageError

if TYPE_CHECKING:
    from ._async.client import AsyncDibs
    from ._async.lease import AsyncLease
    from ._sync.client import Dibs
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
_MODULES = {
    "AsyncDibs": "_async.client",
    "AsyncLease": "_async.lease",
    "Dibs": "_sync.client",
    "Event": "events",
    "Lease": "_sync.lease",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
