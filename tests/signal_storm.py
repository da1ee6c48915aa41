"""Real signals, whose handler raises, through one threads client: `python -m tests.signal_storm`.

The main thread holds, claims and reads cached values, and is interrupted at random moments; other
threads do the same with the same client, and are not. A caller that makes no progress for 30 s is
blocked: the stacks are shown, and the program fails. Another number of signals: one argument.
"""

import faulthandler
import itertools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from time import monotonic as now

from dibs import Busy, Dibs, Duplicate, Unavailable
from dibs.testing import ENGINES, Server

SIGNALS, THREADS, PATIENCE = 50_000, 3, 30.0
LONGEST = 0.0015
"""Seconds until a signal; a call takes less."""


class Interrupted(BaseException):
    """What the signal handler raises."""


class Alarm:
    """A signal at a moment that is not known before; its handler raises once."""

    def __init__(self) -> None:
        self._is_armed = False
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, *_: object) -> None:
        if self._is_armed:
            self._is_armed = False
            raise Interrupted

    def interrupts(self, work: Callable[[], object]) -> bool:
        """Whether *work* was interrupted; False: it had ended before."""
        try:
            try:
                self._is_armed = True
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, LONGEST))
                work()
            finally:
                self._is_armed = False
        except Interrupted:
            return True
        return False


class Callers:
    """What all threads do with one client."""

    def __init__(self, dibs: Dibs) -> None:
        self._dibs = dibs
        self._numbers = itertools.count()
        self._menu = dibs.cached("menu:{number}", ttl=60)(self._load)
        self._local = dibs.cached("local:{number}", ttl=60, local=True)(self._load)
        self._order = dibs.once("order:{number}", window=60, after="replay")(self._load)
        self.verbs = {
            "hold": self.hold, "hold renew": self.renew, "hold wait": self.wait,
            "cached": self.cached, "cached local": self.local, "once": self.once,
        }  # fmt: skip

    def _load(self, number: int) -> int:
        return number

    def hold(self) -> None:
        with self._dibs.hold(f"hold:{next(self._numbers)}", ttl=5):
            pass

    def renew(self) -> None:
        with self._dibs.hold(f"renew:{next(self._numbers)}", ttl=5, renew=True):
            pass

    def wait(self) -> None:
        # The ttl frees a key whose holder was interrupted before it knew that it has it.
        with self._dibs.hold(f"wait:{random.randrange(4)}", ttl=0.05, wait=1):
            pass

    def cached(self) -> None:
        self._menu(random.randrange(1000))

    def local(self) -> None:
        number = random.randrange(1000)
        if random.random() < 0.5:
            self._local.invalidate(number)
        self._local(number)

    def once(self) -> None:
        self._order(next(self._numbers))


def call(verb: Callable[[], None]) -> None:
    """Call *verb*; what it raises as an answer is fine."""
    try:
        verb()
    except (Busy, Duplicate, Unavailable):
        pass


def storm(server: Server, signals: int) -> Counter[str]:
    """How often each verb was interrupted, and what the other threads did meanwhile."""
    counts, is_over = Counter[str](), threading.Event()
    progress = {"main": now()}

    def work(name: str) -> None:
        while not is_over.is_set():
            call(random.choice(list(callers.verbs.values())))
            progress[name] = now()
            counts["calls of other threads"] += 1
            time.sleep(0.002)

    def watch() -> None:
        while not is_over.wait(1):
            blocked = [name for name, at in list(progress.items()) if now() - at > PATIENCE]
            if blocked:
                print("blocked:", *blocked, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)

    with Dibs(server.url, budget=2, connect=5) as dibs:
        callers, alarm = Callers(dibs), Alarm()
        names = [f"caller {number}" for number in range(THREADS)]
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        threads.append(threading.Thread(target=watch))
        for thread in threads:
            thread.start()
        while signals:
            name, verb = random.choice(list(callers.verbs.items()))
            if alarm.interrupts(lambda: call(verb)):  # noqa: B023 - called at once
                counts[name] += 1
                signals -= 1
            progress["main"] = now()
        is_over.set()
        for thread in threads:
            thread.join()
    return counts


def main(signals: int) -> None:
    # Who is interrupted in `logging` of Python 3.14 leaves its lock locked, for all threads.
    logging.getLogger("dibs").disabled = True
    sys.unraisablehook = lambda _: None  # a handler that raised while something was collected
    with Server.start(ENGINES[0]) as server:
        counts = storm(server, signals)
    until = now() + 30
    while (left := [each.name for each in threading.enumerate() if "dibs" in each.name]) and (
        now() < until
    ):
        time.sleep(0.1)
    print(f"Python {sys.version.split()[0]}: {signals} signals, no caller blocked;", dict(counts))
    if left:
        sys.exit(f"threads that are left: {left}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SIGNALS)
