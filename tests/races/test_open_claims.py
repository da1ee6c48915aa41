"""The open claims of a client and of a process; and those that are never ended."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, Duplicate, Event
from dibs.claims import clear_current_claims, current_claims, open_claims
from dibs.testing import Child, Server, aeventually, eventually

Spawn = Callable[..., Child]


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    """Every test begins and ends with no claim open."""
    gc.collect()
    assert open_claims() == 0 and current_claims() == ()
    yield
    gc.collect()
    assert open_claims() == 0 and current_claims() == ()


def causes(events: list[Event]) -> list[str | None]:
    return [event.cause for event in events if event.kind == "leaked"]


# ---- who sees which


def test_a_thread_sees_its_own(valkey: Server) -> None:
    """The oldest first, gone when they end; another thread sees none, the process counts all."""
    with Dibs(valkey.url, budget=5) as dibs, ThreadPoolExecutor(1) as pool:
        with dibs.claim("order:U4711", window=60) as outer, dibs.claim("mail:1", window=60) as mail:
            assert current_claims() == (outer, mail) and open_claims() == 2
            assert [claim.name for claim in current_claims()] == ["order:*", "mail:*"]
            assert pool.submit(current_claims).result() == ()
            assert pool.submit(open_claims).result() == 2
            outer.finish()
            assert current_claims() == (mail,) and open_claims() == 1
        assert current_claims() == () and open_claims() == 0


async def test_a_task_sees_its_own_and_its_creators(valkey: Server) -> None:
    """A child begins with what its creator had open; what the child opens, the creator misses."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        opened, seen = asyncio.Event(), asyncio.Event()

        async def child(outer: Any) -> None:
            assert current_claims() == (outer,)
            async with dibs.claim("mail:1", window=60) as mine:
                assert current_claims() == (outer, mine)
                opened.set()
                await seen.wait()
                assert current_claims() == (mine,), "the creator has ended its own meanwhile"

        async with dibs.claim("order:1", window=60) as outer:
            task = asyncio.create_task(child(outer))
            await opened.wait()
            assert current_claims() == (outer,) and open_claims() == 2
        seen.set()
        await task


def test_what_needs_no_ending_is_not_open(valkey: Server) -> None:
    """A replay is not open, a refusal neither; one that the policy let through is."""
    with Dibs(valkey.url, budget=5) as dibs, Dibs("redis://127.0.0.1:1", budget=0.5) as out:
        with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete(17)
            with pytest.raises(Duplicate), dibs.claim("order:1", window=60):
                pytest.fail("done twice")
            assert open_claims() == 1
        with dibs.claim("order:1", window=60, after="replay") as claim:
            assert claim.replayed and open_claims() == 0
        with out.claim("order:1", window=60) as claim:
            assert not claim.guarded and current_claims() == (claim,)


def test_a_claim_may_end_elsewhere(valkey: Server) -> None:
    """Opened by one thread, ended by another: it is open nowhere."""
    with Dibs(valkey.url, budget=5) as dibs, ThreadPoolExecutor(1) as pool:
        with dibs.claim("order:1", window=60, after="hold") as claim:
            assert pool.submit(claim.finish).result() is True
            assert current_claims() == () and open_claims() == 0
        assert valkey.keys() == ["order:1"]


# ---- giving up


def test_clearing_gives_up_what_was_left_open(valkey: Server) -> None:
    """They run out by themselves, each with a `leaked` event; nothing is sent, and ending them
    afterwards is no error."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        left = [dibs.claim(f"order:{n}", window=60, lease=2, after="hold") for n in "ab"]
        opened = [each.__enter__() for each in left]
        endings = ("delifeq", "delex", "del", "eval", "evalsha")
        before = valkey.commands(*endings)
        assert clear_current_claims() == 2
        assert clear_current_claims() == 0
        assert current_claims() == () and open_claims() == 0
        assert not any(claim.is_open for claim in opened)
        for each in left:
            each.__exit__(None, None, None)
        assert valkey.commands(*endings) == before
        eventually(lambda: valkey.keys() == [])
        with dibs.claim("order:a", window=60):
            pass
    assert causes(events) == ["cleared", "cleared"]
    assert all(event.name == "order:*" for event in events)
    assert all(event.held is not None for event in events if event.kind == "leaked")


async def test_clearing_leaves_a_creators_claims_alone(valkey: Server) -> None:
    """A job that was started inside a claim cleans up after itself: the claim continues, is
    renewed, and its result is stored."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        async def job() -> int:
            mine = await dibs.claim("mail:1", window=60, lease=2).__aenter__()
            assert current_claims() == (claim, mine)
            return clear_current_claims()

        async with dibs.claim("order:1", window=60, lease=2, after="replay") as claim:
            assert await asyncio.create_task(job()) == 1
            assert await asyncio.to_thread(clear_current_claims) == 0
            assert current_claims() == (claim,) and claim.is_open
            await asyncio.sleep(2.5)
            assert not claim.lost
            claim.complete(17)
        async with dibs.claim("order:1", window=60, after="replay") as claim:
            assert claim.result == 17


def test_clearing_in_one_thread_leaves_the_others_alone(valkey: Server) -> None:
    """A worker that clears after each job does not disturb the other jobs."""
    with Dibs(valkey.url, budget=5) as dibs, ThreadPoolExecutor(1) as pool:

        def job() -> int:
            mine = dibs.claim("order:2", window=60).__enter__()
            assert current_claims() == (mine,)
            return clear_current_claims()

        with dibs.claim("order:1", window=60) as claim:
            assert pool.submit(job).result() == 1
            assert current_claims() == (claim,) and claim.is_open


# ---- claims without an owner


def test_a_claim_that_nobody_has_is_leaked(valkey: Server) -> None:
    """An __enter__ without an __exit__: reported, no longer renewed, free after its lease."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        dibs.claim("order:1", window=60, lease=2).__enter__()
        gc.collect()
        assert open_claims() == 0
        eventually(lambda: causes(events) == ["dropped"])
        eventually(lambda: valkey.keys() == [])
        assert "lost" not in [event.kind for event in events]


async def test_a_task_that_died_keeps_no_claim(valkey: Server) -> None:
    """Nor does anything that was made inside of it: a connection remembers its context for as
    long as it lives."""
    events: list[Event] = []
    async with (
        AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs,
        AsyncDibs(valkey.url, budget=5) as other,
    ):

        async def work() -> None:
            claiming = dibs.claim("order:1", window=60, lease=2)
            await claiming.__aenter__()
            await other.peek("order:1")  # connects, inside the claim
            assert open_claims() == 1

        await asyncio.create_task(work())
        gc.collect()
        assert open_claims() == 0
        await aeventually(lambda: causes(events) == ["dropped"])
        await aeventually(lambda: valkey.keys() == [])


def test_a_generator_that_nobody_finishes_ends_its_claim(valkey: Server) -> None:
    """Python closes it, and that is an exception like any other: on_error decides."""
    with Dibs(valkey.url, budget=5) as dibs:

        def rows() -> Iterator[int]:
            with dibs.claim("order:1", window=60, on_error="release"):
                yield from range(10)

        unfinished = rows()
        assert next(unfinished) == 0 and open_claims() == 1
        del unfinished
        gc.collect()
        assert open_claims() == 0 and valkey.keys() == []


def test_a_listener_that_raises_does_not_stop_the_garbage(valkey: Server) -> None:
    """Also if a listener raises, the claim is collected."""

    kinds: list[str] = []

    def broken(event: Event) -> None:
        kinds.append(event.kind)
        if event.kind == "leaked":
            raise RuntimeError("listener")

    with Dibs(valkey.url, budget=5, listeners=[broken]) as dibs:
        dibs.claim("order:1", window=60).__enter__()
        gc.collect()
        assert open_claims() == 0
    assert kinds == ["claimed", "leaked"]


def test_garbage_inside_a_listener_is_told_later(valkey: Server) -> None:
    """A listener with a lock is not called again while it holds it."""
    lock, kinds = threading.Lock(), list[str]()

    def counted(event: Event) -> None:
        assert lock.acquire(blocking=False), "called inside itself"
        with contextlib.ExitStack() as held:
            held.callback(lock.release)
            kinds.append(event.kind)
            forgotten.clear()
            gc.collect()

    forgotten: list[object] = []
    with Dibs(valkey.url, budget=5, listeners=[counted]) as dibs:
        claim = dibs.claim("order:1", window=60).__enter__()
        forgotten.append(claim)
        del claim
        with dibs.hold("user:1", ttl=5):
            pass
    assert kinds == ["claimed", "acquired", "leaked", "released"]


# ---- for ever and ever


def test_ten_thousand_claims_leave_nothing(valkey: Server) -> None:
    """Beside one that runs all the time, which must not keep those behind it: with tasks."""

    async def work() -> tuple[int, int]:
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            async with dibs.claim("long:1", window=3600, lease=600):
                await many(dibs, 500)
                before = held()
                await many(dibs, 10_000)
                return held() - before, kept_by(dibs._leases.renewer)

    async def many(dibs: AsyncDibs, count: int) -> None:
        for number in range(count):
            async with dibs.claim(f"order:{number}", window=60, lease=600, after="release"):
                pass

    grown, planned = asyncio.run(work())
    assert grown < 1_000 and planned < 300
    assert valkey.keys() == []


def test_ten_thousand_claims_of_threads_leave_nothing(valkey: Server) -> None:
    """The same with threads."""
    with Dibs(valkey.url, budget=5) as dibs, ThreadPoolExecutor(4) as pool:

        def many(worker: int, count: int) -> None:
            for number in range(count):
                with dibs.claim(f"order:{worker}:{number}", window=60, lease=600):
                    pass

        with dibs.claim("long:1", window=3600, lease=600):
            list(pool.map(many, range(4), [100] * 4))
            before = held()
            list(pool.map(many, range(4), [2_500] * 4))
            assert held() - before < 1_000
            assert kept_by(dibs._leases.renewer) < 300
    assert valkey.keys() == []


def kept_by(renewer: Any) -> int:
    """How many leases a renewer refers to."""
    return len(renewer._heap) + len(renewer._new)


def held() -> int:
    """How many objects there are."""
    gc.collect()
    return len(gc.get_objects())


# ---- forks


def fork_inside_a_claim(url: str) -> list[object]:
    import gc
    import os

    from dibs import Dibs
    from dibs.claims import clear_current_claims, current_claims, open_claims

    dibs = Dibs(url, budget=5)
    reader, writer = os.pipe()
    with dibs.claim("order:1", window=60, after="replay") as claim:
        pid = os.fork()
        if pid == 0:
            try:
                claim.complete("the child's")
                facts: list[object] = [claim.is_open, open_claims(), len(current_claims())]
                facts += [claim.finish(), claim.fail(), clear_current_claims()]
                with dibs.claim("order:2", window=60) as mine:
                    facts += [mine.guarded, open_claims()]
                del claim
                gc.collect()
                os.write(writer, repr(facts).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        child = os.read(reader, 1000).decode()
        parent = [claim.is_open, open_claims(), len(current_claims())]
        claim.complete("the parent's")
    dibs.close()
    return [child, parent]


def test_a_forked_child_never_ends_its_parents_claim(valkey: Server, spawn: Spawn) -> None:
    """In the child it is over, and has no owner; the parent continues, and its result is stored."""
    child, parent = spawn(fork_inside_a_claim, valkey.url).result()
    assert child == "[False, 0, 0, False, False, 0, True, 1]"
    assert parent == [True, 1, 1]
    with Dibs(valkey.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, after="replay") as claim:
            assert claim.result == "the parent's"
    assert valkey.keys() == ["order:1"]
