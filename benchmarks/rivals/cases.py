"""What is done to each library: every function returns the facts of one cell, for JSON."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dibs.testing import Server
from tests.topologies import sentinel_service

from .processes import Subject, calling

PATIENCE = 75
"""For how long a lock, or a retry, is tried again: seconds."""
Facts = dict[str, Any]


def lock(subject: Subject) -> Facts:
    """Kill a holder with SIGKILL, and try until another has the lock."""
    with Server.start("valkey") as server, calling(subject, server.url, 2) as (first, other):
        other.call("lock", "warm")
        first.begin("call", verb="lock", key="report", work=3600, cap=3600)
        first.wait_until_work_begins()
        refusal = other.call("lock", "report")
        first.kill()
        return _tried(lambda: other.call("lock", "report")) | {"refusal": refusal}


def long_work(subject: Subject) -> Facts:
    """Try to enter while another works, in the twelfth of its fifteen seconds."""
    with Server.start("valkey") as server, calling(subject, server.url, 2) as (first, other):
        working = first.begin("call", verb="lock", key="report", work=15, cap=60)
        first.wait_until_work_begins()
        time.sleep(12)
        answer = other.call("lock", "report")
        first.answer(working)
        return {"second": answer["outcome"] == "ok"}


def duplicate(subject: Subject) -> Facts:
    """Call again while the first call works for three seconds, and after it."""
    with Server.start("valkey") as server, calling(subject, server.url, 2) as (first, second):
        second.call("once", "warm")
        working = first.begin("call", verb="once", key="pay", work=3)
        first.wait_until_work_begins()
        during = second.call("once", "pay")
        first.answer(working)
        after = second.call("once", "pay")
        return {"during": during, "after": after, "effects": first.begun + second.begun - 1}


def crash(subject: Subject) -> Facts:
    """Kill a process after its effect and before its record, and retry until there is an answer."""
    if subject.library == "dbos" or subject.setting == "within":
        return _crash_in_database(subject)
    with Server.start("valkey") as server, calling(subject, server.url, 2) as (first, retry):
        first.begin("call", verb="once", key="pay", work=3600, cap=3600)
        first.wait_until_work_begins()
        first.kill()
        facts = _tried(lambda: retry.call("once", "pay"))
        return facts | {"effects": first.begun + retry.begun}


def _crash_in_database(subject: Subject) -> Facts:
    facts: Facts = {"rows": {}, "answered": {}}
    for moment in ("before", "after"):
        with tempfile.TemporaryDirectory() as folder, Server.start("valkey") as server:
            database = str(Path(folder) / "shop.db")
            _count_orders(database)
            with calling(subject, server.url) as [first]:
                first.begin("order", key="c7", database=database, stop=moment)
                first.wait_until_work_begins()
                first.kill()
            with calling(subject, server.url) as [retry]:
                order = partial(retry.do, "order", key="c7", database=database, stop="")
                facts["answered"][moment] = _tried(order)["after"]
            facts["rows"][moment] = _count_orders(database)
    return facts


def _count_orders(database: str) -> int:
    with sqlite3.connect(database) as connection:
        connection.execute("create table if not exists orders (id integer primary key, name text)")
        count = connection.execute("select count(*) from orders").fetchone()[0]
    connection.close()
    return count


def _tried(ask: Callable[[], Facts]) -> Facts:
    """Ask every quarter of a second until the answer is no refusal; `after`: None, or seconds."""
    began, refusals = time.monotonic(), list[Facts]()
    while time.monotonic() - began < PATIENCE:
        answer = ask()
        if answer["outcome"] == "ok":
            return {"after": time.monotonic() - began, "refused": refusals[:1]}
        refusals.append(answer)
        time.sleep(0.25)
    return {"after": None, "refused": refusals[-1:]}


def stampede(subject: Subject) -> Facts:
    """Ask for a missing value, from two processes a hundred times each; loads of 1 and of 12 s."""
    facts: Facts = {}
    for seconds in (1, 12):
        with Server.start("valkey") as server, calling(subject, server.url, 2) as callers:
            begun = [
                each.begin("call", verb="cached", key="menu", work=seconds, times=100, cap=60)
                for each in callers
            ]
            answers = [
                answer for each, n in zip(callers, begun, strict=True) for answer in each.answer(n)
            ]
            served = [answer["took"] for answer in answers if answer["outcome"] == "ok"]
            facts[str(seconds)] = {
                "loads": sum(each.begun for each in callers),
                "served": len(served),
                "median": statistics.median(served) if served else None,
                "errors": sorted({a["outcome"] for a in answers if a["outcome"] != "ok"}),
            }
    return facts


def throttle(subject: Subject) -> Facts:
    """Call as often as twenty a second allow, from three processes for six seconds."""
    with Server.start("valkey") as server, calling(subject, server.url, 3) as callers:
        begun = [each.begin("spend", key="api", seconds=6) for each in callers]
        spent = [each.answer(number) for each, number in zip(callers, begun, strict=True)]
    if broken := [each["broken"] for each in spent if "broken" in each]:
        return {"broken": broken[0]}
    granted = sorted(moment for each in spent for moment in each["granted"])
    refused = [seconds for each in spent for seconds in each["refused"]]
    return {
        "granted": len(granted),
        "each": [len(each["granted"]) for each in spent],
        "most": max(sum(a <= b < a + 1 for b in granted) for a in granted),
        "refused_ms": statistics.median(refused) * 1000 if refused else None,
    }


def outage(subject: Subject, verb: str) -> Facts:
    """Stop the server (SIGSTOP): the first call, the second, and when it serves again."""
    with Server.start("valkey") as server, calling(subject, server.url) as [caller]:
        warm = caller.call(verb, "warm")
        assert warm["outcome"] == "ok", warm
        server.freeze()
        first, second = (caller.call(verb, f"key-{number}") for number in range(2))
        server.thaw()
        began = time.monotonic()
        while (served := caller.call(verb, f"back-{time.monotonic()}"))["outcome"] != "ok":
            if time.monotonic() - began > 20:
                break
            time.sleep(0.05)
        back = time.monotonic() - began if served["outcome"] == "ok" else None
        return {"first": first, "second": second, "back": back}


def failover(subject: Subject, verb: str) -> Facts:
    """Kill the primary behind a sentinel: which calls fail, and for how long."""
    started: list[Server] = []

    def start(engine: Any, config: Any = ()) -> Server:
        started.append(Server.start(engine, config=config))
        return started[-1]

    with tempfile.TemporaryDirectory() as folder:
        try:
            with (
                sentinel_service(
                    start, Path(folder), replicas=1, sentinels=1, down_after_ms=1000
                ) as service,
                calling(subject, service.url) as [caller],
            ):
                ends, failed, slowest, count = time.monotonic() + 12, list[float](), 0.0, 0
                killed = False
                while (now := time.monotonic()) < ends:
                    if not killed and count == 20:
                        service.master.kill()
                        killed = True
                    answer = caller.call(verb, f"key-{count}")
                    slowest = max(slowest, answer["took"])
                    count += 1
                    if answer["outcome"] != "ok":
                        failed.append(now)
                    time.sleep(0.05)
                span = failed[-1] - failed[0] if failed else 0.0
                return {"calls": count, "failed": len(failed), "span": span, "slowest": slowest}
        finally:
            for server in started:
                server.close()
