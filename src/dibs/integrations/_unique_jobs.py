"""Which jobs are the same and for how long, and what is tried to get the claim of one: no I/O."""

import hashlib
import inspect
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Unpack
from urllib.parse import quote
from weakref import WeakKeyDictionary

from .._internal_api import (
    UNGUARDED_TOKEN,
    ClaimOptions,
    ClaimRequest,
    KeyInfo,
    OutagePolicy,
    Seconds,
    Template,
    TypedDict,
    answering,
    refuse_unknown,
    returned_type,
    seconds,
    shown,
    signature_of,
    token_hint,
)
from ..errors import Duplicate, LeaseLost, UsageError

_log = logging.getLogger("dibs")

STARTED = "started"
"""In place of a token: a retry of a job that was unique until it started, and needs no claim. With
`alone`, before the token of its turn."""
AGAIN_AFTER, AGAIN_WITHIN = 1.0, 10.0
"""How long a delivery waits in the queue that meets an earlier one, at least and at most; brokers
deliver again what waits for longer than their own timeout."""
ALONE = "job:alone:"
"""Before the key of a job: the claim on being the one that runs, its turn."""
SLOT = "job:slot:"
"""Before a number and the key of a job: what the second, third … job with that key has. Behind it,
the key might be that of other arguments."""
TURN_WITHIN = 5.0
"""How long a worker waits for the turn of a job that cannot be sent for later, at most."""
RUN_NAME = "job:{id}"
"""What events call the claim on the id of a job."""
_FIELD = re.compile(r"\{[^{}]*\}")
_DECLARED: "WeakKeyDictionary[object, dict[str, str]]" = WeakKeyDictionary()
"""For each client, the name of the job that was the first to have a shape of keys."""
TASK = "{task}"
"""The field of a template that is the name of the job itself."""
LOOK_AFTER = 0.1
"""Seconds after which a producer looks again at a job that is being sent or started."""
LOOK_EVERY = 0.5
"""Seconds after which one who waits for the result of an existing job looks where that is."""
MOST_AT_ONCE = 100
"""Jobs with the same key: each of them has a key, and all are tried until one is free."""
LONGEST_ID = 200
"""Of a job, in characters: it is the note of a claim."""


def in_base64(data: bytes) -> str:
    """Return a message that waits, as text."""
    return b64encode(data).decode()


def from_base64(text: str) -> bytes:
    """Return the same, as bytes."""
    return b64decode(text)


class JobKeywords(TypedDict, total=False):
    """Options of `unique`, the same in every framework."""

    until: Literal["start", "end"] | Seconds
    """How long another job with the same key is a duplicate: until the job starts, until it ends,
    or (seconds) until that long after its end."""
    alone: bool
    """With `until="start"`: of the jobs with the same key one runs at a time. So one runs, and at
    most one waits, which begins when that has ended."""
    again: Literal["replace", "postpone"] | None
    """With `until="start"`, what another job does to one that waits: it runs in its place, at its
    time ("replace"), or at the time that the other one asks for ("postpone"). None: it is a
    duplicate."""
    limit: int | None
    """How many jobs with the same key may be there at once, up to 100; None: one."""
    queue: bool
    """No job is a duplicate: all run, in the order in which they were sent, one (or `limit`) at a
    time for each key. Those that wait are kept in Redis, without an expiry, and the end of a run
    sends the next one."""
    queued: Seconds
    """How long the key stays taken while the job waits in the queue, beyond its own delay."""
    lease: Seconds
    """How long the key stays taken after the worker is lost."""
    on_duplicate: "Literal['return', 'raise'] | Callable[..., Any]"
    """What a caller gets that enqueues a duplicate: the existing job, the error `Duplicate`, or
    what a function returns, which gets the error and the arguments of the job that it names."""
    on_outage: OutagePolicy | None
    """"open" goes on unguarded, "closed" raises Unavailable. None: the policy of the client."""


class UniqueKeywords(JobKeywords, closed=True):
    """Options of `unique`."""


class TransactionKeywords(JobKeywords, total=False, closed=True):
    """Options of `unique` where a job can run in a transaction."""

    within: Callable[[], Any] | None
    """Opens a transaction, whose value is the first argument of the job: the record of what was
    done commits with it."""
    codec: object
    """With *within*: how a result is kept, as for `once`."""


class UniqueOptions:
    """How long a job is unique. UsageError: an option is invalid."""

    within: Callable[[], Any] | None = None

    def __init__(
        self,
        *,
        until: Literal["start", "end"] | Seconds = "end",
        alone: bool = False,
        again: Literal["replace", "postpone"] | None = None,
        limit: int | None = None,
        queue: bool = False,
        queued: Seconds = 3600,
        lease: Seconds = 10,
        on_duplicate: "Literal['return', 'raise'] | Callable[..., Any]" = "return",
        on_outage: OutagePolicy | None = None,
    ) -> None:
        if on_duplicate not in ("return", "raise") and not callable(on_duplicate):
            message = f'on_duplicate must be "return", "raise" or a function, not {on_duplicate!r}'
            raise UsageError(message)
        if isinstance(until, str) and until not in ("start", "end"):
            raise UsageError(f'until must be "start", "end" or seconds, not {until!r}')
        if type(alone) is not bool:  # text of a configuration
            raise UsageError(f"alone must be True or False, not {alone!r}")
        if alone and until != "start":
            raise UsageError('alone=True goes with until="start": with others no two run at once')
        if alone and limit is not None:
            raise UsageError("alone=True: one runs, and one waits; no limit=")
        if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_AT_ONCE):
            raise UsageError(f"limit must be a number from 1 to {MOST_AT_ONCE}, not {limit!r}")
        if type(queue) is not bool:
            raise UsageError(f"queue must be True or False, not {queue!r}")
        if queue and (until != "end" or again is not None):
            raise UsageError('queue=True: every job runs, and has its key until="end"; no again=')
        if queue and on_duplicate != "return":
            raise UsageError("queue=True: no job is a duplicate; no on_duplicate=")
        self.alone = alone
        self.queue = queue
        self.again: Literal["replace", "postpone"] | None = again
        self.limit = limit or 1
        self.on_duplicate = on_duplicate
        self.queued = seconds(queued, "queued")
        self.lease = seconds(lease, "lease")
        self._check_again(until, limit)
        self.is_over_at_start = until == "start"
        self.is_over_at_end = isinstance(until, str)
        """Another job with the same key may run after it."""
        self.covers_earlier = until == "end" and self.limit == 1 and not queue
        """A run that completes has done the work of those that were sent before it began."""
        window = self.queued if isinstance(until, str) else seconds(until, "until")
        terms: dict[str, Any] = {"lease": self.lease, "on_outage": on_outage, "work": "job"}
        after = "release" if self.is_over_at_end else "hold"
        self.window = window
        # Longer than the lease of a run that was lost just now, or its second delivery is lost too.
        wait = 1.5 * self.lease + 0.5
        self.claim = ClaimOptions(window=window, after=after, **terms)
        self.patient_claim = ClaimOptions(window=window, after=after, wait=wait, **terms)
        self.look = ClaimOptions(window=window, after=after, wait=LOOK_AFTER, **terms)
        """How a key is claimed whose job is being sent or started at this moment."""
        self.turn = ClaimOptions(window=window, after="release", **terms)
        self.run = ClaimOptions(window=self.queued, after="hold", **terms)
        """How the id of a job is claimed."""
        surely: dict[str, Any] = {**terms, "on_outage": "closed"}
        self.next = ClaimOptions(window=window, after=after, **surely)
        """How the key of a job is claimed that has waited."""
        self.sent_once = ClaimOptions(window=10 * self.lease, after="hold", **surely)
        """How sending it is claimed."""
        self.on_outage: OutagePolicy | None = on_outage
        self.terms = terms
        self._tasks: set[str] = set()

    def _check_again(self, until: object, limit: int | None) -> None:
        if self.again is None:
            return
        if self.again not in ("replace", "postpone"):
            raise UsageError(f'again must be "replace" or "postpone", not {self.again!r}')
        if until != "start" or limit is not None:
            raise UsageError('again= goes with until="start", or what is newest is lost; no limit=')
        if self.queued <= self.lease:  # the remaining time tells which of the two it is
            raise UsageError("with again=, queued must be longer than lease")

    def claims_of(self, function: Callable[..., Any]) -> tuple[ClaimOptions, ClaimOptions]:
        """Return how a worker claims the key of a job: at once, or with patience."""
        return self.claim, self.patient_claim

    def in_queue(self, delay: float) -> float:
        """How long the claim of a job is kept that starts in *delay* seconds at the earliest."""
        return max(self.queued, self.window) + max(delay, 0.0)

    def used_by(self, task: str, template: str) -> None:
        """UsageError: two jobs would have the same keys, and one would be answered as the other."""
        self._tasks.add(task)
        if len(self._tasks) > 1 and TASK not in template and not self.queue:
            names = " and ".join(sorted(self._tasks)[:2])
            message = f"{template!r} is used by {names}, which would be duplicates of each other"
            raise UsageError(f"{message}: add {{task}}, or call unique() for each")


class TransactionOptions(UniqueOptions):
    """Options where a job can run in a transaction. UsageError: an option is invalid."""

    def __init__(
        self,
        *,
        within: Callable[[], Any] | None = None,
        codec: object = "json",
        **options: Unpack[UniqueKeywords],
    ) -> None:
        super().__init__(**options)
        if inspect.iscoroutinefunction(self.on_duplicate):
            raise UsageError("on_duplicate must be a plain function: nothing awaits its answer")
        if within is not None and self.is_over_at_start:
            raise UsageError('within= goes with until="end" or seconds: what starts is not done')
        self.within = within
        self._codec = codec

    def claims_of(self, function: Callable[..., Any]) -> tuple[ClaimOptions, ClaimOptions]:
        """Return the claims; with a database they keep the result of *function*."""
        usual = super().claims_of(function)
        if self.within is None:
            return usual
        terms = dict(self.terms, codec=self._codec, type=returned_type(function))
        at_once, patient = (
            ClaimOptions(window=self.window, after="replay", wait=each.wait, **terms)
            for each in usual
        )
        return at_once, patient


def unique_options(options: UniqueKeywords) -> UniqueOptions:
    """Return the options of `unique`. Raises UsageError if one is invalid.

    Raises TypeError if it has no such one.
    """
    refuse_unknown("unique", options, UniqueKeywords)
    return UniqueOptions(**options)


def transaction_options(options: TransactionKeywords) -> TransactionOptions:
    """Return the options of `unique`, as `unique_options` does, where a job has transactions."""
    refuse_unknown("unique", options, TransactionKeywords)
    return TransactionOptions(**options)


class Sending(NamedTuple):
    """What the message of a job takes along."""

    token: str
    key: str
    """Of several that the job may have, the one that was free."""
    delay: float | None = None
    """When it is to start, in seconds, if it takes the time of another one; None: as asked for."""
    sent_at: float | None = None
    """By the server's clock; None: not known."""
    sending: str | None = None
    """What tells the times apart at which its id is sent, if its token does not: it may be sent
    more than once."""


class Replaced(NamedTuple):
    """A job that waited, in whose place another one is sent."""

    job_id: str
    hint: str
    """Tells its claim from others."""
    remaining: float
    """How long its key would have been taken, in seconds."""

    @property
    def key(self) -> str:
        """The key of the record that it was replaced: its message is still in a queue."""
        return f"job:replaced:{self.job_id}:{self.hint}"


class Job(NamedTuple):
    """A job that a worker is about to run."""

    id: str
    token: str | None
    """What its message brought; None: it was sent without a claim."""
    attempt: object = None
    """What tells its retries apart; None: the framework never delivers a message twice."""
    comes_again: bool = True
    """Whether a delivery that meets an earlier one can be sent once more."""
    sent_by: str | None = None
    """What the message of a retry brought: the `sending` of the run that sent it."""
    patience: float = 0.0
    """How long a worker waits for its turn, in seconds: it cannot be sent for later."""
    sent_at: float | None = None
    """When it was sent, by the server's clock, as its message says."""

    @property
    def has_started(self) -> bool:
        """Return whether this is a retry of a job that was unique until it started."""
        return self.token is not None and self.token.startswith(STARTED)

    @property
    def sending(self) -> str:
        """Tells the times apart at which its id was sent; an id may be sent again after its end.

        Retries belong to the same one: if a run loses its claim, and it and the next delivery of
        its message are both tried again, one of the two retries runs.
        """
        return self.sent_by or self._token_hash

    @property
    def _token_hash(self) -> str:
        return hashlib.sha256(self.token.encode()).hexdigest()[:8] if self.token else "-"

    @property
    def record_name(self) -> str:
        """Return what tells the record of its work from those of other jobs with the same key.

        Not by attempt or token: no retry of what has committed runs.
        """
        return f"job:{self.id}"

    @property
    def run_key(self) -> str:
        """The key of this run of it."""
        return f"job:{self.id}:{self.attempt}:{self.sending}"

    @property
    def again_key(self) -> str:
        """The key of sending its message once more.

        Two retries have two tokens: one may be lost while the claim of the other stays in the
        queue.
        """
        return f"{self.run_key}:{self._token_hash}:again"


class NotThere(Exception):
    """A job whose turn it is was removed from its queue."""


class NotYet(Exception):
    """A job whose turn it is cannot be sent at this moment."""


class NotRun(Exception):
    """A job was not run in its transaction, because of *error*."""

    def __init__(self, error: Duplicate) -> None:
        super().__init__(str(error))
        self.error = error


class UniqueKey:
    """Which jobs are the same: a key from the arguments of a call, and for how long."""

    def __init__(
        self, template: str, function: Callable[..., Any], options: UniqueOptions, task: str = ""
    ) -> None:
        """*task*: the name of the job, for `{task}`.

        Raises UsageError if *function* lacks a field.
        """
        is_named = TASK in template and "task" not in signature_of(function).parameters
        options.used_by(task, template if is_named else template.replace(TASK, "{}"))
        # Quoted, so that the name of one job and a field of another do not make the same key.
        written = template.replace(TASK, quote(task, safe="")) if is_named else template
        within = options.within
        self.sent = function if within is None else shown(within, function)
        """The function as those see it who send a job."""
        self.of = Template(written, self.sent)
        self.shape = _FIELD.sub("{}", written)
        """What its keys have in common: jobs with the same one can have the same key."""
        self.name = template
        self.task = task
        self.options = options
        self._claims = options.claims_of(function)
        on_duplicate = options.on_duplicate
        self._answer = (
            answering(on_duplicate, self.sent, "on_duplicate") if callable(on_duplicate) else None
        )

    def answer(
        self, error: Duplicate, args: Any, kwargs: Any, existing: Callable[[Duplicate], Any]
    ) -> Any:
        """Return what the caller who enqueues a duplicate gets. *existing*: the job in the error.

        Duplicate: the caller asked for it, or the existing job is not known.
        """
        if self._answer is not None:
            return self._answer(error, tuple(args), dict(kwargs))
        if self.options.on_duplicate == "raise" or error.note is None:
            raise error
        return existing(error)

    def slots(self, key: str) -> list[str]:
        """Return the keys that a job with *key* may have, one of them. *key*: that, or its own one.

        Its own one is the first to be tried.
        """
        if self.options.limit == 1:
            return [key]
        common = self.common(key)
        more = (f"{SLOT}{number}:{common}" for number in range(2, self.options.limit + 1))
        return list(dict.fromkeys([key, common, *more]))

    def common(self, key: str) -> str:
        """Return the key from which *key* and all others of the same jobs are made."""
        is_numbered = self.options.limit > 1 and key.startswith(SLOT)
        return key.removeprefix(SLOT).partition(":")[2] if is_numbered else key

    @property
    def record_options(self) -> ClaimOptions:
        """Return what is kept of a job that runs in a transaction."""
        return self._claims[0]

    def request(
        self, key: str, *, note: str | None = None, token: str | None = None, wait: bool = False
    ) -> ClaimRequest:
        """Return the claim of a worker on *key*: for the job with the id *note*, or by *token*."""
        return ClaimRequest(key, self._claims[wait], None, self.name, note, token)

    def queue_request(self, key: str, job_id: str) -> ClaimRequest:
        """Return the claim on *key* for a job that is sent.

        Raises UsageError if its id is too long.
        """
        if len(job_id) > LONGEST_ID:
            message = (
                f"the id of a job may have {LONGEST_ID} characters; this one has {len(job_id)}"
            )
            raise UsageError(f"{self.task or self.name}: {message}")
        return ClaimRequest(key, self.options.claim, None, self.name, job_id)

    def turns(self, key: str, job: Job) -> list[ClaimRequest]:
        """The ways to get the turn of *job* to run, one after the other; none: it needs none."""
        if not self.options.alone:
            return []
        text, name, options = ALONE + key, ALONE + self.name, self.options.turn
        if job.patience:
            options = ClaimOptions(
                window=options.window, after="release", wait=job.patience, **self.options.terms
            )
        fresh = ClaimRequest(text, options, None, name, job.id)
        if not job.has_started or (own := claimed_by(key, job.token)) is None:
            return [fresh]
        return [ClaimRequest(text, options, None, name, None, own[1]), fresh]

    def next_request(self, key: str, job_id: str) -> ClaimRequest:
        """Return the claim on *key* for job *job_id*, which has waited for it."""
        return ClaimRequest(key, self.options.next, None, self.name, job_id)

    def turn_request(self, turn_key: str) -> ClaimRequest:
        """Return the claim on sending a job that has waited."""
        return ClaimRequest(turn_key, self.options.sent_once, None, RUN_NAME)

    def look_request(self, key: str, job_id: str) -> ClaimRequest:
        """Return the same as `queue_request`, which waits for a moment."""
        return self.queue_request(key, job_id)._replace(options=self.options.look)

    def replaced_request(
        self, replaced: Replaced, job_id: str, *, wait: bool = False
    ) -> ClaimRequest:
        """Return the record that job *job_id* replaces another one; *wait*: for a producer."""
        options = ClaimOptions(
            window=max(replaced.remaining, 1.0), after="hold", lease=self.options.lease,
            wait=self.options.patient_claim.wait if wait else 0, on_outage=self.options.on_outage,
        )  # fmt: skip
        return ClaimRequest(replaced.key, options, None, RUN_NAME, job_id)

    def delay_of(self, replaced: Replaced, delay: float) -> float:
        """In how many seconds a job starts that replaces another one, and asked for *delay*."""
        if self.options.again == "postpone":
            return delay
        return max(replaced.remaining - self.options.in_queue(0.0), 0.0)

    def run_request(self, job: Job) -> ClaimRequest | None:
        """Return the claim on one run of *job*; None: it is not needed."""
        if job.attempt is None:
            return None
        return ClaimRequest(job.run_key, self.options.run, None, RUN_NAME)

    def again_request(self, job: Job, delay: float) -> ClaimRequest:
        """Return the claim on sending *job* once more, in *delay* seconds."""
        options = ClaimOptions(
            window=delay, after="hold", lease=delay, on_outage=self.options.on_outage
        )
        return ClaimRequest(job.again_key, options, None, RUN_NAME)

    def tries(self, key: str, job: Job) -> list[ClaimRequest]:
        """The ways to get the claim of *job*, in turn, while what is in the way is its own.

        With its token. Without: it was enqueued in an outage, it waited for too long, or an earlier
        run of it was lost with its worker. Then the key is claimed again, after the lease of that
        run.
        """
        fresh = [self.request(key, note=job.id), self.request(key, note=job.id, wait=True)]
        if job.token in (None, UNGUARDED_TOKEN):
            return fresh
        return [self.request(key, token=job.token), *fresh]


def claimed_by(key: str, token: str | None) -> tuple[str, str] | None:
    """The key that the message of a job with *key* has claimed, and its token. None: nothing.

    The claim is not renewed.
    """
    if token in (None, STARTED):
        return None
    own = token.removeprefix(f"{STARTED}:")
    return None if own == UNGUARDED_TOKEN else (key if own == token else ALONE + key, own)


def without_parameters(function: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """Return something with the signature of *function*, without the parameters *names*."""
    signature, left_out = signature_of(function), set(names)
    parameters = [each for name, each in signature.parameters.items() if name not in left_out]

    def call(*args: Any, **kwargs: Any) -> None: ...

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__qualname__ = function.__qualname__
    return call


def again_after(error: Duplicate, job: Job, lease: float) -> float | None:
    """When to send *job* once more, in seconds: an earlier delivery of it runs, and may be lost.

    None: it has ended, or another job is in the way. *lease*: how long a lost run is in the way.
    """
    if not job.comes_again or error.state != "running" or is_anothers(error, job):
        return None
    return min(max(lease, AGAIN_AFTER), AGAIN_WITHIN)


def is_anothers(error: Duplicate, job: Job) -> bool:
    """Return whether another job does the work of *job*.

    False: its own run, or a transaction that may be rolled back, is in the way.
    """
    is_open = error.source == "table" and error.state == "running"
    return error.key != job.run_key and not is_open and not is_turn(error)


def is_turn(error: Duplicate) -> bool:
    """Return whether a job has to wait until the one that runs has ended."""
    return error.key.startswith(ALONE)


def turn_after(age: float | None) -> float:
    """Return how soon a job that waits for its turn is sent again, in seconds.

    The longer the other one has been running (*age*), the less often.
    """
    return min(max((age or 0.0) / 2, AGAIN_AFTER), AGAIN_WITHIN)


def wait_for_transaction(job: Job, lease: float) -> float:
    """Return how many seconds a worker waits for another transaction with the key of *job*.

    If a run has just sent its retry, until that run is rolled back; otherwise as long as a lost run
    may last.
    """
    return AGAIN_AFTER if job.comes_again and job.attempt is not None else 1.5 * lease + 0.5


def is_taken(error: Duplicate, job: Job) -> bool:
    """Whether a place that *job* may have is taken by another job, so that it tries the next."""
    return error.key != job.run_key and error.note != job.id


def is_own(error: Duplicate | LeaseLost, job: Job) -> bool:
    """Return whether it is only *job* itself that is in the way."""
    return isinstance(error, LeaseLost) or error.note == job.id


def is_done(error: Duplicate, job: Job) -> bool:
    """Return whether this run of *job* has ended elsewhere.

    What its message has claimed is not needed.
    """
    return error.state == "done" and error.key == job.run_key


def replaced_by_token(job: Job) -> Replaced | None:
    """Return what the record about *job* would be, if it was replaced; None: it has no claim."""
    if job.has_started or (claimed := claimed_by("", job.token)) is None:
        return None
    hint = token_hint(f"{claimed[1].removeprefix('claim:')}@".encode())
    return Replaced(job.id, hint or "", 0.0)


def replaceable(entry: KeyInfo | None, lease: float) -> Replaced | None:
    """Return the job that waits, from what its key has.

    None: look again, it is being sent or started.
    """
    if entry is None or entry.note is None or not is_waiting(entry, entry.note, lease):
        return None
    return Replaced(entry.note, entry.token_hint or "", entry.remaining or 0.0)


def is_waiting(entry: KeyInfo, job_id: str | None, lease: float) -> bool:
    """Return whether *entry*, which has the key, is job *job_id* in its queue.

    One that runs, or is being sent at this moment, has its key for no longer than *lease*.
    """
    is_meant = entry.kind == "claim" and entry.note == job_id
    return is_meant and (entry.remaining or 0.0) > lease


# ---- lines in the log


def log_unsent(name: str, job_id: str, error: Duplicate) -> None:
    """A producer does not send a job."""
    _log.info("%s: job %s is not sent: job %s exists", name, job_id, error.note or "?")


def log_dropped_send(name: str, job_id: str) -> None:
    """A job that runs has sent another one with its key, and is tried again itself."""
    text = "%s: job %s is not sent: the job that has sent it is tried again"
    _log.info(text, name, job_id)


def log_refusal(name: str, job: Job, error: Duplicate) -> None:
    """A worker does not run *job*."""
    if is_turn(error):
        _log.debug("%s: job %s waits: job %s runs", name, job.id, error.note or "?")
    elif error.key == job.run_key:
        _log.info("%s: job %s is not run: another delivery of it exists", name, job.id)
    else:
        _log.info("%s: job %s is not run: job %s exists", name, job.id, error.note or "?")


def log_replay(name: str, job: Job) -> None:
    """The work of *job* has been committed, by an earlier run."""
    _log.info("%s: job %s is not run: its work has been committed", name, job.id)


def log_loss(name: str, job_id: str) -> None:
    """The claim of a job was lost while it ran."""
    _log.warning(
        "%s: the claim of job %s was lost while it ran; it may have run twice", name, job_id
    )


def log_waits(name: str, job_id: str) -> None:
    """A job waits for its turn."""
    _log.debug("%s: job %s waits for its turn", name, job_id)


def log_not_sent(name: str, job_id: str, error: BaseException) -> None:
    """A job whose turn it is cannot be sent now."""
    text = "%s: job %s has its turn and could not be sent; it is tried again: %s"
    _log.warning(text, name, job_id, type(error).__name__)


def log_taken(name: str, job_id: str | None) -> None:
    """A job has the key of another one."""
    text = "%s: job %s is replaced: the worker that has fetched its message is dead"
    _log.info(text, name, job_id or "?")


def declare(client: object, key: UniqueKey) -> None:
    """Warn if another job has keys of the same shape: one would be answered as the other."""
    if key.options.queue:  # they wait for each other
        return
    first = _DECLARED.setdefault(client, {}).setdefault(key.shape, key.task)
    if first != key.task:
        _log.warning(
            "%s: %s and %s have the same keys, and are duplicates of each other; add {task}, or "
            "use another template", key.name, first, key.task,
        )  # fmt: skip


def log_callbacks(name: str, job_id: str) -> None:
    """A duplicate was sent with callbacks, which will not be called."""
    _log.warning("%s: a duplicate of job %s has callbacks; they are not called", name, job_id)
