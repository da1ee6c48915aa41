"""From facts to findings: every rule, in order. Nothing here asks a server."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from . import (
    connecting_rules,
    key_rules,
    replication_rules,
    rights_rules,
    server_rules,
    topology_rules,
)
from .facts import UNREACHABLE, Asked, Facts, ServerFacts
from .finding import ORDER, Finding

OfTarget = Callable[[Facts], Iterator[Finding]]
OfServer = Callable[[ServerFacts, Asked], Iterator[Finding]]

OF_TARGET: tuple[OfTarget, ...] = (
    *connecting_rules.RULES,
    *topology_rules.RULES,
    *key_rules.RULES,
)
OF_PRIMARY: tuple[OfServer, ...] = (*rights_rules.RULES, *server_rules.RULES)
OF_SERVER: tuple[OfServer, ...] = replication_rules.RULES


def findings(facts: Facts) -> list[Finding]:
    """What is wrong, the worst first. The same on several servers is one finding."""
    found = [finding for rule in OF_TARGET for finding in rule(facts)]
    for server in facts.servers:
        if server.is_answering and not server.is_sentinel:
            found += _of_server(server, facts)
    return sorted(_merged(found), key=lambda each: ORDER.index(each.severity))


def _of_server(server: ServerFacts, facts: Facts) -> Iterator[Finding]:
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


def exit_code(facts: Facts, found: list[Finding]) -> int:
    """0: no error and no warning. 1: there is one. 3: nothing could be reached."""
    failures = [each.failure for each in facts.servers]
    unreached = all(f is not None and f.code in UNREACHABLE for f in failures)
    no_sentinel = bool(facts.sentinels) and all(each.is_lost for each in facts.sentinels)
    if (failures and unreached) or no_sentinel:
        return 3
    return 1 if any(each.severity != "note" for each in found) else 0
