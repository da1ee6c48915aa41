"""A storm over the threads client: `python -m tests.thread_storm 1-21` runs twenty seeds.

Three processes with five threads each share a few keys, behind a proxy that loses and delays bytes,
on a server that is stopped now and then. They are stopped, fork, and are interrupted by a signal
handler that raises. What they saw is written down with the monotonic clock, the same for all, and
compared with what is promised. Time is real: a seed names the faults, not the order of events.
"""

import faulthandler
import functools
import json
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic as now
from typing import Any

from dibs import Busy, Dibs, Duplicate, Event, LeaseLost, Unavailable
from dibs.testing import ENGINES, FaultProxy, Server
from tests.conditions import present

SECONDS, PROCESSES, THREADS, LENGTHS = 2.5, 3, 4, (0.03, 0.06, 0.13, 0.26, 0.5)
LIMITS = {"k:1": 1, "k:2": 1, "k:3": 2}  # how many may hold each key
History = list[dict[str, Any]]


class Interrupted(Exception):
    """What the signal handler raises, as the time limit of a job queue does."""


def faults(line: FaultProxy, server: Server, pid: int, length: float) -> dict[str, Callable]:
    """What can go wrong; all of it is over after *length*."""
    with_a_key = ("swallow_replies", "cut_after_request", "hold_requests", "hold_replies")
    return {
        **{name: getattr(line, name) for name in ("cut", "silence", "black_hole", "refuse")},
        **{name: functools.partial(getattr(line, name), match=b":") for name in with_a_key},
        "late": lambda: line.delay(requests=length, replies=length),
        "stall requests": lambda: line.stall(requests=True),
        "stall replies": lambda: line.stall(replies=True),
        "dribble": lambda: line.split(7),
        "freeze": server.freeze,
        "stop": lambda: os.kill(pid, signal.SIGSTOP),
        "fork": lambda: os.kill(pid, signal.SIGUSR2),
        "signals": lambda: [os.kill(pid, signal.SIGUSR1) or time.sleep(0.005) for _ in range(20)],
    }


class Worker:
    """One process: its threads, and what they saw."""

    def __init__(self, url: str, seed: str) -> None:
        self.seed, self.until, self.may_be_interrupted = seed, now() + SECONDS, False
        self.history: History = []
        options: dict[str, Any] = {"connect": 0.5, "on_outage": "closed"}
        options |= {"budget": random.choice((0.06, 0.12, 0.25)), "listeners": [self.listen]}
        self.dibs = Dibs(url, **options)

    def note(self, kind: str, **facts: Any) -> dict[str, Any]:
        self.history.append({"kind": kind, "at": now(), **facts})
        return self.history[-1]

    def listen(self, event: Event) -> None:
        if event.kind == "outage":
            self.note("outage")

    def hold(self, rnd: random.Random) -> None:
        key = rnd.choice(list(LIMITS))
        options: dict[str, Any] = {"limit": 2} if LIMITS[key] > 1 else {"fence": key == "k:1"}
        options |= {"ttl": rnd.choice((0.3, 30.0)), "wait": rnd.choice((0, 0.05, 1.0))}
        with self.dibs.hold(key, renew=rnd.random() < 0.5, **options) as lease:
            entry = self.note("held", key=key, guarded=lease.guarded, to=0.0)
            until = now() + rnd.choice((0.0, 0.005, 0.05, 0.4))
            while ((at := now()) < until or not entry["to"]) and not lease.lost:
                entry["to"] = at
                if rnd.random() < 0.1:
                    lease.extend(rnd.choice((0.2, 1.0)))
                time.sleep(0.002)

    def claim(self, rnd: random.Random) -> None:
        key, since = f"c:{rnd.randrange(40)}", now()
        with self.dibs.claim(key, window=60, after="hold", lease=20):
            entry = self.note("ran", key=key, since=since, done=0.0)
            time.sleep(rnd.choice((0.0, 0.02)))
        entry["done"] = now()

    def work(self, number: int) -> None:
        rnd = random.Random(f"{self.seed}/{number}")
        try:
            while now() < self.until:
                with suppress(Busy, Duplicate, Unavailable, LeaseLost, Interrupted):
                    rnd.choice((self.hold, self.hold, self.claim))(rnd)
                time.sleep(rnd.choice((0.0, 0.001, 0.02)))
        except BaseException:
            self.note("BROKEN", error=traceback.format_exc())

    def interrupt(self, *_: object) -> None:
        if self.may_be_interrupted:
            self.note("interrupted")
            raise Interrupted

    def run(self, folder: Path) -> None:
        forks: list[int] = []
        signal.signal(signal.SIGUSR1, self.interrupt)
        signal.signal(signal.SIGUSR2, lambda *_: forks.append(1))
        threads = [threading.Thread(target=self.work, args=(each,)) for each in range(THREADS)]
        [thread.start() for thread in threads]
        rnd = random.Random(f"{self.seed}/main")
        while now() < self.until:
            if forks and not forks.clear() and os.fork() == 0:
                self.history, self.until = [], min(self.until, now() + 0.3)
                self.work(9)
                self.note("forked")
                self.end(folder)
            with suppress(Busy, Duplicate, Unavailable, LeaseLost, Interrupted):
                try:
                    self.may_be_interrupted = True
                    rnd.choice((self.hold, self.claim))(rnd)
                finally:
                    self.may_be_interrupted = False
        [thread.join() for thread in threads]

    def end(self, folder: Path) -> None:
        """Write down what was seen, and what stays when the client is closed."""
        transport: Any = self.dibs._store.transport
        becomes(lambda: not transport._circuit.outbox and transport._probe._thread is None)
        self.dibs.close()
        if not becomes(lambda: not any("dibs" in each.name for each in threading.enumerate())):
            self.note("BROKEN", threads=[each.name for each in threading.enumerate()])
        if self.dibs._leases.waiters.queues:
            self.note("BROKEN", queues=len(self.dibs._leases.waiters.queues))
        (folder / f"{os.getpid()}.json").write_text(json.dumps(self.history))
        os._exit(0)


def becomes(is_so: Callable[[], object]) -> bool:
    """Whether it is so, soon."""
    until = now() + 10
    while not (found := is_so()) and now() < until:
        time.sleep(0.01)
    return bool(found)


def has_ended(pid: int) -> bool:
    """Whether a process ends; one that hangs shows its stacks, and is killed."""
    if becomes(lambda: os.waitpid(pid, os.WNOHANG)[0]):
        return True
    for number in (signal.SIGHUP, signal.SIGKILL):
        os.kill(pid, number)
        time.sleep(0.5)
    return False


def live(seed: str, folder: Path) -> None:
    """What one of the processes does, from the moment there is a port until all faults are over."""
    faulthandler.register(signal.SIGHUP, all_threads=True)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # Who is interrupted in `logging` leaves its lock locked, for all threads.
    logging.getLogger("dibs").disabled = True
    becomes(lambda: os.listdir(folder))
    worker = Worker(f"redis://127.0.0.1:{os.listdir(folder)[0]}", seed)
    worker.run(folder)
    with suppress(ChildProcessError):  # none: those that it has forked have ended
        os.wait()
    becomes((folder / "over").exists)
    worker.end(folder)


def broken_promises(history: History) -> Iterator[object]:
    """What was promised, and is not so."""
    yield from [each for each in history if each["kind"] == "BROKEN"]
    held = [each for each in history if each["kind"] == "held" and each["to"]]
    moments = [(each["at"], 1, each) for each in held] + [(each["to"], -1, each) for each in held]
    holders, done = Counter[str](), dict[str, float]()
    for _, by, each in sorted(moments, key=lambda moment: moment[:2]):
        holders[each["key"]] += by
        if holders[each["key"]] > LIMITS[each["key"]] or not each["guarded"]:
            yield "not the only holder", each
    ran = [each for each in history if each["kind"] == "ran"]
    for each in sorted(ran, key=lambda each: each["at"]):
        if done.get(each["key"], each["since"]) < each["since"]:
            yield "done before", each
        if each["done"]:
            done.setdefault(each["key"], each["done"])


def left_behind(server: Server) -> list[str]:
    """Keys and permits that nobody has."""
    client = server.client()
    after = 1000 * (client.time()[0] + 5)  # permits that have expired may still be there
    keys = [key for key in ("k:1", "k:2") if client.pttl(key) > 5000]
    return keys + [str(token) for token in client.zrangebyscore("k:3", after, "inf")]


def run(seed: int) -> tuple[History, Counter[str]]:
    """One run: what was seen, and how often what went wrong."""
    rnd, caused = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder, pids = Path(name), list[int]()
        for number in range(PROCESSES):  # before the proxy has any sockets
            pids.append(os.fork())
            if not pids[-1]:
                live(f"{seed}/{number}", folder)
        with Server.start(rnd.choice(present(ENGINES))) as server, FaultProxy(server.port) as line:
            (folder / line.url.rpartition(":")[2]).mkdir()
            until, pause = now() + SECONDS, rnd.choice((0.02, 0.05, 0.15))
            kinds = [each for each in faults(line, server, 0, 0.0) if rnd.random() < 0.35]
            while kinds and now() < until:
                caused[kind := rnd.choice(kinds)] += 1
                pid, length = rnd.choice(pids), rnd.choice(LENGTHS)
                faults(line, server, pid, length)[kind]()
                time.sleep(length)
                server.thaw()
                os.kill(pid, signal.SIGCONT)
                line.heal()
                time.sleep(rnd.expovariate(1 / pause))
            (folder / "over").mkdir()
            hanging = [pid for pid in pids if not has_ended(pid)]
            left = left_behind(server)
        history = [each for file in folder.glob("*.json") for each in json.loads(file.read_text())]
    seen = {each["kind"] for each in history}
    # Between two steps of Python, an interrupted call cannot know what it has: its ttl frees it.
    wrong = [f"{pid} hangs" for pid in hanging]
    wrong += [f"{each} is left behind" for each in left if "interrupted" not in seen]
    wrong += ["an outage without a fault"] * ("outage" in seen and not caused)
    history += [{"kind": "BROKEN", "what": each} for each in wrong]
    return history, caused


if __name__ == "__main__":
    total, bad = Counter[str](), 0
    for seed in range(*map(int, sys.argv[1].split("-"))):
        history, caused = run(seed)
        broken = [*broken_promises(history)]
        total.update(caused)
        total.update(each["kind"] for each in history)
        bad += bool(broken)
        for each in broken[:5]:
            print(f"seed {seed}: {each}", flush=True)
    print(f"{bad} bad seeds;", ", ".join(f"{kind} {n}" for kind, n in sorted(total.items())))
    sys.exit(bad > 0)
