"""The table of docs/comparison.md, from the facts that were filed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .catalogue import ENTRIES, NAMES, PACKAGES, Entry
from .environments import ROOT

PAGE = ROOT / "docs" / "comparison.md"
MARKED = re.compile(r"(<!-- rivals: begin -->\n).*?(<!-- rivals: end -->)", re.DOTALL)
NOTHING = "–"
Facts = dict[str, Any]


def write(results: Facts) -> None:
    """Write the table between its two marks."""
    text = PAGE.read_text("utf-8")
    new, count = MARKED.subn(lambda found: f"{found[1]}{table(results)}\n{found[2]}", text)
    if count != 1:
        raise SystemExit(f"{PAGE} has no place for the table")
    PAGE.write_text(new, "utf-8")


def table(results: Facts) -> str:
    """Return what was measured, a row for each library and setting, and where it was measured."""
    rows = [[*HEADINGS], ["---"] * len(HEADINGS)]
    for entry in ENTRIES:
        if found := results.get("cells", {}).get(entry.name):
            rows.append(_row(entry, found, results["versions"]))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", _where(results)])


def _row(entry: Entry, found: Facts, versions: Facts) -> list[str]:
    name = NAMES.get(entry.library, entry.library)
    version = versions[entry.library][PACKAGES.get(entry.library, entry.library)]
    first = (
        f"… {entry.says}" if entry.setting else " ".join(filter(None, [name, version, entry.says]))
    )
    shown = [WRITERS[case](found[case]) if case in found else NOTHING for case in COLUMNS]
    lock = found.get("lock")
    if lock is not None:
        shown[0] = _lock(lock, found.get("long_work"))
    return [first, *shown]


def _where(results: Facts) -> str:
    cells = results["cells"]
    dates = sorted({facts["date"] for found in cells.values() for facts in found.values()})
    pythons = sorted({each["Python"] for each in results["versions"].values()})
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    server = results["server"]
    return f"{when}, {server}, Python {' and '.join(pythons)}, on two busy cores."


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def _lock(facts: Facts, long_work: Facts | None) -> str:
    if "broken" in facts:
        return "failed"
    after = facts["after"]
    parts = ["**not in 75 s**" if after is None else _time(after)]
    if long_work is not None and "broken" not in long_work:
        parts.append("**two at once**" if long_work["second"] else "one")
    return "; ".join(parts)


def _duplicate(facts: Facts) -> str:
    during, after = facts["during"], facts["after"]
    if during["outcome"] == "ok":
        first = "waits"
    elif "retry_after" in during:
        first = "refused, told when"
    else:
        first = "refused"
    return f"{first}; {'the result' if after['outcome'] == 'ok' else 'refused'}"


def _crash(facts: Facts) -> str:
    if "rows" in facts:
        rows, answered = facts["rows"], facts["answered"]
        effects = " or ".join(sorted({str(count) for count in rows.values()}))
        before, after = (_time(answered[moment]) for moment in ("before", "after"))
        return f"{effects}; {after} (before the commit: {before})"
    effects, answered = facts["effects"], facts["after"]
    shown = f"**{effects}**" if effects > 1 else str(effects)
    return f"{shown}; {'**none in 75 s**' if answered is None else _time(answered)}"


def _stampede(facts: Facts) -> str:
    shown = [str(facts[load]["loads"]) for load in ("1", "12")]
    shown = [f"**{loads}**" if int(loads) > 2 else loads for loads in shown]
    served = [facts[load]["served"] for load in ("1", "12")]
    missed = "" if min(served) == 200 else f" ({200 - min(served)} got nothing)"
    return f"{', '.join(shown)}{missed}"


def _throttle(facts: Facts) -> str:
    return str(facts["most"])


def _outage(facts: Facts) -> str:
    first, second = facts["first"], facts["second"]
    if "no answer" in (first["outcome"], second["outcome"]):
        return "**none in 70 s**"
    ends = "goes on" if second["outcome"] == "ok" else "error"
    return f"{_time(first['took'])}, {_time(second['took'])}; {ends}"


def _failover(facts: Facts) -> str:
    return f"{facts['failed']} of {facts['calls']}"


def _torture(facts: Facts) -> str:
    return f"{facts['passed']} of {facts['passed'] + facts['failed']}"


WRITERS: dict[str, Callable[[Facts], str]] = {
    "lock": lambda facts: _lock(facts, None),
    "duplicate": _duplicate,
    "crash": _crash,
    "stampede": _stampede,
    "throttle": _throttle,
    "outage": _outage,
    "failover": _failover,
    "torture": _torture,
}
COLUMNS = tuple(WRITERS)
HEADINGS = (
    "library",
    "holder killed: lock free after; holders in 15 s of work",
    "duplicate: while the first runs; later",
    "killed after the effect: effects; answer after",
    "200 callers: loads, of 1 s and of 12 s",
    "limit of 20 a second: most in one",
    "Redis hangs: first call, second",
    "failover: failed calls",
    "[torture](../packages/dibs-torture/MANUAL.md)",
)
