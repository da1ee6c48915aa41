"""How long a thread's call of the database may still take."""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")
_call = threading.local()


def seconds_left() -> float | None:
    """Until this thread's call of the database has taken too long. None: it has no limit."""
    until: float | None = getattr(_call, "until", None)
    return None if until is None else max(until - monotonic(), 0.0)


def run_within(longest: float, call: Callable[..., T], *arguments: Any) -> T:
    """What *call* returns; while it runs, `seconds_left` counts *longest* seconds down."""
    _call.until = monotonic() + longest
    try:
        return call(*arguments)
    finally:
        _call.until = None
