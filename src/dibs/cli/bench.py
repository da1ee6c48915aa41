"""`dibs bench`: how fast dibs is on this server from this machine, beside the raw commands."""

import argparse
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from .. import Dibs
from .._interface import inspector
from ..errors import UsageError
from .connecting import add_server, connected
from .terminal import default_terminal

BENCH_HEADINGS = ("WHAT", "OPS/S", "P50", "P95", "P99", "MAX", "RATIO", "BASELINE")
WARM_UP = 50
TTL = 60.0
"""Seconds after which the server forgets what a killed run has left behind."""


class Part(NamedTuple):
    """One thing that is measured."""

    name: str
    baseline: str
    """The part to which it is compared; empty: it is one itself."""
    work: Callable[[], object]


class BenchResult(NamedTuple):
    """What was measured; times in seconds."""

    name: str
    baseline: str
    rate: float
    p50: float
    p95: float
    p99: float
    longest: float


def bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.description = (
        "Measures one thread of this machine on this server. It sends as many commands as it can, "
        "so do not run it where they are missed. Nothing is left behind."
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each part; default 2")
    add_server(parser)


def bench(args: argparse.Namespace) -> int:
    """Measure. Returns 0."""
    if not 0 < args.seconds <= 600:
        raise UsageError("--seconds must be more than 0 and at most 600")
    terminal = default_terminal()
    prefix = f"dibs-bench-{os.urandom(6).hex()}:"
    with connected(args) as dibs:
        try:
            results = [measured(part, args.seconds) for part in parts(dibs, prefix)]
        finally:
            clean_up(dibs, prefix)
    if args.json:
        terminal.json({"results": [result_object(each, results) for each in results]})
    else:
        terminal.table(BENCH_HEADINGS, [as_row(each, results) for each in results])
        terminal.say(
            "One thread, one request after the other. RATIO: to BASELINE, the raw commands."
        )
    return 0


def parts(dibs: Dibs, prefix: str) -> list[Part]:
    """What is measured: the raw commands on the same connection, and the verbs of dibs."""
    look = inspector(dibs)
    raw, held, claimed, cached = (f"{prefix}{name}" for name in ("raw", "hold", "claim", "cached"))
    take, free = look.raw("SET", raw, "1", "NX", "PX", int(TTL * 1000)), look.raw("DEL", raw)

    def pair() -> None:
        take()
        free()

    def hold() -> None:
        with dibs.hold(held, ttl=TTL):
            pass

    def claim() -> None:
        with dibs.claim(claimed, window=TTL):
            pass

    def hit() -> None:
        dibs.get_or_load(cached, lambda: "x" * 100, ttl=TTL)

    hit()  # the value is stored from now on, also for GET
    return [
        Part("SET NX + DEL", "", pair),
        Part("hold", "SET NX + DEL", hold),
        Part("claim", "SET NX + DEL", claim),
        Part("GET", "", look.raw("GET", cached)),
        Part("cached hit", "GET", hit),
    ]


def clean_up(dibs: Dibs, prefix: str) -> None:
    """Delete what a run has stored; leases and claims have ended with their blocks."""
    dibs.invalidate(f"{prefix}cached")
    inspector(dibs).raw("DEL", f"{prefix}raw")()


def measured(part: Part, seconds: float) -> BenchResult:
    """Call the work of *part* for so long."""
    clock = time.perf_counter
    for _ in range(WARM_UP):
        part.work()
    times: list[float] = []
    begin = now = clock()
    while now - begin < seconds:
        part.work()
        before, now = now, clock()
        times.append(now - before)
    return percentiles(part.name, part.baseline, times)


# ---- figures


def percentiles(name: str, baseline: str, times: list[float]) -> BenchResult:
    """The rate and the percentiles of *times*, in seconds."""
    times = sorted(times)
    p50, p95, p99 = (times[min(int(len(times) * share), len(times) - 1)] for share in SHARES)
    return BenchResult(name, baseline, len(times) / sum(times), p50, p95, p99, times[-1])


SHARES = (0.5, 0.95, 0.99)


def ratio(result: BenchResult, results: list[BenchResult]) -> float | None:
    """How many times its baseline a part takes, at the median."""
    return next((result.p50 / each.p50 for each in results if each.name == result.baseline), None)


def as_row(result: BenchResult, results: list[BenchResult]) -> list[str]:
    """The cells of a table, in the order of `BENCH_HEADINGS`."""
    times = [_micro(each) for each in (result.p50, result.p95, result.p99, result.longest)]
    times_baseline = ratio(result, results)
    beside = "" if times_baseline is None else f"{times_baseline:.2f}"
    return [result.name, f"{result.rate:,.0f}".replace(",", " "), *times, beside, result.baseline]


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"


def result_object(result: BenchResult, results: list[BenchResult]) -> dict[str, object]:
    """The documented fields of `--json`; times in seconds."""
    times_baseline = ratio(result, results)
    fields: dict[str, object] = {"name": result.name, "baseline": result.baseline or None}
    for name in ("rate", "p50", "p95", "p99"):
        fields[name] = round(getattr(result, name), 7)
    fields["max"] = round(result.longest, 7)
    return {**fields, "ratio": None if times_baseline is None else round(times_baseline, 3)}
