# Generated from src/dibs/integrations/_async/job_turns.py by unasync.py – do not edit.
"""Jobs with `queue=True`: all run, in the order of sending, one (or `limit`) at a time for a key.

A job that is sent is first put where the jobs wait that have its key. Then the next one of these is
sent to the framework's queue: by the sender if the key is free, else by the end of the run that has
it, which passes its own claim on. So for each key at most `limit` messages are in the queue, and
none waits in a worker.

It leaves that place when its message was sent, or is met by a worker. If a process dies between the
two, or before it has sent the next one, the key is free after a lease, and the next producer, or a
worker that looks now and then (`look_after`), sends it. What was sent twice runs once: the claim on
the run of a job does not depend on its token here. A message whose key is another job's when a
worker meets it (it was delivered late, or sent by a program that does not know dibs) goes back to
its place.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from ..._internal_api import (
    UNGUARDED_TOKEN,
    WaitingJob,
    claiming,
    job_keys,
    lend,
    ticket_of,
)
from ...errors import Duplicate, LeaseLost, Unavailable, UsageError
from .._unique_jobs import (
    Job,
    NotThere,
    NotYet,
    Sending,
    UniqueKey,
    log_not_sent,
    log_waits,
)

if TYPE_CHECKING:
    from ... import Dibs
    from ..._internal_api import Claim

MOST_KEYS = 1000
"""How many keys a worker looks at."""

Send = Callable[[str, Sending], Any]
"""Sends what a job has waited with. NotThere, NotYet: it cannot."""


class JobTurns:
    """The jobs of one `unique(…, queue=True)` that wait.

    *is_over*: whether the job in an error, which has a key, will not run; its key is free then.
    """

    def __init__(
        self,
        dibs: "Dibs",
        key: UniqueKey,
        is_over: Callable[[str, Duplicate], bool],
    ) -> None:
        self._dibs = dibs
        self._key = key
        self._is_over = is_over

    def send(self, key: str, job_id: str, message: str, send: Send) -> None:
        """Let job *job_id* have its turn: now, or when others have ended.

        Whatever *send* raises for it. Unavailable: so the policy says.
        """
        keys = job_keys(self._dibs)
        job = WaitingJob(job_id, message, keys.new_id(), keys.new_id())
        try:
            job = keys.wait(self._key.shape, key, job)
        except Unavailable:
            if keys.is_closed_in_outage(self._key.options.on_outage):
                raise
            send(message, Sending(UNGUARDED_TOKEN, key, None, None, job.sending))
            return
        log_waits(self._key.name, job_id)
        self.wake(key, send, job)

    def wait_again(self, key: str, job: Job, message: str, send: Send) -> None:
        """Put *job*, which a worker cannot run now, back to its place. Unavailable."""
        ticket, keys = ticket_of(job.sent_at), job_keys(self._dibs)
        waiting = WaitingJob(job.id, message, job.sending, keys.new_id(), ticket)
        keys.wait(self._key.shape, key, waiting)
        log_waits(self._key.name, job.id)
        self.wake(key, send)

    def check(self, key: str, job: Job) -> None:
        """Raise Duplicate if another job with *key* has its turn before *job*, which has no claim.

        Unavailable.
        """
        first = job_keys(self._dibs).waiting(key)
        ticket = ticket_of(job.sent_at)
        if first and not 0 < ticket < first[0].ticket and first[0].job_id != job.id:
            raise Duplicate(key, 0.0, "running", None, self._key.name, first[0].job_id)

    def met(self, key: str, job: Job) -> None:
        """Take *job*, which a worker has, from those that wait for *key*."""
        if ticket := ticket_of(job.sent_at):
            with suppress(Unavailable, UsageError):
                job_keys(self._dibs).leave(key, ticket)

    def wake(self, key: str, send: Send, own: WaitingJob | None = None) -> bool:
        """Send the next jobs that wait for *key*, if it is free. False: none waits.

        Whatever *send* raises for *own*; others are tried again later.
        """
        with suppress(Unavailable, LeaseLost, UsageError):
            while waiting := job_keys(self._dibs).waiting(key):
                for slot in self._key.slots(key):
                    if self._send_with(slot, waiting[0].job_id, key, send, own):
                        break
                else:
                    return True
            return False
        return True

    def _send_with(
        self, slot: str, job_id: str, key: str, send: Send, own: WaitingJob | None
    ) -> bool:
        """Send the next job with *slot*. False: that is taken, or it cannot be sent now."""
        taking = claiming(self._dibs, self._key.next_request(slot, job_id))
        try:
            taking.take()
        except Duplicate as error:
            if not self._is_over(slot, error):
                return False
            taking = claiming(self._dibs, self._key.next_request(slot, job_id))
        try:
            with taking as claim:
                job = self.pass_on(claim, slot, key, send, own)
                if job is None:
                    claim.release()
                return job is not None
        except Duplicate:
            return False

    def pass_on(
        self,
        claim: "Claim[Any]",
        slot: str,
        key: str,
        send: Send,
        own: WaitingJob | None = None,
    ) -> WaitingJob | None:
        """Send the next job that waits for *key*, with *claim*. None: none waits, or can be sent.

        Whatever *send* raises for *own*. Unavailable.
        """
        while jobs := job_keys(self._dibs).waiting(key, self._key.options.limit):
            for job in jobs:
                try:
                    if self._sent(claim, slot, key, job, send):
                        return job
                except NotThere:
                    job_keys(self._dibs).leave(key, job.ticket)
                    break
                except Exception as error:
                    if own is not None and own.entry == job.entry:
                        job_keys(self._dibs).leave(key, job.ticket)
                        raise
                    if isinstance(error, (Unavailable, LeaseLost, UsageError)):
                        raise
                    if not isinstance(error, NotYet):
                        log_not_sent(self._key.name, job.job_id, error)
                    return None
            else:
                return None
        return None

    def _sent(
        self, claim: "Claim[Any]", slot: str, key: str, job: WaitingJob, send: Send
    ) -> bool:
        """Send *job* with *claim*. False: another process does. What *send* raises."""
        with ExitStack() as stack:
            if not self._is_ours(stack, job):
                return False
            if claim.note != job.job_id:
                claim.set_note(job.job_id)
            send(job.message, Sending(lend(claim), slot, None, job.sent_at, job.sending))
            claim.detach(ttl=self._key.options.in_queue(0.0))
            with suppress(Unavailable, UsageError):
                job_keys(self._dibs).leave(key, job.ticket)
        return True

    def _is_ours(self, stack: ExitStack, job: WaitingJob) -> bool:
        """Return whether this process may send *job*: with several keys, so may others.

        NotThere: it was sent, and should have left.
        """
        if self._key.options.limit == 1:
            return True
        try:
            request = self._key.turn_request(job.turn_key)
            stack.enter_context(claiming(self._dibs, request))
        except Duplicate as error:
            if error.state == "done":
                raise NotThere from None
            return False
        return True

    @property
    def look_every(self) -> float:
        """Return how often a worker calls `look_after`, in seconds."""
        return self._key.options.lease / 2

    def look_after(self, send: Send) -> None:
        """Send what should have been sent by a process that is dead.

        Of all workers one looks, once in a lease.
        """
        keys, shape = job_keys(self._dibs), self._key.shape
        with suppress(Unavailable, UsageError):
            if keys.may_look(shape, self._key.options.lease):
                for key in keys.awaited(shape, MOST_KEYS):
                    if not self.wake(key, send):
                        keys.forget(shape, key)
