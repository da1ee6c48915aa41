"""What `hold`, `try_hold` and `peek` promise, on every engine."""

import pytest

from dibs import AsyncDibs, Busy, LeaseLost, UsageError
from dibs.testing import Server

from .._tasks import redis, sleep


async def test_a_free_key_is_taken_in_one_round_trip(server: Server) -> None:
    """Free: a lease, and one request (an acquire and its PTTL) is all it costs."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.hold("warm:up", ttl=5):
            pass
        before = server.commands()
        lease = await dibs.try_hold("user:1", ttl=5)
        assert lease is not None
        # A script counts the commands it runs, too: EVALSHA, GET, SET, PTTL.
        assert server.commands() - before <= 4
        assert lease.guarded and not lease.lost and 4 < lease.remaining <= 5
        assert server.keys() == ["user:1"]
        assert await lease.release()
        assert server.keys() == []


async def test_a_key_held_elsewhere_is_busy_for_as_long_as_the_server_says(server: Server) -> None:
    """Held elsewhere: Busy with the server's remaining time and who has it, in one round trip."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.hold("user:1", ttl=5) as lease:
            with pytest.raises(Busy) as caught:
                async with two.hold("user:1", ttl=60):
                    pytest.fail("held twice")
            assert caught.value.key == "user:1"
            assert 4 < caught.value.retry_after <= 5
            assert caught.value.holder is not None and ":" in caught.value.holder
            assert lease.token not in str(caught.value) and lease.token not in repr(caught.value)
            assert await two.try_hold("user:1", ttl=60) is None
        async with two.hold("user:1", ttl=5):
            pass


async def test_a_key_held_by_this_process_is_busy_without_a_question(server: Server) -> None:
    """Held by this process: Busy, and not a single command."""
    async with AsyncDibs(server.url, budget=5) as dibs, dibs.hold("user:1", ttl=5):
        before = server.commands()
        for _ in range(10):
            with pytest.raises(Busy) as caught:
                async with dibs.hold("user:1", ttl=5):
                    pytest.fail("held twice")
            assert 0 < caught.value.retry_after <= 5
            assert await dibs.try_hold("user:1", ttl=5) is None
        assert server.commands() == before


async def test_the_body_raises_and_the_key_is_free(server: Server) -> None:
    """The body raises: released, and exactly that exception reaches the caller."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        failure = KeyError("mine")
        with pytest.raises(KeyError) as caught:
            async with dibs.hold("user:1", ttl=5):
                raise failure
        assert caught.value is failure
        assert server.keys() == []


async def test_a_late_holder_is_lost_and_leaves_its_successor_alone(server: Server) -> None:
    """The holder outlives its ttl: lost, release() is False, the successor's key untouched."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        slow = await one.try_hold("user:1", ttl=0.05)
        assert slow is not None
        await sleep(0.1)
        assert slow.lost and slow.remaining == 0.0
        with pytest.raises(LeaseLost):
            slow.check()
        successor = await two.try_hold("user:1", ttl=5)
        assert successor is not None
        assert await slow.release() is False
        assert await two.peek("user:1") is not None
        assert await successor.release() is True


async def test_the_same_process_can_take_a_key_whose_lease_ran_out(server: Server) -> None:
    """A lease that ran out does not block its own process."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        slow = await dibs.try_hold("user:1", ttl=0.05)
        await sleep(0.1)
        again = await dibs.try_hold("user:1", ttl=5)
        assert slow is not None and again is not None
        assert await slow.release() is False
        assert await dibs.try_hold("user:1", ttl=5) is None, "the new lease is known here"
        assert await again.release() is True


async def test_release_is_true_once(server: Server) -> None:
    """release() returns True once; later calls return False, without a request."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:1", ttl=5)
        assert lease is not None
        assert await lease.release() is True
        before = server.commands()
        assert await lease.release() is False
        assert server.commands() == before
        assert lease.lost and lease.remaining == 0.0


async def test_a_released_lease_is_no_longer_held(server: Server) -> None:
    """After release() and detach(): `lost` is true and check() raises; extend() is False."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        for limit in (None, 2):
            released = await dibs.try_hold(f"user:{limit}", ttl=5, limit=limit)
            detached = await dibs.try_hold(f"job:{limit}", ttl=5, limit=limit)
            assert released is not None and detached is not None
            await released.release()
            await detached.detach(ttl=5)
            for lease in (released, detached):
                assert await lease.extend(30) is False
                assert lease.lost and lease.remaining == 0.0
                with pytest.raises(LeaseLost, match="was released or handed over") as caught:
                    lease.check()
                assert caught.value.state == "released"


async def test_what_is_lost_has_no_time_left(server: Server) -> None:
    """A lease that another holder took over: remaining is 0.0 at once, not at its deadline."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:1", ttl=30)
        assert lease is not None
        server.flush()
        assert await lease.extend(30) is False
        assert lease.lost and lease.remaining == 0.0


async def test_extend_moves_the_end(server: Server) -> None:
    """extend(ttl): the server and the lease both end that much later."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:1", ttl=1)
        assert lease is not None
        assert await lease.extend(30) is True
        assert 29 < lease.remaining <= 30
        assert 29_000 < server.client().pttl("user:1") <= 30_050
        await lease.release()


async def test_extend_never_takes_a_key_back(server: Server) -> None:
    """Expired or taken: extend() is False, and the key is left as it is."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        lease = await one.try_hold("user:1", ttl=5)
        assert lease is not None
        server.flush()
        assert await lease.extend(30) is False
        assert lease.lost and server.keys() == []
        other = await two.try_hold("user:1", ttl=5)
        assert other is not None
        assert await lease.extend(30) is False
        assert server.client().pttl("user:1") <= 5_050
        await other.release()


async def test_extend_does_not_revive_a_lost_lease(server: Server) -> None:
    """Its holder has read that it is lost; that the key is still there changes nothing."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:1", ttl=0.1)
        assert lease is not None
        server.client().set("user:1", lease.token, px=60_000)
        while not lease.lost:
            await sleep(0.02)
        assert await lease.extend(30) is False
        assert lease.lost and server.client().pttl("user:1") > 30_000


async def test_a_released_lease_is_not_lost_when_its_ttl_is_over(server: Server) -> None:
    """It ended as it should."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:1", ttl=0.5)
        assert lease is not None
        assert await lease.release()
        await sleep(0.6)
        assert await lease.extend(30) is False
        with pytest.raises(LeaseLost) as caught:
            lease.check()
        assert caught.value.state == "released"


async def test_what_outlives_a_block_sees_that_its_lease_is_over(server: Server) -> None:
    """A task or thread that was started inside: `lost` and check() say the same."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        for options in ({}, {"renew": True}, {"limit": 2}):
            async with dibs.hold("user:1", ttl=30, **options) as lease:
                lease.check()
                assert not lease.lost
            assert lease.lost
            with pytest.raises(LeaseLost) as caught:
                lease.check()
            assert caught.value.state == "released"


async def test_peek_tells_who_and_how_long(server: Server) -> None:
    """peek: remaining and holder while held, None when free, and nothing is changed."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        assert await two.peek("user:1") is None
        async with one.hold("user:1", ttl=5):
            holding = await two.peek("user:1")
            assert holding is not None and 4 < holding.remaining <= 5
            assert holding.holder is not None
        assert await two.peek("user:1") is None


async def test_a_foreign_value_is_busy_without_a_holder(server: Server) -> None:
    """A key that another program wrote (`SET key 1 EX 5 NX`) is respected: Busy, holder unknown."""
    server.client().set("user:1", "1", ex=5)
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(Busy) as caught:
            async with dibs.hold("user:1", ttl=5):
                pytest.fail("took somebody's key")
        assert caught.value.holder is None and 4 < caught.value.retry_after <= 5


async def test_a_key_of_another_type_is_a_mistake_that_is_explained(server: Server) -> None:
    """The key holds a list: a UsageError that names it, and the list is left alone."""
    server.client().rpush("user:1", "a")
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match=r"^user:\*: the key holds a value of another type"):
            async with dibs.hold("user:1", ttl=5):
                pytest.fail("took a list")
    assert server.client().lrange("user:1", 0, -1) == [b"a"]


async def test_the_namespace_goes_before_every_key(server: Server) -> None:
    """Two namespaces do not meet."""
    async with (
        AsyncDibs(server.url, budget=5, namespace="blue:") as blue,
        AsyncDibs(server.url, budget=5, namespace="red:") as red,
        blue.hold("user:1", ttl=5) as lease,
        red.hold("user:1", ttl=5),
    ):
        assert sorted(server.keys()) == ["blue:user:1", "red:user:1"]
        assert lease.key == "user:1"
        server.client().delete("red:user:1")
        assert await red.peek("user:1") is None and await blue.peek("user:1") is not None


async def test_scripts_survive_a_script_flush(server: Server) -> None:
    """The server forgot our scripts: they are sent again, and callers do not notice."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        for _ in range(2):
            async with dibs.hold("user:1", ttl=5, fence=True) as lease:
                server.client().script_flush()
                assert await lease.extend(10)
                server.client().script_flush()
        assert not server.client().exists("user:1")


async def test_a_callers_client_lends_its_settings_and_is_never_closed(server: Server) -> None:
    """A redis-py client as target: its settings are used, itself never, and it stays open."""
    client = redis.Redis(host="127.0.0.1", port=server.port, db=3)
    async with AsyncDibs(client) as dibs, dibs.hold("user:1", ttl=5):
        inside = server.client()
        assert inside.dbsize() == 0, "database 0 is not where the client points"
    assert await client.ping()
    await client.aclose()


async def test_nothing_connects_before_the_first_use() -> None:
    """Making and closing one needs no server."""
    async with AsyncDibs("redis://127.0.0.1:1") as dibs:
        assert "127.0.0.1" in repr(dibs) or "Dibs" in repr(dibs)


async def test_reprs_tell_the_state_and_not_the_secret(server: Server) -> None:
    """repr: state, fence, name; never the token or the key."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.hold("user:secret-7", ttl=5, fence=True) as lease:
            text = repr(lease)
            assert "ends in" in text and "fence" in text and "user:*" in text
            assert lease.token not in text and "secret-7" not in text
        assert "released" in repr(lease)


async def test_leases_that_ran_out_are_forgotten(valkey: Server) -> None:
    """A process that never releases (one key a day) does not grow."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for number in range(600):
            assert await dibs.try_hold(f"day:{number}", ttl=0.001) is not None
        assert len(dibs._leases.table) < 300


async def test_a_late_block_raises_where_it_is_asked_to(server: Server) -> None:
    """on_late="raise": a block that ends after its lease was lost does not end as if it had it."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(LeaseLost):
            async with dibs.hold("user:1", ttl=0.05, on_late="raise"):
                await sleep(0.1)
        with pytest.raises(LeaseLost):
            async with dibs.hold("user:2", ttl=60, on_late="raise"):
                server.client().set("user:2", "another", px=60_000)
        assert server.client().get("user:2") == b"another"
        async with dibs.hold("user:3", ttl=0.05) as lease:  # the default: only the lease says so
            await sleep(0.1)
        assert lease.lost
        async with dibs.hold("user:4", ttl=60, on_late="raise", at_least=0.001) as lease:
            pass
        assert lease.lost


async def test_a_late_block_never_masks_what_its_body_raised(server: Server) -> None:
    """The body's own exception reaches the caller, late or not."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(LookupError):
            async with dibs.hold("user:1", ttl=0.05, on_late="raise"):
                await sleep(0.1)
                raise LookupError

        @dibs.exclusive("user:{number}", ttl=0.05, on_late="raise")
        async def work(number: int) -> str:
            await sleep(0.1)
            return "late"

        with pytest.raises(LeaseLost):
            await work(2)
        with pytest.raises(UsageError, match="on_late"):
            dibs.hold("user:1", ttl=1, on_late="shout")  # type: ignore[arg-type]


async def test_a_hold_is_for_one_block_at_a_time(valkey: Server) -> None:
    """One hold object shared like a lock: the second block is refused, never let in."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        shared = dibs.hold("user:1", ttl=5)
        async with shared:
            with pytest.raises((Busy, UsageError)):
                async with shared:
                    pytest.fail("held twice")
        async with shared as lease:
            assert lease.guarded, "one after the other is fine"
