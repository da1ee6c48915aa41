# Generated from tests/behaviour/_async/test_once_after.py by unasync.py – do not edit.
"""What a submission leaves behind: nothing, a refusal, or its result."""

from dataclasses import dataclass
from typing import Any

import pytest

from dibs import Dibs, Duplicate, UsageError
from dibs.testing import Server

from .._threads import eventually
from .submissions import AFTER, Order, claimed, refused

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


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


def test_who_would_wait_is_refused_at_once_if_it_is_done(server: Server) -> None:
    """There is nothing to wait for: an hour of patience is not used."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        claimed(one, after="hold", window=7200)
        error = refused(two, after="hold", window=7200, wait=3600)
        assert error.state == "done"


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
            assert 50_000 < server.client().pttl(f"order:{number}") <= 60_050


def test_replay_without_a_result_refuses_as_done(server: Server) -> None:
    """complete() was not called: there is no result to return, and the work is not done again."""
    with Dibs(server.url, budget=5) as dibs:
        claimed(dibs, after="replay")
        error = refused(dibs, after="replay")
        assert error.state == "done" and error.retry_after > 50


def test_a_block_may_change_its_mind(server: Server) -> None:
    """release() leaves nothing, with any `after`, also if the block raises; complete() overrides
    it."""
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
    """The key was replaced by a list: the body's exception is raised, the other one is attached to
    it."""
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(KeyError) as caught:
            with dibs.claim("order:U4711", window=60, on_error="hold"):
                server.client().delete("order:U4711")
                server.client().rpush("order:U4711", "a")
                raise KeyError("mine")
        (note,) = caught.value.__notes__
        assert "could not end the claim on order:*" in note and "U4711" not in note
        with pytest.raises(UsageError, match=r"^order:\*: the key holds a value of another type"):
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
