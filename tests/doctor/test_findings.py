"""The rules: from facts to findings, without a server."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

import dibs.doctor
from dibs.doctor.facts import (
    FIGURES,
    SETTINGS,
    Clock,
    ClusterFacts,
    ClusterNode,
    ConnectionFailure,
    Examination,
    Finding,
    KeyFacts,
    SentinelFacts,
    ServerFacts,
    TargetFacts,
    amount,
    milliseconds_text,
)
from dibs.doctor.report import exit_code, findings
from dibs.doctor.topology_rules import CASES

ASKED = Examination("server", "cache:6379", namespace="shop:")
WELL = ServerFacts(
    "cache:6379",
    protocol=3,
    info={"role": "master", "redis_version": "7.2.4", "aof_enabled": "1"},
    commands={"get": "allowed", "set": "allowed"},
)


def found(server: ServerFacts = WELL, **changes: object) -> dict[str, Finding]:
    facts = replace(TargetFacts(ASKED, (server,)), **changes)  # type: ignore[arg-type]
    return {each.code: each for each in findings(facts)}


def info(**values: object) -> ServerFacts:
    return replace(WELL, info={**WELL.info, **{name: str(each) for name, each in values.items()}})


def config(**values: object) -> ServerFacts:
    settings = {name.replace("_", "-"): str(each) for name, each in values.items()}
    return replace(WELL, config=settings)


def test_a_server_without_a_fault_has_no_finding() -> None:
    """And what is not known is none either."""
    assert found() == {}
    assert found(ServerFacts("cache:6379", protocol=3, commands={"get": "allowed"})) == {}


@pytest.mark.parametrize("failure", CASES)
def test_every_failure_has_a_finding_that_names_a_fix(failure: str) -> None:
    """With the address filled in, and nothing left to fill in."""
    server = ServerFacts("cache:6379", failure=ConnectionFailure(failure, "because"))
    [finding] = found(server).values()
    assert finding.code == failure and finding.fix and "because" in finding.seen
    assert "{address}" not in repr(finding) and "{user}" not in repr(finding)


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("NOQUORUM 1 usable. Not enough to reach the specified quorum", "quorum 3"),
        ("NOQUORUM 1 usable. Not enough to reach the specified quorum, the majority", None),
    ],
)
def test_a_quorum_is_only_lowered_where_that_helps_and_never_below_the_majority(
    said: str, command: str | None
) -> None:
    """A failover needs the majority of the five, with any quorum."""
    state = {"name": "main", "num-other-sentinels": "4", "num-slaves": "1"}
    sentinel = SentinelFacts("s:1", state=state, quorum=said)
    asked = replace(ASKED, kind="sentinel", service="main")
    finding = found(asked=asked, sentinels=(sentinel, sentinel))["sentinel-quorum"]
    wanted = () if command is None else (f"SENTINEL SET main {command}",)
    assert finding.commands == wanted and "majority" in finding.fix


def test_a_failure_that_nobody_knows_is_told_all_the_same() -> None:
    """As a connection that is closed."""
    assert (
        found(ServerFacts("x:1", failure=ConnectionFailure("strange", "why")))["strange"].severity
        == "error"
    )


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("5.0.7", True), ("6.0.9", True), ("6.2.0", False), ("7.0.0", False), ("255.255.255", False)],
)
def test_a_version_of_redis_is_compared(version: str, *, is_old: bool) -> None:
    """6.2 is the oldest that is tested."""
    assert ("version-old" in found(info(redis_version=version))) is is_old


def test_an_old_version_is_a_warning_because_everything_works_there() -> None:
    """Every verb was tried on Redis 5.0: by script, and waiters poll. It is no reason to stop."""
    assert found(info(redis_version="5.0.6"))["version-old"].severity == "warning"


def test_valkey_has_versions_of_its_own() -> None:
    """It also names one of Redis."""
    server = info(redis_version="7.2.4", valkey_version="8.0.1", server_name="valkey")
    assert "version-old" not in found(server)
    assert server.product == "Valkey" and server.version == "8.0.1"


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-lfu"])
def test_every_policy_that_evicts_drops_leases(policy: str) -> None:
    """Leases have a ttl, so volatile-* is no better."""
    full = config(maxmemory_policy=policy, maxmemory=1_000_000)
    assert found(full)["eviction"].severity == "error"
    assert found(config(maxmemory_policy=policy, maxmemory=0))["eviction"].severity == "warning"
    assert found(config(maxmemory_policy=policy))["eviction"].severity == "error"


def test_memory_that_ends_soon_is_told_only_where_nothing_is_evicted() -> None:
    """From nine tenths on."""
    server = replace(info(used_memory=95), config={"maxmemory": "100"})
    assert "memory" not in found(server)
    server = replace(server, config={"maxmemory": "100", "maxmemory-policy": "noeviction"})
    assert found(server)["memory"].commands == ("CONFIG SET maxmemory 200",)
    assert "memory" not in found(replace(server, config={**server.config, "maxmemory": "1000"}))


@pytest.mark.parametrize(
    ("ahead", "error", "is_found"),
    [(0.2, 0.0, False), (-1.5, 0.0, True), (1.5, 0.6, False), (90.0, 0.6, True)],
)
def test_the_clock_is_judged_as_exactly_as_it_was_read(
    ahead: float, error: float, *, is_found: bool
) -> None:
    """A slow connection makes it less exact. From a minute on, schedules do not run."""
    findings = found(replace(WELL, clock=Clock(ahead, error)))
    assert ("clock" in findings) is is_found
    if is_found:
        assert findings["clock"].severity == ("error" if ahead > 60 else "warning")


@pytest.mark.parametrize(
    ("calls", "severity"),
    [
        ((0.001,) * 50, None),
        ((0.001,) * 49 + (0.2,), None),
        ((0.001,) * 49 + (0.3,), "warning"),
        ((0.15,) * 5, "warning"),
        ((0.4,) * 3, "error"),
    ],
)
def test_latency_is_judged_by_the_budget(calls: tuple[float, ...], severity: str | None) -> None:
    """Half of it is when a request is sent again; the whole is an outage."""
    finding = found(replace(WELL, latency=calls)).get("latency")
    assert (finding and finding.severity) == severity
    if finding:
        budget = float(finding.fix.rpartition("--budget ")[2].rstrip("."))
        patient = replace(ASKED, budget=budget)
        assert not findings(TargetFacts(patient, (replace(WELL, latency=calls),)))


def test_replicas_that_lag_are_told() -> None:
    """By the time since they reported, by what they lack, and by their state."""

    def slave(state: str = "online", offset: int = 5_000_000, lag: int = 1) -> ServerFacts:
        line = f"ip=10.0.0.2,port=6379,state={state},offset={offset},lag={lag},type=replica"
        return info(connected_slaves=1, master_repl_offset=5_000_000, slave0=line)

    assert "replica-lag" not in found(slave())
    for late in (slave(lag=9), slave(offset=1000), slave(state="wait_bgsave")):
        assert "10.0.0.2:6379" in found(late)["replica-lag"].details[0]


def test_writes_that_replicas_do_not_confirm_are_told() -> None:
    """With two replicas it is a warning, with one only a note."""
    line = "ip=10.0.0.2,port=6379,state=online,offset=0,lag=0"
    one = replace(info(slave0=line), config={"min-replicas-to-write": "0"})
    assert found(one)["min-replicas"].severity == "note"
    two = replace(info(slave0=line, slave1=line), config={"min-replicas-to-write": "0"})
    assert found(two)["min-replicas"].severity == "warning"
    assert "min-replicas" not in found(config(min_replicas_to_write=0))


@pytest.mark.parametrize(
    ("mine", "others", "code"),
    [
        ("", {""}, None),
        ("", {"", "shop:"}, "namespace-empty"),
        ("shop:", {"shop:"}, None),
        ("shop:", {"shop:", "menu:"}, None),
        ("shop:", {""}, "namespace-empty"),
        ("shop", {"shop2:"}, "namespace-prefix"),
        ("shop:eu:", {"shop:"}, "namespace-prefix"),
    ],
)
def test_namespaces_that_may_collide_are_told(
    mine: str, others: set[str], code: str | None
) -> None:
    """None beside others, and one that is the beginning of another."""
    keys = KeyFacts(seen=9, namespaces=frozenset(others))
    codes = set(found(asked=replace(ASKED, namespace=mine), keys=keys))
    assert codes == ({code} if code else set())


def test_keys_of_other_programs_are_told() -> None:
    """Under a namespace it is a warning; without one the database need not be ours."""
    keys = KeyFacts(seen=9, mine=9, foreign={"hash": 3, "stream": 1})
    finding = found(keys=keys)["keys-foreign"]
    assert finding.severity == "warning" and "3 hash, 1 stream" in finding.seen
    alone = found(keys=keys, asked=replace(ASKED, namespace=""))["keys-foreign"]
    assert alone.severity == "note"


def test_the_same_on_several_nodes_is_one_finding() -> None:
    """With the nodes that it concerns."""
    nodes = tuple(ClusterNode(f"n:{port}", "primary", frozenset(), 8192) for port in (1, 2))
    servers = tuple(
        replace(config(maxmemory_policy="allkeys-lru", maxmemory=9), address=node.address)
        for node in nodes
    )
    facts = TargetFacts(
        replace(ASKED, kind="cluster"), servers, cluster=ClusterFacts(nodes=nodes, covered=16384)
    )
    [finding] = findings(facts)
    assert finding.where == ("n:1", "n:2")


def test_the_worst_comes_first() -> None:
    """Errors, then warnings, then notes."""
    server = config(tcp_keepalive=0, timeout=10, maxmemory_policy="allkeys-lru", maxmemory=9)
    assert [each.severity for each in found(server).values()] == ["error", "warning", "note"]


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (TargetFacts(ASKED, (WELL,)), 0),
        (TargetFacts(ASKED, (config(tcp_keepalive=0),)), 0),
        (TargetFacts(ASKED, (config(timeout=10),)), 1),
        (TargetFacts(ASKED, (ServerFacts("x", failure=ConnectionFailure("auth-wrong", "")),)), 1),
        (TargetFacts(ASKED, (ServerFacts("x", failure=ConnectionFailure("tls-ca", "")),)), 1),
        (TargetFacts(ASKED, (ServerFacts("x", failure=ConnectionFailure("silent", "")),)), 3),
        (
            TargetFacts(
                ASKED, sentinels=(SentinelFacts("s", failure=ConnectionFailure("refused", "")),)
            ),
            3,
        ),
    ],
)
def test_the_exit_code_says_whether_somebody_answered(facts: TargetFacts, code: int) -> None:
    """A note alone is no reason to stop a deployment."""
    assert exit_code(facts, findings(facts)) == code


def test_figures_are_written_for_people() -> None:
    """Three digits, and a unit that fits."""
    assert [amount(size) for size in (0, 999, 1500, 104_857_600, 8 * 10**12)] == [
        "0 B", "999 B", "1.5 kB", "105 MB", "8 TB",
    ]  # fmt: skip
    assert [milliseconds_text(each) for each in (0.00021, 0.0123, 0.25, 2)] == [
        "0.21 ms", "12 ms", "250 ms", "2000 ms",
    ]  # fmt: skip


# ---- the page


def codes_in_the_source() -> set[str]:
    """The codes of all findings that a rule can make."""
    codes = set(CASES)
    for path in Path(dibs.doctor.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            is_finding = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"
            if is_finding and isinstance(node.args[0], ast.Constant):  # type: ignore[attr-defined]
                codes.add(node.args[0].value)  # type: ignore[attr-defined]
    return codes


def test_the_page_lists_every_code_and_no_other() -> None:
    """A row for each: what it means, and the fix."""
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text("utf-8")
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| (?:error|warning|note)", page, re.MULTILINE)
    assert sorted(listed) == sorted(codes_in_the_source())


def test_a_replica_with_another_clock_than_the_primary_is_found() -> None:
    """By how much, and on which side; what the measurement cannot tell is no finding."""
    server = ServerFacts("p:1", clock=Clock(10.0, 0.1))
    clocks = {"a:1": Clock(10.5, 0.1), "b:2": Clock(15.0, 0.1), "c:3": Clock(-50.0, 0.1)}
    facts = TargetFacts(replace(ASKED, kind="sentinel"), servers=(server,), clocks=clocks)
    seen = [each.seen for each in findings(facts) if each.code == "sentinel-clock"]
    assert seen == [
        "The clock of the replica b:2 is 5.0 s behind the primary's.",
        "The clock of the replica c:3 is 60.0 s ahead of the primary's.",
    ]


def test_a_rule_about_a_setting_that_nobody_asks_for_raises() -> None:
    """With what is missing, and where; and what is asked for is read by a rule."""
    server = ServerFacts("here:6379")
    with pytest.raises(KeyError, match=r"'hz'.*add it to SETTINGS .* in dibs/doctor/facts\.py"):
        server.number("hz")
    assert server.number("maxmemory") is None
    folder = Path(dibs.doctor.__file__).parent
    rules = "".join(path.read_text("utf-8") for path in folder.glob("*_rules.py"))
    for name in (*SETTINGS, *FIGURES):
        assert f'"{name}"' in rules, name
