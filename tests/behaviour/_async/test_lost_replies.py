"""Replies that are lost, repeated or cut in pieces: each request counts once."""

from dibs import AsyncDibs, Event
from dibs.testing import FaultProxy, Server

from .._tasks import Background, sleep
from ..events import kinds
from .outages import timed


async def test_a_reply_lost_by_a_reset_leaves_the_lease_ours(line: FaultProxy) -> None:
    """The server granted the key, the connection broke before the reply: it is ours, not Busy."""
    async with AsyncDibs(line.url, budget=1) as dibs:
        await timed(dibs, "warm:up")
        line.cut_after_request(match=b"user:1")
        async with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded
            assert line.triggered == 1


async def test_a_reply_swallowed_on_the_way_leaves_the_lease_ours(line: FaultProxy) -> None:
    """The reply vanished, the connection hangs: asked again on a second one, within the budget."""
    async with AsyncDibs(line.url, budget=1) as dibs:
        await timed(dibs, "warm:up")
        line.swallow_replies(match=b"user:1")
        async with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded, "longer than the budget is an outage"
        assert line.triggered == 1
        assert (await timed(dibs, "user:1"))[1]


async def test_a_reply_in_pieces_is_put_together(line: FaultProxy) -> None:
    """One byte at a time: slower, not different."""
    async with AsyncDibs(line.url, budget=5) as dibs:
        await timed(dibs, "warm:up")
        line.split(1)
        assert (await timed(dibs, "user:1"))[1]
        assert await dibs.peek("user:1") is None


async def test_one_lost_reply_is_not_an_outage(line: FaultProxy) -> None:
    """The second connection answered: other callers are not disturbed, then or at the budget's
    end."""
    events: list[Event] = []
    async with AsyncDibs(line.url, budget=2, listeners=[events.append]) as dibs:
        await timed(dibs, "warm:up")
        line.swallow_replies(match=b"user:1")
        assert (await timed(dibs, "user:1"))[1]
        for number in range(20):
            assert (await timed(dibs, f"other:{number}"))[1]
            await sleep(0.12)
        assert not {"outage", "recovered"} & set(kinds(events))


async def test_a_late_copy_of_a_repeated_request_takes_no_key(valkey: Server) -> None:
    """Asked again on a second line, released; then the first copy arrives: the key is free."""
    with FaultProxy(valkey.port) as line:
        async with AsyncDibs(line.url, budget=1) as dibs:
            await dibs.peek("warm:up")
            line.delay(requests=0.8)

            async def hold() -> bool:
                async with dibs.hold("user:1", ttl=60) as lease:
                    return lease.guarded

            holder = Background(hold)
            await sleep(0.2)
            line.delay()
            assert await holder.result()
            await sleep(1.0)
            assert valkey.keys() == []


async def test_a_release_whose_reply_is_lost_is_a_release(valkey: Server) -> None:
    """The server released the key, the connection broke before the reply: True, not `late`."""
    kinds: list[str] = []
    with FaultProxy(valkey.port) as line:
        listeners = [lambda event: kinds.append(event.kind)]
        async with AsyncDibs(line.url, budget=2, listeners=listeners) as dibs:
            lease = await dibs.try_hold("user:1", ttl=60)
            assert lease is not None
            line.cut_after_request(match=b"user:1")
            assert await lease.release() is True
            assert line.triggered == 1
        assert kinds == ["acquired", "released"]
