"""Many processes, one key: never two inside, whatever happens to a holder."""

import json
from collections.abc import Callable
from itertools import pairwise

from dibs import Dibs
from dibs.testing import Child, Server, eventually

Spawn = Callable[..., Child]


def contend_by_tasks(url: str, tasks: int, rounds: int) -> list[list[float]]:
    import asyncio
    import time

    from dibs import AsyncDibs

    async def main() -> list[list[float]]:
        inside: list[list[float]] = []
        async with AsyncDibs(url, budget=10, on_outage="closed") as dibs:

            async def contender() -> None:
                for _ in range(rounds):
                    async with dibs.hold("race:1", ttl=30, wait=60, fence=True) as lease:
                        start = time.monotonic()
                        await asyncio.sleep(0.0005)
                        inside.append([start, time.monotonic(), lease.fence])

            await asyncio.gather(*[contender() for _ in range(tasks)])
        return inside

    return asyncio.run(main())


def contend_by_threads(url: str, threads: int, rounds: int) -> list[list[float]]:
    import time
    from concurrent.futures import ThreadPoolExecutor

    from dibs import Dibs

    inside: list[list[float]] = []
    with Dibs(url, budget=10, on_outage="closed") as dibs:

        def contender(_: int) -> None:
            for _ in range(rounds):
                with dibs.hold("race:1", ttl=30, wait=60, fence=True) as lease:
                    start = time.monotonic()
                    time.sleep(0.0005)
                    inside.append([start, time.monotonic(), lease.fence])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(contender, range(threads)))
    return inside


def test_125_contenders_in_four_processes_never_overlap(server: Server, spawn: Spawn) -> None:
    """Tasks and threads, four processes, one key: no two inside at once, fences in order."""
    url = server.url
    children = [
        spawn(contend_by_tasks, url, 50, 4),
        spawn(contend_by_tasks, url, 50, 4),
        spawn(contend_by_threads, url, 13, 4),
        spawn(contend_by_threads, url, 12, 4),
    ]
    inside = sorted(each for child in children for each in child.result(within=90))
    assert len(inside) == 125 * 4
    for (_, left, fence), (entered, _, next_fence) in pairwise(inside):
        assert left <= entered, "two were inside at once"
        assert fence < next_fence, "a later holder has a smaller fence"
    assert "race:1" not in server.keys()


def hold_and_report(url: str) -> None:
    import sys

    from dibs import Dibs

    with Dibs(url, budget=5) as dibs:
        lease = dibs.try_hold("race:1", ttl=1)
        print(lease is not None, flush=True)
        sys.stdin.readline()
        assert lease is not None
        print(lease.lost, lease.release(), flush=True)


def test_a_paused_holder_cannot_release_its_successor(valkey: Server, spawn: Spawn) -> None:
    """SIGSTOP a holder past its ttl: its late release is False and leaves the successor's key."""
    holder = spawn(hold_and_report, valkey.url)
    assert holder.line() == "True"
    holder.freeze()
    with Dibs(valkey.url, budget=5) as dibs, dibs.hold("race:1", ttl=60, wait=10) as lease:
        holder.thaw()
        holder.tell()
        assert holder.line() == "True False"
        assert valkey.client().get("race:1") == lease.token.encode()
        assert not lease.lost


def test_a_killed_holder_is_followed_after_its_ttl(valkey: Server, spawn: Spawn) -> None:
    """SIGKILL a holder: the key is free when its lease ends, and a waiter gets it then."""
    holder = spawn(hold_and_report, valkey.url)
    assert holder.line() == "True"
    holder.kill()
    with Dibs(valkey.url, budget=5) as dibs, dibs.hold("race:1", ttl=5, wait=10) as lease:
        assert lease.guarded


def fork_with_a_lease(url: str) -> dict[str, object]:
    import os

    from dibs import Dibs

    dibs = Dibs(url, budget=5)
    with dibs.hold("race:1", ttl=30, renew=True) as lease:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                facts = [lease.lost, lease.release(), lease.extend(5)]
                facts += [dibs.try_hold("race:1", ttl=5) is None]
                mine = dibs.try_hold("race:2", ttl=5)
                facts += [mine is not None and mine.release()]
                os.write(writer, repr(facts).encode())
            finally:
                os._exit(0)
        os.close(writer)
        child = os.read(reader, 1000).decode()
        os.waitpid(pid, 0)
        mine = dibs.try_hold("race:3", ttl=5)
        still = not lease.lost and mine is not None and mine.release()
    dibs.close()
    return {"child": child, "parent": still}


def test_a_forked_child_leaves_its_parents_lease_alone(valkey: Server, spawn: Spawn) -> None:
    """After fork the child never releases, extends or renews the parent's lease.

    It does not share its parent's connection either; it opens its own, and the parent continues.
    """
    said = spawn(fork_with_a_lease, valkey.url).result()
    # In the child: lost, not released, not extended, the key is busy (the parent's), own key works.
    assert said == {"child": "[True, False, False, True, True]", "parent": True}
    eventually(lambda: valkey.keys() == [])


def fork_with_asyncio(url: str) -> object:
    import asyncio
    import os

    from dibs import AsyncDibs

    async def in_child(dibs: AsyncDibs) -> bool:
        async with dibs.hold("race:2", ttl=5) as lease:
            return lease.guarded

    async def main() -> object:
        async with AsyncDibs(url, budget=5) as dibs, dibs.hold("race:1", ttl=30) as lease:
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    asyncio.events._set_running_loop(None)
                    facts = [lease.lost, asyncio.run(in_child(dibs))]
                    os.write(writer, repr(facts).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            child = os.read(reader, 1000).decode()
            os.waitpid(pid, 0)
            mine = await dibs.try_hold("race:3", ttl=5)
            return [child, mine is not None and await mine.release(), not lease.lost]

    return asyncio.run(main())


def test_a_forked_child_of_an_event_loop_has_its_own_connection(
    valkey: Server, spawn: Spawn
) -> None:
    """The same for asyncio: the child has its own loop, and the parent's connection is not
    disturbed."""
    said = spawn(fork_with_asyncio, valkey.url).result()
    assert json.dumps(said) == json.dumps(["[True, True]", True, True])


def fork_in_an_outage(port: int) -> list[str]:
    import logging
    import os

    from dibs import Dibs
    from dibs.testing import FaultProxy

    with FaultProxy(port) as proxy, Dibs(proxy.url) as dibs:
        dibs.peek("race:1")
        proxy.refuse()
        proxy.cut()
        with dibs.hold("race:1", ttl=5) as lease:
            assert not lease.guarded
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                log = os.fdopen(writer, "w")
                logging.basicConfig(level=logging.INFO, format="%(levelname)s", stream=log)
                with dibs.hold("race:1", ttl=5) as lease:
                    assert not lease.guarded
                log.flush()
            finally:
                os._exit(0)
        os.close(writer)
        said = os.read(reader, 1000).decode().split()
        os.waitpid(pid, 0)
    return said


def test_a_forked_child_logs_the_outage_for_itself(valkey: Server, spawn: Spawn) -> None:
    """Its parent had logged one before the fork: the child has its own."""
    assert spawn(fork_in_an_outage, valkey.port).result() == ["WARNING"]


def fork_with_a_leader_and_a_scheduler(url: str) -> list[object]:
    """Whether there is a leader after a child has left the block, and what that child logged."""
    import logging
    import os
    import sys

    from dibs import Dibs, LeaseLost

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dibs").addHandler(handler)
    dibs, (reader, writer) = Dibs(url, budget=5), os.pipe()
    dibs.scheduled(every=3600, key="hourly")(print)
    try:
        with dibs.leader("indexer", ttl=60), dibs.scheduler(drain=60):
            pid = os.fork()
            if pid == 0:
                lines.clear()
                sys.exit()
            os.close(writer)
            child = os.read(reader, 1000).decode()
            os.waitpid(pid, 0)
            is_led = dibs.peek("indexer") is not None
    except (SystemExit, LeaseLost):
        os.write(writer, repr(lines).encode())
        os._exit(0)
    dibs.close()
    return [is_led, child]


def test_a_forked_child_that_leaves_the_block_ends_neither_leader_nor_scheduler(
    valkey: Server, spawn: Spawn
) -> None:
    """It does not wait for the threads of its parent, and reports no leader as deposed."""
    assert spawn(fork_with_a_leader_and_a_scheduler, valkey.url).result() == [True, "[]"]
