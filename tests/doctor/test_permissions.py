"""Users with an ACL: what they lack is found verb by verb, and the command that is named helps."""

from collections.abc import Callable

import pytest

from dibs import Dibs
from dibs.doctor.report import exit_code, facts_summary, findings
from dibs.doctor.rights import COSTS, TRIED_COMMANDS, VERBS
from dibs.testing import CommandFilter, Engine, Server

from .examining import apply, examine, look

StartServer = Callable[..., Server]


def allow(server: Server, *commands: str, keys: str = "~shop:*") -> str:
    """A user with these commands; the URL with its name."""
    rules = [
        "reset",
        "on",
        ">secret",
        keys,
        "nocommands",
        *[each if each[0] == "-" else f"+{each}" for each in commands],
    ]
    server.client().execute_command("ACL", "SETUSER", "app", *rules)
    return server.url.replace("://", "://app:secret@")


@pytest.mark.parametrize("engine", ["valkey", "redis7", "redis6"])
def test_a_user_with_minimal_rights_is_told_what_each_verb_lacks(
    start_server: StartServer, engine: Engine
) -> None:
    """After the named commands every verb works; on the way nothing was raised."""
    server = start_server(engine)
    url = allow(server, "ping")
    first = examine(url, namespace="shop:")["acl-commands"]
    assert first.severity == "error"
    assert {line.partition(":")[0] for line in first.details} == {verb.name for verb in VERBS}
    apply(first, server)
    second = examine(url, namespace="shop:")
    assert "acl-commands" not in second
    apply(second["acl-optional"], server)
    third = examine(url, namespace="shop:")
    assert not {code for code in third if code.startswith("acl")}
    with Dibs(url, namespace="shop:", budget=5) as dibs:
        with dibs.hold("job:1", ttl=5, fence=True) as lease:
            assert lease.guarded
        with dibs.hold("job:2", ttl=5, limit=2) as lease:
            assert lease.guarded
        assert dibs.get_or_load("menu", lambda: 1, ttl=5, tags=["a"]) == 1
        assert dibs.invalidate("menu")


def test_one_missing_command_costs_the_verbs_that_need_it(own_server: Server) -> None:
    """The others are not named."""
    url = allow(own_server, "@all", "-zadd")
    finding = examine(url, namespace="shop:")["acl-commands"]
    assert finding.details == ("hold with limit: zadd",)
    assert finding.commands == ("ACL SETUSER app +zadd",)
    assert "acl-optional" not in examine(url, namespace="shop:")


def test_without_notifications_the_doctor_says_what_it_costs(own_server: Server) -> None:
    """Nothing is broken, so it is a warning."""
    url = allow(own_server, "@all", "-client|tracking")
    found = examine(url, namespace="shop:")
    assert found["acl-optional"].severity == "warning"
    assert "waiters poll" in found["acl-optional"].details[0]
    apply(found["acl-optional"], own_server)
    assert "acl-optional" not in examine(url, namespace="shop:")


def test_the_doctor_says_whether_a_request_may_arrive_late(own_server: Server) -> None:
    """And which right is missing: a note, because nothing fails without it."""
    url = allow(own_server, "@all", "-client|kill")
    finding = examine(url, namespace="shop:")["acl-optional"]
    assert finding.severity == "note"
    assert finding.details == (f"client|kill: {COSTS['client|kill']}",)
    assert "nothing before a repeat" in str(facts_summary(look(url, namespace="shop:")))
    apply(finding, own_server)
    assert "acl-optional" not in examine(url, namespace="shop:")
    assert "CLIENT KILL before a repeat" in str(facts_summary(look(url, namespace="shop:")))


def test_a_server_without_the_end_of_connections_is_found(own_server: Server) -> None:
    """A proxy that does not know the command, or knows another form of it."""
    with CommandFilter(own_server.port) as line:
        line.refuse("CLIENT KILL")
        finding = examine(line.url)["late-copies"]
        assert finding.severity == "note"
        line.allow_all()
        assert "late-copies" not in examine(line.url)


def test_a_managed_service_that_keeps_command_info_and_config_for_itself_is_healthy(
    own_server: Server,
) -> None:
    """Scripts do the same as single commands: a note, and the exit code of a healthy server."""
    url = allow(own_server, "@all", "-command", "-info", "-config", "-acl")
    facts = look(url, namespace="shop:")
    found = findings(facts)
    assert [(each.code, each.severity) for each in found] == [("acl-optional", "note")]
    assert exit_code(facts, found) == 0


def test_keys_that_the_user_may_not_use_are_found(own_server: Server) -> None:
    """By the pattern: with the namespace that it covers, or with another pattern, it is well."""
    url = allow(own_server, "@all")
    finding = examine(url)["acl-keys"]
    assert "acl-keys" not in examine(url, namespace="shop:")
    apply(finding, own_server)
    assert "acl-keys" not in examine(url)


def test_a_pattern_that_only_reads_is_not_enough(own_server: Server) -> None:
    """Redis 7 can permit reading alone."""
    url = allow(own_server, "@all", keys="%R~shop:*")
    finding = examine(url, namespace="shop:")["acl-keys"]
    apply(finding, own_server)
    assert "acl-keys" not in examine(url, namespace="shop:")


def test_what_could_not_be_asked_is_said(own_server: Server) -> None:
    """INFO, CONFIG, TIME and SCAN are not allowed to all users: that is a fact, not a finding."""
    url = allow(own_server, *[each for each in TRIED_COMMANDS if each not in ("delex", "time")])
    facts = look(url, namespace="shop:")
    [server] = facts.servers
    assert "this user may not run INFO" in server.unknown.values()
    assert "this user may not run CONFIG GET" in server.unknown.values()
    assert "this user may not run TIME" in server.unknown.values()
    assert facts.unknown == {"keys": "this user may not run SCAN"}
    assert server.is_answering and server.failure is None
