"""Short leases on Redis and Valkey: locks, idempotency and caching, for threads and asyncio."""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import (
    Busy,
    DibsError,
    Duplicate,
    Interrupted,
    LeaseLost,
    Mismatch,
    Unavailable,
    UsageError,
)

if TYPE_CHECKING:
    from ._async.claim import AsyncClaim
    from ._async.client import AsyncDibs
    from ._async.hold import AsyncLease
    from ._core.lease import Holding
    from ._sync.claim import Claim
    from ._sync.client import Dibs
    from ._sync.hold import Lease
    from .events import Event

__version__ = "0.1.0"

__all__ = [
    "AsyncClaim",
    "AsyncDibs",
    "AsyncLease",
    "Busy",
    "Claim",
    "Dibs",
    "DibsError",
    "Duplicate",
    "Event",
    "Holding",
    "Interrupted",
    "Lease",
    "LeaseLost",
    "Mismatch",
    "Unavailable",
    "UsageError",
    "__version__",
]

# Few programs need both the sync and the async half: each is imported at its first use.
_MODULES = {
    "AsyncClaim": "_async.claim",
    "AsyncDibs": "_async.client",
    "AsyncLease": "_async.hold",
    "Claim": "_sync.claim",
    "Dibs": "_sync.client",
    "Event": "events",
    "Holding": "_core.lease",
    "Lease": "_sync.hold",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})  # each once: what was used is among both
