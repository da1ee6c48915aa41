"""Kills the processes of jobs, and Redis, in every phase; writes a table of job-tables.md.

python -m tests.integrations.job_kills               # all frameworks: minutes
python -m tests.integrations.job_kills celery kept   # one of them, one thing that is killed

The broker is another server, and lives: what it loses, no guard can bring back. A job waits at its
phase (jobs/fences.py) until what is to be killed was killed. All phases of a framework wait at
once, `JOBS` jobs in each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from dibs.testing import Server, eventually

JOBS = 3
FRAMEWORKS = ("celery", "rq", "dramatiq", "taskiq", "arq")
KNOWS_RUNS = ("celery", "dramatiq", "taskiq")
"""Where each run leaves a record, because the broker may deliver its message again."""
WAYS = {"celery": "`delay`", "rq": "`enqueue`", "dramatiq": "`send`", "taskiq": "`kiq`",
        "arq": "`enqueue_job`"}  # fmt: skip
KEPT = ("--appendonly", "yes", "--appendfsync", "always")
KILLED = {
    "process": "the process",
    "kept": "Redis, which keeps its data",
    "lost": "Redis, which loses its data",
}
PHASES = {
    "claimed": "its key is claimed, its message not sent",
    "sent": "its message is sent, its key not yet kept for `queued`",
    "delivered": "a worker has its message, and nothing claimed",
    "started": "its claim is continued, its function not called",
    "running": "it runs",
    "worked": "its work is done, it has not returned",
    "ending": "it has returned, nothing is recorded",
    "half ended": "that it ran is recorded, its key not yet free",
    "ended": "all is recorded, its message not acknowledged",
    "redelivered": "it runs again, after its worker was killed",
    "again": "all is recorded; then its worker is killed as well",
}
DOWN = {"sent": "kept", "delivered": "started", "ending": "ended"}
"""Phases that Redis is down for, up to another place; else it is back before the job continues."""


class Result(NamedTuple):
    """The outcome of a job."""

    runs: int
    done: int
    is_free: bool


def expected(framework: str, killed: str, phase: str) -> Result:
    """What docs/internals/job-tables.md promises."""
    knows = framework in KNOWS_RUNS
    runs, done = 1, 1
    if killed == "process":
        if phase == "claimed":
            runs = done = 0
        elif phase in ("worked", "ending") or (phase in ("half ended", "ended") and not knows):
            runs = done = 2
        else:
            runs = {"running": 2, "redelivered": 3}.get(phase, 1)
    elif phase == "redelivered":
        runs = 2
    elif phase == "again" and (killed == "lost" or not knows):
        runs = done = 2
    return Result(runs, done, is_free=True)


# ---- one framework, in its own process


class Killing:
    """The jobs of one framework; *killed*: a key of KILLED."""

    def __init__(self, framework: str, killed: str, broker: Server, store: Server) -> None:
        from tests.integrations.jobs import fences, job_control

        self.fences, self.framework, self.killed = fences, framework, killed
        self.broker, self.store = broker, store
        self.client = job_control.client_of(broker.url)
        self.module = __import__(f"tests.integrations.jobs.table_{framework}", fromlist=["x"])
        self.cells = getattr(self.module, f"{framework.capitalize()}Cells")()
        phases = [each for each in PHASES if each != ("again" if killed == "process" else "")]
        self.keys = {
            each: [f"{each.replace(' ', '-')}-{n}" for n in range(JOBS)] for each in phases
        }
        self.producers: list[Any] = []
        self.nudges = 0

    def run(self) -> dict[str, list[Result]]:
        """Kill in every phase, and return the outcome of each job."""
        with self._workers():
            self._redeliver()
            pids = self._wait_at_phases()
            (self._kill_processes if self.killed == "process" else self._kill_store)(pids)
            self._wait(lambda: self._is_settled(set(self.keys)) and self._is_quiet())
        for producer in self.producers:
            producer.kill()
        return {phase: self._results(phase) for phase in self.keys}

    # ---- stages

    def _redeliver(self) -> None:
        """The jobs of this phase run for a second time."""
        for key in self.keys["redelivered"]:
            self.fences.put(self.client, "running", key)
        self._produce(self.keys["redelivered"])
        pids = [
            self.fences.wait_at(self.client, "running", key) for key in self.keys["redelivered"]
        ]
        for key in self.keys["redelivered"]:
            self.fences.put(self.client, "running", key)
        self._kill_workers(pids)

    def _wait_at_phases(self) -> dict[str, list[Any]]:
        """All jobs are in their phase: their processes."""
        worked_on = [each for each in self.keys if each not in ("claimed", "sent", "redelivered")]
        for phase in (*worked_on, "claimed", "sent"):
            for key in self.keys[phase]:
                self.fences.put(self.client, self._place(phase), key)
        self.publishing = self._produce(
            [key for phase in ("claimed", "sent") for key in self.keys[phase]]
        )
        self._produce([key for phase in worked_on for key in self.keys[phase]])
        waiting: dict[str, list[Any]] = {phase: [] for phase in self.keys}
        for phase, keys in self.keys.items():
            for key in keys:
                pids = self._arrived(self._place(phase), key)
                waiting[phase].append(pids)
        return waiting

    def _arrived(self, place: str, key: str) -> int:
        found: list[int] = []

        def has_arrived() -> bool:
            pid = self.client.lpop(f"at:{place}:{key}")
            found.extend([int(pid)] if pid else [])
            self._nudge()
            return bool(found)

        eventually(has_arrived, within=120)
        return found[0]

    def _place(self, phase: str) -> str:
        return {"redelivered": "running", "again": "ended"}.get(phase, phase)

    def _kill_processes(self, pids: dict[str, list[Any]]) -> None:
        self.publishing.kill()
        again = pids.pop("redelivered")
        self._kill_workers([each for phase in pids for each in pids[phase]
                            if phase not in ("claimed", "sent")], spared=again)  # fmt: skip

    def _kill_store(self, pids: dict[str, list[Any]]) -> None:
        self.store.kill()
        for phase, place in DOWN.items():
            self._open(phase)
            for key in self.keys[phase]:
                self._past(place, key)
        self.store.restart()
        for phase in self.keys:
            if phase not in ("again", *DOWN):
                self._open(phase)
        self._wait(lambda: self._is_settled(set(self.keys) - {"again"}))
        self._kill_workers(pids["again"])

    def _past(self, place: str, key: str) -> None:
        eventually(lambda: self.client.llen(f"past:{place}:{key}"), within=120)

    def _open(self, phase: str) -> None:
        for key in self.keys[phase]:
            self.fences.open_fence(self.client, self._place(phase), key)

    # ---- processes

    @contextmanager
    def _workers(self) -> Iterator[None]:
        from tests.integrations.jobs.conftest import running
        from tests.integrations.jobs.table import Workers

        more = {"-c8": "-c40", "--threads=12": "--threads=40"}
        command: list[str] = [more.get(word, word) for word in self.module.WORKER] if (
            self.framework != "rq") else ["-c", self.module.WORKER, *("x" * 40)]  # fmt: skip
        self.workers = Workers(lambda: running(self.broker, *command))
        with self.workers:
            yield

    def _kill_workers(self, pids: list[Any], spared: Any = ()) -> None:
        """SIGKILL of what runs these jobs; Celery and RQ have a process for each."""
        if self.framework in ("celery", "rq"):
            for pid in (*pids, *spared):
                with contextlib.suppress(ProcessLookupError):  # it was tired of waiting
                    os.kill(pid, signal.SIGKILL)
            return
        self.workers.kill_and_start()
        for name in self.client.scan_iter(
            "arq:in-progress:*"
        ):  # as its expiry would, minutes later
            self.client.delete(name)

    def _produce(self, keys: list[str]) -> Any:
        """Send jobs with *keys* from a separate process, all at once."""
        child = multiprocessing.get_context("fork").Process(target=self._send, args=(keys,))
        child.start()
        self.producers.append(child)
        return child

    def _send(self, keys: list[str]) -> None:
        send = self.cells.send
        way = WAYS[self.framework]
        if hasattr(self.cells, "connect"):

            async def send_all() -> None:
                await self.cells.connect()
                await asyncio.gather(*(send(way, "kill -9", key, ["finish"]) for key in keys))

            asyncio.run(send_all())
        else:
            with ThreadPoolExecutor(len(keys)) as threads:
                list(threads.map(lambda key: send(way, "kill -9", key, ["finish"]), keys))

    def _nudge(self) -> None:
        """Taskiq looks for what was lost with a worker only when it receives something else."""
        self.nudges += 1
        if self.framework == "taskiq" and self.nudges % 100 == 0:
            self._produce([f"nudge-{self.nudges}"])

    # ---- what became of them

    def _results(self, phase: str) -> list[Result]:
        store: Any = self.store.client()
        return [
            Result(
                self.client.llen(f"starts:{key}"),
                self.client.llen(f"done:{key}"),
                not store.exists(f"unique:t:{key}"),
            )
            for key in self.keys[phase]
        ]

    def _is_settled(self, phases: set[str]) -> bool:
        self._nudge()
        return all(
            each == expected(self.framework, self.killed, phase)
            for phase in phases
            for each in self._results(phase)
        )

    def _is_quiet(self) -> bool:
        if self.framework == "taskiq":
            (group,) = self.client.xinfo_groups("taskiq")
            return not group["pending"] and not group["lag"]
        return self.cells.is_quiet(self.client)

    def _wait(self, is_true: Callable[[], bool]) -> None:
        """Until *is_true*, or for as long as is usual: then the results tell."""
        try:
            eventually(is_true, within=float(os.environ.get("JOBS_PATIENCE", "90")))
        except AssertionError:
            now = {phase: self._results(phase) for phase in self.keys}
            print(f"{self.framework}, {self.killed}: not as expected: {now}", file=sys.stderr)


def try_one(framework: str, killed: str) -> None:
    """Print the outcomes of the jobs, as JSON."""
    config = KEPT if killed == "kept" else ()
    with Server.start() as broker, Server.start(config=config) as store:
        os.environ.update(JOBS_URL=broker.url, JOBS_STORE_URL=store.url, JOBS_FENCES="1")
        found = Killing(framework, killed, broker, store).run()
    print(json.dumps(found), flush=True)
    os._exit(0)


# ---- all of them


def cell(framework: str, killed: str, phase: str, found: list[list[Any]], wrong: list[str]) -> str:
    """The text of a table cell."""
    results = [Result(*each) for each in found]
    wanted = expected(framework, killed, phase)
    wrong += [f"{framework}, {killed}, {phase}: {each}" for each in results if each != wanted]
    words = {0: "not run" if wanted.runs == 0 else "lost", 1: "once"}
    times = Counter(words.get(each.done, "twice") for each in results)
    text = next(iter(times)) if len(times) == 1 else ", ".join(f"{n} {t}" for t, n in times.items())
    return text if all(each.is_free for each in results) else f"{text}, **key kept**"


def rendered(found: dict[tuple[str, str], dict[str, Any]], wrong: list[str]) -> str:
    """The tables, one for each thing that is killed."""
    lines: list[str] = []
    for killed, name in KILLED.items():
        lines += ["", f"| killed: {name}, when … | Celery | RQ | Dramatiq | Taskiq | arq |",
                  "|---" * 6 + "|"]  # fmt: skip
        rows: list[tuple[str, list[str]]] = []
        for phase, said in PHASES.items():
            if phase in found[FRAMEWORKS[0], killed]:
                row = [cell(each, killed, phase, found[each, killed][phase], wrong)
                       for each in FRAMEWORKS]  # fmt: skip
                rows.append((said, row))
        others = [row for _, row in rows if set(row) == {"once"}] if killed != "process" else []
        told = [(said, row) for said, row in rows if row not in others]
        if others:
            told.append((f"{'in each other phase' if told else 'in each phase'}", others[0]))
        lines += [f"| {said} | " + " | ".join(row) + " |" for said, row in told]
    jobs = [each for results in found.values() for group in results.values() for each in group]
    once = sum(1 for each in jobs if each[1] == 1)
    free = sum(1 for each in jobs if each[2])
    said = f"{len(jobs)} jobs, {JOBS} in each cell: {once} done once, {free} keys free afterwards."
    return "\n".join([said, *lines])


def run_one(framework: str, killed: str) -> dict[str, Any]:
    """In its own process: each framework has its modules, and its servers."""
    command = [sys.executable, "-m", __spec__.name, framework, killed, "--alone"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def main(words: list[str]) -> int:
    if "--alone" in words:
        try_one(words[0], words[1])
    frameworks = [each for each in words if each in FRAMEWORKS] or list(FRAMEWORKS)
    kinds = [each for each in words if each in KILLED] or list(KILLED)
    pairs = [(each, killed) for each in frameworks for killed in kinds]
    with ThreadPoolExecutor(2) as threads:
        found = dict(zip(pairs, threads.map(run_one, *zip(*pairs, strict=True)), strict=True))
    wrong: list[str] = []
    if len(found) == len(FRAMEWORKS) * len(KILLED):
        from tests.integrations.jobs import table

        text = table.PAGE.read_text("utf-8")
        table.PAGE.write_text(table.with_section(text, "kills", rendered(found, wrong)), "utf-8")
    else:
        for (framework, killed), results in found.items():
            for phase, group in results.items():
                said = cell(framework, killed, phase, group, wrong)
                print(f"{framework:9} {killed:8} {phase:12} {said}  {group}")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
