"""Jobs with `queue=True`: all of them run, one at a time for each key, in the order of sending."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import Dibs, Duplicate, Unavailable, UsageError
from dibs.integrations._sync.jobs import Run, UniqueJobs
from dibs.integrations._unique_jobs import Job, Sending, UniqueKey, UniqueOptions
from dibs.testing import Server, eventually

KEY = "account:1"


def change(account: int) -> None: ...


def jobs_of(dibs: Dibs, task: str = "change", **options: Any) -> UniqueJobs:
    options = {"queue": True, "lease": 1, **options}
    return UniqueJobs(dibs, UniqueKey("account:{account}", change, UniqueOptions(**options), task))


class Queue:
    """The queue of a framework: what is sent is in a list."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Sending]] = []
        self.is_down = False

    def send(self, message: str, sending: Sending) -> None:
        if self.is_down:
            raise ConnectionError("the broker is down")
        self.sent.append((message, sending))

    def waiting(self) -> str:
        """What is in it, in order."""
        return "".join(message for message, _ in self.sent)

    def add(self, jobs: UniqueJobs, *messages: str, key: str = KEY) -> None:
        """Have jobs sent."""
        assert jobs.turns is not None
        for message in messages:
            jobs.turns.send(key, message, message, self.send)

    def start(self, jobs: UniqueJobs, at: int = 0) -> Run:
        """Start the next one in it, as a worker does."""
        message, sending = self.sent.pop(at)
        return jobs.start(sending.key, job_of(message, sending), self.send)

    def run_all(self, jobs: UniqueJobs) -> str:
        """Run all that are in it, and all that these send; their names, in order."""
        ran = ""
        while self.sent:
            ran += self.waiting()[0]
            with self.start(jobs):
                pass
        return ran


def job_of(message: str, sending: Sending, attempt: int = 0) -> Job:
    return Job(
        message, sending.token, attempt, sent_by=sending.sending, sent_at=sending.sent_at
    )  # fmt: skip


def keys_of(server: Server) -> set[str]:
    """What is left, but for the records of runs."""
    names = {each.decode() for each in server.client().keys("*")}
    return {
        each
        for each in names
        if not each.startswith(("job:worker:", "job:look:")) and ":0:" not in each
    }


def test_all_run_one_after_the_other_in_order(own_server: Server) -> None:
    """One is in the queue at a time, however many are sent; the end of each sends the next."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.add(jobs, *"abcdefgh")
        assert queue.waiting() == "a"
        with queue.start(jobs):
            assert not queue.sent
        assert queue.waiting() == "b"
        assert queue.run_all(jobs) == "bcdefgh"
        assert keys_of(own_server) <= {"job:queues:account:{}"}


def test_who_sends_from_inside_of_a_job_waits_behind_the_others(own_server: Server) -> None:
    """A job that sends itself, too: its next page comes after what was sent before."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.add(jobs, *"ab")
        with queue.start(jobs):
            queue.add(jobs, "c")
            assert not queue.sent
        assert queue.run_all(jobs) == "bc"


def test_a_run_that_fails_sends_the_next_one(own_server: Server) -> None:
    """As one that ends in any other way: nothing is dropped."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.add(jobs, *"abc")
        with pytest.raises(ZeroDivisionError), queue.start(jobs):
            raise ZeroDivisionError
        assert queue.waiting() == "b"
        assert queue.run_all(jobs) == "bc"


def test_a_retry_keeps_its_place(own_server: Server) -> None:
    """However often: those that wait begin after it."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.add(jobs, *"ab")
        message, sending = queue.sent.pop()
        token = sending.token
        for attempt in range(5):
            job = Job(message, token, attempt, sent_by=sending.sending, sent_at=sending.sent_at)
            with jobs.start(KEY, job, queue.send) as run:
                token = run.hand_on() or ""
            assert not queue.sent
        last = Job(message, token, 5, sent_by=sending.sending, sent_at=sending.sent_at)
        with jobs.start(KEY, last, queue.send):
            pass
        assert queue.run_all(jobs) == "b"


def test_as_many_as_the_limit_run_at_once(own_server: Server) -> None:
    """With `limit=2` two have keys, and the end of either sends the next one, once."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs, limit=2), Queue()
        queue.add(jobs, *"abcdef")
        assert queue.waiting() == "ab"
        with queue.start(jobs):
            with queue.start(jobs):
                assert not queue.sent
            assert queue.waiting() == "c"
        assert queue.waiting() == "cd"
        assert queue.run_all(jobs) == "cdef"
        assert not keys_of(own_server) & {KEY, f"job:slot:2:{KEY}"}


def test_jobs_of_several_kinds_wait_for_each_other(own_server: Server) -> None:
    """By a shared template: what changes one account runs one at a time, whatever it is."""
    with Dibs(own_server.url, budget=5) as dibs:
        credit, debit, queue = jobs_of(dibs, "credit"), jobs_of(dibs, "debit"), Queue()
        queue.add(credit, "a")
        queue.add(debit, "b")
        queue.add(credit, "c")
        assert queue.waiting() == "a"
        assert queue.run_all(debit) == "abc"


def test_one_unique_may_serve_several_kinds() -> None:
    """Without `{task}`: they are no duplicates of each other."""
    options = UniqueOptions(queue=True)
    for task in ("credit", "debit"):
        UniqueKey("account:{account}", change, options, task)


def test_other_keys_do_not_wait(own_server: Server) -> None:
    """Each key has its own queue."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.add(jobs, *"ab")
        queue.add(jobs, *"xy", key="account:2")
        assert queue.waiting() == "ax"


def test_what_a_dead_process_should_have_sent_is_sent(own_server: Server) -> None:
    """By a worker that looks, or by the next sender, once the key of the dead one is free."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        assert jobs.turns
        queue.add(jobs, *"abc")
        with Dibs(own_server.url, budget=5) as dead:
            queue.start(jobs_of(dead))  # never ends
            jobs.turns.look_after(queue.send)
            assert not queue.sent

        def looks() -> bool:
            assert jobs.turns
            jobs.turns.look_after(queue.send)
            return bool(queue.sent)

        eventually(looks)
        assert queue.waiting() == "b"
        assert queue.run_all(jobs) == "bc"


def test_a_message_that_comes_late_has_its_place_again(own_server: Server) -> None:
    """It was delivered again, when its key was another job's: it is before those sent later."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        assert jobs.turns
        queue.add(jobs, *"abc")
        message, sending = queue.sent[0]
        with Dibs(own_server.url, budget=5) as dead:
            queue.start(jobs_of(dead))

        def next_one() -> bool:
            assert jobs.turns
            jobs.turns.look_after(queue.send)
            return bool(queue.sent)

        eventually(next_one)
        with queue.start(jobs):  # b
            again = job_of(message, sending)
            with pytest.raises(Duplicate) as caught:
                jobs.start(KEY, again, queue.send)
            assert jobs.waits(caught.value, again)
            jobs.wait_again(KEY, again, message, queue.send)
        assert queue.run_all(jobs) == "ac"


def test_a_message_that_was_sent_twice_runs_once(own_server: Server) -> None:
    """Its sender died before it noted that it had sent it; the token is another one then."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        assert jobs.turns
        queue.add(jobs, "a")
        message, sending = queue.sent.pop()
        with jobs.start(KEY, job_of(message, sending), queue.send):
            pass
        with jobs.queueing(KEY, "a") as other:
            pass
        with pytest.raises(Duplicate) as caught:
            second = job_of(message, sending._replace(token=other.token))
            jobs.start(KEY, second, queue.send)
        assert caught.value.state == "done" and not jobs.waits(caught.value, second)
        queue.add(jobs, "b")
        assert queue.waiting() == "b"


def test_one_that_is_dropped_sends_the_next(own_server: Server) -> None:
    """A worker drops a message, as one that was revoked."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.add(jobs, *"abc")
        _, sending = queue.sent.pop()
        assert jobs.give_back(sending.key, sending.token, queue.send)
        assert queue.run_all(jobs) == "bc"


def test_a_queue_that_was_emptied_keeps_the_others_for_queued(own_server: Server) -> None:
    """The message of the one whose turn it was is lost: that is the bound."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs, queued=1), Queue()
        queue.add(jobs, *"abc")
        queue.sent.clear()

        def looks() -> bool:
            assert jobs.turns
            jobs.turns.look_after(queue.send)
            return bool(queue.sent)

        eventually(looks)
        assert queue.run_all(jobs) == "bc"


def test_a_message_without_a_claim_waits_behind_the_others(own_server: Server) -> None:
    """One that was sent by name, for instance: also where the key is free at this moment."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        with queue_of_one(jobs, queue):
            stranger = Job("x", None, 0)
            with pytest.raises(Duplicate) as caught:
                jobs.start(KEY, stranger, queue.send)
            assert jobs.waits(caught.value, stranger)
            queue.add(jobs, "b")
            jobs.wait_again(KEY, stranger, "x", queue.send)
        assert queue.run_all(jobs) == "bx"


def queue_of_one(jobs: UniqueJobs, queue: Queue) -> Run:
    """A job that runs."""
    queue.add(jobs, "a")
    return queue.start(jobs)


def test_who_cannot_send_is_told(own_server: Server) -> None:
    """And the job does not run later; what waited before is sent when it can be."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.is_down = True
        with pytest.raises(ConnectionError):
            queue.add(jobs, "a")
        queue.is_down = False
        queue.add(jobs, *"bc")
        assert queue.waiting() == "b"


def test_a_job_that_cannot_be_sent_at_its_turn_waits(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker is down at the end of a run: a WARNING, and the next sender sends it first."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, queue = jobs_of(dibs), Queue()
        queue.add(jobs, *"ab")
        with queue.start(jobs):
            queue.is_down = True
        assert "job b has its turn and could not be sent" in caplog.text
        assert not own_server.client().exists(KEY)
        queue.is_down = False
        queue.add(jobs, "c")
        assert queue.run_all(jobs) == "bc"


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_in_an_outage_the_policy_decides_about_a_turn(own_server: Server, policy: Any) -> None:
    """open: it is sent at once, and takes its place where it runs; closed: Unavailable."""
    with Dibs(own_server.url, budget=0.25) as dibs:
        jobs, queue = jobs_of(dibs, on_outage=policy), Queue()
        own_server.kill()
        if policy == "closed":
            with pytest.raises(Unavailable):
                queue.add(jobs, "a")
            return
        queue.add(jobs, *"ab")
        assert queue.waiting() == "ab"
        own_server.restart()
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, on_outage=policy)
        with queue.start(jobs):
            message, sending = queue.sent.pop()
            with pytest.raises(Duplicate) as caught:
                jobs.start(KEY, again := job_of(message, sending), queue.send)
            assert jobs.waits(caught.value, again)
            jobs.wait_again(KEY, again, message, queue.send)
        assert queue.run_all(jobs) == "b"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"until": "start"}, 'until="end"'),
        ({"until": 60}, 'until="end"'),
        ({"until": "start", "again": "replace"}, "no again="),
        ({"until": "start", "alone": True}, 'until="end"'),
        ({"on_duplicate": "raise"}, "no on_duplicate="),
        ({"queue": "yes"}, "True or False"),
    ],
)
def test_what_does_not_go_with_it_is_refused(options: dict[str, Any], words: str) -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError, match=words):
        UniqueOptions(**{"queue": True, **options})
