"""What `renew` and `max_hold` promise, on every engine."""

import gc
import logging
from time import monotonic

import pytest

from dibs import AsyncDibs, Event, LeaseLost
from dibs.testing import Server

from .._tasks import eventually, sleep


async def test_a_renewed_lease_outlives_its_ttl(server: Server) -> None:
    """renew=True: kept alive far beyond its ttl, gone at the end."""
    async with AsyncDibs(server.url, budget=5) as dibs, AsyncDibs(server.url, budget=5) as other:
        async with dibs.hold("user:1", ttl=1.2, renew=True) as lease:
            await sleep(1.8)
            assert not lease.lost
            lease.check()
            assert await other.try_hold("user:1", ttl=1) is None
        assert server.keys() == []


async def test_a_lease_is_renewed_while_the_server_is_out_of_memory(own_server: Server) -> None:
    """A full server takes no new keys. Those that are held can be kept, extended, shortened."""
    client = own_server.client()
    async with AsyncDibs(own_server.url, budget=5) as dibs:
        short = await dibs.try_hold("user:2", ttl=60, at_least=20)
        assert short is not None
        async with dibs.hold("user:1", ttl=1.2, renew=True) as lease:
            client.config_set("maxmemory", 1)
            await sleep(1.8)
            assert not lease.lost
            assert await lease.extend(30)
            assert await short.release()
        assert client.pttl("user:2") <= 20_050
        assert own_server.keys() == ["user:2"]


async def test_many_renewals_share_one_write(server: Server) -> None:
    """A hundred leases are renewed by one renewer; renewals that are due together go together."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        holds = [dibs.hold(f"user:{n}", ttl=1.5, renew=True) for n in range(100)]
        leases = [await hold.__aenter__() for hold in holds]
        await sleep(2.0)
        assert not any(lease.lost for lease in leases)
        for hold in holds:
            await hold.__aexit__(None, None, None)
        assert server.keys() == []


async def test_a_shorter_lease_is_renewed_in_time_beside_a_longer_one(server: Server) -> None:
    """Nothing was due for a while when it came; also where many others came and went."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.hold("user:1", ttl=60, renew=True):
            for number in range(200):
                async with dibs.hold(f"order:{number}", ttl=30, renew=True):
                    pass
            async with dibs.hold("user:2", ttl=1.5, renew=True) as lease:
                end = lease._state.deadline
                await eventually(lambda: lease._state.deadline > end + 1)
                assert not lease.lost


async def test_max_hold_ends_the_renewals(server: Server) -> None:
    """max_hold: the server has expired the key by then, and the lease knows that it is lost."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        hold = dibs.hold("user:1", ttl=1, renew=True, max_hold=2)
        lease = await hold.__aenter__()
        await sleep(1.2)
        assert not lease.lost
        with_body = lease._state.body
        assert with_body is not None
        lease._state.body = None  # this test plays the body itself
        await eventually(lambda: lease.lost)
        await eventually(lambda: server.keys() == [])
        lease._state.body = with_body
        assert await lease.release() is False


async def test_a_renewal_that_finds_the_key_gone_loses_the_lease(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The key vanished: `lost` turns true at the next renewal; an event and a warning say why."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        hold = dibs.hold("user:1", ttl=0.6, renew=True)
        lease = await hold.__aenter__()
        body, lease._state.body = lease._state.body, None
        server.flush()
        await eventually(lambda: lease.lost)
        assert server.keys() == [], "a renewal never takes a key back"
        await eventually(lambda: "lost" in [event.kind for event in events])
        lease._state.body = body
        await lease.release()
    [line] = [each for each in caplog.records if "lost" in each.getMessage()]
    assert line.levelno == logging.WARNING and line.name == "dibs"
    assert "user:*: the lease was lost after" in line.getMessage() and "user:1" not in caplog.text


async def test_one_broken_key_does_not_stop_other_renewals(server: Server) -> None:
    """One of many renewed keys was overwritten with a list: that lease is lost, the others live."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        holds = [dibs.hold(f"user:{n}", ttl=1.5, renew=True) for n in range(10)]
        leases = [await hold.__aenter__() for hold in holds]
        bodies = [lease._state.body for lease in leases]
        leases[3]._state.body = None  # this test plays the body itself
        server.client().delete("user:3")
        server.client().rpush("user:3", "x")
        await eventually(lambda: leases[3].lost, within=90)
        await sleep(1.6)
        assert [lease.lost for lease in leases] == [n == 3 for n in range(10)]
        assert [event.kind for event in events].count("lost") == 1
        leases[3]._state.body = bodies[3]
        for number, hold in enumerate(holds):
            if number != 3:
                await hold.__aexit__(None, None, None)


async def test_an_extended_lease_is_not_cut_short_by_its_renewal(server: Server) -> None:
    """extend(60) on a renewed lease: the next renewal leaves it at that."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.hold("user:1", ttl=1.2, renew=True) as lease:
            assert await lease.extend(60)
            await sleep(1.4)
            assert lease.remaining > 50
            assert server.client().pttl("user:1") > 50_000


async def test_what_ran_out_here_was_lost_although_its_key_is_there(server: Server) -> None:
    """Another program has extended the key: the lease does not rely on that, and frees it."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        lease = await dibs.try_hold("user:1", ttl=0.3)
        assert lease is not None
        server.client().persist("user:1")
        await eventually(lambda: lease.lost)
        assert await lease.release() is False
        assert server.keys() == []
        assert [event.kind for event in events] == ["acquired", "late"]
        assert await lease.release() is False
        assert len(events) == 2, "it is over: nothing is sent, and nothing is said"


async def test_a_hold_that_nobody_has_any_more_is_not_renewed(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Entered by hand and dropped: its key runs out, an event and a line in the log say so."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        with caplog.at_level(logging.WARNING, "dibs"):
            await dibs.hold("user:1", ttl=1.2, renew=True).__aenter__()
            gc.collect()
            await eventually(lambda: "leaked" in [event.kind for event in events])
        leaked = next(event for event in events if event.kind == "leaked")
        assert leaked.name == "user:*" and leaked.cause is not None and leaked.held is not None
        assert "user:*" in caplog.text and "user:1" not in caplog.text
        await eventually(lambda: server.keys() == [])
        assert [event.kind for event in events].count("leaked") == 1
        async with dibs.hold("user:1", ttl=5):
            pass


@pytest.mark.parametrize("kept", ["the lease", "the hold"])
async def test_a_hold_that_somebody_still_has_is_renewed(server: Server, kept: str) -> None:
    """A reference to the lease or to the hold is enough: its owner can still release it."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        hold = dibs.hold("user:1", ttl=1.5, renew=True)
        lease = await hold.__aenter__()
        mine = lease if kept == "the lease" else hold
        del hold, lease
        gc.collect()
        await sleep(2.0)
        assert server.keys() == ["user:1"]
        if kept == "the lease":
            assert await mine.release()  # type: ignore[union-attr]
        else:
            await mine.__aexit__(None, None, None)  # type: ignore[union-attr]
        assert server.keys() == []


async def test_a_lease_that_was_seen_as_lost_is_not_revived(valkey: Server) -> None:
    """A renewal that was under way at the deadline may be confirmed: its holder has stopped."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        lease = await dibs.hold("report:1", ttl=60, renew=True).__aenter__()
        state = lease._state
        state.deadline = monotonic() - 1
        assert lease.lost
        state.deadline = monotonic() + 60  # as a confirmed renewal does
        assert lease.lost
        with pytest.raises(LeaseLost):
            lease.check()
        await lease.release()
