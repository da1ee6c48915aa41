"""Many concurrent submissions of the same work: it is done once, whatever happens to the first
one."""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

from dibs import AsyncDibs, Dibs, DibsError, Duplicate, Mismatch, UsageError
from dibs.claims import open_claims
from dibs.testing import Child, FaultProxy, Server, aeventually, eventually

from .cancelling import MOST_STEPS, Scenario, cancelled_after, cancelled_at, run_cancelled_at

Spawn = Callable[..., Child]
After = Literal["release", "hold", "replay"]


# ---- processes


def submit_by_tasks(url: str, name: str, tasks: int, orders: int) -> list[list[object]]:
    import asyncio
    import sys

    from dibs import AsyncDibs, Duplicate

    async def main() -> list[list[object]]:
        seen: list[list[object]] = []
        async with AsyncDibs(url, budget=20, on_outage="closed") as dibs:

            @dibs.once("order:{after}:{number}", window=600, after="replay")
            async def order(after: str, number: int, me: str) -> str:
                seen.append([after, number, "ran", me])
                await asyncio.sleep(0.005)
                return me

            async def held(number: int, me: str) -> None:
                async with dibs.claim(f"order:hold:{number}", window=600, after="hold"):
                    seen.append(["hold", number, "ran", me])
                    await asyncio.sleep(0.005)

            async def submit(task: int) -> None:
                for number in range(orders):
                    me = f"{name}:{task}:{number}"
                    try:
                        seen.append(["replay", number, "got", await order("replay", number, me)])
                    except Duplicate as error:
                        seen.append(["replay", number, error.state, me])
                    try:
                        await held(number, me)
                    except Duplicate as error:
                        seen.append(["hold", number, error.state, me])

            await dibs.peek("warm:up")
            print("ready", flush=True)
            sys.stdin.readline()
            await asyncio.gather(*[submit(task) for task in range(tasks)])
        return seen

    return asyncio.run(main())


def submit_by_threads(url: str, name: str, threads: int, orders: int) -> list[list[object]]:
    import sys
    import time
    from concurrent.futures import ThreadPoolExecutor

    from dibs import Dibs, Duplicate

    seen: list[list[object]] = []
    with Dibs(url, budget=20, on_outage="closed") as dibs:

        @dibs.once("order:{after}:{number}", window=600, after="replay")
        def order(after: str, number: int, me: str) -> str:
            seen.append([after, number, "ran", me])
            time.sleep(0.005)
            return me

        def held(number: int, me: str) -> None:
            with dibs.claim(f"order:hold:{number}", window=600, after="hold"):
                seen.append(["hold", number, "ran", me])
                time.sleep(0.005)

        def submit(thread: int) -> None:
            for number in range(orders):
                me = f"{name}:{thread}:{number}"
                try:
                    seen.append(["replay", number, "got", order("replay", number, me)])
                except Duplicate as error:
                    seen.append(["replay", number, error.state, me])
                try:
                    held(number, me)
                except Duplicate as error:
                    seen.append(["hold", number, error.state, me])

        dibs.peek("warm:up")
        print("ready", flush=True)
        sys.stdin.readline()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(submit, range(threads)))
    return seen


@pytest.mark.parametrize("server", ["valkey", "redis6"], indirect=True)  # native, and by scripts
def test_seventy_submitters_in_four_processes(server: Server, spawn: Spawn) -> None:
    """Tasks and threads, four processes, the same fifteen orders: each is done by exactly one, and
    all others get what that one made, or are refused."""
    children = [
        spawn(submit_by_tasks, server.url, "a", 25, 15),
        spawn(submit_by_tasks, server.url, "b", 25, 15),
        spawn(submit_by_threads, server.url, "c", 10, 15),
        spawn(submit_by_threads, server.url, "d", 10, 15),
    ]
    for child in children:
        assert child.line(within=90) == "ready"
    for child in children:
        child.tell()
    seen = [each for child in children for each in child.result(within=60)]
    runs = {(after, number): me for after, number, what, me in seen if what == "ran"}
    count = Counter((after, number, what) for after, number, what, _ in seen)
    for after, number in itertools.product(("hold", "replay"), range(15)):
        assert count[after, number, "ran"] == 1
        got = count[after, number, "got"]
        refused = count[after, number, "running"] + count[after, number, "done"]
        assert got + refused == (69 if after == "hold" else 70)
    for after, number, what, me in seen:
        assert what != "got" or me == runs[after, number], "somebody else's result"
    assert all(key.startswith("order:") for key in server.keys())


def claim_and_report(url: str, lease: float) -> None:
    import sys

    from dibs import Dibs

    with Dibs(url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, lease=lease, after="replay") as claim:
            print("claimed", flush=True)
            sys.stdin.readline()
            claim.complete("late")
            print(claim.finish(), flush=True)


def replayed(dibs: Dibs, after: After = "replay") -> Any:
    """The result of claiming it: who did it, here or before. Duplicate: it is being done."""
    with dibs.claim("order:1", window=60, lease=30, after=after) as claim:
        return claim.result if claim.replayed else claim.complete("mine")


def free(dibs: Dibs) -> bool:
    try:
        return replayed(dibs) == "mine"
    except Duplicate:
        return False


def test_a_killed_one_is_followed_after_its_lease(valkey: Server, spawn: Spawn) -> None:
    """SIGKILL: refused for as long as the lease runs, and not for the rest of the window."""
    holder = spawn(claim_and_report, valkey.url, 1.5)
    assert holder.line() == "claimed"
    holder.kill()
    with Dibs(valkey.url, budget=5) as dibs:
        with pytest.raises(Duplicate) as caught:
            replayed(dibs)
        assert caught.value.state == "running" and caught.value.retry_after <= 1.5
        eventually(lambda: free(dibs), within=90)


def test_a_paused_one_leaves_its_successors_result_alone(valkey: Server, spawn: Spawn) -> None:
    """SIGSTOP past the lease: what it completes late is not kept, the successor's result is."""
    holder = spawn(claim_and_report, valkey.url, 1)
    assert holder.line() == "claimed"
    holder.freeze()
    with Dibs(valkey.url, budget=5) as dibs:
        eventually(lambda: free(dibs), within=90)
        before = valkey.client().get("order:1")
        holder.thaw()
        holder.tell()
        assert holder.line() == "False"
        assert valkey.client().get("order:1") == before
        assert replayed(dibs) == "mine"


# ---- threads


def test_threads_race_for_one_claim(valkey: Server) -> None:
    """Sixteen threads, one Dibs, two payloads: one runs, the others are refused or mismatched."""
    with Dibs(valkey.url, budget=20, on_outage="closed") as dibs, ThreadPoolExecutor(16) as pool:
        start = threading.Barrier(16)

        def submit(thread: int, number: int) -> str:
            start.wait()
            payload = {"thread": thread % 2}
            try:
                with dibs.claim(f"order:{number}", window=60, after="hold", payload=payload):
                    return "ran"
            except DibsError as error:
                return type(error).__name__

        for number in range(40):
            seen = Counter(pool.map(submit, range(16), [number] * 16))
            assert seen["ran"] == 1 and set(seen) <= {"ran", "Duplicate", "Mismatch"}
            with pytest.raises((Duplicate, Mismatch)):
                with dibs.claim(f"order:{number}", window=60, payload={"thread": 0}):
                    pytest.fail("done twice")
    assert open_claims() == 0 and len(valkey.keys()) == 40


# ---- one claim object for many


async def test_one_claim_object_in_many_blocks_at_once(valkey: Server) -> None:
    """Shared like a lock, by tasks that begin together: never two inside, no raw exception."""
    inside = most = 0

    async def enter(shared: Any) -> str:
        nonlocal inside, most
        try:
            async with shared:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.005)
                inside -= 1
                return "inside"
        except (Duplicate, UsageError) as error:
            return type(error).__name__

    async with AsyncDibs(valkey.url, budget=5) as dibs, AsyncDibs("redis://127.0.0.1:1") as out:
        async with dibs.claim("order:2", window=60, after="replay") as claim:
            claim.complete(17)
        for shared in (
            dibs.claim("order:1", window=60),
            dibs.claim("order:2", window=60, after="replay"),
            out.claim("order:3", window=60),
        ):
            seen = await asyncio.gather(*[enter(shared) for _ in range(5)])
            assert seen.count("inside") >= 1 and set(seen) <= {
                "inside",
                "Duplicate",
                "UsageError",
            }
            assert most == 1 and open_claims() == 0
            assert await enter(shared) == "inside", "one after the other is fine"


# ---- cancelled


async def released(dibs: AsyncDibs) -> None:
    async with dibs.claim("order:1", window=600, lease=60):
        await asyncio.sleep(0)


async def kept(dibs: AsyncDibs) -> None:
    async with dibs.claim("order:1", window=600, lease=60, after="replay") as claim:
        await asyncio.sleep(0)
        claim.complete("all of it")


async def kept_on_error(dibs: AsyncDibs) -> None:
    async with dibs.claim("order:1", window=600, lease=60, after="hold", on_error="hold"):
        await asyncio.sleep(0)


async def renewed(dibs: AsyncDibs) -> None:
    # Long enough not to be lost on a busy machine, short enough to be renewed inside.
    async with dibs.claim("order:1", window=600, lease=0.6):
        await asyncio.sleep(0.25)


async def nested(dibs: AsyncDibs) -> None:
    async with dibs.claim("order:1", window=600, lease=60, after="replay") as outer:
        async with dibs.claim("order:2", window=600, lease=60, after="hold"):
            await asyncio.sleep(0)
        outer.complete("all of it")


SCENARIOS = [released, kept, kept_on_error, renewed, nested]


def nothing_runs(server: Server) -> bool:
    """Every key is free, or says that it is done; and what is kept is whole."""
    for key in server.keys():
        value = server.client().get(key) or b"dibs1 done"
        if not value.startswith(b"dibs1 done"):
            return False
        assert value.count(b"\n") < 2 or value.endswith(b'"all of it"')
    return True


@pytest.mark.parametrize("warm", [False, True], ids=["connecting", "connected"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_claim_is_cancelled_at_every_suspension(
    valkey: Server, scenario: Scenario, warm: bool
) -> None:
    """At the k-th suspension, for every k: CancelledError reaches the caller, and nothing is left
    running, in the store or here."""
    for step in range(MOST_STEPS):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            if warm:
                await dibs.peek("warm:up")
            was_cancelled = await run_cancelled_at(step, scenario(dibs))
            assert open_claims() == 0
            await aeventually(lambda: nothing_runs(valkey))
            if not was_cancelled:
                assert step > 0
                return
        valkey.client().flushall()
    pytest.fail("there was no end to the suspensions")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_claim_is_cancelled_after_every_tick(valkey: Server, scenario: Scenario) -> None:
    """From outside, after k loop ticks: replies may be there already, and not yet seen."""
    for ticks in range(25):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            await dibs.peek("warm:up")
            await cancelled_after(ticks, scenario(dibs))
        assert open_claims() == 0
        await aeventually(lambda: nothing_runs(valkey))
        valkey.client().flushall()


@pytest.mark.parametrize("after", ["hold", "replay"])
async def test_cancelled_when_the_work_is_done(valkey: Server, after: After) -> None:
    """The block ended well, and the cancellation came while that was being said: it is done all
    the same, with its result, and never done again."""
    for step in range(MOST_STEPS):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            claiming = dibs.claim("order:1", window=600, lease=60, after=after)
            claim = await claiming.__aenter__()
            claim.complete("all of it")

            async def end(step: int = step, claiming: Any = claiming) -> bool:
                return await cancelled_at(step, claiming.__aexit__(None, None, None))

            task = asyncio.ensure_future(end())
            await asyncio.wait([task])
            await aeventually(lambda: nothing_runs(valkey))
            value = valkey.client().get("order:1")
            assert value is not None and value.startswith(b"dibs1 done")
            assert (b"all of it" in value) == (after == "replay")
            if not task.cancelled():
                assert step > 0
                return
        valkey.client().flushall()
    pytest.fail("there was no end to the suspensions")


async def test_cancelled_while_the_line_breaks(valkey: Server) -> None:
    """Cancelled at the end, and then the line breaks: it is delivered on the next one."""
    with FaultProxy(valkey.port) as proxy:
        for number in range(3):
            async with AsyncDibs(proxy.url, budget=5) as dibs:
                claiming = dibs.claim(f"order:{number}", window=600, lease=60, after="replay")
                claim = await claiming.__aenter__()
                claim.complete("all of it")
                proxy.delay(requests=0.05, replies=0.05)
                task = asyncio.ensure_future(claiming.__aexit__(None, None, None))
                await asyncio.sleep(0.02 * number)
                task.cancel()
                proxy.cut()
                await asyncio.wait([task])
                proxy.heal()
                await aeventually(lambda: nothing_runs(valkey))
                assert b"all of it" in (valkey.client().get(f"order:{number}") or b"")


@pytest.mark.parametrize("fate", ["ours", "free", "full", "free and full"])
async def test_cancelled_at_any_moment_of_its_end(own_server: Server, fate: str) -> None:
    """It succeeded, and is cancelled while that is recorded: it counts as done, at every await."""
    client = own_server.client()
    async with AsyncDibs(own_server.url, budget=5) as dibs:
        for step in range(MOST_STEPS):
            client.config_set("maxmemory", 0)
            own_server.flush()
            claim = await dibs.claim("order:1", window=60, after="replay").__aenter__()
            claim.complete(17)
            if "free" in fate:
                own_server.flush()
            if "full" in fate:
                client.config_set("maxmemory", 1)

            async def end(claim: Any = claim) -> None:
                await claim.finish()

            was_cancelled = await run_cancelled_at(step, end())
            await aeventually(lambda: (client.get("order:1") or b"").startswith(b"dibs1 done "))
            if not was_cancelled:
                break
        assert 0 < step < MOST_STEPS - 1
