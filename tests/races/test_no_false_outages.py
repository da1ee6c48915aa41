"""No unguarded grant and no outage event while the server is healthy, however busy the client is.

The budget measures the silence of the server. Work of the process itself, a pause of the process,
a long queue or a large reply are not silence. A server that hangs still costs one budget, once.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, Duplicate, Event
from dibs._transport.handshake import open_async
from dibs._transport.multiplexed import AsyncConnection
from dibs.testing import Child, FaultProxy, Server, aeventually, eventually
from tests.topologies import open_slot, slot_of, start_cluster

Start = Callable[..., Server]
Spawn = Callable[..., Child]

ROUNDS = 3
LARGE = 5_000_000
LINE_RATE = 3_250_000  # bytes per second: a line of about 25 Mbit/s
BUDGET = 0.25  # the default
SLACK = 3.0  # what a loaded machine may add, in seconds; far less than twenty budgets


class Report:
    """Counts the events of a `Dibs`, and the leases that it handed out unguarded."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.causes: set[str] = set()
        self.grants: list[bool] = []

    def __call__(self, event: Event) -> None:
        self.events[event.kind] += 1
        if event.kind in ("outage", "recovered"):
            self.causes.add(str(event.cause))

    def granted(self, lease: Any) -> None:
        """Note whether a lease is guarded; a refusal is not a grant."""
        if lease is not None:
            self.grants.append(bool(lease.guarded))

    def assert_healthy(self, grants: int) -> None:
        """As many guarded grants as that, and not one event of an outage."""
        unguarded = self.grants.count(False)
        assert unguarded == 0, f"{unguarded} of {len(self.grants)} unguarded: {self.causes}"
        assert len(self.grants) == grants
        assert not {"outage", "recovered"} & self.events.keys(), self.causes


def burn(seconds: float) -> None:
    """Keep the processor, and the GIL, busy."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def until_connected(dibs: AsyncDibs) -> None:
    """Open the connection, so that what follows meets a client that has one."""
    async with dibs.hold("warm:up", ttl=5, name="warm"):
        pass


# ---------------------------------------------------------------------------------- a busy process


@pytest.mark.parametrize(("tasks", "work"), [(300, 0.001), (100, 0.005), (40, 0.010)])
async def test_tasks_that_block_the_loop_are_not_an_outage(
    valkey: Server, tasks: int, work: float
) -> None:
    """Many tasks, each with a little blocking work in its body: every hold is guarded."""
    report = Report()
    async with AsyncDibs(valkey.url, listeners=[report]) as dibs:

        async def hold(number: int) -> None:
            for _ in range(ROUNDS):
                async with dibs.hold(f"job:{number}", ttl=60) as lease:
                    report.granted(lease)
                    time.sleep(work)

        await asyncio.gather(*(hold(number) for number in range(tasks)))
    report.assert_healthy(tasks * ROUNDS)


@pytest.mark.parametrize(("threads", "work"), [(50, 0.005), (20, 0.020)])
def test_threads_that_compete_for_the_interpreter_are_not_an_outage(
    valkey: Server, threads: int, work: float
) -> None:
    """Many threads, each with a little computing in its body: every hold is guarded."""
    report = Report()
    start = threading.Barrier(threads)
    with Dibs(valkey.url, listeners=[report]) as dibs, ThreadPoolExecutor(threads) as pool:

        def hold(number: int) -> None:
            start.wait()
            for _ in range(ROUNDS):
                with dibs.hold(f"job:{number}", ttl=60) as lease:
                    report.granted(lease)
                    burn(work)

        list(pool.map(hold, range(threads)))
    report.assert_healthy(threads * ROUNDS)


@pytest.mark.parametrize("connected", [True, False])
async def test_ten_holds_in_one_tick_beside_a_slow_callback_are_one_holder(
    valkey: Server, connected: bool
) -> None:
    """A callback blocks the loop for longer than the budget: one hold is granted, nine refused."""
    report = Report()
    async with AsyncDibs(valkey.url, listeners=[report]) as dibs:
        if connected:
            await until_connected(dibs)
        taps = [asyncio.ensure_future(dibs.try_hold("checkout:1", ttl=60)) for _ in range(10)]
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)
        for lease in await asyncio.gather(*taps):
            report.granted(lease)
    report.assert_healthy(1)


async def test_ten_claims_in_one_tick_beside_a_slow_callback_run_once(valkey: Server) -> None:
    """A callback blocks the loop for longer than the budget: one submission, not ten."""
    report, runs = Report(), 0
    async with AsyncDibs(valkey.url, listeners=[report]) as dibs:

        @dibs.once("order:{number}", window=60, after="hold")
        async def submit(number: int) -> None:
            nonlocal runs
            runs += 1

        await until_connected(dibs)
        taps = [asyncio.ensure_future(submit(1)) for _ in range(10)]
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)
        outcomes = await asyncio.gather(*taps, return_exceptions=True)
    assert runs == 1
    assert [type(outcome) for outcome in outcomes].count(Duplicate) == 9
    report.assert_healthy(0)


async def test_a_slot_that_is_half_moved_beside_a_slow_callback_is_guarded(
    start_server: Start,
) -> None:
    """The answer ASK lay unread for longer than the budget: it is followed all the same."""
    servers = start_cluster(start_server)
    slot = slot_of("user:1")
    source = servers[min(slot // (16384 // 3), 2)]
    target = next(server for server in servers if server is not source)
    report = Report()
    url = f"redis+cluster://127.0.0.1:{source.port}"
    async with AsyncDibs(url, listeners=[report]) as dibs:
        async with dibs.hold("{user:1}:before", ttl=60, name="warm"):
            pass
        open_slot(slot, source, target)
        taps = [asyncio.ensure_future(dibs.try_hold("{user:1}:new", ttl=60)) for _ in range(10)]
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)
        for lease in await asyncio.gather(*taps):
            report.granted(lease)
    report.assert_healthy(1)
    assert source.keys() == []


async def test_fifty_thousand_acquires_in_one_tick_are_guarded(
    valkey: Server, spawn: Spawn
) -> None:
    """A queue that takes seconds to write and to read is no outage."""
    report = spawn(acquire_in_one_tick, valkey.url, 50_000).result(within=100)
    assert report == {"guarded": 50_000, "outages": 0}


async def acquire_in_one_tick(url: str, count: int) -> dict[str, int]:
    # In its own process: 50 000 tasks are much garbage for the tests behind it.
    import asyncio

    from dibs import AsyncDibs, Event

    outages: list[Event] = []

    def listen(event: Event) -> None:
        if event.kind == "outage":
            outages.append(event)

    async with AsyncDibs(url, listeners=[listen]) as dibs:
        asked = (dibs.try_hold(f"job:{number}", ttl=60) for number in range(count))
        leases = await asyncio.gather(*asked)
    guarded = sum(lease is not None and lease.guarded for lease in leases)
    return {"guarded": guarded, "outages": len(outages)}


async def test_two_hundred_cold_keys_are_loaded_and_stored_by_tasks(valkey: Server) -> None:
    """A page that loads 200 cold keys at once, 2 ms of decoding each, stores all of them."""
    report, loads = Report(), Counter[int]()
    async with AsyncDibs(valkey.url, listeners=[report]) as dibs:

        @dibs.cached("part:{number}", ttl=60, lock_ttl=30)
        async def part(number: int) -> dict[str, int]:
            loads[number] += 1
            await asyncio.sleep(0)
            time.sleep(0.002)
            return {"number": number}

        parts = await asyncio.gather(*(part(number) for number in range(200)))
    assert parts == [{"number": number} for number in range(200)]
    assert loads == Counter(range(200))
    report.assert_healthy(0)
    assert len(valkey.keys()) == 200, report.events
    assert "degraded" not in report.events


def test_two_hundred_cold_keys_are_loaded_and_stored_by_threads(valkey: Server) -> None:
    """Fifty threads load 200 cold keys, 2 ms of decoding each, and store all of them."""
    report, loads = Report(), Counter[int]()
    with Dibs(valkey.url, listeners=[report]) as dibs, ThreadPoolExecutor(50) as pool:

        @dibs.cached("part:{number}", ttl=60, lock_ttl=30)
        def part(number: int) -> dict[str, int]:
            loads[number] += 1
            burn(0.002)
            return {"number": number}

        parts = list(pool.map(part, range(200)))
    assert parts == [{"number": number} for number in range(200)]
    assert loads == Counter(range(200))
    report.assert_healthy(0)
    assert len(valkey.keys()) == 200, report.events
    assert "degraded" not in report.events


# ----------------------------------------------------------------------------- a slow, large reply


def store_large_value(server: Server) -> None:
    with Dibs(server.url, budget=60) as dibs:

        @dibs.cached("report:{number}", ttl=3600)
        def report(number: int) -> str:
            return "x" * LARGE

        report(1)


async def test_a_large_value_on_a_slow_line_leaves_the_leases_of_tasks_alone(
    valkey: Server, proxy: FaultProxy
) -> None:
    """While 5 MB arrive at 3 MB/s, longer than the budget, every hold is guarded."""
    store_large_value(valkey)
    proxy.throttle(replies=LINE_RATE)
    report, read = Report(), asyncio.Event()
    async with AsyncDibs(proxy.url, budget=1, listeners=[report]) as dibs:

        @dibs.cached("report:{number}", ttl=3600)
        async def large(number: int) -> str:
            raise AssertionError("it was stored")

        async def hold(number: int) -> int:
            rounds = 0
            while not read.is_set():
                async with dibs.hold(f"job:{number}", ttl=60) as lease:
                    report.granted(lease)
                    await asyncio.sleep(0.01)
                rounds += 1
            return rounds

        await until_connected(dibs)
        holds = [asyncio.create_task(hold(number)) for number in range(20)]
        assert await large(1) == "x" * LARGE
        read.set()
        rounds = sum(await asyncio.gather(*holds))
    report.assert_healthy(rounds)


def test_a_large_value_on_a_slow_line_leaves_the_leases_of_threads_alone(
    valkey: Server, proxy: FaultProxy
) -> None:
    """While 5 MB arrive at 3 MB/s, longer than the budget, every hold is guarded."""
    store_large_value(valkey)
    proxy.throttle(replies=LINE_RATE)
    report, read = Report(), threading.Event()
    with Dibs(proxy.url, budget=1, listeners=[report]) as dibs, ThreadPoolExecutor(5) as pool:

        @dibs.cached("report:{number}", ttl=3600)
        def large(number: int) -> str:
            raise AssertionError("it was stored")

        def hold(number: int) -> int:
            rounds = 0
            while not read.is_set():
                with dibs.hold(f"job:{number}", ttl=60) as lease:
                    report.granted(lease)
                    time.sleep(0.01)
                rounds += 1
            return rounds

        holds = [pool.submit(hold, number) for number in range(5)]
        try:
            assert large(1) == "x" * LARGE
        finally:
            read.set()
        rounds = sum(future.result() for future in holds)
    report.assert_healthy(rounds)


# -------------------------------------------------------------------------------- a paused process


async def hold_in_tasks(url: str) -> dict[str, object]:
    import asyncio

    from dibs import AsyncDibs, Event

    causes: list[str] = []
    guarded: list[bool] = []
    stopped = asyncio.Event()

    def listen(event: Event) -> None:
        if event.kind == "outage":
            causes.append(str(event.cause))

    async with AsyncDibs(url, budget=1, listeners=[listen]) as dibs:

        async def hold(number: int) -> None:
            while not stopped.is_set():
                async with dibs.hold(f"job:{number}", ttl=60) as lease:
                    guarded.append(lease.guarded)

        holds = [asyncio.create_task(hold(number)) for number in range(8)]
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.to_thread(input)
        stopped.set()
        await asyncio.gather(*holds)
    return {"unguarded": guarded.count(False), "outages": causes, "some": bool(guarded)}


def hold_in_threads(url: str) -> dict[str, object]:
    import threading
    import time

    from dibs import Dibs, Event

    causes: list[str] = []
    guarded: list[bool] = []
    stopped = threading.Event()

    def listen(event: Event) -> None:
        if event.kind == "outage":
            causes.append(str(event.cause))

    with Dibs(url, budget=1, listeners=[listen]) as dibs:

        def hold(number: int) -> None:
            while not stopped.is_set():
                with dibs.hold(f"job:{number}", ttl=60) as lease:
                    guarded.append(lease.guarded)

        holds = [threading.Thread(target=hold, args=(number,)) for number in range(8)]
        for thread in holds:
            thread.start()
        time.sleep(0.2)
        print("ready", flush=True)
        input()
        stopped.set()
        for thread in holds:
            thread.join()
    return {"unguarded": guarded.count(False), "outages": causes, "some": bool(guarded)}


@pytest.mark.parametrize("work", [hold_in_tasks, hold_in_threads])
def test_a_stopped_and_continued_client_is_not_an_outage(
    proxy: FaultProxy, spawn: Spawn, work: Callable[..., Any]
) -> None:
    """A process stands still for longer than its budget, again and again, amid its calls."""
    proxy.delay(requests=0.005, replies=0.005)  # so that most pauses meet a request on its way
    child = spawn(work, proxy.url)
    assert child.line() == "ready"
    for _ in range(3):
        child.freeze()
        time.sleep(1.2)
        child.thaw()
        time.sleep(0.2)
    child.tell("stop")
    assert json.loads(child.lines()[-1]) == {"unguarded": 0, "outages": [], "some": True}


# --------------------------------------------------------------------------------------------- TLS

FOREIGN, SECONDS = 10, 2.0


async def test_tasks_on_tls_read_every_reply_as_their_own(start_server: Start) -> None:
    """Twenty tasks, no fault: a key that a rival holds is never granted, a free one always."""
    server, report, wrong = start_server("redis7", tls=True), Report(), Counter[str]()
    with Dibs(server.url) as rival:
        rivals = [rival.try_hold(f"foreign:{number}", ttl=60) for number in range(FOREIGN)]
        assert all(lease is not None and lease.guarded for lease in rivals)
        async with AsyncDibs(server.tls_url, listeners=[report]) as dibs:
            end = time.monotonic() + SECONDS

            async def ask(number: int) -> None:
                while time.monotonic() < end:
                    for foreign in range(FOREIGN):
                        taken = await dibs.try_hold(f"foreign:{foreign}", ttl=60)
                        wrong["granted"] += taken is not None
                    lease = await dibs.try_hold(f"own:{number}", ttl=60)
                    wrong["refused"] += lease is None
                    report.granted(lease)
                    if lease is not None:
                        await lease.release()

            await asyncio.gather(*(ask(number) for number in range(20)))
    assert not +wrong
    report.assert_healthy(len(report.grants))


def test_threads_on_tls_read_every_reply_as_their_own(start_server: Start) -> None:
    """Ten threads, no fault: a key that a rival holds is never granted, a free one always."""
    server, report, wrong = start_server("redis7", tls=True), Report(), Counter[str]()
    with Dibs(server.url) as rival, Dibs(server.tls_url, listeners=[report]) as dibs:
        rivals = [rival.try_hold(f"foreign:{number}", ttl=60) for number in range(FOREIGN)]
        assert all(lease is not None and lease.guarded for lease in rivals)
        end = time.monotonic() + SECONDS

        def ask(number: int) -> None:
            while time.monotonic() < end:
                for foreign in range(FOREIGN):
                    wrong["granted"] += dibs.try_hold(f"foreign:{foreign}", ttl=60) is not None
                lease = dibs.try_hold(f"own:{number}", ttl=60)
                wrong["refused"] += lease is None
                report.granted(lease)
                if lease is not None:
                    lease.release()

        with ThreadPoolExecutor(10) as pool:
            list(pool.map(ask, range(10)))
    assert not +wrong
    report.assert_healthy(len(report.grants))


# ---------------------------------------------------------------------------------- a hung server


async def test_a_hung_server_costs_tasks_one_budget_once(own_server: Server) -> None:
    """Twenty tasks wait for one budget together; later callers do not wait."""
    report = Report()
    async with AsyncDibs(own_server.url, budget=BUDGET, listeners=[report]) as dibs:
        await until_connected(dibs)
        own_server.freeze()
        since = time.monotonic()
        leases = await asyncio.gather(*(dibs.try_hold(f"job:{n}", ttl=60) for n in range(20)))
        first = time.monotonic() - since
        leases += [await dibs.try_hold(f"later:{n}", ttl=60) for n in range(20)]
        both = time.monotonic() - since
        assert [lease is not None and lease.guarded for lease in leases] == [False] * 40
        assert BUDGET * 0.9 <= first <= BUDGET + SLACK
        assert both <= BUDGET + SLACK
        own_server.thaw()
        await recovered(dibs)


async def recovered(dibs: AsyncDibs) -> None:
    async with asyncio.timeout(10):
        while not (lease := await dibs.try_hold("after:1", ttl=5)) or not lease.guarded:
            await asyncio.sleep(0.01)


def test_a_hung_server_costs_threads_one_budget_once(own_server: Server) -> None:
    """Twenty threads wait for one budget together; later callers do not wait.

    They are told that the server is silent, not that there are too many of them.
    """
    report = Report()
    with (
        Dibs(own_server.url, budget=BUDGET, listeners=[report]) as dibs,
        ThreadPoolExecutor(20) as pool,
    ):
        with dibs.hold("warm:up", ttl=5):
            pass
        own_server.freeze()
        since = time.monotonic()
        leases = list(pool.map(lambda n: dibs.try_hold(f"job:{n}", ttl=60), range(20)))
        first = time.monotonic() - since
        leases += [dibs.try_hold(f"later:{n}", ttl=60) for n in range(20)]
        both = time.monotonic() - since
        assert [lease is not None and lease.guarded for lease in leases] == [False] * 40
        assert BUDGET * 0.9 <= first <= BUDGET + SLACK
        assert both <= BUDGET + SLACK
        assert report.causes and "saturated" not in report.causes
        own_server.thaw()
        eventually(lambda: (lease := dibs.try_hold("after:1", ttl=5)) and lease.guarded, within=90)


async def test_a_hung_server_is_an_outage_for_a_busy_loop_as_well(own_server: Server) -> None:
    """A loop that is busy four fifths of the time still finds out that the server is silent."""
    async with AsyncDibs(own_server.url, budget=BUDGET) as dibs:
        await until_connected(dibs)
        busy = asyncio.create_task(keep_busy())
        own_server.freeze()
        since = time.monotonic()
        lease = await dibs.try_hold("job:1", ttl=60)
        took = time.monotonic() - since
        busy.cancel()
        assert lease is not None and not lease.guarded
        assert took <= BUDGET + SLACK
        own_server.thaw()
        await recovered(dibs)


async def keep_busy() -> None:
    while True:
        time.sleep(0.02)
        await asyncio.sleep(0.005)


async def test_a_connection_that_is_lost_before_its_first_use_is_not_used(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server closed it when it was just open, as CLIENT KILL does: another one is opened.
    Nothing is ever written to it; asyncio would log every release."""
    opened: list[AsyncConnection] = []

    async def open_and_lose_the_first(*args: Any) -> AsyncConnection:
        connection = await open_async(*args)
        opened.append(connection)
        if len(opened) == 1:
            own_server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await aeventually(lambda: connection.is_closing)
        return connection

    monkeypatch.setattr("dibs._transport.multiplexed.open_async", open_and_lose_the_first)
    async with AsyncDibs(own_server.url, budget=1) as dibs:
        for _ in range(20):
            async with dibs.hold("user:1", ttl=5) as lease:
                assert lease.guarded
    assert len(opened) == 2
    assert not caplog.records
