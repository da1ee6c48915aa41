"""Signal handlers that raise, at each of the moments at which Python looks for signals."""

import dis
import functools
import gc
import itertools
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest

from dibs import Dibs, Unavailable
from dibs._core.request import Request
from dibs._locks import start_thread
from dibs._threads import BackgroundTasks, WorkQueue
from dibs._transport import pooled
from dibs._transport.pool import ThreadConnection
from dibs.testing import Server, eventually

# An interrupt may come between `hold()` and its `with`.
pytestmark = pytest.mark.filterwarnings("ignore:.* not entered:RuntimeWarning")


class Interrupt(BaseException):
    """What a handler raises."""


def interrupted_everywhere(work: Callable[[int], object]) -> Iterator[int]:
    """Call *work* with 1, 2, … and raise at that many moments, until it ends before.

    Python looks for signals when a function begins, and when one that is written in C has ended;
    from 3.15 on not when `with` has called it (before 3.14 the profiler is not told of those).
    Nothing is collected meanwhile: what is raised in a collector's callback reaches nobody.
    """
    for moment in itertools.count(1):
        left = moment

        def look(frame: FrameType, event: str, arg: object) -> None:
            nonlocal left
            if event not in ("call", "c_return") or is_entering(frame, event):
                return
            left -= 1
            if left <= 0 and not is_finalizing(frame):
                sys.setprofile(None)
                raise Interrupt

        gc.disable()
        sys.setprofile(look)
        try:
            work(moment)
        except (Interrupt, RuntimeError, Unavailable):  # a Condition of `threading` raises another
            pass
        finally:
            sys.setprofile(None)
            gc.enable()
        if left > 0:
            return
        yield moment


def is_entering(frame: FrameType, event: str) -> bool:
    """Whether `with` has just called an `__enter__` that is written in C, on Python 3.15."""
    before = dis.opname[frame.f_code.co_code[frame.f_lasti - 2]]
    return event == "c_return" and before == "LOAD_SPECIAL" and sys.version_info >= (3, 15)


def is_finalizing(frame: FrameType | None) -> bool:
    """Whether something is being collected: what is raised there reaches nobody."""
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "_remove"):
            return True
        frame = frame.f_back
    return False


def ends(work: Callable[[], object]) -> bool:
    """Whether *work* ends, in another thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=60)
    return not thread.is_alive()


def test_a_thread_begins_though_the_one_that_starts_it_is_interrupted() -> None:
    """Wherever that was: none is left that never runs, and later ones can be started."""

    def threads() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "dibs test"]

    for moment in interrupted_everywhere(lambda _: start_thread(bool, "dibs test")):
        assert ends(lambda: start_thread(bool, "dibs test")), moment
        eventually(lambda: not threads())  # one that has not begun cannot be joined


def test_work_in_the_background_is_done_though_somebody_was_interrupted() -> None:
    """Wherever that was: what is added later is done, and counted once."""
    tasks, queue, done = BackgroundTasks(), WorkQueue(), list[int]()

    def add(number: int) -> None:
        tasks.spawn(functools.partial(done.append, number))
        queue.add(functools.partial(done.append, number))

    for moment in interrupted_everywhere(add):
        done.clear()
        add(-moment)
        eventually(lambda: done.count(-moment) == 2)  # noqa: B023 - called at once
    eventually(lambda: not tasks._running)


def test_a_number_is_packed_while_signals_arrive() -> None:
    """The process goes on: hiredis 3.5 ends it if a handler raises while it reads a number."""
    assert subprocess.run([sys.executable, "-c", PACKS_UNDER_SIGNALS]).returncode == 0


PACKS_UNDER_SIGNALS = """
import signal, time
from dibs._core.request import pack

def interrupt(*_):
    raise InterruptedError

signal.signal(signal.SIGALRM, interrupt)
words, until = ("EVALSHA", *range(100_000, 101_000)), time.monotonic() + 1
while time.monotonic() < until:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
        while True:
            pack(*words)
    except InterruptedError:
        pass
"""


def test_who_waits_does_not_stand_behind_somebody_who_was_interrupted(valkey: Server) -> None:
    """Wherever that was: the next one is served."""
    others = valkey.client()
    with Dibs(valkey.url, budget=5) as dibs:

        def wait_in_vain(number: int) -> None:
            dibs.try_hold(f"user:{number}", ttl=0.02, wait=0.005)

        def wait(key: str) -> None:
            with dibs.hold(key, ttl=5, wait=math.inf) as lease:
                assert lease.guarded

        others.mset({f"user:{number}": "another" for number in range(1000)})
        wait_in_vain(0)
        for moment in interrupted_everywhere(wait_in_vain):
            others.delete(f"user:{moment}")
            assert ends(lambda: wait(f"user:{moment}")), moment  # noqa: B023 - called at once


def test_who_waits_behind_somebody_who_is_interrupted_before_he_is_woken(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one looks for itself: nobody else would wake it."""
    others = valkey.client()
    others.set("user:1", "another")
    with Dibs(valkey.url, budget=5) as dibs:
        wait = functools.partial(dibs.try_hold, "user:1", ttl=5, wait=math.inf)
        next_one = threading.Thread(target=wait, daemon=True)

        def interrupt(*args: object) -> None:
            monkeypatch.undo()
            next_one.start()
            eventually(lambda: len(dibs._leases.waiters.queues[b"user:1"][0].turns) == 2)
            raise Interrupt

        monkeypatch.setattr(pooled, "Subscriber", interrupt)
        with pytest.raises(Interrupt):
            wait()
        others.delete("user:1")
        next_one.join(timeout=60)
        assert not next_one.is_alive()


def test_a_load_that_is_interrupted_does_not_hold_up_the_next_one(valkey: Server) -> None:
    """Wherever that was: it ends, for all who wait for it."""
    with Dibs(valkey.url, budget=5) as dibs:

        def load(number: int) -> None:
            dibs.get_or_load(f"menu:{number}", lambda: 1, ttl=60, wait=0.01)

        load(0)
        for moment in interrupted_everywhere(load):
            assert ends(lambda: load(moment)), moment  # noqa: B023 - called at once


def test_an_interrupted_read_does_not_give_others_the_values_of_other_keys(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values for the memory are read on one connection, in turn: a request is written, or none."""

    def menu_of(branch: str) -> str:
        return branch

    def interrupt(connection: ThreadConnection, request: Request) -> None:
        monkeypatch.undo()
        raise Interrupt

    with Dibs(valkey.url, budget=5) as dibs, Dibs(valkey.url, budget=5) as other:
        menu, filled = [
            each.cached("menu:{branch}", ttl=600, local=True)(menu_of) for each in (dibs, other)
        ]
        branches = ["b0", "b1", "b2", "b3", "b4"]
        assert [filled(branch) for branch in branches] == branches
        assert menu("b0") == "b0"
        monkeypatch.setattr(ThreadConnection, "write", interrupt)
        with pytest.raises(Interrupt):
            menu("b1")
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(menu, branches)) == branches


def test_leases_are_renewed_after_one_was_interrupted(valkey: Server) -> None:
    """Wherever that was: there is a thread that renews those that come later."""

    def new_client() -> Dibs:
        dibs = Dibs(valkey.url, budget=5)
        dibs.peek("user:0")
        return dibs

    def hold(number: int) -> None:
        with dibs.hold(f"user:{number}", ttl=60, renew=True):
            pass

    dibs = new_client()
    for moment in interrupted_everywhere(hold):
        with dibs, dibs.hold("user:0", ttl=60, renew=True):
            threads = [each for each in threading.enumerate() if each.name == "dibs renewer"]
            assert any(each.is_alive() for each in threads), moment
        dibs = new_client()
    dibs.close()
