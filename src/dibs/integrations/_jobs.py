"""Jobs that must not run twice: the claim on a job's key, from where it is queued to its end.

A job claims its key where it is enqueued, with its id as the note. The claim travels in the
message, as a token; in the queue nobody renews it, so `queued` bounds it. The worker continues the
claim, renews it while the job runs, and ends it: a job that is lost with its worker frees its key
after one lease. A retry takes the claim along in its own message.

Brokers deliver a message again if they do not hear that it was handled. So each run also claims
the id of its job, and leaves that behind: of all deliveries of a message, one runs. One that meets
an earlier one that still runs is sent once more, for later: that run may be lost. Of several such
deliveries one is, so that they do not multiply.

Async and sync side by side: too little to be generated.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from .._interface import (
    ClaimOptions,
    ClaimRequest,
    OutagePolicy,
    Seconds,
    Template,
    claiming,
    seconds,
)
from ..errors import Duplicate, LeaseLost, Unavailable, UsageError

if TYPE_CHECKING:
    from .. import AsyncDibs, Dibs
    from .._interface import AsyncClaim, Claim

STARTED = "started"
"""In place of a token: a retry of a job that was unique until it started, and needs no claim."""
AGAIN_AFTER, AGAIN_WITHIN = 1.0, 10.0
"""How long a delivery waits in the queue that meets an earlier one, at least and at most; brokers
deliver again what waits for longer than their own timeout."""
RUN_NAME = "job:{id}"
"""What events call the claim on the id of a job."""


class UniqueKeywords(TypedDict, total=False):
    """Options of `unique`, the same in every framework."""

    until: Literal["start", "end"] | Seconds
    """How long another job with the same key is a duplicate: until the job starts, until it ends,
    or (seconds) until it ends and at least that long after it was enqueued."""
    queued: Seconds
    """How long the key stays taken while the job waits in the queue, beyond its own delay."""
    lease: Seconds
    """How long the key stays taken after the worker is lost."""
    on_outage: OutagePolicy | None
    """"open" goes on unguarded, "closed" raises Unavailable. None: the policy of the client."""


class UniqueOptions:
    """How long a job is unique. UsageError: one of the options makes no sense."""

    def __init__(
        self,
        *,
        until: Literal["start", "end"] | Seconds = "end",
        queued: Seconds = 3600,
        lease: Seconds = 10,
        on_outage: OutagePolicy | None = None,
    ) -> None:
        if isinstance(until, str) and until not in ("start", "end"):
            raise UsageError(f'until must be "start", "end" or seconds, not {until!r}')
        self.queued = seconds(queued, "queued")
        self.lease = seconds(lease, "lease")
        self.is_over_at_start = until == "start"
        window = self.queued if isinstance(until, str) else seconds(until, "until")
        terms: dict[str, Any] = {"lease": self.lease, "on_outage": on_outage}
        after = "release" if isinstance(until, str) else "hold"
        self.window = window
        # Longer than the lease of a run that was lost just now, or its second delivery is lost too.
        wait = 1.5 * self.lease + 0.5
        self.claim = ClaimOptions(window=window, after=after, **terms)
        self.patient_claim = ClaimOptions(window=window, after=after, wait=wait, **terms)
        self.run = ClaimOptions(window=self.queued, after="hold", **terms)
        self.patient_run = ClaimOptions(window=self.queued, after="hold", wait=wait, **terms)
        """How the id of a job is claimed; who meets a run that was lost waits for its lease."""
        self.on_outage: OutagePolicy | None = on_outage

    def in_queue(self, delay: float) -> float:
        """How long the claim of a job is kept that starts in *delay* seconds at the earliest."""
        return max(self.queued, self.window) + max(delay, 0.0)


class Job(NamedTuple):
    """A job that a worker is about to run."""

    id: str
    token: str | None
    """What its message brought; None: it was sent without a claim."""
    attempt: object = None
    """What tells its retries apart; None: the framework never delivers a message twice."""
    comes_again: bool = True
    """Whether a delivery that meets an earlier one is sent once more, instead of waiting for it."""

    @property
    def run_key(self) -> str:
        """The key of this run of it."""
        return f"job:{self.id}:{self.attempt}"


class UniqueKey:
    """Which jobs are the same: a key from the arguments of a call, and for how long."""

    def __init__(self, template: str, function: Callable[..., Any], options: UniqueOptions) -> None:
        """UsageError: *function* lacks a field of *template*."""
        self.of = Template(template, function)
        self.name = template
        self.options = options

    def request(
        self, key: str, *, note: str | None = None, token: str | None = None, wait: bool = False
    ) -> ClaimRequest:
        """The claim on *key*; for a job with the id *note*, or continued with *token*."""
        options = self.options.patient_claim if wait else self.options.claim
        return ClaimRequest(key, options, None, self.name, note, token)

    def run_request(self, job: Job) -> ClaimRequest | None:
        """The claim on one run of *job*; None: it is not needed."""
        if job.attempt is None:
            return None
        options = self.options.run if job.comes_again else self.options.patient_run
        return ClaimRequest(job.run_key, options, None, RUN_NAME)

    def again_request(self, job: Job, delay: float) -> ClaimRequest:
        """The claim on sending *job* once more, in *delay* seconds."""
        options = ClaimOptions(
            window=delay, after="hold", lease=delay, on_outage=self.options.on_outage
        )
        return ClaimRequest(f"{job.run_key}:again", options, None, RUN_NAME)

    def tries(self, key: str, job: Job) -> list[ClaimRequest]:
        """The ways to get the claim of *job*, in turn, while what is in the way is its own.

        With its token. Without: it waited for too long, or an earlier run of it was lost with its
        worker. Then the key is claimed anew, once the lease of that run is over.
        """
        anew = [self.request(key, note=job.id), self.request(key, note=job.id, wait=True)]
        return anew if job.token is None else [self.request(key, token=job.token), *anew]


def without_parameters(function: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """Something with the signature of *function*, without the parameters that nobody sends."""
    signature, left_out = inspect.signature(function), set(names)
    kept = [each for name, each in signature.parameters.items() if name not in left_out]

    def call(*args: Any, **kwargs: Any) -> None: ...

    call.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    call.__qualname__ = function.__qualname__
    return call


def again_after(error: Duplicate, job: Job, lease: float) -> float | None:
    """When to send *job* once more, in seconds: an earlier delivery of it runs, and may be lost.

    None: it has ended, or another job is in the way. *lease*: how long a lost run is in the way.
    """
    is_own_run = error.state == "running" and error.key == job.run_key
    if not (job.comes_again and is_own_run):
        return None
    return min(max(lease, AGAIN_AFTER), AGAIN_WITHIN)


def _is_own(error: Duplicate | LeaseLost, job: Job) -> bool:
    """Whether it is only *job* itself that is in the way."""
    return isinstance(error, LeaseLost) or error.note == job.id


# ---- Dibs


class UniqueJobs:
    """What a framework with threads or processes asks for. *dibs*: where the keys are."""

    def __init__(self, dibs: "Dibs", key: UniqueKey) -> None:
        self._dibs = dibs
        self._key = key
        self.key_of = key.of

    @contextmanager
    def queueing(self, key: str, job_id: str, delay: float = 0.0) -> Generator[str]:
        """Claim *key* for a job that is sent in the block; yields the token for its message.

        If the block raises, nothing stays claimed. Duplicate: such a job is there, `note` its id.
        """
        with claiming(self._dibs, self._key.request(key, note=job_id)) as claim:
            yield claim.detach(ttl=self._key.options.in_queue(delay))

    def start(self, key: str, job: Job) -> "Run":
        """Claim a run of *job*. Duplicate: another such job is there, or this one runs or ran."""
        with ExitStack() as stack:
            run = self._key.run_request(job)
            if run is not None:
                stack.enter_context(claiming(self._dibs, run))
            claim = None if job.token == STARTED else self._claimed(stack, key, job)
            if claim is not None and self._key.options.is_over_at_start:
                claim.finish()
            return Run(job.id, self._key, claim, stack.pop_all())
        raise AssertionError("an ExitStack suppresses nothing by itself")

    def _claimed(self, stack: ExitStack, key: str, job: Job) -> "Claim":
        *tries, last = self._key.tries(key, job)
        for request in tries:
            try:
                return stack.enter_context(claiming(self._dibs, request))
            except (LeaseLost, Duplicate) as error:
                if not _is_own(error, job):
                    raise
        return stack.enter_context(claiming(self._dibs, last))

    def comes_again_in(self, error: Duplicate, job: Job) -> float | None:
        """When to send *job* once more, in seconds; None: not at all, or another delivery does."""
        delay = again_after(error, job, self._key.options.lease)
        if delay is None:
            return None
        try:
            with claiming(self._dibs, self._key.again_request(job, delay)):
                return delay
        except Duplicate:
            return None
        except Unavailable:
            return delay

    def give_back(self, key: str, token: str) -> bool:
        """Free the key of a job that will not run. False: it is running, or was free."""
        if token == STARTED:
            return False
        try:
            with claiming(self._dibs, self._key.request(key, token=token)) as claim:
                claim.release()
        except (LeaseLost, Duplicate):
            return False
        return True


class Run:
    """A job that runs here; the end of the block ends its claims."""

    def __init__(
        self, job_id: str, key: UniqueKey, claim: "Claim | None", claims: ExitStack
    ) -> None:
        self.job_id = job_id
        self._key = key
        self._claim = claim
        self._claims = claims
        self._is_handed_on = False

    def hand_on(self, delay: float = 0.0) -> str | None:
        """Keep the key for the next run of this job, which is being sent; the token for it.

        None: there is nothing to keep.
        """
        self._is_handed_on = True
        if self._key.options.is_over_at_start:
            return STARTED
        if self._claim is None or not self._claim.is_open:
            return None
        try:
            return self._claim.detach(ttl=self._key.options.in_queue(delay))
        except LeaseLost:
            return None

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_handed_on:
            kind = error = traceback = None
        self._claims.__exit__(kind, error, traceback)


# ---- AsyncDibs


class AsyncUniqueJobs:
    """What a framework on asyncio asks for. *dibs*: where the keys are."""

    def __init__(self, dibs: "AsyncDibs", key: UniqueKey) -> None:
        self._dibs = dibs
        self._key = key
        self.key_of = key.of

    @asynccontextmanager
    async def queueing(self, key: str, job_id: str, delay: float = 0.0) -> AsyncGenerator[str]:
        """As `UniqueJobs.queueing`."""
        async with claiming(self._dibs, self._key.request(key, note=job_id)) as claim:
            yield await claim.detach(ttl=self._key.options.in_queue(delay))

    async def start(self, key: str, job: Job) -> "AsyncRun":
        """As `UniqueJobs.start`."""
        async with AsyncExitStack() as stack:
            run = self._key.run_request(job)
            if run is not None:
                await stack.enter_async_context(claiming(self._dibs, run))
            claim = None if job.token == STARTED else await self._claimed(stack, key, job)
            if claim is not None and self._key.options.is_over_at_start:
                await claim.finish()
            return AsyncRun(job.id, self._key, claim, stack.pop_all())
        raise AssertionError("an AsyncExitStack suppresses nothing by itself")

    async def _claimed(self, stack: AsyncExitStack, key: str, job: Job) -> "AsyncClaim":
        *tries, last = self._key.tries(key, job)
        for request in tries:
            try:
                return await stack.enter_async_context(claiming(self._dibs, request))
            except (LeaseLost, Duplicate) as error:
                if not _is_own(error, job):
                    raise
        return await stack.enter_async_context(claiming(self._dibs, last))

    async def comes_again_in(self, error: Duplicate, job: Job) -> float | None:
        """As `UniqueJobs.comes_again_in`."""
        delay = again_after(error, job, self._key.options.lease)
        if delay is None:
            return None
        try:
            async with claiming(self._dibs, self._key.again_request(job, delay)):
                return delay
        except Duplicate:
            return None
        except Unavailable:
            return delay

    async def give_back(self, key: str, token: str) -> bool:
        """As `UniqueJobs.give_back`."""
        if token == STARTED:
            return False
        try:
            async with claiming(self._dibs, self._key.request(key, token=token)) as claim:
                claim.release()
        except (LeaseLost, Duplicate):
            return False
        return True


class AsyncRun:
    """A job that runs here; the end of the block ends its claims."""

    def __init__(
        self, job_id: str, key: UniqueKey, claim: "AsyncClaim | None", claims: AsyncExitStack
    ) -> None:
        self.job_id = job_id
        self._key = key
        self._claim = claim
        self._claims = claims
        self._is_handed_on = False

    def kept(self, delay: float) -> float:
        """For how many seconds `hand_on` keeps the key."""
        return self._key.options.in_queue(delay)

    async def hand_on(self, delay: float = 0.0) -> str | None:
        """As `Run.hand_on`."""
        self._is_handed_on = True
        if self._key.options.is_over_at_start:
            return STARTED
        if self._claim is None or not self._claim.is_open:
            return None
        try:
            return await self._claim.detach(ttl=self._key.options.in_queue(delay))
        except LeaseLost:
            return None

    async def __aenter__(self) -> "AsyncRun":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_handed_on:
            kind = error = traceback = None
        await self._claims.__aexit__(kind, error, traceback)
