"""Healthy servers of each engine: what the doctor says about them."""

from collections.abc import Callable

import pytest

from dibs.doctor.report import exit_code, findings
from dibs.testing import Engine, Server
from tests.conditions import is_installed

from .examining import look

Servers = Callable[[Engine], Server]


@pytest.mark.parametrize(
    ("engine", "product", "uses"),
    [
        ("valkey", "Valkey 9.1", (True, "DELIFEQ")),
        ("redis7", "Redis 7", (True, "LUA")),
        ("redis6", "Redis 6.2", (False, "LUA")),
        *([("redis8", "Redis 8", (True, "LUA"))] if is_installed("redis8") else []),
    ],
)
def test_the_doctor_names_version_and_commands_of_each_engine(
    servers: Servers, engine: Engine, product: str, uses: tuple[bool, str]
) -> None:
    """Which commands are there, and what dibs does without them."""
    server = servers(engine)
    server.flush()
    facts = look(server.url)
    [found] = facts.servers
    assert f"{found.product} {found.version}".startswith(product)
    assert (found.engine.set_nx_get, found.engine.compare_delete) == uses
    codes = {each.code for each in findings(facts)}
    assert codes == {"persistence"} | ({"by-script"} if uses[1] == "LUA" else set())
    assert exit_code(facts, findings(facts)) == 0


@pytest.mark.parametrize("server", ["valkey", "redis6"], indirect=True)
def test_the_doctor_writes_nothing(server: Server) -> None:
    """No key is created, changed or deleted, and no script is left on the server."""
    client = server.client()
    client.set("shop:a", "1", ex=60)
    before = client.info("stats")["expired_keys"], client.info("persistence")
    look(server.url, namespace="shop:")
    assert server.keys() == ["shop:a"]
    assert client.info("stats")["expired_keys"] == before[0]
    changes = "rdb_changes_since_last_save"
    assert client.info("persistence")[changes] == before[1][changes]


def test_the_doctor_reads_no_value(valkey: Server) -> None:
    """Of the commands that read values only GET is used, on the key that does not exist."""
    valkey.client().set("user:ann", "private")
    before = valkey.command_counts()
    with valkey.client().monitor() as monitor:
        look(valkey.url)
        valkey.client().echo("the end")
        read: list[str] = []
        for each in monitor.listen():
            if "the end" in each["command"]:
                break
            read.append(each["command"])
    assert valkey.command_counts()["get"] > before["get"]
    touching = [each for each in read if "user:ann" in each]
    assert touching == ["TYPE user:ann"]
