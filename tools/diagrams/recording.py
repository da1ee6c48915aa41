"""The runs of which timelines are drawn, with real processes on a real Valkey."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from dibs.testing import Server

from .timelines import Mark, Run, Span

Line = dict[str, Any]


class Actor:
    """A process that plays a role, and what it has said."""

    def __init__(self, role: str, url: str, database: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.diagrams.actors", role, url, database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[Line] = []
        self.wait_for("ready")

    def wait_for(self, what: str) -> float:
        """Read until it says that; return when. AssertionError: it has ended before."""
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self.lines.append(json.loads(text))
            if self.lines[-1]["what"] == what:
                return self.lines[-1]["at"]
        raise AssertionError(f"it ended before it said {what!r}: {self.lines}")

    def go_on(self) -> None:
        """Let it begin, or go on where it waits."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> float:
        """Send it a signal; return when."""
        self._process.send_signal(number)
        return time.monotonic()

    def at(self, what: str, number: int = 0) -> float:
        """Return when it said something, the first time or a later one."""
        return [line["at"] for line in self.lines if line["what"] == what][number]

    def close(self) -> None:
        """End it."""
        with self._process:
            self._process.kill()


@contextmanager
def _acting(role: str, count: int, prepare: str = "") -> Generator[list[Actor]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        database = str(Path(folder) / "shop.db")
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript(prepare)
        server = stack.enter_context(Server.start("valkey"))
        actors: list[Actor] = []
        for _ in range(count):
            actors.append(Actor(role, server.url, database))
            stack.callback(actors[-1].close)
        yield actors


def _span(lane: int, start: float, end: float, kind: str, words: str = "") -> Span:
    return {"lane": lane, "start": start, "end": end, "kind": kind, "words": words}


def _mark(lane: int, at: float, kind: str, words: str = "") -> Mark:
    return {"lane": lane, "at": at, "kind": kind, "words": words}


def once() -> Run:
    """Two clicks and a retry: one of them works."""
    with _acting("click", 3) as clicks:
        first, second, retry = clicks
        first.go_on()
        first.wait_for("works")
        second.go_on()
        second.wait_for("answer")
        first.wait_for("answer")
        retry.go_on()
        retry.wait_for("answer")
    return {
        "title": "once: two clicks and a retry, one order",
        "lanes": ["first click", "second click", "retry"],
        "spans": [
            _span(0, first.at("works"), first.at("done"), "works", "charges the card"),
            _span(1, second.at("asks"), second.at("answer"), "waits", "waits"),
        ],
        "marks": [
            _mark(0, first.at("answer"), "answer", "order 1"),
            _mark(1, second.at("answer"), "answer", "order 1, the same answer"),
            _mark(2, retry.at("answer"), "answer", "order 1, from Redis"),
        ],
    }


def cached() -> Run:
    """Three processes ask for a value that is not there: one loads it."""
    with _acting("guest", 3) as guests:
        guests[0].go_on()
        guests[0].wait_for("works")
        for guest in guests[1:]:
            guest.go_on()
        for guest in guests:
            guest.wait_for("answer")
            guest.wait_for("answer")
    leader, *followers = guests
    spans = [_span(0, leader.at("works"), leader.at("done"), "works", "asks the database")]
    marks: list[Mark] = []
    for lane, guest in enumerate(guests):
        if guest in followers:
            spans.append(_span(lane, guest.at("asks"), guest.at("answer"), "waits", "waits"))
        marks.append(_mark(lane, guest.at("answer"), "answer", "the menu"))
        marks.append(_mark(lane, guest.at("answer", 1), "answer", "a hit"))
    return {
        "title": "cached: three processes, one load",
        "lanes": ["process 1", "process 2", "process 3"],
        "spans": spans,
        "marks": marks,
    }


def within() -> Run:
    """A process is killed after its commit: the retry is answered, and nothing is done twice."""
    orders = "create table orders (id integer primary key, name text)"
    with _acting("buyer", 2, orders) as (first, retry):
        first.go_on()
        committed = first.wait_for("committed")
        killed = first.send(signal.SIGKILL)
        retry.go_on()

        answered = retry.wait_for("answer")
        refused = [line["at"] for line in retry.lines if line["what"] == "refused"]
        assert "works" not in [line["what"] for line in retry.lines]
    return {
        "title": "once(within=): killed after its commit, answered by the database",
        "lanes": ["first request", "database", "retry"],
        "spans": [
            _span(0, first.at("works"), committed, "works", "one transaction"),
            _span(
                1, committed, answered + 0.4, "kept", "the order and its record: committed together"
            ),
        ],
        "marks": [
            _mark(0, killed, "killed", "kill -9, before Redis hears of it"),
            *[
                _mark(2, at, "refused", "refused: it seems to run" if not number else "")
                for number, at in enumerate(refused)
            ],
            _mark(2, answered, "answer", "order 1"),
        ],
    }


def fence() -> Run:
    """A holder is stopped for longer than its lease: its late write is rejected."""
    report = "create table report (fence integer, author text); insert into report values (0, '')"
    with _acting("writer", 2, report) as (first, second):
        first.go_on()
        first.wait_for("works")
        time.sleep(0.2)
        stopped = first.send(signal.SIGSTOP)
        second.go_on()
        second.wait_for("works")
        second.go_on()
        second.wait_for("written")
        time.sleep(0.3)
        resumed = first.send(signal.SIGCONT)
        first.go_on()
        first.wait_for("rejected")
    begun = first.at("works")
    return {
        "title": "A fence: the late write of a paused holder is rejected",
        "lanes": ["holder", "successor", "the table"],
        "spans": [
            _span(0, begun, stopped, "works", "works"),
            _span(0, stopped, resumed, "stopped", "is paused for longer than its lease of 1 s"),
            _span(1, second.at("asks"), second.at("works"), "waits", "waits for the lease to end"),
            _span(1, second.at("works"), second.at("written"), "works"),
            _span(
                2, second.at("written"), first.at("rejected") + 0.25, "kept", "has the higher fence"
            ),
        ],
        "marks": [
            _mark(1, second.at("written"), "answer", "writes"),
            _mark(0, first.at("rejected"), "refused", "rejected"),
        ],
    }


RUNS: dict[str, Callable[[], Run]] = {
    "once": once,
    "cached": cached,
    "within": within,
    "fence": fence,
}


def record(name: str) -> Run:
    """Have a run, with seconds since its first moment, to the millisecond."""
    run = RUNS[name]()
    first = min([span["start"] for span in run["spans"]] + [mark["at"] for mark in run["marks"]])
    for span in run["spans"]:
        span["start"], span["end"] = round(span["start"] - first, 3), round(span["end"] - first, 3)
    for mark in run["marks"]:
        mark["at"] = round(mark["at"] - first, 3)
    return run
