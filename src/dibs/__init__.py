"""I call dibs: the first caller of a key does the work, all others get a quick, true answer."""

from ._async.dibs import AsyncDibs
from ._async.lease import AsyncLease
from ._core.lease import Holding
from ._sync.dibs import Dibs
from ._sync.lease import Lease
from .errors import Busy, DibsError, LeaseLost, Unavailable, UsageError
from .events import Event

__all__ = [
    "AsyncDibs",
    "AsyncLease",
    "Busy",
    "Dibs",
    "DibsError",
    "Event",
    "Holding",
    "Lease",
    "LeaseLost",
    "Unavailable",
    "UsageError",
]
