"""A hundred contenders in five processes, some of them killed: never more than the limit inside."""

import json
import time
from collections.abc import Callable
from itertools import accumulate, zip_longest
from pathlib import Path

import pytest

from dibs import AsyncDibs
from dibs.testing import Child, Server, eventually

Spawn = Callable[..., Child]
LIMIT = 3
TTL = 1.5


def contend(url: str, file: str, limit: int, ttl: float, tasks: int, rounds: int) -> int:
    """Hold a permit so many times in so many tasks, and write down when it was surely held."""
    import asyncio
    import json
    import os
    import time

    from dibs import AsyncDibs

    written = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(kind: str, at: float, *name: int) -> None:
        os.write(written, json.dumps([kind, at, *name]).encode() + b"\n")

    async def main() -> int:
        done = 0
        async with AsyncDibs(url, budget=20, on_outage="closed") as dibs:

            async def contender(number: int) -> None:
                nonlocal done
                for turn in range(rounds):
                    async with dibs.hold("race:1", ttl=ttl, limit=limit, wait=90) as lease:
                        write("in", time.monotonic(), number, turn)
                        await asyncio.sleep(0.002)
                        # The lease had not ended at a moment that came before this look at it.
                        end = time.monotonic()
                        if not lease.lost:
                            write("out", end, number, turn)
                    done += 1

            await asyncio.gather(*[contender(number) for number in range(tasks)])
        return done

    return asyncio.run(main())


def most_inside(files: list[Path], killed_at: list[float]) -> tuple[int, int]:
    """How many permits were held at one moment at most, and how many there were.

    Who was killed held its permits until then, if that was well within their ttl.
    """
    moments: list[tuple[float, int]] = []
    for file, killed in zip_longest(files, killed_at):
        begun: dict[tuple[int, ...], float] = {}
        for kind, at, *name in map(json.loads, file.read_text().splitlines()):
            if kind == "in":
                begun[tuple(name)] = at
            else:
                moments += [(begun.pop(tuple(name)), 1), (at, -1)]
        if killed is not None:
            held = [at for at in begun.values() if at <= killed < at + TTL / 2]
            moments += [moment for at in held for moment in ((at, 1), (killed, -1))]
    inside = list(accumulate(step for _, step in sorted(moments)))
    return max(inside), len(moments) // 2


@pytest.mark.parametrize("killed", [0, 2], ids=["nobody killed", "two killed"])
def test_100_contenders_in_five_processes_never_exceed_the_limit(
    valkey: Server, spawn: Spawn, tmp_path: Path, killed: int
) -> None:
    """Checked by what each wrote down; a killed holder's permits come back after their ttl."""
    files = [tmp_path / f"{number}.jsonl" for number in range(5)]
    children = [
        spawn(contend, valkey.url, str(file), LIMIT, TTL, 20, 5 if number >= killed else 10_000)
        for number, file in enumerate(files)
    ]
    killed_at: list[float] = []
    for number in range(killed):
        eventually(lambda number=number: _lines(files[number]) > 3, within=60)
        killed_at.append(time.monotonic())
        children[number].kill()
    for child in children[killed:]:
        assert child.result(within=120) == 100
    most, permits = most_inside(files, killed_at)
    assert permits >= 100 * (5 - killed) and 1 <= most <= LIMIT
    eventually(lambda: not valkey.client().exists("race:1"), within=TTL + 10)


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


async def test_all_permits_are_used_at_once(valkey: Server) -> None:
    """No caller waits while a permit is free: with as many as there are permits, all are inside."""
    import asyncio

    inside, most, all_used = 0, 0, asyncio.Event()
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:

        async def contender(dibs: AsyncDibs) -> None:
            nonlocal inside, most
            for _ in range(5):
                async with dibs.hold("race:1", ttl=60, limit=LIMIT, wait=60):
                    inside += 1
                    most = max(most, inside)
                    if inside == LIMIT:
                        all_used.set()
                    await asyncio.wait_for(all_used.wait(), 30)
                    await asyncio.sleep(0.03)
                    inside -= 1

        since = time.monotonic()
        await asyncio.gather(*[contender(dibs) for dibs in (one, two) for _ in range(6)])
    assert most == LIMIT and time.monotonic() - since < 60
