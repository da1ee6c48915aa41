"""Jobs that must not run twice: the claim on a job's key, from where it is queued to its end.

A job claims its key where it is enqueued, with its id as the note. The claim travels in the
message, as a token; in the queue nobody renews it, so `queued` bounds it. The worker continues the
claim, renews it while the job runs, and ends it: a job that is lost with its worker frees its key
after one lease. A retry takes the claim along in its own message.

Brokers deliver a message again if it is not acknowledged. So each run also claims
the id of its job, and leaves that behind: of all deliveries of a message, one runs. One that meets
an earlier one that still runs is sent once more, for later: that run may be lost. Of several such
deliveries one is, so that they do not multiply.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from ..._interface import claiming
from ...errors import Duplicate, LeaseLost, Unavailable
from .._unique import STARTED, Job, UniqueKey, again_after, is_own, log_loss, log_refusal

if TYPE_CHECKING:
    from ... import AsyncDibs
    from ..._interface import AsyncClaim


class AsyncUniqueJobs:
    """What a framework asks for that runs jobs. *dibs*: where the keys are."""

    def __init__(self, dibs: "AsyncDibs", key: UniqueKey) -> None:
        self._dibs = dibs
        self._key = key
        self.key_of = key.of

    @asynccontextmanager
    async def queueing(self, key: str, job_id: str, delay: float = 0.0) -> AsyncGenerator[str]:
        """Claim *key* for a job that is sent in the block; yields the token for its message.

        If the block raises, nothing stays claimed. Duplicate: such a job is there, `note` its id.
        """
        async with claiming(self._dibs, self._key.request(key, note=job_id)) as claim:
            yield await claim.detach(ttl=self._key.options.in_queue(delay))

    async def start(self, key: str, job: Job) -> "AsyncRun":
        """Claim a run of *job*. Duplicate: another such job is there, or this one runs or ran."""
        try:
            return await self._start(key, job)
        except Duplicate as error:
            log_refusal(self._key.name, job, error)
            raise

    async def _start(self, key: str, job: Job) -> "AsyncRun":
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
                if not is_own(error, job):
                    raise
        return await stack.enter_async_context(claiming(self._dibs, last))

    async def comes_again_in(self, error: Duplicate, job: Job) -> float | None:
        """When to send *job* once more, in seconds; None: not at all, or another delivery does."""
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
        """Free the key of a job that will not run. False: it is running, or was free."""
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

    @property
    def lost(self) -> bool:
        """True: the claim could not be renewed; another such job may run."""
        return self._claim is not None and self._claim.lost

    async def hand_on(self, delay: float = 0.0) -> str | None:
        """Keep the key for the next run of this job, which is being sent; the token for it.

        None: there is nothing to keep.
        """
        self._is_handed_on = True
        if self._key.options.is_over_at_start:
            return STARTED
        if self._claim is None or not self._claim.is_open:
            return None
        try:
            return await self._claim.detach(ttl=self._key.options.in_queue(delay))
        except LeaseLost:
            return None
        except Unavailable:  # the next run claims the key anew
            self._claim.release()
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
        if self.lost:
            log_loss(self._key.name, self.job_id)
        await self._claims.__aexit__(kind, error, traceback)
