"""Clusters, Sentinel services and replicas: what is lost is found, and the fix works."""

from collections.abc import Callable
from pathlib import Path

import redis

from dibs.doctor.report import exit_code, findings
from dibs.testing import Server, eventually
from tests.topologies import Sentinel, is_in_sync, start_cluster

from .examining import apply, examine, look

StartServer = Callable[..., Server]


def cluster_url(servers: list[Server]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in servers)


def test_a_lost_node_of_a_cluster_is_found_and_gone_when_it_is_back(
    start_server: StartServer,
) -> None:
    """Also its slots, the state of the cluster, and wrong URLs for it."""
    nodes = start_cluster(start_server, config=("--cluster-node-timeout", "500"))
    url = cluster_url(nodes)
    assert set(examine(url)) == {"persistence"}
    assert "cluster-target" in examine(nodes[0].url)
    assert "cluster-database" in examine(nodes[0].url + "/1")
    nodes[2].kill()
    lost = examine(url)["cluster-node"]
    assert lost.severity == "error"
    assert any(f"127.0.0.1:{nodes[2].port}" in line for line in lost.details)
    eventually(lambda: "cluster-state" in examine(url), within=90)
    apply(examine(url)["cluster-state"], nodes[0])
    eventually(lambda: "cluster-state" not in examine(cluster_url(nodes[:1])), within=90)
    nodes[2].restart()
    eventually(lambda: set(examine(url)) == {"persistence"}, within=90)
    nodes[2].client().execute_command("CLUSTER", "DELSLOTS", 16383)
    eventually(lambda: "cluster-slots" in examine(cluster_url(nodes[2:])), within=90)


def test_a_single_server_is_not_taken_for_a_cluster(valkey: Server) -> None:
    """The URL that the fix names works."""
    finding = examine(cluster_url([valkey]))["cluster-disabled"]
    assert finding.fix == f"Use {valkey.url}."


def test_a_cluster_of_which_no_node_answers_is_not_reached(own_server: Server) -> None:
    """The exit code says so."""
    own_server.kill()
    facts = look(cluster_url([own_server]))
    assert [each.code for each in findings(facts)] == ["refused"]
    assert exit_code(facts, findings(facts)) == 3


def test_a_replica_as_target_is_found_and_the_primary_is_named(start_server: StartServer) -> None:
    """With the URL of the primary, or promoted as the fix says, it is well."""
    primary = start_server(config=("--repl-diskless-sync-delay", "5"))
    replica = start_server(config=("--replicaof", f"127.0.0.1 {primary.port}"))
    lag = eventually(lambda: examine(primary.url).get("replica-lag"))
    assert lag and str(replica.port) in lag.details[0]
    primary.client().config_set("repl-diskless-sync-delay", 0)
    eventually(lambda: is_in_sync(replica), within=90)
    eventually(lambda: "replica-lag" not in examine(primary.url), within=90)
    finding = examine(replica.url)["replica"]
    assert f"redis://127.0.0.1:{primary.port};" in finding.fix
    found = examine(primary.url)
    assert "replica" not in found and found["min-replicas"].severity == "note"
    apply(found["min-replicas"], primary)
    assert "min-replicas" not in examine(primary.url)
    apply(finding, replica)
    assert "replica" not in examine(replica.url)


def test_a_sentinel_service_is_examined(start_server: StartServer, tmp_path: Path) -> None:
    """Too few sentinels, none that answers, an unknown service: each is found."""
    server = start_server()
    with Sentinel(tmp_path / "one", server, quorum=2) as sentinel:
        hosts = f"127.0.0.1:{sentinel.port}"
        url = f"redis+sentinel://{hosts}/main/0"
        eventually(lambda: sentinel.sees(0, 0))
        found = examine(url)
        assert {"sentinel-few", "sentinel-no-replica", "sentinel-quorum"} <= set(found)
        for command in found["sentinel-quorum"].commands:
            sentinel.client().execute_command(*command.split())
        assert "sentinel-quorum" not in examine(url)
        wrong = examine(url.replace("main", "other"))["sentinel-service"]
        assert "/main;" in wrong.fix
        with_lost = url.replace(hosts, f"{hosts},127.0.0.1:1")
        assert examine(with_lost)["sentinel-lost"].severity == "warning"
        server.kill()
        assert "refused" in examine(url)
        eventually(lambda: "sentinel-primary" in examine(url), within=90)
    facts = look(url)
    assert exit_code(facts, findings(facts)) == 3


def test_dead_replicas_of_a_service_are_found(start_server: StartServer, tmp_path: Path) -> None:
    """One of two is down; then the other, too: there would be no failover."""
    primary = start_server()
    replicas = [start_server(config=("--replicaof", f"127.0.0.1 {primary.port}")) for _ in "ab"]
    with Sentinel(tmp_path / "one", primary, quorum=1) as sentinel:
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0"
        codes = ("sentinel-no-replica", "sentinel-replica-down")
        eventually(lambda: len(look(url).clocks) == 2, within=90)
        assert not {*codes, "sentinel-clock"} & set(examine(url))
        replicas[0].kill()
        eventually(lambda: "sentinel-replica-down" in examine(url), within=90)
        assert str(replicas[0].port) in examine(url)["sentinel-replica-down"].seen
        replicas[1].kill()
        eventually(lambda: "sentinel-no-replica" in examine(url), within=90)
        facts = look(url)
        assert exit_code(facts, findings(facts)) == 1


def test_a_server_in_the_place_of_a_sentinel_is_found(valkey: Server) -> None:
    """It says so, and nothing is raised. It has answered, so the exit code is that of a finding."""
    facts = look(f"redis+sentinel://127.0.0.1:{valkey.port}/main/0")
    [finding] = findings(facts)
    assert (finding.code, finding.severity) == ("sentinel-refuses", "error")
    assert "no sentinel" in finding.details[0] and exit_code(facts, [finding]) == 1


def test_the_password_of_a_sentinel_and_a_sentinel_as_target_are_found(
    own_server: Server, tmp_path: Path
) -> None:
    """Missing, wrong, right; and the URL that the fix names for a sentinel works."""
    with Sentinel(tmp_path / "one", own_server, config="requirepass secret\n") as sentinel:
        client = redis.Redis(port=sentinel.port, password="secret")
        eventually(lambda: client.sentinel_master("main")["is_master"], within=90)
        client.close()
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main"
        for given in ("", "?sentinel_password=guess"):
            finding = examine(url + given)["sentinel-refuses"]
            assert finding.severity == "error" and "sentinel_password" in finding.fix
            assert "auth-" in finding.details[0] and "guess" not in str(finding.details)
        right = examine(f"{url}?sentinel_password=secret")
        assert "sentinel-few" in right and "sentinel-refuses" not in right
        found = examine(f"redis://:secret@127.0.0.1:{sentinel.port}")
        assert set(found) == {"sentinel-target"} and f"{url}," in found["sentinel-target"].fix


def test_a_hung_sentinel_costs_no_more_time(start_server: StartServer, tmp_path: Path) -> None:
    """The others are asked."""
    server = start_server()
    with Sentinel(tmp_path / "a", server) as well, Sentinel(tmp_path / "b", server) as hung:
        eventually(lambda: well.sees(0, 1), within=90)
        hung.freeze()
        url = f"redis+sentinel://127.0.0.1:{hung.port},127.0.0.1:{well.port}/main/0"
        found = examine(url)
        hung.thaw()
        assert found["sentinel-lost"].severity == "warning"
        assert "persistence" in found  # the server itself was examined


def test_an_embedded_server_is_examined(tmp_path: Path) -> None:
    """It is started for that, and ended."""
    assert examine("embedded://") == {}


def test_a_unix_socket_is_examined(valkey: Server) -> None:
    """By its path."""
    assert isinstance(valkey.client(), redis.Redis)
    assert set(examine(valkey.unix_url)) == {"persistence"}
