"""What a server holds, read in pages, and freed by a person: nothing else is changed."""

from collections.abc import Callable

import pytest

from dibs import AsyncDibs, Unavailable, UsageError
from dibs._internal_api import KeyInfo, inspector
from dibs.testing import Server
from tests.topologies import start_cluster

StartServer = Callable[..., Server]


async def listed(dibs: AsyncDibs, pattern: str = "*", count: int = 500) -> dict[str, KeyInfo]:
    pages = [page async for page in inspector(dibs).pages(pattern, count=count)]
    return {entry.key: entry for page in pages for entry in page.entries}


async def value() -> str:
    return "soup"


async def test_everything_that_dibs_writes_is_recognised(server: Server) -> None:
    """Leases, permits, claims running and done, cached values, fences, tags; and other keys."""
    server.client().hset("shop:hash", "a", "b")
    server.client().set("other:key", "1")
    async with AsyncDibs(server.url, namespace="shop:", budget=5) as dibs:
        lease = await dibs.try_hold("job:1", ttl=60, fence=True)
        one = await dibs.try_hold("gpu:1", ttl=30, limit=2)
        two = await dibs.try_hold("gpu:1", ttl=60, limit=2)
        await dibs.get_or_load("menu:1", value, ttl=50, tags=["branch:7"])
        async with dibs.claim("order:done", window=40, after="hold"):
            pass
        async with dibs.claim("order:1", window=40, note="job 7"):
            found = await listed(dibs)
        assert lease is not None and one is not None and two is not None
        assert {key: entry.kind for key, entry in found.items()} == {
            "job:1": "lease", "fence:{shop:job:1}": "fence", "gpu:1": "permits",
            "menu:1": "cached", "tag:branch:7": "tag", "order:done": "done", "order:1": "claim",
            "hash": "foreign",
        }  # fmt: skip
        held = found["job:1"]
        assert held.holder is not None and 50 < (held.remaining or 0) <= 60
        assert [permit.holder for permit in found["gpu:1"].permits] == [held.holder] * 2
        assert found["order:1"].note == "job 7"
        for secret in (lease.token, one.token, two.token):
            assert secret.partition("@")[0] not in repr(found)
        for each in (lease, one, two):
            await each.release()


async def test_pages_go_on_where_the_last_one_ended(server: Server) -> None:
    """Every key is listed, for any page size; a pattern begins after the namespace prefix."""
    for number in range(120):
        server.client().set(f"a[1]:user:{number}", "1")
        server.client().set(f"a1:user:{number}", "1")
    async with AsyncDibs(server.url, namespace="a[1]:", budget=5) as dibs:
        assert len(await listed(dibs, count=10)) == 120
        assert set(await listed(dibs, "user:1?", count=10)) == {f"user:{n}" for n in range(10, 20)}
        first = await inspector(dibs).page(count=10)
        assert first.cursor is not None and len(first.entries) < 120


async def test_one_key_says_its_fence_and_who_loads_it(server: Server) -> None:
    """None: there is no such key."""
    async with AsyncDibs(server.url, namespace="shop:", budget=5) as dibs:
        look = inspector(dibs)
        assert await look.entry("job:1") is None
        async with dibs.hold("job:1", ttl=60, fence=True) as lease:
            found = await look.entry("job:1")
            assert found is not None and found.fence == lease.fence
            assert found.age is not None and found.age < 30

        async def load() -> str:
            found = await look.entry("menu:1")
            assert found is not None and (found.kind, found.state) == ("cached", "loading")
            assert found.loading is not None
            return "soup"

        await dibs.get_or_load("menu:1", load, ttl=60)
        after = await look.entry("menu:1")
        assert after is not None and after.state == "value" and after.loading is None


async def test_a_key_is_freed_only_for_the_token_that_holds_it(server: Server) -> None:
    """A lease, a claim, a permit; those of other holders stay."""
    async with AsyncDibs(server.url, namespace="shop:", budget=5) as dibs:
        look = inspector(dibs)
        lease = await dibs.try_hold("job:1", ttl=60)
        other = await dibs.try_hold("job:2", ttl=60)
        permit = await dibs.try_hold("gpu:1", ttl=60, limit=2)
        kept = await dibs.try_hold("gpu:1", ttl=60, limit=2)
        assert lease and other and permit and kept
        assert await look.release("job:1", other.token) == "other"
        assert await look.release("job:1", lease.token) == "released"
        assert await look.release("job:1", lease.token) == "free"
        assert await look.release("gpu:1", lease.token) == "other"
        assert await look.release("gpu:1", permit.token) == "released"
        found = await listed(dibs)
        assert set(found) == {"job:2", "gpu:1"} and found["gpu:1"].taken == 1
        for each in (lease, other, permit, kept):
            await each.release()


async def test_a_forced_release_does_not_hit_a_successor(server: Server) -> None:
    """It compares with what was shown: another holder has the key by now."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        look = inspector(dibs)
        first = await dibs.try_hold("job:1", ttl=60)
        assert first is not None
        shown = await look.entry("job:1")
        await first.release()
        second = await dibs.try_hold("job:1", ttl=60)
        assert shown is not None and shown.token_hint is not None and second is not None
        assert await look.release_whatever("job:1", shown.token_hint) == "other"
        assert (await look.entry("job:1")) is not None
        now = await look.entry("job:1")
        assert now is not None and now.token_hint is not None
        assert await look.release_whatever("job:1", now.token_hint) == "released"
        assert not await second.release()


async def test_a_done_claim_can_be_freed_whatever_the_size_of_its_result(server: Server) -> None:
    """The next submission is then the first one again."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete("x" * 5000)
        shown = await inspector(dibs).entry("order:1")
        assert shown is not None and shown.kind == "done" and (shown.size or 0) > 5000
        assert await inspector(dibs).release_whatever("order:1", shown.token_hint or "") == (
            "released"
        )
        async with dibs.claim("order:1", window=60, after="replay") as claim:
            assert not claim.replayed


async def test_what_nobody_holds_is_not_freed(server: Server) -> None:
    """Cached values, fences and keys of other programs: the error says what to do instead."""
    server.client().rpush("queue", "1")
    async with AsyncDibs(server.url, budget=5) as dibs:
        await dibs.get_or_load("menu:1", value, ttl=60)
        lease = await dibs.try_hold("job:1", ttl=60, fence=True)
        assert lease is not None
        for key in ("menu:1", "queue", "fence:{job:1}"):
            with pytest.raises(UsageError):
                await inspector(dibs).release(key, lease.token)
        assert len(server.keys()) == 4
        await lease.release()


async def test_a_value_of_another_program_that_is_in_the_way_can_be_freed(server: Server) -> None:
    """It counts as held, for ever if it has no expiry; another value is not hit."""
    server.client().set("job:1", "1")
    async with AsyncDibs(server.url, budget=5) as dibs:
        look = inspector(dibs)
        shown = await look.entry("job:1")
        assert shown is not None and shown.kind == "foreign" and shown.token_hint is not None
        assert await dibs.try_hold("job:1", ttl=60) is None
        server.client().set("job:1", "12")
        assert await look.release_whatever("job:1", shown.token_hint) == "other"
        server.client().set("job:1", "1")
        assert await look.release_whatever("job:1", shown.token_hint) == "released"
        assert server.keys() == []


async def test_a_user_without_the_right_to_scan_is_told_which_command_is_missing(
    valkey: Server,
) -> None:
    """And keys outside of the user's patterns are only named."""
    admin = valkey.client()
    admin.execute_command("ACL", "SETUSER", "viewer", "on", ">pw", "~shop:*", "+@all")
    admin.set("shop:1", "1")
    admin.set("bank:1", "1")
    url = valkey.url.replace("://", "://viewer:pw@")
    try:
        async with AsyncDibs(url, budget=5) as dibs:
            found = await listed(dibs)
            assert {key: entry.state for key, entry in found.items()} == {
                "shop:1": "string", "bank:1": "denied",
            }  # fmt: skip
        admin.execute_command("ACL", "SETUSER", "viewer", "-scan")
        async with AsyncDibs(url, budget=5) as dibs:
            with pytest.raises(UsageError, match="SCAN"):
                await listed(dibs)
    finally:
        admin.execute_command("ACL", "DELUSER", "viewer")


async def test_a_server_that_is_out_is_unavailable() -> None:
    """With any outage policy: there is nothing to continue with."""
    async with AsyncDibs("redis://127.0.0.1:1", budget=1) as dibs:
        for work in (inspector(dibs).page, inspector(dibs).server):
            with pytest.raises(Unavailable):
                await work()
        with pytest.raises(Unavailable):
            await inspector(dibs).entry("job:1")


async def test_every_node_of_a_cluster_is_read(start_server: StartServer) -> None:
    """Also where one is out: the others are listed, and it is named."""
    servers = start_cluster(start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    async with AsyncDibs(url, namespace="shop:", budget=2) as dibs:
        leases = [await dibs.try_hold(f"job:{n}", ttl=60) for n in range(30)]
        found = await listed(dibs, count=5)
        assert set(found) == {f"job:{n}" for n in range(30)}
        facts = await inspector(dibs).server()
        assert [each.facts["cluster_enabled"] for each in facts] == ["1"] * 3
        assert len({each.address for each in facts}) == 3
        lost = f"127.0.0.1:{servers[2].port}"
        gone = len(servers[2].keys())
        servers[2].kill()
        pages = [page async for page in inspector(dibs).pages()]
        assert [page.unreachable for page in pages if page.unreachable] == [lost]
        assert sum(len(page.entries) for page in pages) == 30 - gone
        assert leases
