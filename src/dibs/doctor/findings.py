"""From facts to findings: every rule, in order. Nothing here asks a server."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from .facts import ORDER, UNREACHABLE, Examination, Finding, ServerFacts, TargetFacts
from .server_rules import KEY_RULES, RIGHTS_RULES, SERVER_RULES
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
    """What is wrong, the worst first. The same on several servers is one finding."""
    found = [finding for rule in OF_TARGET for finding in rule(facts)]
    for server in facts.servers:
        if server.is_answering and not server.is_sentinel:
            found += _of_server(server, facts)
    return sorted(_merged(found), key=lambda each: ORDER.index(each.severity))


def _of_server(server: ServerFacts, facts: TargetFacts) -> Iterator[Finding]:
    is_replica = server.info.get("role") == "slave"
    rules = OF_SERVER if is_replica else (*OF_SERVER, *OF_PRIMARY)
    for rule in rules:
        for finding in rule(server, facts.asked):
            yield replace(finding, where=(server.address,)) if facts.cluster else finding


def _merged(found: Iterable[Finding]) -> list[Finding]:
    merged: dict[Finding, tuple[str, ...]] = {}
    for each in found:
        alone = replace(each, where=())
        merged[alone] = merged.get(alone, ()) + each.where
    return [replace(each, where=where) for each, where in merged.items()]


def exit_code(facts: TargetFacts, found: list[Finding]) -> int:
    """0: no error and no warning. 1: there is one. 3: nothing could be reached."""
    failures = [each.failure for each in facts.servers]
    unreached = all(f is not None and f.code in UNREACHABLE for f in failures)
    no_sentinel = bool(facts.sentinels) and all(each.is_lost for each in facts.sentinels)
    if (failures and unreached) or no_sentinel:
        return 3
    return 1 if any(each.severity != "note" for each in found) else 0
