"""Jobs' claims: one job for each key is queued, a delivery runs once, and none is lost."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from dibs import AsyncDibs, Duplicate, LeaseLost, Unavailable
from dibs._core.jobs import HEARTBEAT, LOOK, QUEUES, ticket_of
from dibs.events import Event
from dibs.integrations._async.jobs import AsyncRun, AsyncUniqueJobs
from dibs.integrations._unique_jobs import RUN_NAME, Job, Sending, UniqueKey, UniqueOptions, is_turn

from ..faults import LATE, SECONDS, USUAL
from ..system import BEGIN, CLOCK, Process
from ..world import World
from .base import Workload

_END = BEGIN + 4 * SECONDS
_AGAIN = 1.0
"""Seconds after which a broker delivers what was not acknowledged."""
_MOST_ATTEMPTS = 3


class JobFailed(Exception):
    """What a job raises."""


class Message(NamedTuple):
    """What travels through the broker."""

    key: str
    job_id: str
    token: str | None
    attempt: int = 0
    sending: str | None = None
    sent_at: float | None = None


class Broker:
    """A queue that delivers at least once: also again, if a worker was killed."""

    def __init__(self, world: World, again: float = _AGAIN) -> None:
        self._world = world
        self._again = again
        """Seconds after which it delivers what a dead worker has not acknowledged."""
        self._queue: list[tuple[float, int, Message]] = []
        self._unacknowledged: set[int] = set()
        """The numbers of deliveries that a worker has."""
        self._sent = 0

    def send(self, message: Message, delay: float = 0.0) -> None:
        """Have *message* delivered after *delay*."""
        self._sent += 1
        self._queue.append((CLOCK.now + delay, self._sent, message))
        self._queue.sort()

    def take(self, process: Process) -> tuple[int, Message] | None:
        """The next delivery, for a worker in *process*: its number; None: there is none now."""
        if not self._queue or self._queue[0][0] > CLOCK.now:
            return None
        _, number, message = self._queue.pop(0)
        self._unacknowledged.add(number)
        self._world.later(self._again, self._check, process, number, message)
        return number, message

    def acknowledge(self, number: int) -> None:
        """A worker is done with its delivery *number*."""
        self._unacknowledged.discard(number)

    def _check(self, process: Process, number: int, message: Message) -> None:
        if number not in self._unacknowledged:
            return
        if process.is_dead:
            self.acknowledge(number)
            self.send(message)
        else:
            self._world.later(self._again, self._check, process, number, message)


class Execution:
    """A run of a job."""

    def __init__(self, message: Message, run: AsyncRun, process: Process) -> None:
        self.message = message
        self.run = run
        self.process = process
        self.began_at = CLOCK.now
        self.is_running = True
        self.is_done = False
        """That it ended was recorded: no other delivery of it may run."""

    @property
    def is_sure(self) -> bool:
        """It runs, and no other execution may."""
        return self.is_running and not self.process.is_dead and not self.run.lost


class Jobs(Workload):
    """Producers and workers of jobs with two keys, through a broker that delivers again."""

    name = "jobs"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover")
    prefetched = 1
    """How many messages a worker has at once; of several, it says that it has fetched them."""
    produced = 4
    """How many jobs a producer sends."""
    ends_at = _END
    """When workers stop."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.unique = self.options()
        self.broker = self.made_broker()
        self.executions: list[Execution] = []
        self.sent: dict[str, float] = {}
        """Jobs that were accepted, and when."""
        self.keys: dict[str, str] = {}
        """Their keys."""
        self.replaced: dict[str, set[str]] = {}
        """Jobs that were dropped, and the equal ones that had taken their key."""
        self.failures = self.random.choice((0.0, 0.3))
        self.repeats = self.random.choice((0.0, 0.2))

        self.current: dict[asyncio.Task[Any] | None, Execution] = {}

    def made_broker(self) -> Broker:
        """What takes messages to the workers."""
        return Broker(self.world)

    def options(self) -> UniqueOptions:
        """How jobs are unique."""
        until = self.random.choice(("end", "end", "start"))
        lease = self.random.choice((1.0, 2.0))
        return UniqueOptions(until=until, lease=lease, queued=60, on_outage="closed")

    def listeners(self, process: Process) -> list[Callable[[Event], object]]:
        def ends(event: Event) -> None:
            execution = self.current.get(asyncio.current_task())
            if event.name == RUN_NAME and execution is not None:
                execution.is_done = True

        ends.kinds = frozenset({"completed"})  # type: ignore[attr-defined]
        return [*super().listeners(process), ends]

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        async def work(number: int) -> None: ...

        jobs = AsyncUniqueJobs(dibs, UniqueKey("job:{number}", work, self.unique))
        producing = process.spawn(self._produce(process, jobs, random))
        deliveries: list[tuple[int, Message]] = []
        while CLOCK.now < self.ends_at or deliveries:
            while len(deliveries) < self.prefetched and (more := self.broker.take(process)):
                await self._fetched(process, jobs, more[1])
                deliveries.append(more)
            if not deliveries:
                await asyncio.sleep(0.05)
                continue
            number, message = deliveries.pop(0)
            await self._handle(process, jobs, message, random)
            self.broker.acknowledge(number)
        await producing

    async def _fetched(self, process: Process, jobs: AsyncUniqueJobs, message: Message) -> None:
        """A worker has *message* in its memory."""

    # ---- producing

    async def _produce(self, process: Process, jobs: AsyncUniqueJobs, random: Random) -> None:
        for number in range(self.produced):
            await asyncio.sleep(random.random() * 2.0)
            key = f"job:{random.randrange(2)}"
            job_id = f"{process.name}-{id_of(random)}-{number}"
            try:
                async with jobs.queueing(key, job_id) as sending:
                    self._send(job_id, sending)
                self.world.counts["queued"] += 1
            except (Duplicate, Unavailable, LeaseLost) as error:
                self.world.counts[f"not queued: {type(error).__name__}"] += 1
                self._refused(error)

    def _send(self, job_id: str, sending: Sending) -> None:
        """Job *job_id* is accepted."""
        message = Message(sending.key, job_id, sending.token, sent_at=sending.sent_at)
        self.broker.send(message)
        self.sent[job_id], self.keys[job_id] = CLOCK.now, sending.key

    def _refused(self, error: Exception) -> None:
        """A producer was told that there is such a job."""

    # ---- working

    async def _handle(
        self, process: Process, jobs: AsyncUniqueJobs, message: Message, random: Random
    ) -> None:
        if random.random() < self.repeats:
            self.broker.send(message, random.random())
        job = Job(
            message.job_id, message.token, message.attempt, sent_by=message.sending,
            sent_at=message.sent_at,
        )  # fmt: skip
        try:
            run = await self._started(jobs, message, job)
        except Duplicate as error:
            self.world.counts["delivery refused"] += 1
            # Also by one whose sender does not know yet that it may be sent.
            by = error.note
            if by is not None and by != message.job_id and not is_turn(error):
                self.replaced.setdefault(message.job_id, set()).add(by)
            delay = await self._again(jobs, error, job)
            if delay is not None:
                self.broker.send(message, delay)
        except (Unavailable, LeaseLost):
            self.broker.send(message, _AGAIN)  # not acknowledged
        else:
            await self._run(process, message, run, random)

    async def _started(self, jobs: AsyncUniqueJobs, message: Message, job: Job) -> AsyncRun:
        return await jobs.start(message.key, job)

    async def _again(self, jobs: AsyncUniqueJobs, error: Duplicate, job: Job) -> float | None:
        try:
            return await jobs.comes_again_in(error, job)
        except LeaseLost:
            return _AGAIN

    async def _run(self, process: Process, message: Message, run: AsyncRun, random: Random) -> None:
        execution = Execution(message, run, process)
        self._begins(execution)
        self.current[asyncio.current_task()] = execution
        try:
            async with run:
                try:
                    await asyncio.sleep(random.choice((0.01, 0.3, 1.2)))
                    fails = random.random() < self.failures and message.attempt < _MOST_ATTEMPTS
                    await self._works(run, random)
                finally:
                    execution.is_running = False
                if fails:
                    token = run.hand_on(0.2)
                    following = message._replace(
                        key=run.key, token=token, attempt=message.attempt + 1, sending=run.sending
                    )
                    self.broker.send(following, 0.2)
                    raise JobFailed
        except JobFailed:
            self.world.counts["retried"] += 1
        except LeaseLost:
            self.world.counts["lost"] += 1
        finally:
            self.current.pop(asyncio.current_task())
            self.world.counts["recorded" if execution.is_done else "not recorded"] += 1

    async def _works(self, run: AsyncRun, random: Random) -> None:
        """What else a job does."""

    def _begins(self, execution: Execution) -> None:
        """No other job of the key runs, and this delivery has not been done."""
        message, process = execution.message, execution.process
        self.world.note("runs", message.key, message.job_id, message.attempt, process.name)
        for other in self.executions:
            if self.world.has_lost(other.began_at):
                continue
            if other.is_sure and other.message.key == message.key and self._is_exclusive:
                self.world.violate(f"{message.key}: {other.process} and {process} run at once")
            is_same = other.message[1:4:2] == message[1:4:2]
            if is_same and other.is_done:
                self.world.violate(f"{message.key}: {process} runs a delivery again")
        self.executions.append(execution)

    @property
    def _is_exclusive(self) -> bool:
        return self.unique.alone or not self.unique.is_over_at_start

    async def settled(self) -> None:
        """Every job that was accepted has been begun, and no claim is left of those that ended."""
        for job_id, at in self.sent.items():
            # The turn of a job that has ended may have come back, which lasts for `queued`.
            is_held = self.unique.alone or self.unique.queue
            is_forgotten = bool(self.world.losses) if is_held else self.world.has_lost(at)
            if not self._has_run(job_id, at) and not is_forgotten:
                self.world.violate(f"the job {job_id} was accepted and has never run")
        for key, value in self.leftovers().items():
            if key.startswith(tuple(each.encode() for each in (HEARTBEAT, QUEUES, LOOK))):
                continue  # the workers live
            is_record = isinstance(value, bytes) and value.startswith(b"dibs1 done")
            if not is_record and not self._is_queued(key):
                self.world.violate(f"{key!r} is left behind: {value!r}")

    def _has_run(self, job_id: str, since: float) -> bool:
        """It was begun, or one for which it was dropped was: after it had been accepted."""
        equal, others = set[str](), {job_id}
        while others:
            equal |= others
            others = set[str]().union(*(self.replaced.get(each, ()) for each in others)) - equal
        return any(
            each.message.job_id in equal and each.began_at >= since for each in self.executions
        )

    def _is_queued(self, key: bytes) -> bool:
        return any(message.key.encode() == key for _, _, message in self.broker._queue)


class FetchedJobs(Jobs):
    """Workers have several messages in their memory; what dies with one is delivered late."""

    name = "fetched"
    prefetched = 3
    produced = 8

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fetched: dict[str, tuple[Process, float]] = {}
        """Who had the message of a job last, and since when."""
        self.killed: dict[Process, float] = {}

    def made_broker(self) -> Broker:
        return Broker(self.world, again=6.0)

    async def _fetched(self, process: Process, jobs: AsyncUniqueJobs, message: Message) -> None:
        self.fetched.pop(message.job_id, None)
        if message.token is not None and await jobs.fetched(message.key, message.token):
            self.fetched[message.job_id] = process, CLOCK.now
            self.world.counts["fetched"] += 1

    def _refused(self, error: Exception) -> None:
        """The job in the way belongs to a worker that lives, or has died just now."""
        known = self.fetched.get(getattr(error, "note", None) or "")
        if known is None or not known[0].is_dead or self.world.has_lost(known[1]):
            return
        worker, _ = known
        self.world.counts["refused for a dead worker"] += 1
        died = self.killed.setdefault(worker, CLOCK.now)
        if CLOCK.now > max(died, self._last_fault) + 2 * self.unique.lease + 3.0:
            self.world.violate(f"{error.note} has been with a dead worker since {died - BEGIN:.1f}")

    @property
    def _last_fault(self) -> float:
        """When it is over."""
        faults = [each.at + 2 * each.length for each in self.world.plan.faults]
        return BEGIN + max(faults, default=0.0)


class SendingJobs(FetchedJobs):
    """A job sends another one with its own key, which comes after it."""

    name = "sending"

    def options(self) -> UniqueOptions:
        lease = self.random.choice((1.0, 2.0))
        return UniqueOptions(until="end", lease=lease, queued=60, on_outage="closed")

    async def _works(self, run: AsyncRun, random: Random) -> None:
        if random.random() < 0.5 or CLOCK.now > _END - SECONDS:
            return
        jobs = AsyncUniqueJobs(run._dibs, UniqueKey("job:{number}", _work, self.unique))
        job_id = f"from-{run.job_id[-9:]}-{id_of(random)}"

        async def send(sending: Sending) -> None:
            self._send(job_id, sending)
            self.world.counts["sent by a job"] += 1

        try:
            async with jobs.queueing(run.key, job_id) as sending:
                self._send(job_id, sending)
        except Duplicate:
            if (outer := jobs.inside(run.key)) is not None:
                outer.send_after(job_id, 60, send)
        except (Unavailable, LeaseLost):
            pass

    def _begins(self, execution: Execution) -> None:
        """Nor has a run that has completed seen what this message was sent for."""
        message = execution.message
        for other in self.executions:
            if other.message.key != message.key or not other.run.is_noted or not message.sent_at:
                continue
            began_at, is_calm = other.run._began_at or 0.0, CLOCK.now > self._last_fault + 3.0
            is_covered = began_at > message.sent_at + self.unique.lease / 2 + 0.3
            is_other = other.message.job_id != message.job_id
            if is_covered and is_calm and is_other and not self.world.has_lost(other.began_at):
                self.world.violate(f"{message.job_id} runs after {other.message.job_id}")
        super()._begins(execution)


async def _work(number: int) -> None: ...


class AloneJobs(Jobs):
    """One runs at a time, and one waits for it."""

    name = "alone"

    def options(self) -> UniqueOptions:
        lease = self.random.choice((1.0, 2.0))
        return UniqueOptions(until="start", alone=True, lease=lease, queued=60, on_outage="closed")


class AgainJobs(Jobs):
    """A job that waits is replaced by a newer one."""

    name = "again"

    def options(self) -> UniqueOptions:
        lease, again = self.random.choice((1.0, 2.0)), self.random.choice(("replace", "postpone"))
        terms = {"lease": lease, "queued": 60, "on_outage": "closed", "again": again}
        return UniqueOptions(until="start", alone=self.random.random() < 0.5, **terms)

    def _has_run(self, job_id: str, since: float) -> bool:
        """Or a newer one of its key was: that has replaced it."""
        key = self.keys[job_id]
        newer = [each for each, at in self.sent.items() if at > since and self.keys[each] == key]
        return super()._has_run(job_id, since) or any(
            each.message.job_id in newer for each in self.executions
        )


class TurnJobs(FetchedJobs):
    """All jobs run, in the order of sending; as many as the limit at a time."""

    name = "turns"
    produced = 4
    ends_at = BEGIN + 8 * SECONDS

    def options(self) -> UniqueOptions:
        lease, limit = self.random.choice((1.0, 2.0)), self.random.choice((None, None, 2))
        terms = {"lease": lease, "queued": 60, "on_outage": "closed"}
        return UniqueOptions(queue=True, limit=limit, **terms)

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        jobs = AsyncUniqueJobs(dibs, UniqueKey("job:{number}", _work, self.unique))
        looking = process.spawn(self._look(jobs))
        await super().actor(process, dibs, random)
        await looking

    async def _look(self, jobs: AsyncUniqueJobs) -> None:
        """What a worker does beside its jobs."""
        assert jobs.turns is not None
        while CLOCK.now < self.ends_at:
            await jobs.turns.look_after(self._send_waiting)
            await asyncio.sleep(jobs.turns.look_every)

    async def _send_waiting(self, job_id: str, sending: Sending) -> None:
        attempt = int(job_id.partition("#")[2] or 0)
        name = job_id.partition("#")[0]
        self.broker.send(
            Message(sending.key, name, sending.token, attempt, sending.sending, sending.sent_at)
        )

    async def _produce(self, process: Process, jobs: AsyncUniqueJobs, random: Random) -> None:
        assert jobs.turns is not None
        for number in range(self.produced):
            await asyncio.sleep(random.random() * 2.0)
            key = f"job:{random.randrange(2)}"
            job_id = f"{process.name}-{id_of(random)}-{number}"
            try:
                await jobs.turns.send(key, job_id, job_id, self._send_waiting)
            except (Unavailable, LeaseLost) as error:
                self.world.counts[f"not queued: {type(error).__name__}"] += 1
            else:
                self.sent[job_id], self.keys[job_id] = CLOCK.now, key
                self.world.counts["queued"] += 1

    async def _started(self, jobs: AsyncUniqueJobs, message: Message, job: Job) -> AsyncRun:
        try:
            return await jobs.start(message.key, job, self._send_waiting)
        except Duplicate as error:
            if jobs.waits(error, job):
                text = f"{message.job_id}#{message.attempt}"
                await jobs.wait_again(message.key, job, text, self._send_waiting)
                self.world.counts["waits again"] += 1
            raise

    async def _again(self, jobs: AsyncUniqueJobs, error: Duplicate, job: Job) -> float | None:
        return None if jobs.waits(error, job) else await super()._again(jobs, error, job)

    def _begins(self, execution: Execution) -> None:
        """Nor has one begun that was sent later, while nothing went wrong."""
        message, ticket = execution.message, ticket_of(execution.message.sent_at)
        met = {each.message.job_id for each in self.executions}
        for other in self.executions:
            is_same = other.message.key == message.key and self.unique.limit == 1
            is_later = ticket_of(other.message.sent_at) > ticket > 0
            is_first = message.attempt == 0 and message.job_id not in met
            if is_same and is_later and is_first and not self.world.plan.faults:
                self.world.violate(f"{message.job_id} begins after {other.message.job_id}")
        others = [
            each
            for each in self.executions
            if each.is_sure and each.run.key == execution.run.key and self.unique.limit > 1
        ]
        if others and not self.world.has_lost(others[0].began_at):
            self.world.violate(f"{execution.run.key}: {others[0].process} and {execution.process}")
        super()._begins(execution)

    @property
    def _is_exclusive(self) -> bool:
        return self.unique.limit == 1

    def _has_run(self, job_id: str, since: float) -> bool:
        """No other one has run in its place."""
        return any(each.message.job_id == job_id for each in self.executions)


def id_of(random: Random) -> str:
    """Part of the id of a job."""
    return f"{random.getrandbits(24):06x}"
