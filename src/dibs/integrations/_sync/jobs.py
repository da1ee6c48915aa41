# Generated from src/dibs/integrations/_async/jobs.py by unasync.py – do not edit.
"""Jobs that must not run twice: the claim on a job's key, from where it is queued to its end.

A job claims its key where it is enqueued, with its id as the note. The claim travels in the
message, as a token. While the message is being sent the producer renews the claim, so that a
producer that dies blocks the key for one lease; in the queue it is not renewed, and `queued` bounds
it. The worker continues the claim, renews it while the job runs, and ends it: a job that is lost
with its worker frees its key after one lease. A retry takes the claim along in its own message, in
the same way.

Brokers deliver a message again if it is not acknowledged. So each run also claims
the id of its job, and leaves that behind: of all deliveries of a message, one runs. One that meets
an earlier one that still runs is sent once more, for later: that run may be lost. Of several such
deliveries one is, so that they do not multiply.

With `within=` a run is a transaction, and what it has done is recorded in that: under the key if
jobs are unique for some time after their end, else under the key and the id of the job. A delivery
after the end is answered by that record, so that its result reaches the framework; the claim on
the id leaves nothing behind then.

With `alone=True` a job claims its turn before it starts: a second key, which it has to its end, and
which a retry takes along. One that does not get it waits: its message is sent once more.
"""

from collections.abc import Generator, Callable
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..._interface import (
    KeyInfo,
    claiming,
    fetched_by,
    inspector,
    job_keys,
    lend,
    refusal_in,
    row_of,
    transactions,
)
from ...errors import Duplicate, LeaseLost, Unavailable, UsageError
from .._unique import (
    ALONE,
    LOOK_AFTER,
    RUN_NAME,
    STARTED,
    Job,
    NotRun,
    Replaced,
    Sending,
    UniqueKey,
    again_after,
    claimed_by,
    declare,
    is_done,
    is_own,
    is_taken,
    is_turn,
    is_waiting,
    log_loss,
    log_refusal,
    log_replay,
    log_taken,
    replaceable,
    replaced_by_token,
    turn_after,
    wait_for_transaction,
)

if TYPE_CHECKING:
    from ... import Dibs
    from ..._interface import Claim, Claiming, Within


class UniqueJobs:
    """What a framework asks for that runs jobs. *dibs*: where the keys are."""

    def __init__(self, dibs: "Dibs", key: UniqueKey) -> None:
        declare(dibs, key)
        self._dibs = dibs
        self._key = key
        self.key_of = key.of
        self.in_queue = key.options.in_queue
        self.replaces = key.options.again is not None
        self.sent = key.sent
        self.answer = key.answer
        opener, options = key.options.within, key.record_options
        self._within = None if opener is None else transactions(dibs, opener, options)

    @contextmanager
    def queueing(
        self,
        key: str,
        job_id: str,
        delay: float = 0.0,
        can_run: Callable[[KeyInfo], bool] | None = None,
    ) -> Generator[Sending]:
        """Claim *key* for a job that is sent in the block; yields what its message takes along.

        *can_run*: whether the job of an entry, which waits in its queue, may still be started; None
        means that it is not known. If the block raises, nothing stays claimed. Duplicate: such a
        job exists, `note` is its id.
        """
        if self._key.options.again is not None:
            with self._replacing(key, job_id, delay) as sending:
                yield sending
            return
        slot, taking = self._free(key, job_id, can_run)
        with taking as claim:
            yield Sending(lend(claim), slot)
            claim.detach(ttl=self._key.options.in_queue(delay))

    @contextmanager
    def _replacing(self, key: str, job_id: str, delay: float) -> Generator[Sending]:
        """The same, also in place of a job that waits. Duplicate: that cannot be seen."""
        # What records that a job was replaced is claimed before it loses its key, and stays when
        # the other one is sent: if this process is killed before that, the older one runs.
        with ExitStack() as records:
            taking, replaced = self._taken_from(records, key, job_id)
            at = self._key.delay_of(replaced[-1], delay) if replaced else delay
            with taking as claim:
                yield Sending(lend(claim), key, at if replaced else None)
                # The note of the job that waited was kept until now, for the same reason.
                if replaced:
                    claim.set_note(job_id)
                claim.detach(ttl=self._key.options.in_queue(at))

    def _taken_from(
        self, records: ExitStack, key: str, job_id: str
    ) -> "tuple[Claiming[Any], list[Replaced]]":
        """The key, claimed, and the jobs that waited for it."""
        replaced: list[Replaced] = []
        request = self._key.queue_request(key, job_id)
        for _ in range(max(int(self._key.options.lease / LOOK_AFTER), 10)):
            taking = claiming(self._dibs, request)
            try:
                taking.take()
                return taking, replaced
            except Duplicate as error:
                replaced += self._freed(records, key, job_id, error)
            note = replaced[-1].job_id if replaced else job_id
            request = self._key.look_request(key, note)
        return claiming(self._dibs, request), replaced

    def _freed(
        self, records: ExitStack, key: str, job_id: str, error: Duplicate
    ) -> list[Replaced]:
        """The job that waited, if its key is free now. Duplicate: it cannot be asked."""
        keys = inspector(self._dibs)
        try:
            replaced = replaceable(keys.entry(key), self._key.options.lease)
            if replaced is None:
                return []
            request = self._key.replaced_request(replaced, job_id)
            with ExitStack() as stack:
                record = stack.enter_context(claiming(self._dibs, request))
                if keys.release_whatever(key, replaced.hint) == "released":
                    records.enter_context(stack.pop_all())
                    return [replaced]
                record.release()
        except UsageError:
            raise error from None
        except (Duplicate, Unavailable):  # it is being replaced; or the policy, at the next look
            pass
        return []

    def _free(
        self, key: str, job_id: str, can_run: Callable[[KeyInfo], bool] | None
    ) -> "tuple[str, Claiming[Any]]":
        """The first free key of a job, claimed. Duplicate: there is none."""
        refusal: Duplicate | None = None
        for slot in self._key.slots(key):
            request = self._key.queue_request(slot, job_id)
            taking = claiming(self._dibs, request)
            try:
                taking.take()
            except Duplicate as error:
                refusal = refusal or error
                if self._is_over(slot, error, can_run):
                    return slot, claiming(self._dibs, request)
            else:
                return slot, taking
        assert refusal is not None
        raise refusal

    def _is_over(
        self,
        key: str,
        error: Duplicate,
        can_run: Callable[[KeyInfo], bool] | None = None,
    ) -> bool:
        """Whether the job in *error* will not run, or not soon; its key is free now."""
        if error.state != "running":
            return False
        keys = inspector(self._dibs)
        try:
            entry = keys.entry(key)
            if entry is None:  # it has ended at this moment
                return True
            if not is_waiting(entry, error.note, self._key.options.lease):
                return False
            is_left = self._is_left(entry)
            if not is_left and (can_run is None or can_run(entry)):
                return False
            if keys.release_whatever(key, entry.token_hint or "") == "other":
                return False
        except (Unavailable, UsageError):  # it cannot be asked
            return False
        if is_left:
            log_taken(self._key.name, error.note)
        return True

    def _is_left(self, entry: KeyInfo) -> bool:
        """Whether a worker has fetched the job of *entry*, and has died since."""
        worker = fetched_by(entry)
        return worker is not None and not job_keys(self._dibs).is_taken(worker)

    def fetched(self, key: str, token: str, delay: float = 0.0) -> bool:
        """Name this process as the one that has fetched the message of a job, to start it.

        *delay*: in how many seconds it may start. If the process dies before that, the next job
        with *key* takes its place. False: it waits no longer, or Redis did not answer.
        """
        if (claimed := claimed_by(key, token)) is None:
            return False
        options = self._key.options
        try:
            return job_keys(self._dibs).fetch(
                *claimed, options.in_queue(delay), options.lease
            )
        except (Unavailable, UsageError):
            return False

    def start(self, key: str, job: Job) -> "Run":
        """Claim a run of *job*. Duplicate: another such job exists, or this one runs or ran."""
        try:
            return self._start(key, job)
        except Duplicate as error:
            log_refusal(self._key.name, job, error)
            if job.token is not None and is_done(error, job):
                self.give_back(key, job.token)
            raise

    def _start(self, key: str, job: Job) -> "Run":
        *others, last = self._key.slots(key)
        for slot in others:
            try:
                return self._start_with(slot, job)
            except Duplicate as error:
                if not is_taken(error, job):
                    raise
        return self._start_with(last, job)

    def _start_with(self, key: str, job: Job) -> "Run":
        with ExitStack() as record, ExitStack() as stack:
            request = self._key.run_request(job)
            delivery: Claim | None = None
            if request is not None:
                delivery = record.enter_context(claiming(self._dibs, request))
            if self._key.options.alone:  # one that was replaced does not wait
                self._check_replaced(key, job)
            turn = self._turn(stack, key, job)
            claim = None if job.has_started else self._claimed(stack, key, job)
            if claim is not None and self._key.options.is_over_at_start:
                claim.finish()
            # This process may have stood still since it got one of them.
            if turn is not None and turn.lost:
                raise Duplicate(ALONE + key, 0.0, "running", None, ALONE + self._key.name)
            if delivery is not None and delivery.lost:
                raise Duplicate(job.run_key, 0.0, "running", None, RUN_NAME)
            claim = turn or claim
            ends = (record.pop_all(), stack.pop_all())
            return Run(job, key, self._key, self._within, claim, delivery, *ends)
        raise AssertionError("an ExitStack suppresses nothing by itself")

    def _turn(self, stack: ExitStack, key: str, job: Job) -> "Claim | None":
        """The claim on being the one that runs; None: several may. Duplicate: another one does."""
        for request in self._key.turns(key, job):
            try:
                return stack.enter_context(claiming(self._dibs, request))
            except LeaseLost:
                if request.token is None:
                    raise
            except Duplicate as error:
                if not self._is_over(request.key, error):
                    raise
                return stack.enter_context(claiming(self._dibs, request))
        return None

    def _claimed(self, stack: ExitStack, key: str, job: Job) -> "Claim":
        *tries, last = self._key.tries(key, job)
        for request in tries:
            try:
                claim = stack.enter_context(claiming(self._dibs, request))
            except (LeaseLost, Duplicate) as error:
                if not is_own(error, job):
                    raise
                if request.token is not None:
                    self._check_replaced(key, job)
            else:
                if claim.note != job.id:  # it replaces the job that has claimed the key
                    claim.set_note(job.id)
                return claim
        return stack.enter_context(claiming(self._dibs, last))

    def _check_replaced(self, key: str, job: Job) -> None:
        """Duplicate: another job was sent in place of *job*, and may have ended.

        One that is being sent at this moment is waited for.
        """
        record = replaced_by_token(job) if self._key.options.again is not None else None
        if record is None:
            return
        try:
            if inspector(self._dibs).entry(record.key) is None:
                return
        except Unavailable:  # the policy decides, below
            pass
        request = self._key.replaced_request(record, job.id, wait=True)
        try:
            with claiming(self._dibs, request) as claim:
                claim.release()  # it was not sent
        except Duplicate as error:
            raise Duplicate(key, 0.0, "done", None, self._key.name, error.note) from None

    def comes_again_in(self, error: Duplicate, job: Job) -> float | None:
        """When to send *job* once more, in seconds; None: not at all, or another delivery does."""
        if is_turn(error):
            return self._turn_in(error) if job.comes_again else None
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

    def _turn_in(self, error: Duplicate) -> float:
        # Each delivery is sent again: one that came too early must not be lost.
        try:
            entry = inspector(self._dibs).entry(error.key)
        except (Unavailable, UsageError):  # it cannot be asked
            entry = None
        return turn_after(None if entry is None else entry.age)

    def give_back(self, key: str, token: str) -> bool:
        """Free the key of a job that will not run. False: it is running, or was free."""
        if (claimed := claimed_by(key, token)) is None:
            return False
        try:  # without continuing it: for others it never looks as if it ran
            return inspector(self._dibs).release(*claimed) == "released"
        except Unavailable:
            return False


class Run:
    """A job that runs here; the end of the block ends its claims."""

    def __init__(
        self,
        job: Job,
        slot: str,
        key: UniqueKey,
        within: "Within | None",
        claim: "Claim | None",
        delivery: "Claim | None",
        record: ExitStack,
        claims: ExitStack,
    ) -> None:
        self.job_id = job.id
        self.sending = job.sending
        """What the message of its next run has to bring along."""
        self.key = slot
        """The key that it has, for that message too."""
        self._job = job
        self._key = key
        self._within = within
        self._claim = claim
        self._delivery = delivery
        """The claim on this delivery of its message."""
        self._record = record
        self._claims = claims
        self._is_lent = False
        self._kept: float | None = None
        """For how long the key is kept for the next run of this job; None: there is none."""

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return what *function* returns.

        With `within=` it runs in a transaction, or what an earlier one committed is returned.
        NotRun: another transaction with its key is open.
        """
        within, claim, job = self._within, self._claim, self._job
        if within is None or claim is None:
            return function(*args, **kwargs)
        if claim.replayed:
            log_replay(self._key.name, job)
            return claim.result
        options = self._key.options
        row = row_of(claim, job.record_name) if options.is_over_at_end else None
        recording, wait = claim.recording(row), wait_for_transaction(job, options.lease)
        result = within.call(claim, recording, function, args, kwargs, wait)
        if (error := refusal_in(result)) is not None:
            log_refusal(self._key.name, job, error)
            raise NotRun(error)
        return result

    @property
    def lost(self) -> bool:
        """True: the claim could not be renewed; another such job may run."""
        return self._claim is not None and not self._is_lent and self._claim.lost

    def hand_on(self, delay: float = 0.0) -> str | None:
        """Keep the key for the next run of this job, which is being sent; the token for it.

        None: there is nothing to keep.
        """
        self._kept = self._key.options.in_queue(delay)
        options = self._key.options
        if options.is_over_at_start and not options.alone:
            return STARTED
        if self._claim is None or not self._claim.is_open or self._claim.lost:
            return STARTED if options.alone else None
        self._is_lent = True
        token = lend(self._claim)
        return f"{STARTED}:{token}" if options.alone else token

    def take_back(self) -> None:
        """The next run could not be sent: this one ends as if there were none."""
        self._kept, self._is_lent = None, False

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.lost and self._within is None:
            log_loss(self._key.name, self.job_id)
        if self._within is not None and self._kept is None and self._delivery is not None:
            self._delivery.release()  # the record in the database answers other deliveries
        if self._kept is not None:
            kind = error = traceback = None
        # First that it ran: if its worker is killed now, a second delivery does not run, and the
        # key is free after one lease.
        try:
            self._record.__exit__(kind, error, traceback)
        finally:
            if self._kept is not None and self._claim is not None and self._is_lent:
                self._claim.detach(ttl=self._kept)
            self._claims.__exit__(kind, error, traceback)
