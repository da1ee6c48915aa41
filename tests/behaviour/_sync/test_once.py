# Printed from tests/behaviour/_async/test_once.py by tools/unasync.py – do not edit.
"""What `once` and `claim` promise, on every engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest

from dibs import Dibs, Busy, Duplicate, Event, Mismatch, Unavailable, UsageError
from dibs.claims import current_claims, open_claims
from dibs.testing import FaultProxy, Server

from .._threads import Beside, eventually, sleep

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


def claimed(dibs: Dibs, key: str = "order:1", **options: Any) -> None:
    """Claim it, do nothing, end well."""
    options = {"window": 60, **options}
    with dibs.claim(key, **options) as claim:
        assert not claim.replayed


def refused(dibs: Dibs, key: str = "order:1", **options: Any) -> Duplicate:
    """How a duplicate is refused."""
    options = {"window": 60, **options}
    with pytest.raises(Duplicate) as caught:
        with dibs.claim(key, **options):
            pytest.fail("done twice")
    return caught.value


# ---- while the first one runs


def test_a_duplicate_of_a_running_one_is_refused_and_told_why(server: Server) -> None:
    """Duplicate: running, for how long, and in words without personal data; nothing is touched."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:U4711", window=60) as claim:
            before = server.client().get("order:U4711")
            for dibs in (one, two):
                error = refused(dibs, "order:U4711")
                assert error.state == "running" and error.key == claim.key == "order:U4711"
                assert 5 < error.retry_after <= 10, "what is left of its lease"
                assert "U4711" not in f"{error} {error!r} {claim!r}" and "order:*" in str(error)
                error = refused(dibs, "order:U4711", message="one moment, please")
                assert str(error) == error.message == "one moment, please"
            assert server.client().get("order:U4711") == before
        assert server.keys() == []


def test_the_lease_is_the_window_but_neither_tiny_nor_long(valkey: Server) -> None:
    """A crash blocks the key for the window, at least a second, ten at most; or as told."""
    with Dibs(valkey.url, budget=5) as dibs:
        for window, lease, expected in (
            (timedelta(seconds=5), None, 5_000),
            (0.2, None, 1_000),
            (3600, None, 10_000),
            (3600, 30, 30_000),
            (5, timedelta(seconds=30), 30_000),
        ):
            with dibs.claim("order:1", window=window, lease=lease):
                assert expected / 2 < valkey.client().pttl("order:1") <= expected


def test_a_duplicate_in_the_same_process_costs_no_command(server: Server) -> None:
    """It runs here: refused, or found to be a mismatch, without asking anybody."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, payload={"a": 1}):
            before = server.commands()
            for _ in range(5):
                assert (refused(dibs, payload={"a": 1})).state == "running"
                assert (refused(dibs)).retry_after > 0
                with pytest.raises(Mismatch):
                    claimed(dibs, payload={"a": 2})
            assert server.commands() == before


def test_round_trips(valkey: Server) -> None:
    """Claiming is one, ending is one, being refused or replayed is one."""
    with FaultProxy(valkey.port) as line:
        with Dibs(line.url, budget=5) as one, Dibs(line.url, budget=5) as two:
            one.peek("warm:up")
            two.peek("warm:up")
            for after in AFTER:
                before = line.requests
                with one.claim(f"order:{after}", window=60, after=after) as claim:
                    assert line.requests - before == 1
                    refused(two, f"order:{after}")
                    assert line.requests - before == 2
                    claim.complete(17)
                assert line.requests - before == 3
            with two.claim("order:replay", window=60, after="replay") as claim:
                assert claim.replayed
            assert line.requests - before == 4


def test_it_is_kept_alive_for_longer_than_its_lease(valkey: Server) -> None:
    """However long it takes: a duplicate is refused long after the lease and the window."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        for after in ("release", "replay"):
            with one.claim("order:1", window=0.2, lease=0.9, after=after) as claim:
                sleep(1.2)
                error = refused(two, window=0.2, after=after)
                assert error.state == "running" and 0 < error.retry_after < 1
                assert not claim.lost and claim.guarded and claim.is_open
                claim.complete(17)
            assert valkey.keys() == [], "the window was over before it was"


def test_how_long_a_running_one_that_holds_will_be_in_the_way(server: Server) -> None:
    """after="hold": for the rest of the window, not of the lease; a wild clock is not believed."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:1", window=60, after="hold"):
            for dibs in (one, two):
                assert 50 < (refused(dibs, after="hold")).retry_after <= 60
                assert (refused(dibs, after="replay")).retry_after <= 10
        for since in (0, 2**47):
            server.client().set("order:2", b"t-1 - %x@elsewhere:1" % since, px=9_000)
            error = refused(two, "order:2", after="hold")
            assert 5 < error.retry_after <= (60 if since else 9)


# ---- what a success leaves behind


def test_release_leaves_nothing(server: Server) -> None:
    """after="release": the next one may, at once, here and elsewhere."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        for dibs in (one, two, one):
            claimed(dibs)
            assert server.keys() == []


def test_hold_refuses_for_the_rest_of_the_window(server: Server) -> None:
    """after="hold": done, and try again when the server's own clock says; never earlier."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:1", window=60, after="hold"):
            server.client().script_flush()
        for dibs in (one, two):
            most = server.client().pttl("order:1") / 1000
            error = refused(dibs, after="hold")
            least = server.client().pttl("order:1") / 1000
            assert error.state == "done" and least <= error.retry_after <= most <= 60
            assert "was processed already" in str(error)
            assert least > 50, "the window, not the lease"


def test_hold_lets_the_next_one_pass_after_the_window(server: Server) -> None:
    """The window is over: nothing is left, and it may be done again."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        claimed(one, window=0.3, after="hold")

        def passes() -> bool:
            try:
                claimed(two, after="release")
            except Duplicate:
                return False
            return True

        eventually(passes)
        assert server.keys() == []


def test_replay_hands_out_the_result(server: Server) -> None:
    """after="replay": every duplicate in the window gets what the first one made, falsy or not."""
    results: list[Any] = [None, 0, 0.0, "", {}, [], False, {"order": 17, "名": ["é", None]}]
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        for number, result in enumerate(results):
            with one.claim(f"order:{number}", window=60, after="replay") as claim:
                assert claim.complete(result) is result
            for dibs in (one, two):
                with dibs.claim(f"order:{number}", window=60, after="replay") as claim:
                    assert claim.replayed and claim.guarded and not claim.lost
                    assert claim.result == result and type(claim.result) is type(result)
                    assert not claim.is_open and "replayed" in repr(claim)
                    with pytest.raises(UsageError, match="replay"):
                        claim.complete("another")
            assert 50_000 < server.client().pttl(f"order:{number}") <= 60_000


def test_a_decorated_function_is_replayed_with_its_type(server: Server) -> None:
    """The return annotation decides what a duplicate gets; the first caller gets the original."""
    runs = 0

    def decorated(dibs: Dibs) -> Any:
        @dibs.once("order:{cart.id}", window=60, after="replay")
        def order(cart: Cart) -> Order | None:
            nonlocal runs
            runs += 1
            return Order(17, ("tea", "rice")) if cart.items else None

        return order

    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        for cart in (Cart(1, ["tea"]), Cart(2, [])):
            first = decorated(one)(cart)
            assert decorated(one)(cart) == decorated(two)(cart) == first
        assert runs == 2


def test_replay_without_a_result_refuses_as_done(server: Server) -> None:
    """Nobody called complete(): there is nothing to hand out, and it is not done again."""
    with Dibs(server.url, budget=5) as dibs:
        claimed(dibs, after="replay")
        error = refused(dibs, after="replay")
        assert error.state == "done" and error.retry_after > 50


def test_work_that_outlives_its_window_leaves_nothing(valkey: Server) -> None:
    """The window counts from the claim: where it is over, there is nothing left to refuse."""
    with Dibs(valkey.url, budget=5) as dibs:
        for after in AFTER:
            with dibs.claim("order:1", window=0.05, lease=5, after=after) as claim:
                sleep(0.1)
                assert (refused(dibs, window=0.05, after=after)).state == "running"
                claim.complete(17)
            assert valkey.keys() == []
        for on_error in ("hold", "release"):
            with pytest.raises(KeyError):
                with dibs.claim("order:1", window=0.05, lease=5, on_error=on_error):
                    sleep(0.1)
                    raise KeyError("mine")
            assert valkey.keys() == []


def test_a_block_may_change_its_mind(server: Server) -> None:
    """release(): nothing stays, whatever was agreed, also where it raises; complete() takes it
    back."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete(17)
            claim.release()
        assert server.keys() == []
        with pytest.raises(KeyError):
            with dibs.claim("order:1", window=60, on_error="hold") as claim:
                claim.release()
                raise KeyError("mine")
        assert server.keys() == []
        with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete(17)
            claim.release()
            claim.complete(18)
        with dibs.claim("order:1", window=60, after="replay") as claim:
            assert claim.result == 18


def test_it_may_be_ended_before_the_block(server: Server) -> None:
    """finish() and fail() end it now; the end of the block then has nothing to do."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, after="hold") as claim:
            assert claim.finish() is True
            assert (refused(dibs)).state == "done"
            assert claim.finish() is False and claim.fail() is False
            assert not claim.is_open and "over" in repr(claim)
        with dibs.claim("order:2", window=60, after="hold") as claim:
            assert claim.fail() is True
            assert "order:2" not in server.keys()
        assert "order:2" not in server.keys()


# ---- what an exception leaves behind


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, GeneratorExit])
def test_what_an_exception_leaves_behind(server: Server, kind: type[BaseException]) -> None:
    """on_error: nothing, or the key; exactly that exception reaches the caller."""
    with Dibs(server.url, budget=5) as dibs:
        for after in AFTER:
            for on_error in ("release", "hold"):
                key, failure = f"order:{after}:{on_error}", kind("mine")
                with pytest.raises(kind) as caught:
                    with dibs.claim(key, window=60, after=after, on_error=on_error) as claim:
                        claim.complete(17)
                        raise failure
                assert caught.value is failure and not hasattr(failure, "__notes__")
                if on_error == "release":
                    assert key not in server.keys()
                else:
                    assert (refused(dibs, key, after=after)).state == "done"


def test_an_exception_is_not_masked_by_a_claim_that_cannot_end(server: Server) -> None:
    """Somebody put a list in its place: the body's exception goes first, the other rides along."""
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(KeyError) as caught:
            with dibs.claim("order:U4711", window=60, on_error="hold"):
                server.client().delete("order:U4711")
                server.client().rpush("order:U4711", "a")
                raise KeyError("mine")
        (note,) = caught.value.__notes__
        assert "could not end the claim on order:*" in note and "U4711" not in note
        with pytest.raises(UsageError, match="another type"):
            claimed(dibs, "order:U4711")
        assert server.client().lrange("order:U4711", 0, -1) == [b"a"]


def test_a_result_that_cannot_be_kept(valkey: Server) -> None:
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
    with Dibs(valkey.url, budget=5) as dibs:
        for number, (options, result) in enumerate(cases):
            runs: list[int] = []

            @dibs.once(f"order:{number}:{{n}}", window=60, after="replay", **options)
            def order(n: int, runs: list[int] = runs, result: Any = result) -> Any:
                runs.append(n)
                return result

            with pytest.raises(UsageError, match=r"not a Order|cannot encode"):
                order(1)
            with pytest.raises(Duplicate) as caught:
                order(1)
            assert caught.value.state == "done" and runs == [1]


def test_a_result_that_cannot_be_read_is_done_all_the_same(server: Server) -> None:
    """Of another schema, another codec, or torn: Duplicate, done; it is not done again."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:1", window=60, after="replay", type=Order) as claim:
            claim.complete(Order(17, ("tea",)))
        others: list[dict[str, Any]] = [
            {"type": Receipt}, {}, {"codec": "pickle"}, {"codec": "json+zlib", "type": Order},
        ]  # fmt: skip
        for other in others:
            error = refused(two, after="replay", **other)
            assert error.state == "done" and error.retry_after > 50
        with two.claim("order:1", window=60, after="replay", type=Order) as claim:
            assert claim.result == Order(17, ("tea",))
        for torn in (b"dibs1 done t-1 -\ndibs1 json - 1.0 0.1\n{torn", b"dibs1 done t-1 -\n"):
            server.client().set("order:2", torn, ex=60)
            assert (refused(two, "order:2", after="replay")).state == "done"
            assert server.client().get("order:2") == torn


# ---- another payload


def test_another_payload_is_a_mismatch(server: Server) -> None:
    """While it runs and when it is done; it never touches the record, and the same one passes."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        payload = {"items": ["tea"], "total": 35}
        same = {"total": 35, "items": ["tea"]}
        with one.claim("order:U4711", window=60, after="replay", payload=payload) as claim:
            self_and_others(server, one, two, same, "running")
            claim.complete(17)
        self_and_others(server, one, two, same, "done")
        with two.claim("order:U4711", window=60, after="replay", payload=same) as claim:
            assert claim.result == 17
        with two.claim("order:U4711", window=60, after="replay") as claim:
            assert claim.result == 17, "who has no payload is not compared"


def self_and_others(
    server: Server, one: Dibs, two: Dibs, same: Any, state: str
) -> None:
    before = server.client().get("order:U4711")
    for dibs in (one, two):
        with pytest.raises(Mismatch) as caught:
            claimed(dibs, "order:U4711", after="replay", payload={"items": ["tea", "rice"]})
        assert caught.value.key == "order:U4711" and "U4711" not in f"{caught.value!r}"
        assert (refused(dibs, "order:U4711", payload=same)).state == state
    assert server.client().get("order:U4711") == before


def test_key_and_payload_are_frozen_at_entry(valkey: Server) -> None:
    """What the function does to its arguments changes neither: the original submission is done."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{cart.id}", window=60, after="replay", payload=("cart.items", "note"))
        def order(cart: Cart, note: str | None = None) -> int:
            cart.id += 1
            cart.items.append("a surprise")
            return cart.id

        assert order(Cart(7, ["tea"])) == 8
        assert valkey.keys() == ["order:7"]
        assert order(Cart(7, ["tea"])) == 8
        with pytest.raises(Mismatch):
            order(Cart(7, ["tea", "a surprise"]))
        with pytest.raises(Mismatch):
            order(Cart(7, ["tea"]), "and quickly")


# ---- strangers under the key


def test_a_lease_or_a_foreign_value_is_respected(server: Server) -> None:
    """A hold, a cached value, another program's SET: Duplicate, running; never overwritten."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold("order:1", ttl=30) as lease:
            for dibs in (one, two):
                error = refused(dibs, after="hold", payload={"a": 1})
                assert error.state == "running" and 20 < error.retry_after <= 30
            assert server.client().get("order:1") == lease.token.encode()
        foreign = [b"", b"1", b"a b c", b"dibs1 json - 1 1\n7", b"x - " + b"f" * 600 + b"@y"]
        for value in foreign:
            server.client().set("order:2", value, ex=30)
            error = refused(two, "order:2", after="replay", payload={"a": 1})
            assert error.state == "running" and 20 < error.retry_after <= 30
            assert server.client().get("order:2") == value
        server.client().set("order:3", "1")
        error = refused(two, "order:3")
        assert error.retry_after == float("inf") and "try again" not in str(error)


def test_a_claim_is_a_lease_to_those_who_hold(server: Server) -> None:
    """hold and peek meet a claim as they meet a lease; and one that is done, without a holder."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:1", window=60, after="hold"):
            with pytest.raises(Busy) as caught:
                with two.hold("order:1", ttl=5):
                    pytest.fail("held twice")
            assert caught.value.holder is not None and ":" in caught.value.holder
        holding = two.peek("order:1")
        assert holding is not None and holding.holder is None and holding.remaining > 50


@pytest.mark.parametrize("how", ["finish", "fail"])
def test_a_late_one_never_touches_its_successor(server: Server, how: str) -> None:
    """Its key ran out, another has it, or has done it: nothing of that changes, and False."""
    events: list[Event] = []
    with (
        Dibs(server.url, budget=5, listeners=[events.append]) as one,
        Dibs(server.url, budget=5) as two,
    ):
        for after in AFTER:
            options: dict[str, Any] = {"window": 60, "lease": 60, "after": after}
            late = [one.claim(f"order:{n}", on_error="hold", **options) for n in "abc"]
            claims = [each.__enter__() for each in late]
            server.client().delete("order:a", "order:b", "order:c")
            with two.claim("order:a", window=60, after="replay") as running:
                with two.claim("order:b", window=60, after="replay") as done:
                    done.complete("the successor's")
                before = [server.client().get(f"order:{n}") for n in "abc"]
                for claim in claims:
                    claim.complete("late")
                    assert (claim.finish() if how == "finish" else claim.fail()) is False
                assert [server.client().get(f"order:{n}") for n in "abc"] == before
                assert before[2] is None and not running.lost
            server.client().delete("order:a", "order:b")
        assert kinds(events) == (["claimed"] * 3 + ["late"] * 3) * 3


def test_one_that_was_lost_knows_it(valkey: Server) -> None:
    """Its record vanished: `lost` at the next renewal, with an event; the body goes on."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        with dibs.claim("order:1", window=60, lease=0.6, after="hold") as claim:
            valkey.flush()
            eventually(lambda: claim.lost)
            eventually(lambda: "lost" in kinds(events))
            assert "lost" in repr(claim) and claim.is_open
        assert valkey.keys() == [], "a free key is never taken at the end"
    assert [kind for kind in kinds(events) if kind != "renewed"] == ["claimed", "lost", "late"]


# ---- bad lines and outages


@pytest.mark.parametrize("fault", ["cut", "swallowed"])
def test_a_lost_reply_is_recognised_as_ours(valkey: Server, fault: str) -> None:
    """The server did it, the line broke before it could say so: claimed, and ended, once."""
    events: list[Event] = []
    with FaultProxy(valkey.port) as line:
        lose = line.cut_after_request if fault == "cut" else line.swallow_replies
        with Dibs(line.url, budget=1.5, listeners=[events.append]) as dibs:
            dibs.peek("warm:up")
            lose(match=b"order:1")
            with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.guarded and line.sprung == 1
                claim.complete(17)
                lose(match=b"order:1")
            assert line.sprung == 2
            with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.result == 17
        assert kinds(events) == ["claimed", "completed", "replayed"]


def test_an_outage_at_the_claim(valkey: Server) -> None:
    """open: go on, unguarded, and say so; closed: Unavailable, and nothing is done."""
    events: list[Event] = []
    with Dibs(NOWHERE, budget=0.5, listeners=[events.append]) as dibs:
        with dibs.claim("order:U4711", window=60, after="replay") as claim:
            assert not claim.guarded and not claim.replayed and not claim.lost
            assert "unguarded" in repr(claim) and "running" in repr(claim)
            claim.complete(17)
            assert claim.finish() is False
        with pytest.raises(KeyError):
            with dibs.claim("order:U4711", window=60):
                raise KeyError("mine")
        with pytest.raises(Unavailable) as caught:
            with dibs.claim("order:U4711", window=60, on_outage="closed"):
                pytest.fail("let through")
        assert "U4711" not in f"{caught.value!r} {events}"
    assert kinds(events) == [
        "outage", "claimed", "completed", "outage", "claimed", "released", "outage",
    ]  # fmt: skip
    assert {event.guarded for event in events if event.kind != "outage"} == {False}


def test_an_outage_at_the_end(own_server: Server) -> None:
    """No exception, but a `leaked` event; what it leaves is delivered when the store is back."""
    events: list[Event] = []
    options: dict[str, Any] = {"window": 600, "lease": 60}
    with (
        Dibs(own_server.url, budget=0.3, listeners=[events.append]) as one,
        Dibs(own_server.url, budget=5) as two,
    ):
        with (
            one.claim("order:1", after="replay", **options) as replayed,
            one.claim("order:2", after="hold", **options) as held,
            one.claim("order:3", after="release", **options) as released,
        ):
            replayed.complete(17)
            own_server.freeze()
            for claim in (replayed, held, released):
                assert claim.finish() is False
                assert not claim.is_open
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events), within=10)
        eventually(lambda: own_server.keys() == ["order:1", "order:2"])
        with two.claim("order:1", after="replay", **options) as claim:
            assert claim.replayed and claim.result == 17
        assert (refused(two, "order:2")).retry_after > 500
    leaked = [event for event in events if event.kind == "leaked"]
    assert len(leaked) == 3 and {event.name for event in leaked} == {"order:*"}
    assert all(event.cause and event.held is not None for event in leaked)


def test_closing_with_open_claims(valkey: Server) -> None:
    """Nobody hangs and nobody fails: it runs out with its lease, and a `leaked` event says so."""
    events: list[Event] = []
    dibs = Dibs(valkey.url, budget=5, listeners=[events.append])
    with dibs.claim("order:1", window=60, lease=5, after="replay") as claim:
        claim.complete(17)
        before = valkey.client().get("order:1")
        dibs.close()
        assert open_claims() == 1
    assert open_claims() == 0 and not claim.is_open
    assert valkey.client().get("order:1") == before and valkey.client().pttl("order:1") <= 5_000
    assert kinds(events) == ["claimed", "leaked"]
    assert events[-1].cause == "closed"
    with pytest.raises(UsageError, match="closed"):
        claimed(dibs, "order:2")
    assert kinds(events) == ["claimed", "leaked"]


# ---- blocks in blocks


def test_claims_may_be_nested(valkey: Server) -> None:
    """Different keys do not meet; the same key is a duplicate, of oneself, too."""
    with Dibs(valkey.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60) as outer:
            with dibs.claim("mail:1", window=60, after="hold") as inner:
                assert current_claims() == (outer, inner)
                refused(dibs)
            assert current_claims() == (outer,)
            assert (refused(dibs, "mail:1")).state == "done"
        assert current_claims() == () and valkey.keys() == ["mail:1"]


def test_a_claim_is_for_one_block_at_a_time(valkey: Server) -> None:
    """One claim object shared like a lock: the second block is refused, never let in."""
    with Dibs(valkey.url, budget=5) as dibs:
        shared = dibs.claim("order:1", window=60)
        for _ in range(2):
            with shared as claim:
                with pytest.raises(UsageError, match="in use"):
                    with shared:
                        pytest.fail("claimed twice")
                assert claim.is_open, "one after the other is fine"

        def outcome() -> str:
            try:
                with shared:
                    return "claimed"
            except UsageError:
                return "in use"

        with shared:
            others = [Beside(outcome) for _ in range(5)]
            assert [other.result() for other in others] == ["in use"] * 5


def test_the_namespace_goes_before_the_key(valkey: Server) -> None:
    """Two namespaces do not meet; the key is as the caller wrote it."""
    with (
        Dibs(valkey.url, namespace="blue:", budget=5) as blue,
        Dibs(valkey.url, namespace="red:", budget=5) as red,
    ):
        with blue.claim("order:1", window=60) as claim, red.claim("order:1", window=60):
            assert claim.key == "order:1" and claim.name == "order:*"
            assert valkey.keys() == ["blue:order:1", "red:order:1"]


# ---- the decorator


def test_one_submission_for_each_key(valkey: Server) -> None:
    """The template is filled from the arguments; another cart is another key."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{user}:{cart.id}", window=60, after="hold", message="one moment, please")
        def order(user: str, cart: Cart, *, urgent: bool = False) -> list[str]:
            """Docs."""
            return valkey.keys()

        assert order("ann", Cart(7, [])) == ["order:ann:7"]
        with pytest.raises(Duplicate, match="one moment, please") as caught:
            order(cart=Cart(7, ["tea"]), user="ann", urgent=True)
        assert caught.value.name == "order:{user}:{cart.id}"
        assert order("bob", Cart(7, [])) == ["order:ann:7", "order:bob:7"]
        assert order.__name__ == "order" and order.__doc__ == "Docs."


def test_methods_can_be_decorated(valkey: Server) -> None:
    """`self` is an argument like any other; payload paths go through attributes and mappings."""
    with Dibs(valkey.url, budget=5) as dibs:

        class Shop:
            def __init__(self, city: str) -> None:
                self.city = city

            @dibs.once("pay:{self.city}:{number}", window=60, after="hold", payload="form.total")
            def pay(self, number: int, form: dict[str, Any]) -> str:
                return self.city

        tainan, taipei = Shop("tainan"), Shop("taipei")
        assert tainan.pay(1, {"total": 35, "note": "a"}) == "tainan"
        assert taipei.pay(1, {"total": 35}) == "taipei"
        with pytest.raises(Duplicate):
            tainan.pay(1, {"total": 35, "note": "b"})
        with pytest.raises(Mismatch):
            tainan.pay(1, {"total": 36, "note": "a"})


def test_a_decorated_function_raises_what_it_raises(valkey: Server) -> None:
    """Its own Duplicate is its own, and on_error decides what stays."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{n}", window=60, after="hold", on_error="hold")
        def order(n: int) -> None:
            raise Duplicate("inner:1", 3.0, "running")

        for state in ("running", "done"):
            with pytest.raises(Duplicate) as caught:
                order(1)
            assert caught.value.state == state
        assert valkey.keys() == ["order:1"]


def test_a_type_that_is_never_kept_need_not_be_understood(valkey: Server) -> None:
    """Only a replay needs the return annotation: it says so when decorating, the others pass."""

    @dataclass
    class Node:
        children: "list[Leaf]"  # a name that nobody can look up from here

    @dataclass
    class Leaf:
        pass

    with Dibs(valkey.url, budget=5) as dibs:

        def grow(n: int) -> Node:
            return Node([])

        for after in ("release", "hold"):
            assert dibs.once("node:{n}", window=60, after=after)(grow)(1) == Node([])
        with pytest.raises(UsageError, match="is not supported"):
            dibs.once("node:{n}", window=60, after="replay")(grow)


def test_bad_options_are_told_before_any_io() -> None:
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
    with Dibs(NOWHERE, listeners=[events.append]) as dibs:
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


def test_functions_that_cannot_be_decorated() -> None:
    """Missing fields and wrong kinds of functions: UsageError when decorating."""
    with Dibs(NOWHERE) as dibs:

        def order(cart: Cart) -> None:
            pytest.fail("ran without a key")

        def generator(cart: Cart) -> Any:
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


def test_calls_that_lack_a_field() -> None:
    """A field of the key or of the payload is missing, or is not data: UsageError, before I/O."""
    events: list[Event] = []
    with Dibs(NOWHERE, listeners=[events.append]) as dibs:

        @dibs.once("order:{cart.id}", window=60, payload=["cart.total", "form.user.name"])
        def order(cart: Any, form: Any) -> None:
            pytest.fail("ran without a key")

        form = {"user": {"name": "ann"}}
        for cart in (object(), Cart(None, []), Cart("", [])):  # type: ignore[arg-type]
            with pytest.raises(UsageError, match=r"cart\.id"):
                order(cart, form)
        for lacking in ({}, {"user": {}}, {"user": None}, None):
            with pytest.raises(UsageError, match="payload"):
                order(Cart(7, []), lacking)
        with pytest.raises(UsageError, match="payload must be data"):
            order(Cart(7, []), {"user": {"name": object()}})
        with pytest.raises(TypeError):
            order(Cart(7, []))  # type: ignore[call-arg]
    assert events == []


# ---- what listeners are told


def test_a_life_of_a_claim(server: Server) -> None:
    """Every turn of it is told in order, with its facts, by its name and without personal data."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.once("order:{user}", window=60, lease=30, after="replay", payload="items")
        def order(user: str, items: list[str]) -> int:
            with pytest.raises(Duplicate):
                order(user, items)
            return len(items)

        assert order("U4711", ["tea"]) == order("U4711", ["tea"]) == 1
        with pytest.raises(Mismatch):
            order("U4711", ["rice"])
        refused(dibs, "order:U4711", name="orders")
        claimed(dibs, "mail:U4711")
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
