"""Five processes, one key: never more than limit and burst in any window, with connections cut."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dibs import AsyncDibs
from dibs.testing import Child, FaultProxy, Server, aeventually, eventually

Spawn = Callable[..., Child]
LIMIT, PER, BURST = 20, 1.0, 10


def call_by_threads(url: str, number: int) -> list[list[float]]:
    import time
    from concurrent.futures import ThreadPoolExecutor

    from dibs import Busy, Dibs, Unavailable

    calls: list[list[float]] = []
    with Dibs(url, budget=0.5, on_outage="closed") as dibs:

        def call(_: int) -> None:
            asked = time.monotonic()
            try:
                dibs.throttle("race:1", limit=20, per=1.0, burst=10)
                calls.append([asked, time.monotonic()])
            except Busy as error:
                time.sleep(min(error.retry_after, 0.02))
            except Unavailable:
                time.sleep(0.02)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(call, range(number)))
    return calls


def call_by_tasks(url: str, number: int) -> list[list[float]]:
    import asyncio
    import time

    from dibs import AsyncDibs, Busy, Unavailable

    calls: list[list[float]] = []

    async def main() -> None:
        async with AsyncDibs(url, budget=0.5, on_outage="closed") as dibs:

            async def caller() -> None:
                for _ in range(number // 4):
                    asked = time.monotonic()
                    try:
                        await dibs.throttle("race:1", limit=20, per=1.0, burst=10)
                        calls.append([asked, time.monotonic()])
                    except Busy as error:
                        await asyncio.sleep(min(error.retry_after, 0.02))
                    except Unavailable:
                        await asyncio.sleep(0.02)

            await asyncio.gather(*[caller() for _ in range(4)])

    asyncio.run(main())
    return calls


def test_five_processes_never_have_more_than_limit_and_burst(
    own_server: Server, spawn: Spawn
) -> None:
    """Connections are cut, replies lost, processes stopped, and the server as well; counted are
    calls that lie within one window."""
    with FaultProxy(own_server.port) as line:
        kinds = (call_by_threads, call_by_tasks, call_by_threads, call_by_tasks, call_by_threads)
        children = [spawn(kind, line.url, 400) for kind in kinds]
        for stopped in children[:4]:  # while they call, which takes them two seconds at least
            line.swallow_replies(2, match=b"race:1")
            eventually(lambda: line.triggered > 0, within=60)
            stopped.freeze()
            own_server.freeze()
            line.cut()
            line.heal()
            before = line.requests
            eventually(lambda: line.requests > before or line.open == 0)  # noqa: B023
            own_server.thaw()
            stopped.thaw()
        calls = [tuple(call) for child in children for call in child.result()]
    assert len(calls) > LIMIT + BURST
    for start, _ in calls:
        inside = [1 for asked, answered in calls if start <= asked and answered <= start + PER]
        assert len(inside) <= LIMIT + BURST


async def test_who_gives_up_gives_its_turn_back(valkey: Server) -> None:
    """Cancelled while it waited: those who come later do not wait for nobody."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        await dibs.throttle("race:2", limit=1, per=100, burst=1)
        before = valkey.client().pttl("race:2")
        waiting = asyncio.create_task(dibs.throttle("race:2", limit=1, per=100, burst=1, wait=500))
        await aeventually(lambda: valkey.client().pttl("race:2") > before)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await aeventually(lambda: valkey.client().pttl("race:2") <= before)


async def test_who_gives_up_gives_back_its_tokens_and_its_call(valkey: Server) -> None:
    """Of a rate of tokens and one of calls: there was no such call."""
    rates: dict[str, Any] = {"limit": 1000, "per": 3600, "also": [(2, 3600, 1)]}
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        await dibs.throttle("race:3", cost=600, **rates)
        before = valkey.client().get("race:3")
        waiting = asyncio.create_task(dibs.throttle("race:3", cost=600, wait=9999, **rates))
        await aeventually(lambda: valkey.client().get("race:3") != before)
        counted = valkey.client().get("race:3")
        waiting.cancel()
        await asyncio.wait([waiting])
        await aeventually(lambda: valkey.client().get("race:3") != counted)
        assert (await dibs.throttle("race:3", cost=400, **rates)).left == 0


@pytest.mark.parametrize("options", [{"burst": 1}, {"exact": True}])
async def test_a_look_beside_one_who_waits_is_not_refused(
    valkey: Server, options: dict[str, Any]
) -> None:
    """Nothing is left, and that is no refusal."""
    rate: dict[str, Any] = {"limit": 1, "per": 3600, **options}
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        await dibs.throttle("race:4", **rate)
        before = valkey.client().pttl("race:4")
        waiting = asyncio.create_task(dibs.throttle("race:4", wait=9999, **rate))
        await aeventually(lambda: valkey.client().pttl("race:4") > before)
        assert (await dibs.throttle("race:4", cost=0, **rate)).left == 0
        waiting.cancel()
        await asyncio.wait([waiting])
