"""What `once` and `claim` promise while the first submission runs, on every engine."""

import gc
from datetime import timedelta
from typing import Any

import pytest

from dibs import AsyncDibs, Busy, Duplicate, Event, Mismatch, UsageError
from dibs.claims import current_claims, open_claims
from dibs.testing import FaultProxy, Server

from .._tasks import Background, eventually, sleep
from ..events import kinds
from .submissions import AFTER, claimed, refused

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


# ---- while the first one runs


async def test_a_duplicate_of_a_running_one_is_refused_and_told_why(server: Server) -> None:
    """Duplicate: running, for how long, and in words without personal data; nothing is touched."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:U4711", window=60) as claim:
            before = server.client().get("order:U4711")
            for dibs in (one, two):
                error = await refused(dibs, "order:U4711")
                assert error.state == "running" and error.key == claim.key == "order:U4711"
                assert 5 < error.retry_after <= 10, "what is left of its lease"
                assert "U4711" not in f"{error} {error!r} {claim!r}" and "order:*" in str(error)
                error = await refused(dibs, "order:U4711", message="one moment, please")
                assert str(error) == error.message == "one moment, please"
            assert server.client().get("order:U4711") == before
        assert server.keys() == []


async def test_an_error_in_the_block_of_a_replay_is_nothing_else(valkey: Server) -> None:
    """There is nothing to end."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete(17)
        with pytest.raises(LookupError) as raised:
            async with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.replayed
                raise LookupError("mine")
        assert not hasattr(raised.value, "__notes__")


async def test_a_claim_that_nobody_has_any_more_is_not_renewed(valkey: Server) -> None:
    """Entered by hand and dropped: its key runs out, and an event says so."""
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        await dibs.claim("order:1", window=60, lease=1).__aenter__()
        gc.collect()
        assert open_claims() == 0
        await eventually(lambda: "leaked" in kinds(events))
        await eventually(lambda: valkey.keys() == [])
        assert kinds(events) == ["claimed", "leaked"] and events[-1].name == "order:*"


async def test_the_lease_is_the_window_but_neither_tiny_nor_long(valkey: Server) -> None:
    """A crash blocks the key for the window, at least a second, ten at most; or `lease=`."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for window, lease, expected in (
            (timedelta(seconds=5), None, 5_000),
            (0.2, None, 1_000),
            (3600, None, 10_000),
            (3600, 30, 30_000),
            (5, timedelta(seconds=30), 30_000),
        ):
            async with dibs.claim("order:1", window=window, lease=lease):
                assert expected / 2 < valkey.client().pttl("order:1") <= expected


async def test_a_duplicate_in_the_same_process_costs_no_command(server: Server) -> None:
    """It runs here: refused, or reported as a mismatch, without a request."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, payload={"a": 1}):
            before = server.commands()
            for _ in range(5):
                assert (await refused(dibs, payload={"a": 1})).state == "running"
                assert (await refused(dibs)).retry_after > 0
                with pytest.raises(Mismatch):
                    await claimed(dibs, payload={"a": 2})
            assert server.commands() == before


async def test_claiming_ending_and_refusing_take_one_round_trip_each(valkey: Server) -> None:
    """Claiming is one, ending is one, being refused or replayed is one."""
    with FaultProxy(valkey.port) as line:
        async with AsyncDibs(line.url, budget=5) as one, AsyncDibs(line.url, budget=5) as two:
            await one.peek("warm:up")
            await two.peek("warm:up")
            for after in AFTER:
                before = line.requests
                async with one.claim(f"order:{after}", window=60, after=after) as claim:
                    assert line.requests - before == 1
                    await refused(two, f"order:{after}")
                    assert line.requests - before == 2
                    claim.complete(17)
                assert line.requests - before == 3
            async with two.claim("order:replay", window=60, after="replay") as claim:
                assert claim.replayed
            assert line.requests - before == 4


async def test_it_is_kept_alive_for_longer_than_its_lease(valkey: Server) -> None:
    """However long it takes: a duplicate is refused long after the lease and the window."""
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:
        for after in ("release", "replay"):
            async with one.claim("order:1", window=0.2, lease=0.9, after=after) as claim:
                await sleep(1.2)
                error = await refused(two, window=0.2, after=after)
                assert error.state == "running" and 0 < error.retry_after < 1
                assert not claim.lost and claim.guarded and claim.is_open
                claim.complete(17)
            await eventually(lambda: valkey.keys() == [])


async def test_how_long_a_running_one_that_holds_will_be_in_the_way(server: Server) -> None:
    """after="hold": for the window, not for the rest of the lease; a plain lease is no claim."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=60, after="hold"):
            for dibs in (one, two):
                assert 50 < (await refused(dibs, after="hold")).retry_after <= 60
                assert (await refused(dibs, after="replay")).retry_after <= 10
        server.client().set("order:2", b"t-1@elsewhere:1", px=9_000)
        assert 5 < (await refused(two, "order:2", after="hold")).retry_after <= 9


# ---- another payload


async def test_another_payload_is_a_mismatch(server: Server) -> None:
    """While it runs and when it is done; it never touches the record, and the same one passes."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        payload = {"items": ["tea"], "total": 35}
        same = {"total": 35, "items": ["tea"]}
        async with one.claim("order:U4711", window=60, after="replay", payload=payload) as claim:
            await self_and_others(server, one, two, same, "running")
            claim.complete(17)
        await self_and_others(server, one, two, same, "done")
        async with two.claim("order:U4711", window=60, after="replay", payload=same) as claim:
            assert claim.result == 17
        async with two.claim("order:U4711", window=60, after="replay") as claim:
            assert claim.result == 17, "who has no payload is not compared"


async def self_and_others(
    server: Server, one: AsyncDibs, two: AsyncDibs, same: Any, state: str
) -> None:
    before = server.client().get("order:U4711")
    for dibs in (one, two):
        with pytest.raises(Mismatch) as caught:
            await claimed(dibs, "order:U4711", after="replay", payload={"items": ["tea", "rice"]})
        assert caught.value.key == "order:U4711" and "U4711" not in f"{caught.value!r}"
        assert (await refused(dibs, "order:U4711", payload=same)).state == state
    assert server.client().get("order:U4711") == before


# ---- other values under the key


async def test_a_lease_or_a_foreign_value_is_respected(server: Server) -> None:
    """A hold, a cached value, another program's SET: Duplicate, running; never overwritten."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.hold("order:1", ttl=30) as lease:
            for dibs in (one, two):
                error = await refused(dibs, after="hold", payload={"a": 1})
                assert error.state == "running" and 20 < error.retry_after <= 30
            assert server.client().get("order:1") == lease.token.encode()
        foreign = [b"", b"1", b"a b c", b"dibs1 json - 1 1\n7", b"x - " + b"f" * 600 + b"@y"]
        for value in foreign:
            server.client().set("order:2", value, ex=30)
            error = await refused(two, "order:2", after="replay", payload={"a": 1})
            assert error.state == "running" and 20 < error.retry_after <= 30
            assert server.client().get("order:2") == value
        server.client().set("order:3", "1")
        error = await refused(two, "order:3")
        assert error.retry_after == float("inf") and "try again" not in str(error)


async def test_a_claim_is_a_lease_to_those_who_hold(server: Server) -> None:
    """hold and peek meet a claim as they meet a lease; and one that is done, without a holder."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=60, after="hold"):
            with pytest.raises(Busy) as caught:
                async with two.hold("order:1", ttl=5):
                    pytest.fail("held twice")
            assert caught.value.holder is not None and ":" in caught.value.holder
        holding = await two.peek("order:1")
        assert holding is not None and holding.holder is None and holding.remaining > 50


# ---- blocks in blocks


async def test_claims_may_be_nested(valkey: Server) -> None:
    """Different keys do not meet; the same key is a duplicate, of oneself, too."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60) as outer:
            async with dibs.claim("mail:1", window=60, after="hold") as inner:
                assert current_claims() == (outer, inner)
                await refused(dibs)
            assert current_claims() == (outer,)
            assert (await refused(dibs, "mail:1")).state == "done"
        assert current_claims() == () and valkey.keys() == ["mail:1"]


async def test_a_claim_is_for_one_block_at_a_time(valkey: Server) -> None:
    """One claim object shared like a lock: the second block is refused, never let in."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        shared = dibs.claim("order:1", window=60)
        for _ in range(2):
            async with shared as claim:
                with pytest.raises(UsageError, match="in use"):
                    async with shared:
                        pytest.fail("claimed twice")
                assert claim.is_open, "one after the other is fine"

        async def outcome() -> str:
            try:
                async with shared:
                    return "claimed"
            except UsageError:
                return "in use"

        async with shared:
            others = [Background(outcome) for _ in range(5)]
            assert [await other.result() for other in others] == ["in use"] * 5


async def test_a_claim_that_several_enter_in_an_outage_is_for_one_of_them(
    own_server: Server,
) -> None:
    """No server says who was first; the others are refused, and their claims end."""
    outcomes: list[str] = []
    async with AsyncDibs(own_server.url, budget=0.5, on_outage="open") as dibs:
        assert await dibs.peek("order:1") is None
        shared = dibs.claim("order:1", window=60)

        async def enter() -> None:
            try:
                async with shared as claim:
                    outcomes.append("guarded" if claim.guarded else "unguarded")
                    await eventually(lambda: len(outcomes) == 3)
            except UsageError:
                outcomes.append("in use")

        own_server.freeze()
        try:
            callers = [Background(enter) for _ in range(3)]
            for caller in callers:
                await caller.result()
        finally:
            own_server.thaw()
    assert sorted(outcomes) == ["in use", "in use", "unguarded"]
    assert open_claims() == 0


async def test_the_namespace_goes_before_the_key(valkey: Server) -> None:
    """Two namespaces do not meet; the key is as the caller wrote it."""
    async with (
        AsyncDibs(valkey.url, namespace="blue:", budget=5) as blue,
        AsyncDibs(valkey.url, namespace="red:", budget=5) as red,
    ):
        async with blue.claim("order:1", window=60) as claim, red.claim("order:1", window=60):
            assert claim.key == "order:1" and claim.name == "order:*"
            assert valkey.keys() == ["blue:order:1", "red:order:1"]


# ---- events


async def test_a_life_of_a_claim(server: Server) -> None:
    """Every step is an event, in order, with its facts, by its name and without personal data."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.once("order:{user}", window=60, lease=30, after="replay", payload="items")
        async def order(user: str, items: list[str]) -> int:
            with pytest.raises(Duplicate):
                await order(user, items)
            return len(items)

        assert await order("U4711", ["tea"]) == await order("U4711", ["tea"]) == 1
        with pytest.raises(Mismatch):
            await order("U4711", ["rice"])
        await refused(dibs, "order:U4711", name="orders")
        await claimed(dibs, "mail:U4711")
    claim, duplicate, completed, replayed, mismatch, done, _, released = events
    assert kinds(events) == [
        "claimed", "duplicate", "completed", "replayed", "mismatch", "duplicate",
        "claimed", "released",
    ]  # fmt: skip
    assert claim.guarded is True and completed.guarded is True and released.guarded is True
    assert duplicate.state == "running" and 20 < (duplicate.retry_after or 0) <= 30
    assert done.state == "done" and 50 < (done.retry_after or 0) <= 60
    assert completed.held is not None and released.held is not None
    names = [event.name for event in (claim, duplicate, completed, replayed, mismatch)]
    assert set(names) == {"order:{user}"} and done.name == "orders" and released.name == "mail:*"
    assert "U4711" not in repr(events) and "tea" not in repr(events)
