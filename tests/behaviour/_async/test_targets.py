"""Every way to name a store leads to one."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import UsernamePasswordCredentialProvider
from redis.crc import key_slot

from dibs import AsyncDibs, Busy, Event, Unavailable, UsageError
from dibs._async.cache_load import AsyncLoader
from dibs.testing import Server
from tests.topologies import Sentinel, move_slot, start_cluster

from .._tasks import Background, eventually, redis
from ..events import kinds

StartServer = Callable[..., Server]


async def works(dibs: AsyncDibs, key: str = "user:1") -> bool:
    async with dibs.hold(key, ttl=5, on_outage="closed") as lease:
        with pytest.raises(Busy):
            async with dibs.hold(key, ttl=5):
                pytest.fail("held twice")
        return lease.guarded and await lease.extend(6)


async def test_urls_of_a_single_server(valkey: Server) -> None:
    """redis:// valkey:// unix://, with a database and with redis-py's own options."""
    host = f"127.0.0.1:{valkey.port}"
    for url in (
        f"redis://{host}",
        f"valkey://{host}/2",
        f"redis://{host}/2?socket_keepalive=true&client_name=here",
        valkey.unix_url,
        f"{valkey.unix_url}?db=2",
    ):
        async with AsyncDibs(url, budget=5) as dibs:
            assert await works(dibs), url


async def test_a_url_that_cannot_be_read_is_refused_without_showing_its_password() -> None:
    """Also where a character of the password ends the host, or the scheme is missing."""
    for url in (
        "redis://:hunter2/x@127.0.0.1:1",
        "redis://:hunter2#x@127.0.0.1:1",
        "redis://:hunter2?x@127.0.0.1:1",
        "redis://ann:1234/hunter2@127.0.0.1:1/0",
        "ann:hunter2@127.0.0.1:1",
        "hunter2@h://127.0.0.1:1",
        "redis://127.0.0.1:1?socket_timeout=hunter2",
        "redis+sentinel://ann:hunter2/x@127.0.0.1:1/main",
        "redis+sentinel://ann:1234/hunter2@127.0.0.1:1/main",
        "redis+cluster://ann:hunter2/x@127.0.0.1:1",
        "redis+cluster://127.0.0.1:hunter2",
    ):
        with pytest.raises(UsageError) as caught:
            AsyncDibs(url)
        assert "hunter2" not in str(caught.value) and "URL" in str(caught.value), url


async def test_an_option_of_a_url_that_nobody_knows_is_refused_before_anything_is_sent() -> None:
    """The sentence names the option."""
    for url in ("redis://127.0.0.1:1?budgett=1", "unix:///nowhere?budgett=1"):
        with pytest.raises(UsageError, match="'budgett'"):
            AsyncDibs(url)
    with pytest.raises(UsageError, match="nonsense"):
        AsyncDibs("rediss://127.0.0.1:1?ssl_cert_reqs=nonsense")


async def test_a_socket_of_a_server_that_has_ended_is_an_outage(tmp_path: Path) -> None:
    """A server that has ended leaves no socket: nothing is wrong with the URL."""
    async with AsyncDibs(f"unix://{tmp_path}/gone") as dibs:
        lease = await dibs.try_hold("user:1", ttl=5)
        assert lease is not None and not lease.guarded
        with pytest.raises(Unavailable) as caught:
            await dibs.try_hold("user:1", ttl=5, on_outage="closed")
        assert caught.value.cause == "refused"


async def test_tls_targets_check_the_certificate(start_server: StartServer) -> None:
    """rediss:// and valkeys://, with a certificate that is checked."""
    server = start_server("redis7", tls=True)
    for url in (server.tls_url, server.tls_url.replace("rediss://", "valkeys://")):
        async with AsyncDibs(url, budget=5) as dibs:
            assert await works(dibs)


async def test_a_client_with_a_credential_provider(own_server: Server) -> None:
    """The client's own way to find its password is used for our connections, too."""
    own_server.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all"]
    )
    own_server.client().config_set("requirepass", "right")
    provider = UsernamePasswordCredentialProvider("ann", "secret")
    client = redis.Redis(port=own_server.port, credential_provider=provider)
    async with AsyncDibs(client) as dibs:
        assert await works(dibs)
    assert await client.ping()
    await client.aclose()


async def test_a_user_who_may_not_ask_what_the_server_can_do(own_server: Server) -> None:
    """COMMAND is forbidden: the oldest way that works everywhere is used."""
    own_server.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-command"]
    )
    async with AsyncDibs(f"redis://ann:secret@127.0.0.1:{own_server.port}", budget=5) as dibs:
        assert await works(dibs)
        assert own_server.command_counts()["evalsha"] > 0


async def test_a_client_of_the_other_kind_is_refused(valkey: Server) -> None:
    """A client of the other kind (sync, async): UsageError that names the right one."""
    import redis as plain
    import redis.asyncio as other

    clients = [plain.Redis(port=valkey.port), other.Redis(port=valkey.port)]
    wrong = clients[0] if redis is other else clients[1]
    with pytest.raises(UsageError, match="needs a redis"):
        AsyncDibs(wrong)


async def test_a_server_without_resp3(start_server: StartServer) -> None:
    """No HELLO (an old proxy): RESP2, and waiters look every now and then instead."""
    server = start_server("valkey", config=("--rename-command", "HELLO", ""))
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        assert await works(one)
        lease = await one.try_hold("user:1", ttl=0.5)
        assert lease is not None and lease.guarded
        async with two.hold("user:1", ttl=5, wait=10) as mine:
            assert mine.guarded


async def test_protocol_2_in_a_url_is_resp2(start_server: StartServer, tmp_path: Path) -> None:
    """No connection speaks RESP3, to a single server, a cluster or the master of a service."""
    server, node = start_server(), start_cluster(start_server, nodes=1)[0]
    with Sentinel(tmp_path, server) as sentinel:
        await eventually(lambda: sentinel.sees(replicas=0, sentinels=0), within=90)
        for number, (named, target) in enumerate(
            (
                (server, f"redis://127.0.0.1:{server.port}/0"),
                (node, f"redis+cluster://127.0.0.1:{node.port}"),
                (server, f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0"),
            )
        ):
            url = f"{target}?protocol=2&client_name=here-{number}"
            async with AsyncDibs(url, budget=5) as dibs:
                assert await works(dibs)
                assert _protocols(named, f"here-{number}") == {"2"}


def _protocols(server: Server, name: str) -> set[str]:
    """What the connections of that name speak."""
    return {each["resp"] for each in server.client().client_list() if each["name"] == name}


async def test_a_protocol_that_does_not_exist_is_a_mistake() -> None:
    """Before any connection is opened."""
    with pytest.raises(UsageError, match="protocol"):
        AsyncDibs("redis://localhost?protocol=4")


async def test_a_cluster_url_needs_one_seed(start_server: StartServer) -> None:
    """redis+cluster://: keys on all nodes, one seed is enough, waiting and renewing work."""
    servers = start_cluster(start_server)
    async with AsyncDibs(f"redis+cluster://127.0.0.1:{servers[1].port}", budget=5) as dibs:
        for number in range(20):
            assert await works(dibs, f"user:{number}")
            async with dibs.hold(f"fenced:{number}", ttl=5, fence=True) as lease:
                assert lease.fence
        assert len({server.port for server in servers if server.command_counts()["set"]}) == 3
        async with AsyncDibs(f"redis+cluster://127.0.0.1:{servers[0].port}", budget=5) as other:
            holds = [dibs.hold(f"many:{n}", ttl=2, renew=True) for n in range(20)]
            leases = [await hold.__aenter__() for hold in holds]
            assert await other.try_hold("many:3", ttl=5, wait=2.2) is None
            assert not any(lease.lost for lease in leases)
            for hold in holds:
                await hold.__aexit__(None, None, None)
            assert await other.try_hold("many:3", ttl=5) is not None


async def test_a_slot_that_moves_is_followed(start_server: StartServer) -> None:
    """MOVED: the request is sent to the new owner, and callers do not notice."""
    one, two, three = start_cluster(start_server)
    seeds = ",".join(f"127.0.0.1:{server.port}" for server in (one, two, three))
    async with AsyncDibs(f"redis+cluster://{seeds}", budget=5) as dibs:
        assert await works(dibs, "user:1")
        slot = key_slot(b"user:1")
        owner, other, third = _owner_first(slot, [one, two, three])
        move_slot(slot, owner, other, third)
        assert await works(dibs, "user:1")
        assert "user:1" not in [*owner.keys(), *other.keys()]


def _owner_first(slot: int, servers: list[Server]) -> list[Server]:
    index = min(slot // (16384 // 3), 2)
    return [servers[index], *[server for server in servers if server is not servers[index]]]


async def test_a_cluster_client_of_the_caller_is_taken_over(start_server: StartServer) -> None:
    """A RedisCluster that the caller has: its nodes and settings are taken over."""
    servers = start_cluster(start_server)
    client = redis.RedisCluster(host="127.0.0.1", port=servers[0].port)
    await client.ping()
    async with AsyncDibs(client) as dibs:
        for number in range(5):
            assert await works(dibs, f"user:{number}")
    assert await client.ping()
    await client.aclose()


async def test_a_node_of_a_cluster_that_is_out_concerns_its_keys_only(
    start_server: StartServer,
) -> None:
    """One node frozen: its keys are let through unguarded, all others are guarded as ever."""
    servers = start_cluster(start_server)
    for server in servers:
        server.client().config_set("cluster-require-full-coverage", "no")
    async with AsyncDibs(f"redis+cluster://127.0.0.1:{servers[0].port}", budget=0.5) as dibs:
        await works(dibs)
        servers[2].freeze()
        guarded: dict[int, bool] = {}
        for number in range(12):
            key = f"user:{number}"
            since = time.monotonic()
            async with dibs.hold(key, ttl=5) as lease:
                guarded[number] = lease.guarded
            assert time.monotonic() - since < 20, "it does not wait for that node"
            assert lease.guarded == (key_slot(key.encode()) // (16384 // 3) < 2)
        assert set(guarded.values()) == {True, False}
        servers[2].thaw()


async def test_a_node_of_a_cluster_that_is_out_keeps_no_locks_of_loads(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen between the read and the locks, which it takes after the callers have gone."""
    claim_all = AsyncLoader.claim_all

    async def out(loader: AsyncLoader, asked: list[Any]) -> Any:
        if asked[0][0].key.startswith(b"menu:b"):
            servers[2].freeze()
        return await claim_all(loader, asked)

    monkeypatch.setattr(AsyncLoader, "claim_all", out)
    servers = start_cluster(start_server)
    for server in servers:
        server.client().config_set("cluster-require-full-coverage", "no")
    events: list[Event] = []
    url = f"redis+cluster://127.0.0.1:{servers[0].port}"
    async with AsyncDibs(url, budget=0.5, listeners=[events.append]) as dibs:

        @dibs.cached_many("menu:{name}", ttl=600, lock_ttl=600)
        async def menus(names: list[str]) -> dict[str, str]:
            return {name: name.upper() for name in names}

        before, after = [[f"{word}{number}" for number in range(12)] for word in "ab"]
        assert len(await menus(before)) == 12, "every node has a connection"
        assert await menus(after) == {name: name.upper() for name in after}
        kept = [key for server in servers[:2] for key in server.keys()]
        assert any("menu:b" in key for key in kept) and not any("lock:" in key for key in kept)
        servers[2].thaw()
        await eventually(lambda: "recovered" in kinds(events), within=90)
        await eventually(lambda: not any("lock:" in key for key in servers[2].keys()))
        assert {key for key in servers[2].keys() if "menu:b" in key} == set()


async def test_a_sentinel_leads_to_the_master_and_to_its_successor(
    start_server: StartServer, tmp_path: Path
) -> None:
    """redis+sentinel://: the master is found, and after a failover the new one."""
    master = start_server("valkey")
    master.client().config_set("repl-diskless-sync-delay", 0)
    replica = start_server("valkey", config=("--replicaof", f"127.0.0.1 {master.port}"))

    def is_in_sync() -> bool:
        return replica.client().info("replication")["master_link_status"] == "up"

    await eventually(is_in_sync, within=90)
    with Sentinel(tmp_path, master) as sentinel:
        eye = redis.Redis(port=sentinel.port)

        async def sees_replica() -> bool:
            try:
                return len(await eye.sentinel_slaves("main")) == 1
            except (redis.ConnectionError, redis.ResponseError):
                return False

        await eventually(sees_replica, within=90)
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0"
        async with AsyncDibs(url, budget=1) as dibs:
            assert await works(dibs)
            assert master.command_counts()["set"] > 0
            master.kill()
            await eventually(
                lambda: replica.client().info("replication")["role"] == "master", within=90
            )

            async def guarded_again() -> bool:
                async with dibs.hold("user:2", ttl=5) as lease:
                    return lease.guarded

            await eventually(guarded_again, within=90)
            assert replica.command_counts()["set"] > 0
        await eye.aclose()


async def test_all_who_come_at_once_share_one_embedded_server() -> None:
    """The first use, by many at once: one private server is started, and one of them holds."""
    async with AsyncDibs("embedded://", budget=5) as dibs:
        tries = [Background(_try, dibs) for _ in range(5)]
        leases = [await each.result() for each in tries]
        assert len([lease for lease in leases if lease is not None]) == 1


async def _try(dibs: AsyncDibs) -> object:
    return await dibs.try_hold("user:1", ttl=60)
