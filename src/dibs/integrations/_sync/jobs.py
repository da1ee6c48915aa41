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

With `queue=True` jobs with the same key wait for each other; see job_turns.py.
"""

from collections.abc import Generator, Callable
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..._internal_api import (
    UNGUARDED_TOKEN,
    KeyInfo,
    claiming,
    covers,
    fetched_by,
    inspector,
    job_keys,
    lend,
    refusal_in,
    row_of,
    transactions,
)
from ...errors import Duplicate, LeaseLost, Unavailable, UsageError
from .._unique_jobs import (
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
    is_anothers,
    is_done,
    is_own,
    is_taken,
    is_turn,
    is_waiting,
    log_dropped_send,
    log_loss,
    log_refusal,
    log_replay,
    log_taken,
    log_unsent,
    replaceable,
    replaced_by_token,
    turn_after,
    wait_for_transaction,
)
from .job_results import ResultWait
from .job_turns import JobTurns, Send

if TYPE_CHECKING:
    from ... import Dibs
    from ..._internal_api import Claim, Claiming, Within


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
        self.turns = JobTurns(dibs, key, self._is_over) if key.options.queue else None
        """With `queue=True`: those that wait."""
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
            yield Sending(lend(claim), slot, None, self._clock())
            claim.detach(ttl=self._key.options.in_queue(delay))

    def _clock(self) -> float | None:
        """Return the server's time, where it is of use."""
        return job_keys(self._dibs).clock() if self._key.options.covers_earlier else None

    def inside(self, key: str) -> "Run | None":
        """The run that sends a job with its own *key*, which can come after it; None: another one.

        The job is sent at the end of that run: see `send_after`.
        """
        run = self._outer(key)
        return run if run is not None and self._is_until_end and run.can_pass_on else None

    def _outer(self, key: str) -> "Run | None":
        """Return the run with *key* in which this code is."""
        run, keys = _innermost(), self._key.slots(key)
        while run is not None and not run.is_of(self._dibs, keys):
            run = run.outer
        return run

    @property
    def _is_until_end(self) -> bool:
        options = self._key.options
        return options.is_over_at_end and not options.is_over_at_start and not options.queue

    @contextmanager
    def _replacing(self, key: str, job_id: str, delay: float) -> Generator[Sending]:
        """Yield the same, also in place of a job that waits.

        Raises Duplicate if that cannot be seen.
        """
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
        """Return the key, claimed, and the jobs that waited for it."""
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
        """Return the job that waited, if its key is free now.

        Raises Duplicate if it cannot be asked.
        """
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
        """Return the first free key of a job, claimed. Raises Duplicate if there is none."""
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
        if self.inside(key) is None:
            log_unsent(self._key.name, job_id, refusal)
        outer = self._outer(key)
        if outer is not None and outer.following is not None:  # it was sent from there before
            refusal.note = outer.following
        raise refusal

    def _is_over(
        self,
        key: str,
        error: Duplicate,
        can_run: Callable[[KeyInfo], bool] | None = None,
    ) -> bool:
        """Return whether the job in *error* will not run, or not soon; its key is free now."""
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
        """Return whether a worker has fetched the job of *entry*, and has died since."""
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

    def result_of(self, error: Duplicate) -> "ResultWait":
        """Tells whether the result of the job in *error* may come."""
        options = self._key.options
        ended_for = max(options.window - error.retry_after, 0.0) if error.state == "done" else 0.0
        return ResultWait(self._dibs, error, options.lease, ended_for)

    def start(self, key: str, job: Job, send: Send | None = None) -> "Run":
        """Claim a run of *job*. Duplicate: another such job exists, or this one runs or ran.

        *send*: sends the next one at its end, with `queue=True`.
        """
        turns = self.turns
        if turns is not None:
            turns.met(self._key.common(key), job)
        try:
            run = self._start(key, job)
        except Duplicate as error:
            if not self.waits(error, job):
                log_refusal(self._key.name, job, error)
            if job.token is not None and is_done(error, job):
                self.give_back(key, job.token, send)
            raise
        if turns is not None and send is not None:
            run.sends_next(turns, self._key.common(key), send)
        return run

    def waits(self, error: Duplicate, job: Job) -> bool:
        """Whether *job*, which a worker cannot run because of *error*, has to wait for its turn."""
        return self.turns is not None and is_anothers(error, job)

    def wait_again(self, key: str, job: Job, message: str, send: Send) -> None:
        """Put *job* back to its place: see `waits`. Unavailable."""
        if self.turns is not None:
            self.turns.wait_again(self._key.common(key), job, message, send)

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
        began_at = self._clock()  # before the claims, which may be lost while it is asked
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
            run = Run(
                self._dibs, job, key, self._key, self._within, claim, delivery, began_at, *ends
            )
            run.enter()
            return run
        raise AssertionError("an ExitStack suppresses nothing by itself")

    def _turn(self, stack: ExitStack, key: str, job: Job) -> "Claim | None":
        """Return the claim on being the one that runs; None: several may.

        Raises Duplicate if another one does.
        """
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
                if request.token is None and self.turns is not None:
                    self.turns.check(self._key.common(key), job)
                claim = stack.enter_context(claiming(self._dibs, request))
            except (LeaseLost, Duplicate) as error:
                if not is_own(error, job):
                    raise
                if request.token is not None:
                    self._check_replaced(key, job)
            else:
                if request.token is None:
                    self._check_last_run(key, job)
                if claim.note != job.id:  # it replaces the job that has claimed the key
                    claim.set_note(job.id)
                return claim
        claim = stack.enter_context(claiming(self._dibs, last))
        self._check_last_run(key, job)
        return claim

    def _check_last_run(self, key: str, job: Job) -> None:
        """Duplicate: the claim of *job* was lost, and another run has done its work since."""
        if job.sent_at is None or not self._key.options.covers_earlier:
            return
        try:
            last = job_keys(self._dibs).last_run(key)
        except (Unavailable, UsageError):
            return
        if last is not None and covers(last, job.id, job.sent_at, self._key.options.lease):
            raise Duplicate(key, 0.0, "done", None, self._key.name, last.job_id)

    def _check_replaced(self, key: str, job: Job) -> None:
        """Raise Duplicate if another job was sent in place of *job*, and may have ended.

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
        """Return when to send *job* once more, in seconds.

        None: not at all, or another delivery does.
        """
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

    def give_back(self, key: str, token: str, send: Send | None = None) -> bool:
        """Free the key of a job that will not run. False: it is running, or was free.

        *send*: sends the next one, with `queue=True`.
        """
        if (claimed := claimed_by(key, token)) is None:
            return False
        try:  # without continuing it: for others it never looks as if it ran
            is_released = inspector(self._dibs).release(*claimed) == "released"
        except Unavailable:
            return False
        if self.turns is not None and send is not None:
            self.turns.wake(self._key.common(key), send)
        return is_released


_INSIDE: "ContextVar[ref[Run] | None]" = ContextVar("dibs_run", default=None)
"""The run in which this code is."""


def _innermost() -> "Run | None":
    entered = _INSIDE.get()
    return None if entered is None else entered()


class Run:
    """A job that runs here; the end of the block ends its claims."""

    def __init__(
        self,
        dibs: "Dibs",
        job: Job,
        slot: str,
        key: UniqueKey,
        within: "Within | None",
        claim: "Claim | None",
        delivery: "Claim | None",
        began_at: float | None,
        record: ExitStack,
        claims: ExitStack,
    ) -> None:
        self.outer: Run | None = None
        """The run that this one is in: frameworks can run jobs eagerly."""
        self.sent_at = job.sent_at
        """What the message of its next run has to bring along, too."""
        self.job_id = job.id
        self.sending = job.sending
        """What the message of its next run has to bring along."""
        self.key = slot
        """The key that it has, for that message too."""
        self._dibs = dibs
        self._began_at = began_at
        self._job = job
        self._key = key
        self._within = within
        self._claim = claim
        self._delivery = delivery
        """The claim on this delivery of its message."""
        self._record = record
        self._claims = claims
        self._is_lent = False
        self._passed_for: float | None = None
        """For how long the key is kept for the job after this one; None: there is none."""
        self._kept: float | None = None
        """For how long the key is kept for the next run of this job; None: there is none."""
        self.following: str | None = None
        """The id of the job that gets the key after this one."""
        self._send: tuple[Callable[[Sending], Any], float] | None = None
        """What sends that job at the end of this one, and how long its key is kept then."""
        self.is_noted = False
        """It has completed, and that is known to messages that come late."""
        self._next: tuple[JobTurns, str, Send] | None = None
        """What sends the next job that waits for its key."""
        self._is_passed_on = False
        """That job has its claim."""

    # ---- jobs that are sent from inside of it

    def enter(self) -> None:
        """From now on, what this code sends with the same key comes after this run."""
        self.outer = _innermost()
        _INSIDE.set(ref(self))

    def sends_next(self, turns: JobTurns, key: str, send: Send) -> None:
        """At its end, send the next job that waits for *key*."""
        self._next = turns, key, send

    def is_of(self, dibs: "Dibs", keys: list[str]) -> bool:
        """Return whether it has one of *keys* of *dibs*."""
        return self._dibs is dibs and self.key in keys

    @property
    def can_pass_on(self) -> bool:
        """Return whether it can give its key to another job at its end."""
        claim, options = self._claim, self._key.options
        if claim is None or options.is_over_at_start or not options.is_over_at_end:
            return False
        if self.following is not None or self._is_lent:
            return False
        return claim.is_open and claim.guarded and not claim.lost

    def send_after(
        self, job_id: str, kept: float, send: Callable[[Sending], Any]
    ) -> None:
        """Call *send* for job *job_id* at the end of this run, with its key.

        *kept*: for how many seconds the key is kept then. If this job is tried again, nothing is
        sent: it may do so itself then.
        """
        self.following, self._send = job_id, (send, kept)

    def pass_on(self, job_id: str, kept: float) -> str | None:
        """Return the token of the key for job *job_id*, which is being sent: the work here is done.

        None: the key cannot be given.
        """
        if self._claim is None or not self.can_pass_on:
            return None
        self.following, self._is_lent, self._passed_for = job_id, True, kept
        return lend(self._claim)

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
        """Return True if the claim could not be renewed; another such job may run."""
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
        """End as if nothing came after it, because that could not be sent."""
        self._kept, self._is_lent, self.following, self._send = None, False, None, None
        self._passed_for = None

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self is _innermost():
            _INSIDE.set(None if self.outer is None else ref(self.outer))
        if self.lost and self._within is None:
            log_loss(self._key.name, self.job_id)
        if self._within is not None and self._kept is None and self._delivery is not None:
            self._delivery.release()  # the record in the database answers other deliveries
        if self._kept is not None:
            kind = error = traceback = None
        # First what it has sent, then that it ran: if its worker is killed between the two, a
        # second delivery does not run, and the key is free after one lease.
        try:
            self._send_following()
            if kind is None and self._kept is None:
                self._note_end()
            self._record.__exit__(kind, error, traceback)
            self._pass_on()
        finally:
            self._give_key()
            if self._passed_for is not None or self._is_passed_on:
                kind = error = traceback = None  # the key is not freed, however this one ended
            self._claims.__exit__(kind, error, traceback)
            if self._next is not None and self._kept is None and not self._is_passed_on:
                turns, key, send = self._next
                turns.wake(key, send)

    def _pass_on(self) -> None:
        """Send the next job that waits for the key, with this claim."""
        claim = self._claim
        if self._next is None or claim is None or self._kept is not None or not self.can_pass_on:
            return
        turns, key, send = self._next
        with suppress(Unavailable, LeaseLost, UsageError):
            self._is_passed_on = turns.pass_on(claim, self.key, key, send) is not None

    def _send_following(self) -> None:
        """Send the job that comes after this one."""
        if self._send is None or self.following is None:
            return
        (send, kept), job_id, self._send, self.following = self._send, self.following, None, None
        if self._kept is not None:
            log_dropped_send(self._key.name, job_id)
            return
        keys = job_keys(self._dibs)
        token = self.pass_on(job_id, kept)
        try:
            # With no claim, it claims its key where it runs, as what was sent in an outage.
            send(Sending(token or UNGUARDED_TOKEN, self.key, None, keys.clock()))
        except BaseException:
            self.take_back()
            raise

    def _note_end(self) -> None:
        """Note for messages that were sent before it began, and are delivered late."""
        claim, began_at = self._claim, self._began_at
        if claim is None or began_at is None or claim.replayed or not claim.guarded:
            return
        if claim.lost and not self._is_lent:
            return
        kept = self._key.options.in_queue(0.0)
        try:
            keys = job_keys(self._dibs)
            self.is_noted = keys.note_end(self.key, self.job_id, began_at, kept)
        except (Unavailable, UsageError):
            pass

    def _give_key(self) -> None:
        """Keep the key for what comes after this run."""
        kept, claim = self._kept or self._passed_for, self._claim
        if claim is None or kept is None or not self._is_lent:
            return
        if self._kept is None and self.following is not None:
            claim.set_note(self.following)
        claim.detach(ttl=kept)
