"""Claims that are lost, and the store that does not answer while one is open."""

from typing import Any

import pytest

from dibs import AsyncDibs, Event, Unavailable, UsageError
from dibs.claims import open_claims
from dibs.testing import FaultProxy, Server

from .._tasks import eventually
from ..events import kinds
from .submissions import AFTER, NOWHERE, claimed, refused

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


@pytest.mark.parametrize("how", ["finish", "fail"])
async def test_a_late_one_never_touches_its_successor(server: Server, how: str) -> None:
    """Its key ran out, another has it, or has done it: nothing of that changes, and False. A free
    key is taken for what it leaves."""
    events: list[Event] = []
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5) as two,
    ):
        for after in AFTER:
            options: dict[str, Any] = {"window": 60, "lease": 60, "after": after}
            late = [one.claim(f"order:{n}", on_error="hold", **options) for n in "abc"]
            claims = [await each.__aenter__() for each in late]
            server.client().delete("order:a", "order:b", "order:c")
            async with two.claim("order:a", window=60, after="replay") as running:
                async with two.claim("order:b", window=60, after="replay") as done:
                    done.complete("the successor's")
                before = [server.client().get(f"order:{n}") for n in "abc"]
                leaves = how == "fail" or after != "release"
                for claim, ended in zip(claims, (False, False, leaves), strict=True):
                    claim.complete("late")
                    assert await (claim.finish() if how == "finish" else claim.fail()) is ended
                assert [server.client().get(f"order:{n}") for n in "ab"] == before[:2]
                assert before[2] is None and not running.lost
                assert (server.client().get("order:c") is not None) is leaves
            server.client().delete("order:a", "order:b", "order:c")
            last = "completed" if leaves else "late"
            assert kinds(events) == ["claimed"] * 3 + ["late"] * 2 + [last]
            assert {event.cause for event in events if event.kind == "late"} == {None}
            events.clear()


async def test_one_that_was_lost_knows_it(valkey: Server) -> None:
    """Its record vanished: `lost` at the next renewal, with an event; the body continues."""
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        async with dibs.claim("order:1", window=60, lease=0.6, after="hold") as claim:
            valkey.flush()
            await eventually(lambda: claim.lost)
            await eventually(lambda: "lost" in kinds(events))
            assert "lost" in repr(claim) and claim.is_open
        assert valkey.keys() == ["order:1"], "it was done, and the key is not taken again"
    assert [kind for kind in kinds(events) if kind != "renewed"] == ["claimed", "lost", "completed"]


@pytest.mark.parametrize("fault", ["cut", "swallowed"])
async def test_a_lost_reply_is_recognised_as_ours(valkey: Server, fault: str) -> None:
    """The server did it, the connection broke before the reply: claimed, and ended, once."""
    events: list[Event] = []
    with FaultProxy(valkey.port) as line:
        lose = line.cut_after_request if fault == "cut" else line.swallow_replies
        async with AsyncDibs(line.url, budget=1.5, listeners=[events.append]) as dibs:
            await dibs.peek("warm:up")
            lose(match=b"order:1")
            async with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.guarded and line.triggered == 1
                claim.complete(17)
                lose(match=b"order:1")
            assert line.triggered == 2
            async with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.result == 17
        assert kinds(events) == ["claimed", "completed", "replayed"]


async def test_an_outage_at_the_claim(valkey: Server) -> None:
    """open: continue unguarded, and report it; closed: Unavailable, and nothing is done."""
    events: list[Event] = []
    async with AsyncDibs(NOWHERE, budget=0.5, listeners=[events.append]) as dibs:
        async with dibs.claim("order:U4711", window=60, after="replay") as claim:
            assert not claim.guarded and not claim.replayed and not claim.lost
            assert "unguarded" in repr(claim) and "running" in repr(claim)
            claim.complete(17)
            assert await claim.finish() is False
        with pytest.raises(KeyError):
            async with dibs.claim("order:U4711", window=60):
                raise KeyError("mine")
        with pytest.raises(Unavailable) as caught:
            async with dibs.claim("order:U4711", window=60, on_outage="closed"):
                pytest.fail("let through")
        assert "U4711" not in f"{caught.value!r} {events}"
    assert kinds(events) == [
        "outage", "claimed", "completed", "outage", "claimed", "released", "outage",
    ]  # fmt: skip
    assert {event.guarded for event in events if event.kind != "outage"} == {False}


async def test_an_outage_at_the_end(own_server: Server) -> None:
    """No exception, but a `leaked` event; what it leaves is delivered when the store is back."""
    events: list[Event] = []
    options: dict[str, Any] = {"window": 600, "lease": 60}
    async with (
        AsyncDibs(own_server.url, budget=0.3, listeners=[events.append]) as one,
        AsyncDibs(own_server.url, budget=5) as two,
    ):
        async with (
            one.claim("order:1", after="replay", **options) as replayed,
            one.claim("order:2", after="hold", **options) as held,
            one.claim("order:3", after="release", **options) as released,
        ):
            replayed.complete(17)
            own_server.freeze()
            for claim in (replayed, held, released):
                assert await claim.finish() is False
                assert not claim.is_open
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events), within=90)
        await eventually(lambda: own_server.keys() == ["order:1", "order:2"])
        async with two.claim("order:1", after="replay", **options) as claim:
            assert claim.replayed and claim.result == 17
        assert (await refused(two, "order:2")).retry_after > 500
    leaked = [event for event in events if event.kind == "leaked"]
    assert len(leaked) == 3 and {event.name for event in leaked} == {"order:*"}
    assert all(event.cause and event.held is not None for event in leaked)


async def test_closing_with_open_claims(valkey: Server) -> None:
    """No caller hangs or fails: the claim expires with its lease, and a `leaked` event reports
    it."""
    events: list[Event] = []
    dibs = AsyncDibs(valkey.url, budget=5, listeners=[events.append])
    async with dibs.claim("order:1", window=60, lease=5, after="replay") as claim:
        claim.complete(17)
        before = valkey.client().get("order:1")
        await dibs.aclose()
        assert open_claims() == 1
    assert open_claims() == 0 and not claim.is_open
    assert valkey.client().get("order:1") == before and valkey.client().pttl("order:1") <= 5_050
    assert kinds(events) == ["claimed", "leaked"]
    assert events[-1].cause == "closed"
    with pytest.raises(UsageError, match="closed"):
        await claimed(dibs, "order:2")
    assert kinds(events) == ["claimed", "leaked"]
