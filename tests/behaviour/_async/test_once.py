"""What `once` and `claim` promise, on every engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest

from dibs import AsyncDibs, Busy, Duplicate, Event, Mismatch, Unavailable, UsageError
from dibs.claims import current_claims, open_claims
from dibs.testing import FaultProxy, Server

from .._tasks import Beside, eventually, sleep

NOWHERE = "redis://127.0.0.1:1"
AFTER: list[Literal["release", "hold", "replay"]] = ["release", "hold", "replay"]


@dataclass
class Cart:
    id: int
    items: list[str]
    total: float = 0.0


@dataclass
class Order:
    number: int
    items: tuple[str, ...]


@dataclass
class Receipt:
    number: int
    paid: bool


class Unwilling:
    """A codec of the caller's own that raises what it likes."""

    name, fingerprint = "unwilling", "-"

    def encode(self, value: Any) -> bytes:
        raise LookupError("no page is large enough")

    def decode(self, data: bytes) -> Any:
        raise AssertionError("there is nothing to decode")


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    """Every test ends what it began."""
    yield
    assert open_claims() == 0


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


async def claimed(dibs: AsyncDibs, key: str = "order:1", **options: Any) -> None:
    """Claim it, do nothing, end well."""
    options = {"window": 60, **options}
    async with dibs.claim(key, **options) as claim:
        assert not claim.replayed


async def refused(dibs: AsyncDibs, key: str = "order:1", **options: Any) -> Duplicate:
    """How a duplicate is refused."""
    options = {"window": 60, **options}
    with pytest.raises(Duplicate) as caught:
        async with dibs.claim(key, **options):
            pytest.fail("done twice")
    return caught.value


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


async def test_the_lease_is_the_window_but_neither_tiny_nor_long(valkey: Server) -> None:
    """A crash blocks the key for the window, at least a second, ten at most; or as told."""
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
    """It runs here: refused, or found to be a mismatch, without asking anybody."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, payload={"a": 1}):
            before = server.commands()
            for _ in range(5):
                assert (await refused(dibs, payload={"a": 1})).state == "running"
                assert (await refused(dibs)).retry_after > 0
                with pytest.raises(Mismatch):
                    await claimed(dibs, payload={"a": 2})
            assert server.commands() == before


async def test_round_trips(valkey: Server) -> None:
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
            assert valkey.keys() == [], "the window was over before it was"


async def test_how_long_a_running_one_that_holds_will_be_in_the_way(server: Server) -> None:
    """after="hold": for the rest of the window, not of the lease; a wild clock is not believed."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=60, after="hold"):
            for dibs in (one, two):
                assert 50 < (await refused(dibs, after="hold")).retry_after <= 60
                assert (await refused(dibs, after="replay")).retry_after <= 10
        for since in (0, 2**47):
            server.client().set("order:2", b"t-1 - %x@elsewhere:1" % since, px=9_000)
            error = await refused(two, "order:2", after="hold")
            assert 5 < error.retry_after <= (60 if since else 9)


# ---- what a success leaves behind


async def test_release_leaves_nothing(server: Server) -> None:
    """after="release": the next one may, at once, here and elsewhere."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        for dibs in (one, two, one):
            await claimed(dibs)
            assert server.keys() == []


async def test_hold_refuses_for_the_rest_of_the_window(server: Server) -> None:
    """after="hold": done, and try again when the server's own clock says; never earlier."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=60, after="hold"):
            server.client().script_flush()
        for dibs in (one, two):
            most = server.client().pttl("order:1") / 1000
            error = await refused(dibs, after="hold")
            least = server.client().pttl("order:1") / 1000
            assert error.state == "done" and least <= error.retry_after <= most <= 60
            assert "was processed already" in str(error)
            assert least > 50, "the window, not the lease"


async def test_hold_lets_the_next_one_pass_after_the_window(server: Server) -> None:
    """The window is over: nothing is left, and it may be done again."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        await claimed(one, window=0.3, after="hold")

        async def passes() -> bool:
            try:
                await claimed(two, after="release")
            except Duplicate:
                return False
            return True

        await eventually(passes)
        assert server.keys() == []


async def test_replay_hands_out_the_result(server: Server) -> None:
    """after="replay": every duplicate in the window gets what the first one made, falsy or not."""
    results: list[Any] = [None, 0, 0.0, "", {}, [], False, {"order": 17, "名": ["é", None]}]
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        for number, result in enumerate(results):
            async with one.claim(f"order:{number}", window=60, after="replay") as claim:
                assert claim.complete(result) is result
            for dibs in (one, two):
                async with dibs.claim(f"order:{number}", window=60, after="replay") as claim:
                    assert claim.replayed and claim.guarded and not claim.lost
                    assert claim.result == result and type(claim.result) is type(result)
                    assert not claim.is_open and "replayed" in repr(claim)
                    with pytest.raises(UsageError, match="replay"):
                        claim.complete("another")
            assert 50_000 < server.client().pttl(f"order:{number}") <= 60_000


async def test_a_decorated_function_is_replayed_with_its_type(server: Server) -> None:
    """The return annotation decides what a duplicate gets; the first caller gets the original."""
    runs = 0

    def decorated(dibs: AsyncDibs) -> Any:
        @dibs.once("order:{cart.id}", window=60, after="replay")
        async def order(cart: Cart) -> Order | None:
            nonlocal runs
            runs += 1
            return Order(17, ("tea", "rice")) if cart.items else None

        return order

    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        for cart in (Cart(1, ["tea"]), Cart(2, [])):
            first = await decorated(one)(cart)
            assert await decorated(one)(cart) == await decorated(two)(cart) == first
        assert runs == 2


async def test_replay_without_a_result_refuses_as_done(server: Server) -> None:
    """Nobody called complete(): there is nothing to hand out, and it is not done again."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        await claimed(dibs, after="replay")
        error = await refused(dibs, after="replay")
        assert error.state == "done" and error.retry_after > 50


async def test_work_that_outlives_its_window_leaves_nothing(valkey: Server) -> None:
    """The window counts from the claim: where it is over, there is nothing left to refuse."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for after in AFTER:
            async with dibs.claim("order:1", window=0.05, lease=5, after=after) as claim:
                await sleep(0.1)
                assert (await refused(dibs, window=0.05, after=after)).state == "running"
                claim.complete(17)
            assert valkey.keys() == []
        for on_error in ("hold", "release"):
            with pytest.raises(KeyError):
                async with dibs.claim("order:1", window=0.05, lease=5, on_error=on_error):
                    await sleep(0.1)
                    raise KeyError("mine")
            assert valkey.keys() == []


async def test_a_block_may_change_its_mind(server: Server) -> None:
    """release(): nothing stays, whatever was agreed, also where it raises; complete() takes it
    back."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete(17)
            claim.release()
        assert server.keys() == []
        with pytest.raises(KeyError):
            async with dibs.claim("order:1", window=60, on_error="hold") as claim:
                claim.release()
                raise KeyError("mine")
        assert server.keys() == []
        async with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete(17)
            claim.release()
            claim.complete(18)
        async with dibs.claim("order:1", window=60, after="replay") as claim:
            assert claim.result == 18


async def test_it_may_be_ended_before_the_block(server: Server) -> None:
    """finish() and fail() end it now; the end of the block then has nothing to do."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, after="hold") as claim:
            assert await claim.finish() is True
            assert (await refused(dibs)).state == "done"
            assert await claim.finish() is False and await claim.fail() is False
            assert not claim.is_open and "over" in repr(claim)
        async with dibs.claim("order:2", window=60, after="hold") as claim:
            assert await claim.fail() is True
            assert "order:2" not in server.keys()
        assert "order:2" not in server.keys()


# ---- what an exception leaves behind


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, GeneratorExit])
async def test_what_an_exception_leaves_behind(server: Server, kind: type[BaseException]) -> None:
    """on_error: nothing, or the key; exactly that exception reaches the caller."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        for after in AFTER:
            for on_error in ("release", "hold"):
                key, failure = f"order:{after}:{on_error}", kind("mine")
                with pytest.raises(kind) as caught:
                    async with dibs.claim(key, window=60, after=after, on_error=on_error) as claim:
                        claim.complete(17)
                        raise failure
                assert caught.value is failure and not hasattr(failure, "__notes__")
                if on_error == "release":
                    assert key not in server.keys()
                else:
                    assert (await refused(dibs, key, after=after)).state == "done"


async def test_an_exception_is_not_masked_by_a_claim_that_cannot_end(server: Server) -> None:
    """Somebody put a list in its place: the body's exception goes first, the other rides along."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(KeyError) as caught:
            async with dibs.claim("order:U4711", window=60, on_error="hold"):
                server.client().delete("order:U4711")
                server.client().rpush("order:U4711", "a")
                raise KeyError("mine")
        (note,) = caught.value.__notes__
        assert "could not end the claim on order:*" in note and "U4711" not in note
        with pytest.raises(UsageError, match="another type"):
            await claimed(dibs, "order:U4711")
        assert server.client().lrange("order:U4711", 0, -1) == [b"a"]


async def test_a_result_that_cannot_be_kept(valkey: Server) -> None:
    """UsageError that names the fix; it was done all the same, so it is never done again."""
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, object()),
        ({}, cyclic),
        ({}, deep),
        ({}, "\ud800"),
        ({"type": Order}, {"not": "an order"}),
        ({"codec": "pickle"}, lambda: None),
        ({"codec": Unwilling()}, 17),
    ]
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for number, (options, result) in enumerate(cases):
            runs: list[int] = []

            @dibs.once(f"order:{number}:{{n}}", window=60, after="replay", **options)
            async def order(n: int, runs: list[int] = runs, result: Any = result) -> Any:
                runs.append(n)
                return result

            with pytest.raises(UsageError, match=r"not a Order|cannot encode"):
                await order(1)
            with pytest.raises(Duplicate) as caught:
                await order(1)
            assert caught.value.state == "done" and runs == [1]


async def test_a_result_that_cannot_be_read_is_done_all_the_same(server: Server) -> None:
    """Of another schema, another codec, or torn: Duplicate, done; it is not done again."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=60, after="replay", type=Order) as claim:
            claim.complete(Order(17, ("tea",)))
        others: list[dict[str, Any]] = [
            {"type": Receipt}, {}, {"codec": "pickle"}, {"codec": "json+zlib", "type": Order},
        ]  # fmt: skip
        for other in others:
            error = await refused(two, after="replay", **other)
            assert error.state == "done" and error.retry_after > 50
        async with two.claim("order:1", window=60, after="replay", type=Order) as claim:
            assert claim.result == Order(17, ("tea",))
        for torn in (b"dibs1 done t-1 -\ndibs1 json - 1.0 0.1\n{torn", b"dibs1 done t-1 -\n"):
            server.client().set("order:2", torn, ex=60)
            assert (await refused(two, "order:2", after="replay")).state == "done"
            assert server.client().get("order:2") == torn


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


async def test_key_and_payload_are_frozen_at_entry(valkey: Server) -> None:
    """What the function does to its arguments changes neither: the original submission is done."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{cart.id}", window=60, after="replay", payload=("cart.items", "note"))
        async def order(cart: Cart, note: str | None = None) -> int:
            cart.id += 1
            cart.items.append("a surprise")
            return cart.id

        assert await order(Cart(7, ["tea"])) == 8
        assert valkey.keys() == ["order:7"]
        assert await order(Cart(7, ["tea"])) == 8
        with pytest.raises(Mismatch):
            await order(Cart(7, ["tea", "a surprise"]))
        with pytest.raises(Mismatch):
            await order(Cart(7, ["tea"]), "and quickly")


# ---- strangers under the key


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


@pytest.mark.parametrize("how", ["finish", "fail"])
async def test_a_late_one_never_touches_its_successor(server: Server, how: str) -> None:
    """Its key ran out, another has it, or has done it: nothing of that changes, and False."""
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
                for claim in claims:
                    claim.complete("late")
                    assert await (claim.finish() if how == "finish" else claim.fail()) is False
                assert [server.client().get(f"order:{n}") for n in "abc"] == before
                assert before[2] is None and not running.lost
            server.client().delete("order:a", "order:b")
        assert kinds(events) == (["claimed"] * 3 + ["late"] * 3) * 3


async def test_one_that_was_lost_knows_it(valkey: Server) -> None:
    """Its record vanished: `lost` at the next renewal, with an event; the body goes on."""
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        async with dibs.claim("order:1", window=60, lease=0.6, after="hold") as claim:
            valkey.flush()
            await eventually(lambda: claim.lost)
            await eventually(lambda: "lost" in kinds(events))
            assert "lost" in repr(claim) and claim.is_open
        assert valkey.keys() == [], "a free key is never taken at the end"
    assert [kind for kind in kinds(events) if kind != "renewed"] == ["claimed", "lost", "late"]


# ---- bad lines and outages


@pytest.mark.parametrize("fault", ["cut", "swallowed"])
async def test_a_lost_reply_is_recognised_as_ours(valkey: Server, fault: str) -> None:
    """The server did it, the line broke before it could say so: claimed, and ended, once."""
    events: list[Event] = []
    with FaultProxy(valkey.port) as line:
        lose = line.cut_after_request if fault == "cut" else line.swallow_replies
        async with AsyncDibs(line.url, budget=1.5, listeners=[events.append]) as dibs:
            await dibs.peek("warm:up")
            lose(match=b"order:1")
            async with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.guarded and line.sprung == 1
                claim.complete(17)
                lose(match=b"order:1")
            assert line.sprung == 2
            async with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.result == 17
        assert kinds(events) == ["claimed", "completed", "replayed"]


async def test_an_outage_at_the_claim(valkey: Server) -> None:
    """open: go on, unguarded, and say so; closed: Unavailable, and nothing is done."""
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
        await eventually(lambda: "recovered" in kinds(events), within=10)
        await eventually(lambda: own_server.keys() == ["order:1", "order:2"])
        async with two.claim("order:1", after="replay", **options) as claim:
            assert claim.replayed and claim.result == 17
        assert (await refused(two, "order:2")).retry_after > 500
    leaked = [event for event in events if event.kind == "leaked"]
    assert len(leaked) == 3 and {event.name for event in leaked} == {"order:*"}
    assert all(event.cause and event.held is not None for event in leaked)


async def test_closing_with_open_claims(valkey: Server) -> None:
    """Nobody hangs and nobody fails: it runs out with its lease, and a `leaked` event says so."""
    events: list[Event] = []
    dibs = AsyncDibs(valkey.url, budget=5, listeners=[events.append])
    async with dibs.claim("order:1", window=60, lease=5, after="replay") as claim:
        claim.complete(17)
        before = valkey.client().get("order:1")
        await dibs.aclose()
        assert open_claims() == 1
    assert open_claims() == 0 and not claim.is_open
    assert valkey.client().get("order:1") == before and valkey.client().pttl("order:1") <= 5_000
    assert kinds(events) == ["claimed", "leaked"]
    assert events[-1].cause == "closed"
    with pytest.raises(UsageError, match="closed"):
        await claimed(dibs, "order:2")
    assert kinds(events) == ["claimed", "leaked"]


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
            others = [Beside(outcome) for _ in range(5)]
            assert [await other.result() for other in others] == ["in use"] * 5


async def test_the_namespace_goes_before_the_key(valkey: Server) -> None:
    """Two namespaces do not meet; the key is as the caller wrote it."""
    async with (
        AsyncDibs(valkey.url, namespace="blue:", budget=5) as blue,
        AsyncDibs(valkey.url, namespace="red:", budget=5) as red,
    ):
        async with blue.claim("order:1", window=60) as claim, red.claim("order:1", window=60):
            assert claim.key == "order:1" and claim.name == "order:*"
            assert valkey.keys() == ["blue:order:1", "red:order:1"]


# ---- the decorator


async def test_one_submission_for_each_key(valkey: Server) -> None:
    """The template is filled from the arguments; another cart is another key."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{user}:{cart.id}", window=60, after="hold", message="one moment, please")
        async def order(user: str, cart: Cart, *, urgent: bool = False) -> list[str]:
            """Docs."""
            return valkey.keys()

        assert await order("ann", Cart(7, [])) == ["order:ann:7"]
        with pytest.raises(Duplicate, match="one moment, please") as caught:
            await order(cart=Cart(7, ["tea"]), user="ann", urgent=True)
        assert caught.value.name == "order:{user}:{cart.id}"
        assert await order("bob", Cart(7, [])) == ["order:ann:7", "order:bob:7"]
        assert order.__name__ == "order" and order.__doc__ == "Docs."


async def test_methods_can_be_decorated(valkey: Server) -> None:
    """`self` is an argument like any other; payload paths go through attributes and mappings."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        class Shop:
            def __init__(self, city: str) -> None:
                self.city = city

            @dibs.once("pay:{self.city}:{number}", window=60, after="hold", payload="form.total")
            async def pay(self, number: int, form: dict[str, Any]) -> str:
                return self.city

        tainan, taipei = Shop("tainan"), Shop("taipei")
        assert await tainan.pay(1, {"total": 35, "note": "a"}) == "tainan"
        assert await taipei.pay(1, {"total": 35}) == "taipei"
        with pytest.raises(Duplicate):
            await tainan.pay(1, {"total": 35, "note": "b"})
        with pytest.raises(Mismatch):
            await tainan.pay(1, {"total": 36, "note": "a"})


async def test_a_decorated_function_raises_what_it_raises(valkey: Server) -> None:
    """Its own Duplicate is its own, and on_error decides what stays."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{n}", window=60, after="hold", on_error="hold")
        async def order(n: int) -> None:
            raise Duplicate("inner:1", 3.0, "running")

        for state in ("running", "done"):
            with pytest.raises(Duplicate) as caught:
                await order(1)
            assert caught.value.state == state
        assert valkey.keys() == ["order:1"]


async def test_a_type_that_is_never_kept_need_not_be_understood(valkey: Server) -> None:
    """Only a replay needs the return annotation: it says so when decorating, the others pass."""

    @dataclass
    class Node:
        children: "list[Leaf]"  # a name that nobody can look up from here

    @dataclass
    class Leaf:
        pass

    async with AsyncDibs(valkey.url, budget=5) as dibs:

        async def grow(n: int) -> Node:
            return Node([])

        for after in ("release", "hold"):
            assert await dibs.once("node:{n}", window=60, after=after)(grow)(1) == Node([])
        with pytest.raises(UsageError, match="is not supported"):
            dibs.once("node:{n}", window=60, after="replay")(grow)


async def test_bad_options_are_told_before_any_io() -> None:
    """UsageError that names the option, when decorating or calling claim(); nothing connects."""
    events: list[Event] = []
    bad: list[tuple[str, dict[str, Any]]] = [
        ("window", {"window": 0}),
        ("window", {"window": -1}),
        ("window", {"window": "10"}),
        ("window", {"window": float("nan")}),
        ("lease", {"lease": 0}),
        ("lease", {"lease": True}),
        ("after", {"after": "keep"}),
        ("after", {"after": ["hold"]}),
        ("on_error", {"on_error": "replay"}),
        ("codec", {"codec": "xml"}),
        ("codec", {"codec": object()}),
        ("on_outage", {"on_outage": "ajar"}),
    ]
    async with AsyncDibs(NOWHERE, listeners=[events.append]) as dibs:
        for word, options in bad:
            options = {"window": 60, **options}
            with pytest.raises(UsageError, match=word):
                dibs.claim("order:1", **options)
            with pytest.raises(UsageError, match=word):
                dibs.once("order:{n}", **options)
        for key in ("", None, 7, "x" * 2000, "order:\ud800"):
            with pytest.raises(UsageError, match="key"):
                dibs.claim(key, window=60)  # type: ignore[arg-type]
        for payload in (object(), open, [{"request": Exception}]):
            with pytest.raises(UsageError, match="payload must be data"):
                dibs.claim("order:1", window=60, payload=payload)
        for paths in (5, None, [7], b"cart", ["cart", None]):
            with pytest.raises(UsageError, match="payload"):
                dibs.once("order:{n}", window=60, payload=paths)  # type: ignore[arg-type]
    assert events == []


async def test_functions_that_cannot_be_decorated() -> None:
    """Missing fields and wrong kinds of functions: UsageError when decorating."""
    async with AsyncDibs(NOWHERE) as dibs:

        async def order(cart: Cart) -> None:
            pytest.fail("ran without a key")

        async def generator(cart: Cart) -> Any:
            yield cart

        for template in ("order:{user}", "order:{0}", "order:{}", "order:{cart", "", "a:{cart!r}"):
            with pytest.raises(UsageError):
                dibs.once(template, window=60)(order)
        for payload in ("items", ["cart.id", "user.id"], ""):
            with pytest.raises(UsageError, match="no parameter"):
                dibs.once("order:{cart.id}", window=60, payload=payload)(order)
        wrong: list[Any] = [generator, classmethod(order), 5, None]
        for function in wrong:
            with pytest.raises(UsageError, match="wraps"):
                dibs.once("order:1", window=60)(function)


async def test_calls_that_lack_a_field() -> None:
    """A field of the key or of the payload is missing, or is not data: UsageError, before I/O."""
    events: list[Event] = []
    async with AsyncDibs(NOWHERE, listeners=[events.append]) as dibs:

        @dibs.once("order:{cart.id}", window=60, payload=["cart.total", "form.user.name"])
        async def order(cart: Any, form: Any) -> None:
            pytest.fail("ran without a key")

        form = {"user": {"name": "ann"}}
        for cart in (object(), Cart(None, []), Cart("", [])):  # type: ignore[arg-type]
            with pytest.raises(UsageError, match=r"cart\.id"):
                await order(cart, form)
        for lacking in ({}, {"user": {}}, {"user": None}, None):
            with pytest.raises(UsageError, match="payload"):
                await order(Cart(7, []), lacking)
        with pytest.raises(UsageError, match="payload must be data"):
            await order(Cart(7, []), {"user": {"name": object()}})
        with pytest.raises(TypeError):
            await order(Cart(7, []))  # type: ignore[call-arg]
    assert events == []


# ---- what listeners are told


async def test_a_life_of_a_claim(server: Server) -> None:
    """Every turn of it is told in order, with its facts, by its name and without personal data."""
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
