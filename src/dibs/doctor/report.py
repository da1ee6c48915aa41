"""From facts to findings to a report: every rule in order; text for people, JSON for programs."""

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from .._doctor_api import printable
from .facts import (
    ORDER,
    UNREACHABLE,
    Clock,
    Examination,
    Finding,
    ServerFacts,
    Severity,
    TargetFacts,
    milliseconds_text,
)
from .rights import ends_connections
from .server_rules import KEY_RULES, RIGHTS_RULES, SERVER_RULES, percentile
from .topology_rules import CONNECTING_RULES, REPLICATION_RULES, TOPOLOGY_RULES

OfTarget = Callable[[TargetFacts], Iterator[Finding]]
OfServer = Callable[[ServerFacts, Examination], Iterator[Finding]]

OF_TARGET: tuple[OfTarget, ...] = (
    *CONNECTING_RULES,
    *TOPOLOGY_RULES,
    *KEY_RULES,
)
OF_PRIMARY: tuple[OfServer, ...] = (*RIGHTS_RULES, *SERVER_RULES)
OF_SERVER: tuple[OfServer, ...] = REPLICATION_RULES


def findings(facts: TargetFacts) -> list[Finding]:
    """Return what is wrong, the worst first. The same on several servers is one finding."""
    listed = [finding for rule in OF_TARGET for finding in rule(facts)]
    for server in facts.servers:
        if server.is_answering and not server.is_sentinel:
            listed += _of_server(server, facts)
    return sorted(_merged_findings(listed), key=lambda each: ORDER.index(each.severity))


def _of_server(server: ServerFacts, facts: TargetFacts) -> Iterator[Finding]:
    is_replica = server.info.get("role") == "slave"
    rules = OF_SERVER if is_replica else (*OF_SERVER, *OF_PRIMARY)
    for rule in rules:
        for finding in rule(server, facts.asked):
            yield replace(finding, where=(server.address,)) if facts.cluster else finding


def _merged_findings(results: Iterable[Finding]) -> list[Finding]:
    merged: dict[Finding, tuple[str, ...]] = {}
    for each in results:
        alone = replace(each, where=())
        merged[alone] = merged.get(alone, ()) + each.where
    return [replace(each, where=where) for each, where in merged.items()]


def exit_code(facts: TargetFacts, results: list[Finding]) -> int:
    """0: no error and no warning. 1: there is one. 3: nothing could be reached."""
    failures = [each.failure for each in facts.servers]
    unreached = all(f is not None and f.code in UNREACHABLE for f in failures)
    no_sentinel = bool(facts.sentinels) and all(each.is_lost for each in facts.sentinels)
    if (failures and unreached) or no_sentinel:
        return 3
    return 1 if any(each.severity != "note" for each in results) else 0


_COLOURS: dict[Severity, str] = {"error": "31", "warning": "33", "note": "36"}
_MARGIN = "  "


class ReportStyle:
    """How wide lines are, and whether they have colours."""

    def __init__(self, width: int = 80, *, colours: bool = False) -> None:
        self.width = min(max(width, 50), 100)
        self._colours = colours

    def paint(self, text: str, code: str) -> str:
        """Return the text in a colour, or bold ("1")."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text

    def wrapped(self, text: str, first: str, rest: str) -> str:
        """Return the text in lines; *first* is in front of the first one, *rest* of the others."""
        return textwrap.fill(
            printable(text.replace("\n", " ")),
            self.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
            break_long_words=False,
        )


# ---- text


def as_text(facts: TargetFacts, results: list[Finding], style: ReportStyle) -> str:
    """Return the whole report, without a newline at its end."""
    blocks = ["\n".join(_head_lines(facts, style))]
    blocks += ["\n".join(_finding_lines(each, style)) for each in results]
    unknown = list(_unknown_lines(facts))
    if unknown:
        lines = [style.wrapped(each, _MARGIN, _MARGIN * 2) for each in unknown]
        blocks.append("\n".join([style.paint("Not examined", "1"), *lines]))
    blocks.append("\n".join(_summary_lines(facts, results, style)))
    return "\n\n".join(blocks)


def _head_lines(facts: TargetFacts, style: ReportStyle) -> Iterator[str]:
    scope = facts.asked
    namespace = f"namespace {scope.namespace!r}" if scope.namespace else "no namespace"
    where = scope.address if scope.kind in ("cluster", "sentinel") else _target_location(facts)
    title = style.wrapped(f"dibs doctor  {where}, {namespace}", "", " " * 13)
    yield title.replace("dibs doctor", style.paint("dibs doctor", "1"), 1)
    rows = list(facts_summary(facts).items())
    if rows:
        yield ""
    for name, value in rows:
        yield style.wrapped(value, f"{_MARGIN}{name:<10}", " " * 12)


def _target_location(facts: TargetFacts) -> str:
    scope = facts.asked
    return f"{scope.address}, database {scope.database}" if scope.database else scope.address


def facts_summary(facts: TargetFacts) -> dict[str, str]:
    """Return what is good to know in any case, a line each."""
    rows: dict[str, str] = {}
    if facts.sentinels:
        answering = sum(each.failure is None for each in facts.sentinels)
        rows["sentinels"] = f"{answering} of {len(facts.sentinels)} of the URL answer"
    if facts.cluster is not None:
        rows["cluster"] = _cluster_line(facts)
    elif facts.servers and facts.servers[0].is_answering:
        rows["server"] = _server_line(facts.servers[0], alone=not facts.sentinels)
    first = next(iter(facts.writable), None)
    if first is not None:
        rows["dibs uses"] = _server_features(first)
    timed = [each for server in facts.servers for each in server.latency]
    if timed:
        rows["latency"] = _latency_line(tuple(timed), facts.asked.budget)
    clock = next((each.clock for each in facts.servers if each.clock is not None), None)
    if clock is not None:
        rows["clock"] = _clock_line(clock)
    if facts.keys is not None:
        rows["keys"] = _keys_line(facts)
    return rows


def _server_line(server: ServerFacts, *, alone: bool) -> str:
    what = f"{server.product} {server.version}" if server.product else "version unknown"
    role = {"master": "primary", "slave": "replica"}.get(server.info.get("role", ""), "")
    replicas = server.info.get("connected_slaves", "0")
    if role == "primary" and replicas != "0":
        role = f"primary with {replicas} replicas"
    parts = [*([] if alone else [server.address]), what, role, f"RESP{server.protocol or '?'}"]
    parts += [f"user {server.user}"] if server.user else []
    return ", ".join(part for part in parts if part)


def _cluster_line(facts: TargetFacts) -> str:
    nodes = facts.cluster.nodes if facts.cluster else ()
    primaries = sum(node.role == "primary" for node in nodes)
    answering = [each for each in facts.servers if each.is_answering]
    versions = {f"{each.product} {each.version}" for each in answering if each.product}
    parts = [f"{len(nodes)} nodes, {primaries} of them primaries; {len(answering)} answer"]
    return ", ".join([*parts, *sorted(versions)])


def _server_features(server: ServerFacts) -> str:
    engine = server.engine
    acquire = "SET NX GET" if engine.set_nx_get else "a script"
    release = "a script" if engine.compare_delete == "LUA" else engine.compare_delete
    pushes = engine.tracking and server.protocol == 3
    waits = "notifications" if pushes else "polling"
    repeats = "CLIENT KILL before" if ends_connections(server) else "nothing before"
    return f"{acquire} to acquire, {release} to release, {waits} to wait, {repeats} a repeat"


def _latency_line(timed: tuple[float, ...], budget: float) -> str:
    p50, p95 = (milliseconds_text(percentile(timed, part)) for part in (0.5, 0.95))
    worst = milliseconds_text(max(timed))
    rest = f"{len(timed)} calls; the budget is {milliseconds_text(budget)}"
    return f"{p50} (p50), {p95} (p95), {worst} (max) of {rest}"


def _clock_line(clock: Clock) -> str:
    if abs(clock.ahead) <= 0.01 + clock.error:
        return "that of the server, within 10 ms"
    side = "ahead of" if clock.ahead > 0 else "behind"
    return f"{abs(clock.ahead):.2f} s {side} the server's"


def _keys_line(facts: TargetFacts) -> str:
    keys = facts.keys
    assert keys is not None
    total = "" if keys.total is None or keys.total <= keys.seen else f" of {keys.total}"
    under = f", {keys.mine} under the namespace" if facts.asked.namespace else ""
    return f"{keys.seen}{total} looked at{under}"


def _finding_lines(finding: Finding, style: ReportStyle) -> Iterator[str]:
    label = style.paint(f"{finding.severity.upper()} {finding.code}", _COLOURS[finding.severity])
    where = f"  on {_listed_places(finding.where)}" if finding.where else ""
    yield style.paint(label, "1") + where
    yield style.wrapped(finding.seen, _MARGIN, _MARGIN)
    for each in finding.details:
        yield style.wrapped(each, _MARGIN + "- ", _MARGIN + "  ")
    yield style.wrapped(finding.why, f"{_MARGIN}Why  ", " " * 7)
    yield style.wrapped(finding.fix, f"{_MARGIN}Fix  ", " " * 7)
    for command in finding.commands:
        yield " " * 9 + style.paint(printable(command), "1")  # never wrapped: it is to be copied


def _listed_places(where: tuple[str, ...]) -> str:
    return printable(", ".join(where[:3])) + (
        f" and {len(where) - 3} more" if len(where) > 3 else ""
    )


def _unknown_lines(facts: TargetFacts) -> Iterator[str]:
    reasons: dict[str, set[str]] = {}
    known = [server.unknown for server in facts.servers]
    if any(server.is_answering for server in facts.servers):
        known.append(facts.unknown)
    for each in known:
        for area, why in each.items():
            reasons.setdefault(why, set()).add(area)
    for why, areas in reasons.items():
        yield f"{', '.join(sorted(areas))}: {why}"


def _summary_lines(facts: TargetFacts, results: list[Finding], style: ReportStyle) -> Iterator[str]:
    counts = [(sum(each.severity == name for each in results), name) for name in ORDER]
    parts = [f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count]
    result = ", ".join(parts) or "All is well: no finding"
    yield style.paint(f"{result}, in {facts.seconds:.2f} s.", "1" if parts else "1;32")
    if any(server.is_answering for server in facts.servers):
        probe = f"commands were tried on the key {facts.asked.probe}, which does not exist"
        yield style.wrapped(f"Nothing was written: {probe}. No value was read.", "", "")


# ---- JSON


def report_json(facts: TargetFacts, results: list[Finding]) -> str:
    """Return the report for programs: one object, on one line."""
    report: dict[str, Any] = {
        "target": facts.asked.address,
        "namespace": facts.asked.namespace,
        "exit": exit_code(facts, results),
        "findings": [asdict(each) for each in results],
        "summary": facts_summary(facts),
        "servers": [_server_json(each) for each in facts.servers],
        "not_examined": list(_unknown_lines(facts)),
        "probe_key": facts.asked.probe,
        "seconds": round(facts.seconds, 3),
    }
    return json.dumps(report)


def _server_json(server: ServerFacts) -> dict[str, Any]:
    timed = server.latency
    return {
        "address": server.address,
        "failure": None if server.failure is None else asdict(server.failure),
        "product": server.product,
        "version": server.version,
        "role": server.info.get("role"),
        "protocol": server.protocol,
        "user": server.user,
        "commands": dict(server.commands),
        "latency_ms": {
            name: round(percentile(timed, part) * 1000, 3)
            for name, part in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
        }
        if timed
        else None,
        "clock_ahead_s": None if server.clock is None else round(server.clock.ahead, 3),
    }
