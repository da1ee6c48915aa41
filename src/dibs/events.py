"""What happened: frozen facts, handed to listeners.

A listener is any callable that takes an `Event`. It runs where the thing happened: in the caller's
thread or task, or beside it for what happens in the background (renewed, lost, recovered). So it
must be quick, must not block, and with threads must be thread-safe. Nobody listening costs
nothing: no event is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "acquired", "busy", "released", "late", "lost", "renewed", "outage", "recovered",
    "switched",
    "detached", "resumed",
    "claimed", "completed", "duplicate", "replayed", "mismatch", "leaked",
    "hit", "local_hit", "stale", "miss", "loaded", "waited", "reelected", "degraded",
    "rejected_write", "poison", "invalidated",
    "elected", "resigned", "deposed",
    "fired", "finished", "failed", "missed",
]  # fmt: skip

Listener = Callable[["Event"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact. `name` is the template of the key, never the key: it holds no personal data."""

    kind: Kind
    name: str
    at: float
    """Wall-clock seconds since the epoch."""
    guarded: bool | None = None
    """acquired, claimed, released, detached, resumed, elected, fired: False when the store was out
    and the policy let it through."""
    waited: float | None = None
    """acquired, busy, waited, claimed, replayed, duplicate, elected: seconds spent waiting for
    others."""
    held: float | None = None
    """released, completed, late, lost, leaked, detached, resigned, deposed: seconds since it was
    acquired."""
    retry_after: float | None = None
    """busy, duplicate: seconds until the key is free at the latest."""
    state: Literal["running", "done"] | None = None
    """duplicate: whether the first one is still at work."""
    fence: int | None = None
    """acquired, resumed, elected, resigned, deposed, fired: the fence, where one was asked for."""
    cause: str | None = None
    """outage, lost, leaked, degraded, rejected_write, failed: why, as a code that does not change:
    "silent", "refused", "readonly" … recovered: what the outage began with.
    switched: how it was learnt ("announced", "asked", "connecting")."""
    detail: str | None = None
    """The same as a sentence, for people."""
    lasted: float | None = None
    """recovered: seconds the outage lasted."""
    took: float | None = None
    """loaded, degraded: seconds that the load took. finished, failed: that the function ran."""
    delay: float | None = None
    """fired: seconds after its scheduled time."""
    count: int | None = None
    """missed: how many fires nobody ran."""
