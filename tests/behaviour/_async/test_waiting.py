"""What `wait=` promises, on every engine."""

import time
from collections.abc import Callable

import pytest

from dibs import AsyncDibs, Busy
from dibs._async import waiters
from dibs.testing import Server

from .._tasks import Background, eventually, sleep


def _queue(dibs: AsyncDibs) -> int:
    return sum(len(each.turns) for each in dibs._leases.waiters.queues.get(b"user:1", []))


async def test_a_waiter_elsewhere_is_woken_by_the_release(server: Server) -> None:
    """Released elsewhere: the waiter has the key long before any timer would look."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        lease = await one.try_hold("user:1", ttl=30)
        assert lease is not None

        async def wait() -> float:
            async with two.hold("user:1", ttl=5, wait=15):
                return time.monotonic()

        waiter = Background(wait)
        await eventually(lambda: server.client().info("clients")["tracking_clients"] > 0)
        await sleep(0.05)
        released = time.monotonic()
        await lease.release()
        assert await waiter.result() - released < 1.0, "the slow poll is at 2 s"


async def test_a_waiter_here_is_woken_without_a_question(server: Server) -> None:
    """Held by this process: the waiter makes no request until the release."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:1", ttl=30)
        assert lease is not None

        async def wait() -> None:
            async with dibs.hold("user:1", ttl=5, wait=15):
                pass

        before = server.commands()
        waiter = Background(wait)
        await sleep(0.3)
        assert server.commands() == before
        await lease.release()
        await waiter.result()


async def test_a_waiter_takes_over_when_the_lease_runs_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder died: its key expires, which no server announces in time; the timer knows."""
    monkeypatch.setattr(waiters, "_LOOK_AGAIN", 3600.0)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        since = time.monotonic()
        assert await one.try_hold("user:1", ttl=0.5) is not None
        async with two.hold("user:1", ttl=5, wait=60):
            assert time.monotonic() - since > 0.4


async def test_a_waiter_waits_no_longer_than_it_may(server: Server) -> None:
    """No release within *wait*: Busy, then and not earlier."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.hold("user:1", ttl=60):
            since = time.monotonic()
            with pytest.raises(Busy) as caught:
                async with two.hold("user:1", ttl=5, wait=0.3):
                    pytest.fail("held twice")
            assert 0.25 < time.monotonic() - since < 25
            assert 30 < caught.value.retry_after <= 60
            assert await two.try_hold("user:1", ttl=5, wait=0.1) is None


async def test_waiters_are_served_in_order_of_arrival(server: Server) -> None:
    """Ten waiters in one process: first come, first served."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:1", ttl=30)
        assert lease is not None
        order: list[int] = []

        async def wait(number: int) -> None:
            async with dibs.hold("user:1", ttl=5, wait=15):
                order.append(number)

        waiters: list[Background] = []
        for number in range(10):
            waiters.append(Background(wait, number))
            await eventually(lambda: _queue(dibs) == len(waiters))
        await lease.release()
        for waiter in waiters:
            await waiter.result()
        assert order == list(range(10))


async def test_fifty_waiters_are_one_contender(server: Server) -> None:
    """Fifty waiters in one process cost a handful of commands, not ten a second each."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.hold("user:1", ttl=30), two.hold("warm:up", ttl=5):
            before = server.commands()

            async def wait() -> bool:
                return await two.try_hold("user:1", ttl=5, wait=1.5) is None

            waiters = [Background(wait) for _ in range(50)]
            for waiter in waiters:
                assert await waiter.result()
            # One contender asks; the others get what it learnt.
            assert server.commands() - before < 30


async def test_when_the_first_waiter_gives_up_the_next_one_contends(server: Server) -> None:
    """The first in the queue gives up: the second contends and is woken by the release."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        lease = await one.try_hold("user:1", ttl=30)
        assert lease is not None

        async def wait(seconds: float) -> bool:
            mine = await two.try_hold("user:1", ttl=5, wait=seconds)
            return mine is not None and await mine.release()

        impatient, patient = Background(wait, 0.3), Background(wait, 15.0)
        assert await impatient.result() is False
        await lease.release()
        assert await patient.result() is True


async def test_more_keys_than_the_server_keeps_track_of(
    start_server: Callable[..., Server],
) -> None:
    """Pushes that are not about a change are answered ever more slowly, not at once for ever."""
    server = start_server("valkey", config=("--tracking-table-max-keys", "4"))
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        leases = [await one.try_hold(f"user:{number}", ttl=60) for number in range(40)]
        assert all(leases)

        async def wait(number: int) -> bool:
            async with two.hold(f"user:{number}", ttl=5, wait=15) as lease:
                return lease.guarded

        waiters = [Background(wait, number) for number in range(40)]
        await eventually(lambda: len(two._leases.waiters.queues) == 40)
        await sleep(0.5)
        before, since = server.commands(), time.monotonic()
        await sleep(1.0)
        rate = (server.commands() - before) / (time.monotonic() - since)
        assert rate < 40 * 75, "a waiter that only polls asks 20 times a second"
        for lease in leases:
            assert lease is not None and await lease.release()
        for waiter in waiters:
            assert await waiter.result()


# ---- who waits can be seen


def notes(server: Server, key: str = "user:1") -> list[bytes]:
    """What is noted at the server about those who wait for *key*."""
    return server.client().zrange(f"waiting:{{{key}}}", 0, -1)


@pytest.mark.parametrize("limit", [None, 1])
async def test_who_waits_can_be_seen(server: Server, limit: int | None) -> None:
    """In which process, and since when; for a key or a permit. Nothing is left when it ends."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        lease = await one.try_hold("user:1", ttl=60, limit=limit)
        assert lease is not None

        async def wait() -> None:
            async with two.hold("user:1", ttl=5, wait=60, limit=limit):
                pass

        waiting = [Background(wait), Background(wait)]
        await eventually(lambda: len(notes(server)) == 1, within=30)
        entry = await one._inspector().entry("user:1")
        assert entry is not None
        [waiter] = entry.waiters
        assert waiter.holder == two._leases.identity.holder
        assert waiter.waited is not None and 1.0 <= waiter.waited < 60
        assert 0 < server.client().pttl("waiting:{user:1}") <= 30_050
        await lease.release()
        for each in waiting:
            await each.result()
        await eventually(lambda: server.keys() == [])


async def test_waiting_for_a_short_time_or_not_at_all_costs_no_command(valkey: Server) -> None:
    """The commands are those of before: no note is written, and none is removed."""
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:
        async with one.hold("user:1", ttl=60), two.hold("warm:up", ttl=60):
            pass
        before = valkey.command_counts()
        async with one.hold("user:1", ttl=60):
            pass
        spent = valkey.command_counts() - before
        assert spent["set"] == spent["pttl"] == 1 and not spent["zadd"]

        async def wait() -> None:
            async with two.hold("user:1", ttl=5, wait=60):
                pass

        lease = await one.try_hold("user:1", ttl=60)
        assert lease is not None
        before = valkey.command_counts()
        waiting = Background(wait)
        await eventually(lambda: _queue(two) == 1)
        await sleep(0.2)
        await lease.release()
        await waiting.result()
        spent = valkey.command_counts() - before
        assert not spent["zadd"], "and where there is no note, none is removed"


async def test_a_process_that_was_killed_is_not_said_to_wait(valkey: Server) -> None:
    """A note that is not written again expires; the next one that is written removes it."""
    client = valkey.client()
    client.zadd("waiting:{user:1}", {"0123456789ab@dead:1 1000": 1})
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:
        lease = await one.try_hold("user:1", ttl=60)
        assert lease is not None

        async def wait() -> None:
            async with two.hold("user:1", ttl=5, wait=60):
                pass

        waiting = Background(wait)
        await eventually(lambda: not any(b"dead" in each for each in notes(valkey)), within=30)
        await lease.release()
        await waiting.result()
