"""What happened: frozen facts, handed to listeners.

A listener is any callable that takes an `Event`. It runs where the thing happened: in the caller's
thread or task, or beside it for what happens in the background (renewed, lost, recovered). So it
must be quick, must not block, and with threads must be thread-safe. Without listeners no event is
made.

A listener may have an attribute `kinds`, the kinds of events that it wants; no others are made for
it. One that only counts is a `CountingListener`, one that makes spans of a trace a `SpanListener`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from logging import DEBUG, INFO, WARNING
from typing import Literal, NamedTuple, Protocol, get_args

from .errors import Source

Kind = Literal[
    "acquired", "busy", "released", "late", "lost", "renewed", "outage", "recovered",
    "switched",
    "detached", "resumed",
    "claimed", "completed", "duplicate", "replayed", "mismatch", "leaked",
    "hit", "local_hit", "stale", "miss", "loaded", "waited", "reelected", "degraded",
    "rejected_write", "poison", "invalidated",
    "elected", "resigned", "deposed",
    "started", "finished", "failed", "missed", "clock_skew",
    "passed", "throttled",
    "followed", "interrupted",
]  # fmt: skip

KINDS: frozenset[Kind] = frozenset(get_args(Kind))
"""All kinds of events."""

Listener = Callable[["Event"], object]

Quantity = Literal["wait", "hold", "load", "run", "delay", "outage"]
"""What is measured in seconds. wait: for other holders or loads. delay: from when a run
was due until it began."""


class Measure(NamedTuple):
    """What events of one kind mean to those that count, log or show them."""

    level: int
    """Of logs. WARNING: needs attention. INFO: happens now and then. DEBUG: in every call."""
    field: str = ""
    """The field of the event that is its duration."""
    quantity: Quantity | None = None
    """What that duration is added to. A hold counts only if it is guarded, a wait if it is not 0.
    None: nothing; it may be hours, or is in the event that follows (`lost`, then `late`)."""
    answered: bool | None = False
    """True: Redis has answered, so that an outage is over. None: if the event is guarded. False:
    this process alone may have decided it."""
    grants: bool = False
    """Work begins. Unguarded: it runs although Redis is unavailable."""
    is_long: bool = False
    """Leases of this name may be held for hours: their holds are not measured."""


MEASURES: dict[Kind, Measure] = {
    "acquired": Measure(DEBUG, "waited", "wait", answered=None, grants=True),
    "busy": Measure(DEBUG, "waited", "wait"),
    "released": Measure(DEBUG, "held", "hold", answered=None),
    "late": Measure(WARNING, "held", "hold", answered=None),
    "lost": Measure(WARNING, "held"),
    "renewed": Measure(DEBUG, answered=True),
    "outage": Measure(WARNING),
    "recovered": Measure(INFO, "lasted", "outage", answered=True),
    "switched": Measure(INFO),
    "detached": Measure(DEBUG, "held"),
    "resumed": Measure(DEBUG, "waited", "wait", answered=None),
    "claimed": Measure(DEBUG, "waited", "wait", answered=None, grants=True),
    "completed": Measure(DEBUG, "held", "hold", answered=None),
    "duplicate": Measure(DEBUG, "waited", "wait"),
    "replayed": Measure(DEBUG, "waited", "wait"),
    "mismatch": Measure(WARNING),
    "leaked": Measure(WARNING, "held"),
    "hit": Measure(DEBUG, answered=True),
    "local_hit": Measure(DEBUG),
    "stale": Measure(DEBUG),
    "miss": Measure(DEBUG),
    "loaded": Measure(DEBUG, "took", "load"),
    "waited": Measure(DEBUG, "waited", "wait"),
    "reelected": Measure(DEBUG),
    "degraded": Measure(WARNING, "took", "load"),
    "rejected_write": Measure(WARNING),
    "poison": Measure(WARNING),
    "invalidated": Measure(DEBUG, answered=True),
    "elected": Measure(INFO, "waited", answered=None, grants=True, is_long=True),
    "resigned": Measure(INFO, "held", is_long=True),
    "deposed": Measure(WARNING, "held", is_long=True),
    "started": Measure(INFO, "delay", "delay", answered=None, grants=True, is_long=True),
    "finished": Measure(INFO, "took", "run"),
    "failed": Measure(WARNING, "took", "run"),
    "missed": Measure(WARNING),
    "clock_skew": Measure(WARNING),
    "passed": Measure(DEBUG, answered=None, grants=True),
    "throttled": Measure(DEBUG, answered=True),
    "followed": Measure(DEBUG),
    "interrupted": Measure(WARNING),
}
"""Listeners translate this table, and decide nothing themselves."""


def duration_of(event: "Event") -> float | None:
    """Return its duration in seconds. None: such an event has none, or it is not known."""
    return getattr(event, MEASURES[event.kind].field, None)


def has_answered(kind: Kind, *, guarded: bool | None) -> bool:
    """Return whether such an event shows that Redis has answered."""
    answered = MEASURES[kind].answered
    return bool(guarded if answered is None else answered)


EventKey = tuple[Kind, str, bool | None]
"""Kind and name of an event, and whether it is guarded: what is counted together."""

Counter = Callable[[float | None], object]
"""Called for each event of one kind and name, with its duration, see `MEASURES`."""


class CountingListener(Protocol):
    """A listener that needs no `Event` of some kinds, which takes about half the time."""

    counted: frozenset[Kind]
    """These kinds; it is called with events of all others."""

    def __call__(self, event: "Event") -> object:
        """Something of another kind happened."""
        ...

    def counter(self, kind: Kind, name: str, *, guarded: bool | None) -> Counter:
        """Return what to call for such events. It is called once for each; the result is kept."""
        ...


SpanKind = Literal["hold", "claim", "load", "wait", "run"]
"""hold, claim: from the request to the end of the block. load: a call of a loader. wait: for a load
by another caller. run: a run of a scheduled function."""


class Span(Protocol):
    """A piece of work that is under way, in the trace of one listener.

    Its methods are called in the thread or task of the work, except `end` of a generator that is
    garbage-collected.
    """

    @property
    def origin(self) -> object:
        """Return what spans elsewhere can be linked to; see `SpanListener.origin`."""
        ...

    def waited(self, seconds: float) -> None:
        """Record that the work has waited *seconds* for other callers, until now."""
        ...

    def link(self, origin: object) -> None:
        """Link it to a span that it depends on."""
        ...

    def end(self, outcome: str, error: BaseException | None) -> None:
        """End the span, with the code *outcome* and the exception that the work raised, if any."""
        ...


class SpanListener(Protocol):
    """A listener that also makes spans, which are the parents of spans made in the block."""

    @property
    def makes_spans(self) -> bool:
        """Return whether it makes spans at present; if not, nothing else is called."""
        ...

    def __call__(self, event: "Event") -> object:
        """Called with each event."""
        ...

    def span(
        self, kind: SpanKind, name: str, reason: str | None, *, background: bool, origin: object
    ) -> Span:
        """Begin a span in the thread or task of the work: the current one until it ends.

        Args:
            reason: Why a value is loaded.
            background: No caller waits for it, so it begins a separate trace, linked to *origin*.
        """
        ...

    def origin(self) -> object:
        """Return the current span, which background work is linked to, or None."""
        ...


@dataclass(frozen=True, kw_only=True)
class Event:
    """One fact. `name` is the template of the key, never the key: it holds no personal data."""

    kind: Kind
    name: str
    at: float
    """Wall-clock seconds since the epoch."""
    guarded: bool | None = None
    """acquired, claimed, released, detached, resumed, elected, started, passed: False when the
    store was out and the policy let it through. outage: True when the call was refused, as the
    policy "closed" says."""
    waited: float | None = None
    """acquired, busy, passed, waited, claimed, resumed, replayed, duplicate, elected: seconds spent
    waiting for others."""
    held: float | None = None
    """released, completed, late, lost, leaked, detached, resigned, deposed: seconds since it was
    acquired."""
    retry_after: float | None = None
    """busy, duplicate: seconds until the key is free at the latest. throttled: until the next call
    is allowed."""
    state: Literal["running", "done"] | None = None
    """duplicate: whether the first one is still running."""
    source: Source | None = None
    """duplicate, replayed, mismatch: "table" where the database of `within` has answered."""
    fence: int | None = None
    """acquired, resumed, elected, resigned, deposed, started: the fence, if one was asked for."""
    cause: str | None = None
    """outage, lost, leaked, degraded, rejected_write, failed, clock_skew: why, as a code that does
    not change: "silent", "refused" … recovered: what the outage began with. completed: "expired",
    its key was free; "not_stored", it is recorded without its result.
    switched: how it was learnt ("announced", "asked", "connecting")."""
    detail: str | None = None
    """The cause as a sentence, for people."""
    lasted: float | None = None
    """recovered: seconds the outage lasted."""
    took: float | None = None
    """loaded, degraded: seconds that the load took. finished, failed: that a scheduled function
    ran."""
    delay: float | None = None
    """started: seconds after its scheduled time."""
    count: int | None = None
    """missed: how many runs did not take place. interrupted: how many items were received."""
