"""What integrations may use of dibs beside its public API.

The public API is `dibs`, `dibs.errors`, `dibs.events` and `dibs.claims`. Integrations import from
there, from here, and from `dibs._http`; a test checks it. Nothing here is for applications.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ._core.claim import NO_PAYLOAD, How, Replay
from ._core.codec_types import returned_type
from ._core.cron_words import cron_words
from ._core.done_table import DIALECTS, RefusedByTable, ddl, remaining, shown
from ._core.inspection import (
    KEY_KINDS,
    MOST_SHOWN,
    QUEUE,
    KeyInfo,
    KeyKind,
    Page,
    Permit,
    ReleaseOutcome,
    ScheduledRun,
    ServerInfo,
    cut,
    exactly,
    is_shortened,
    shorten,
    token_hint,
)
from ._core.jobs import (
    ResultWatch,
    Standing,
    WaitingJob,
    covers,
    fetched_by,
    standing_of,
    ticket_of,
)
from ._core.keys import (
    Seconds,
    Template,
    answering,
    fields_of,
    fingerprint,
    printable,
    seconds,
)
from ._core.keywords import TypedDict, refuse_unknown
from ._core.lease import UNGUARDED, token_for
from ._core.lease import lend as _lend
from ._core.options import (
    ClaimKeywords,
    ClaimOptions,
    HoldKeywords,
    OnCancel,
    OutagePolicy,
    check_hold,
    takes,
)
from ._core.schedule import lease_name, next_runs
from ._core.signatures import signature_of
from ._core.throttle import ThrottleKeywords, UsageOutcome
from ._databases import NotOurs, open_in_django
from ._forks import RenewedLock, fork_safe_lock
from ._locks import Guard, Signal, start_thread, try_lock
from ._server.die_with_parent import ended_with_parent
from .errors import Duplicate, UsageError

if TYPE_CHECKING:
    from ._async.stream_feed import AsyncStream
    from ._sync.stream_feed import Stream

    AnyAsyncStream = AsyncStream[Any]
    AnyStream = Stream[Any]
else:
    AnyAsyncStream = AnyStream = Any

if TYPE_CHECKING:
    from ._async.claim import AsyncClaim, AsyncClaiming
    from ._async.client import AsyncDibs
    from ._async.hold import AsyncLease
    from ._async.inspector import AsyncInspector
    from ._async.job_keys import AsyncJobKeys
    from ._async.transaction import AsyncWithin, AsyncWork
    from ._sync.claim import Claim, Claiming
    from ._sync.client import Dibs
    from ._sync.hold import Lease
    from ._sync.inspector import Inspector
    from ._sync.job_keys import JobKeys
    from ._sync.transaction import Within, Work

    __all__ = [
        "DIALECTS",
        "KEY_KINDS",
        "MOST_SHOWN",
        "QUEUE",
        "UNGUARDED_TOKEN",
        "AsyncClaim",
        "AsyncClaiming",
        "AsyncInspector",
        "AsyncJobKeys",
        "AsyncWithin",
        "AsyncWork",
        "Claim",
        "ClaimKeywords",
        "ClaimOptions",
        "ClaimRequest",
        "Claiming",
        "Guard",
        "HoldKeywords",
        "How",
        "Inspector",
        "JobKeys",
        "KeyInfo",
        "KeyKind",
        "NotOurs",
        "OnCancel",
        "OutagePolicy",
        "Page",
        "Permit",
        "ReleaseOutcome",
        "RenewedLock",
        "Replay",
        "ResultWatch",
        "ScheduledRun",
        "Seconds",
        "ServerInfo",
        "Signal",
        "Standing",
        "Template",
        "ThrottleKeywords",
        "TypedDict",
        "UsageOutcome",
        "WaitingJob",
        "Within",
        "Work",
        "answering",
        "check_hold",
        "checked_fence",
        "claiming",
        "committed",
        "covers",
        "cron_words",
        "cut",
        "ddl",
        "ended_with_parent",
        "exactly",
        "fetched_by",
        "fields_of",
        "fingerprint",
        "fork_safe_lock",
        "inspector",
        "is_shortened",
        "job_keys",
        "key_of",
        "lease_name",
        "lend",
        "next_runs",
        "open_in_django",
        "printable",
        "refusal_in",
        "refuse_unknown",
        "remaining",
        "returned_type",
        "row_of",
        "seconds",
        "shorten",
        "shown",
        "signature_of",
        "standing_of",
        "start_thread",
        "takes",
        "throttling",
        "ticket_of",
        "token_hint",
        "transactions",
        "try_lock",
    ]  # fmt: skip


UNGUARDED_TOKEN = token_for("claim", UNGUARDED)
"""What `detach` returns for a claim that was made in an outage: it continues no claim."""


def checked_fence(lease: "Lease | AsyncLease") -> int:
    """Return its fence. Raises UsageError if it has none; an unguarded one never has."""
    if lease.fence is None:
        raise UsageError("the lease has no fence: ask for it with fence=True; unguarded has none")
    return lease.fence


class ClaimRequest(NamedTuple):
    """The arguments of a claim whose options were validated before."""

    key: str
    options: ClaimOptions
    payload: str | None
    """The fingerprint of the payload; None: payloads are not compared."""
    name: str
    """What events and errors call the key."""
    note: str | None = None
    """The text for duplicates of the claim."""
    token: str | None = None
    """The token of a detached claim that is continued; None: it is claimed."""
    find: Any = None
    """Looks up what was committed, for a duplicate whose first copy seems dead; see `committed`."""


@overload
def claiming(dibs: "Dibs", request: ClaimRequest) -> "Claiming": ...
@overload
def claiming(dibs: "AsyncDibs", request: ClaimRequest) -> "AsyncClaiming[Any]": ...
def claiming(dibs: Any, request: ClaimRequest) -> Any:
    """Return the context manager of `Dibs.claim` for *request*.

    Entering it raises what that raises.
    """
    key, options, payload, name, note, token, find = request
    fingerprint = NO_PAYLOAD if payload is None else payload.encode()
    return dibs._claim(key, options, fingerprint, name, note, token, find)


@overload
def transactions(kind: "type[Dibs] | Dibs", opener: Any, options: ClaimOptions) -> "Within": ...
@overload
def transactions(
    kind: "type[AsyncDibs] | AsyncDibs", opener: Any, options: ClaimOptions
) -> "AsyncWithin": ...
def transactions(kind: Any, opener: Any, options: ClaimOptions) -> Any:
    """Return what runs functions in transactions that *opener* opens, with the record of a claim.

    *kind*: for whose claims. UsageError: *opener* or an option does not fit.
    """
    return kind._within(opener, options)


def committed(kind: Any, within: Any) -> Any:
    """Return a function that looks up what transactions of *within* have committed under a key."""
    return kind._committed(within)


def key_of(claim: "AsyncClaim | Claim") -> bytes:
    """Return the key of *claim* in the store."""
    state: Any = claim
    return state._call.key


def refusal_in(result: object) -> Duplicate | None:
    """Return why a function was not run in a transaction; None: *result* is its result."""
    error = result.error if isinstance(result, RefusedByTable) else None
    return error if isinstance(error, Duplicate) else None


def row_of(claim: "AsyncClaim | Claim", addition: str) -> bytes:
    """Return the key of a row for something that is less than all of *claim*."""
    state: Any = claim
    return state._call.key + f" {addition}".encode()


def lend(claim: "AsyncClaim | Claim") -> str:
    """The token of *claim*, which stays open here: it is renewed until it is continued elsewhere.

    `detach` then keeps the key, also if the claim is not continued yet; an exception ends it.
    """
    state: Any = claim
    token = _lend(state._lease, "claim")
    return token if state._secret is None else token_for("claim", state._secret)


@overload
def inspector(dibs: "Dibs") -> "Inspector": ...
@overload
def inspector(dibs: "AsyncDibs") -> "AsyncInspector": ...
def inspector(dibs: Any) -> Any:
    """Reads what the server of *dibs* holds in its namespace, and frees what a person wants."""
    return dibs._inspector()


@overload
def job_keys(dibs: "Dibs") -> "JobKeys": ...
@overload
def job_keys(dibs: "AsyncDibs") -> "AsyncJobKeys": ...
def job_keys(dibs: Any) -> Any:
    """Return what jobs keep beside their claims."""
    return dibs._job_keys


@overload
def throttling(
    dibs: "Dibs", key: str, name: str, options: ThrottleKeywords, cost: int
) -> UsageOutcome: ...
@overload
def throttling(
    dibs: "AsyncDibs", key: str, name: str, options: ThrottleKeywords, cost: int
) -> Awaitable[UsageOutcome]: ...
def throttling(dibs: Any, key: str, name: str, options: ThrottleKeywords, cost: int) -> Any:
    """Do what `Dibs.throttle` does, with what is left in place of Busy. Raises Unavailable."""
    return dibs._throttle(key, name, options, cost)


# ---- streams


def begin_stream(stream: Any) -> Any:
    """Join what a streamed function returned; the id of its run. To be awaited with asyncio."""
    return stream._begin()


def wait_for_item(stream: Any, seconds: float) -> Any:
    """Whether the next step of it can be taken at once. To be awaited with asyncio."""
    return stream._has_news(seconds)


def item_text(stream: Any, item: Any) -> str:
    """An item as text."""
    return stream._text(item)
