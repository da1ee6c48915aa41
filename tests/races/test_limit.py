"""A hundred contenders in five processes, some of them killed: never more than the limit inside."""

import json
import time
from collections.abc import Callable
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

    async def main() -> int:
        done = 0
        async with AsyncDibs(url, budget=20, on_outage="closed") as dibs:

            async def contender(number: int) -> None:
                nonlocal done
                for _ in range(rounds):
                    async with dibs.hold("race:1", ttl=ttl, limit=limit, wait=90) as lease:
                        # Two lines, so that a kill in between is a permit that began.
                        name = [os.getpid(), number, done]
                        os.write(
                            written, json.dumps(["in", time.monotonic(), *name]).encode() + b"\n"
                        )
                        await asyncio.sleep(0.002)
                        # What is written now was true a moment ago: the lease had not ended then.
                        end, lost = time.monotonic(), lease.lost
                        if not lost:
                            os.write(written, json.dumps(["out", end, *name]).encode() + b"\n")
                    done += 1

            await asyncio.gather(*[contender(number) for number in range(tasks)])
        return done

    return asyncio.run(main())


def most_inside(files: list[Path]) -> tuple[int, int]:
    """How many permits were held at one moment at most, and how many there were."""
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    moments = sorted((at, kind == "in", tuple(name)) for kind, at, *name in lines)
    ended = {name for _, begins, name in moments if not begins}
    inside, most = 0, 0
    for _, begins, name in moments:
        if begins and name not in ended:
            continue  # killed inside: until when it held its permit is not known
        inside += 1 if begins else -1
        most = max(most, inside)
    return most, len(ended)


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
    for number in range(killed):
        eventually(lambda number=number: _lines(files[number]) > 3, within=60)
        children[number].kill()
    for child in children[killed:]:
        assert child.result(within=120) == 100
    most, permits = most_inside(files)
    assert permits >= 100 * (5 - killed) and 1 <= most <= LIMIT
    eventually(lambda: not valkey.client().exists("race:1"), within=TTL + 10)


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


async def test_all_permits_are_used_at_once(valkey: Server) -> None:
    """Nobody waits while a permit is free: with as many as there are permits, all are inside."""
    import asyncio

    inside, most = 0, 0
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:

        async def contender(dibs: AsyncDibs) -> None:
            nonlocal inside, most
            for _ in range(5):
                async with dibs.hold("race:1", ttl=60, limit=LIMIT, wait=60):
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0.03)
                    inside -= 1

        since = time.monotonic()
        await asyncio.gather(*[contender(dibs) for dibs in (one, two) for _ in range(6)])
    assert most == LIMIT and time.monotonic() - since < 60
