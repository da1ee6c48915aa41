"""Ways to send × ways to end, for each framework: did the job run once, is its key free afterwards?

A cell is one job. Its plan says what it does at each of its runs; all jobs of a framework are sent
at once, to workers that they share. `Facts` are what a cell left behind, in words that stand in
docs/internals/job-tables.md: `python -m tests.integrations.job_table` writes them there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dibs.testing import Server, eventually
from tests.integrations.jobs import fences
from tests.integrations.jobs.job_control import URL, client_of

LEASE = 2
"""Seconds: how long a lost run blocks its key."""
QUEUED = 300
LIMIT = 4
"""Seconds: the time limit of the jobs that hang."""
PATIENCE = float(os.environ.get("JOBS_PATIENCE", "90"))
PAGE = Path(__file__).parents[3] / "docs/internals/job-tables.md"

PLANS = {
    "success": ["finish"],
    "failure": ["fail"],
    "retry": ["retry", "finish"],
    "kill -9": ["kill", "finish"],
    "time limit": ["hang"],
    "revoked while it runs": ["wait"],
    "delivered again while it runs": ["copy", "finish"],
    "delivered again after its end": ["copy later", "finish"],
}
"""The ways to end, and what a job does at its first run, at its second …"""


class Facts(NamedTuple):
    """The outcome of a job."""

    runs: int
    """How often it was started."""
    done: int
    """How often it has reached its end."""
    is_free: bool
    """Whether its key was free afterwards."""

    def __str__(self) -> str:
        runs = "no run" if not self.runs else "1 run" if self.runs == 1 else f"{self.runs} runs"
        done = "" if self.done == 1 else ", not done" if not self.done else f", **{self.done} ×**"
        return runs + done + ("" if self.is_free else ", **key kept**")


class Cells(Protocol):
    """A framework: its workers, and how each cell is sent."""

    ways: Mapping[str, list[str]]
    """The ways to send: what a job does before the plan of its end."""
    ends: Mapping[str, list[str]]
    fates: Mapping[str, Callable[[Fate], str]]
    """What happens to jobs that are not run in the usual way: what is seen then."""

    def workers(self, server: Server) -> AbstractContextManager[Any]: ...

    def send(self, way: str, end: str, key: str, plan: list[str]) -> Any: ...

    def expected(self, way: str, end: str) -> Facts: ...

    def is_quiet(self, client: Any) -> bool: ...


class Fate(NamedTuple):
    """What the test of a fate needs."""

    server: Server
    client: Any
    key: str


# ---- inside of a job


def next_step(key: str, job_id: object, plan: list[str]) -> str:
    """Record that a run begins, and return its step.

    A run after the end of the plan is one too many.
    """
    with client_of(URL) as client:
        runs = client.rpush(f"starts:{key}", str(job_id))
    step = plan[runs - 1] if runs <= len(plan) else "finish"
    fences.reach("running", key)
    if step == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if step in ("wait", "hang"):
        wait_for(f"go:{key}")
    return step


def wait_for(name: str) -> None:
    """Wait until the test continues it."""
    with client_of(URL) as client:
        client.blpop([name], 60)


def wait_for_refusal(key: str, job_id: object) -> None:
    """Until another delivery of this job was refused."""
    deadline = time.monotonic() + PATIENCE
    while not is_refused(job_id):
        assert time.monotonic() < deadline, f"{key}: no other delivery was refused"
        time.sleep(0.05)


def is_refused(job_id: object) -> bool:
    """Whether another delivery of a job was refused: it is marked as sent once more."""
    with client_of(URL) as client:
        return bool(list(client.scan_iter(f"unique:job:{job_id}:*:again")))


def done(key: str) -> str:
    """It has reached its end."""
    with client_of(URL) as client:
        client.rpush(f"done:{key}", "1")
    fences.reach("worked", key)
    return key


# ---- the test's side


class Workers:
    """A worker process that can be killed and replaced."""

    def __init__(self, start: Callable[[], AbstractContextManager[Any]]) -> None:
        self._start = start

    def __enter__(self) -> Workers:
        self._worker = self._start()
        self.process = self._worker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__(None, None, None)

    def kill_and_start(self) -> None:
        """SIGKILL, with all that it runs; then another one."""
        self.__exit__()
        self.__enter__()


def facts(client: Any, key: str) -> Facts:
    """The outcome of the job with *key*."""
    return all_facts(client, [key])[0]


def all_facts(client: Any, keys: list[str]) -> list[Facts]:
    """The same for each of several, in one write."""
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.llen(f"starts:{key}")
            pipe.llen(f"done:{key}")
            pipe.exists(f"unique:t:{key}")
        replies = pipe.execute()
    return [Facts(*replies[at : at + 2], not replies[at + 2]) for at in range(0, len(replies), 3)]


def wait_until(is_true: Callable[[], bool]) -> None:
    """Until *is_true*, or for as long as a test is patient: then the facts of the cells tell."""
    with contextlib.suppress(AssertionError):
        eventually(is_true, within=PATIENCE)


def key_of(way: str, end: str) -> str:
    """The key of a cell."""
    return re.sub(r"[^a-z0-9]+", "-", f"{way} {end}".lower()).strip("-")


def run_cells(cells: Any, server: Server) -> dict[tuple[str, str], Facts]:
    """Send every cell at once; their facts, when all is quiet."""
    client = client_of(server.url)
    pairs = [(way, end) for way in cells.ways for end in cells.ends]
    cells.send_all(client, {(way, end): key_of(way, end) for way, end in pairs})
    wanted = {pair: cells.expected(*pair) for pair in pairs}

    def found() -> dict[tuple[str, str], Facts]:
        return dict(zip(pairs, all_facts(client, [key_of(*pair) for pair in pairs]), strict=True))

    def is_over() -> bool:
        now = found()
        return cells.is_quiet(client) and all(
            (each.runs, each.is_free) >= (wanted[pair].runs, wanted[pair].is_free)
            for pair, each in now.items()
        )

    wait_until(is_over)
    return found()


def rendered(cells: Any, found: Mapping[tuple[str, str], Any], fates: Mapping[str, str]) -> str:
    """The tables of a framework."""
    lines = [
        "| sent \\ ended | " + " | ".join(cells.ends) + " |",
        "|---" * (len(cells.ends) + 1) + "|",
    ]
    for way in cells.ways:
        row = [str(found[way, end]) for end in cells.ends]
        lines.append(f"| {way} | " + " | ".join(row) + " |")
    if fates:
        lines += ["", "| what happens | what is seen |", "|---|---|"]
        lines += [f"| {name} | {seen} |" for name, seen in fates.items()]
    return "\n".join(lines)


def section(text: str, name: str) -> str:
    """The part of docs/internals/job-tables.md between the marks of a framework."""
    found = re.search(_MARKED % name, text, re.DOTALL)
    assert found is not None, f"docs/internals/job-tables.md has no table of {name}"
    return found[2]


def with_section(text: str, name: str, tables: str) -> str:
    """*text* with other tables there."""
    return re.sub(_MARKED % name, lambda found: found[1] + tables + found[3], text, flags=re.DOTALL)


if fences.IS_ON:
    fences.install()

_MARKED = r"(<!-- table: %s -->\n\n)(.*?)(\n\n<!-- end -->)"
