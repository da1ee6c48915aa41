"""Two threads, each with an event loop, and one `AsyncDibs`: `python -m tests.two_loops 1000`.

It was used before, in a loop that is closed. Then both call it at the same moment, as
`async_to_sync` in threads, Flask's async views and Streamlit do. One of them gets its result, and
the other one, too, or a UsageError. Each verb is tried so often as the argument says.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from dibs import AsyncDibs, UsageError
from dibs.testing import ENGINES, Server

PATIENCE = 20.0
"""Seconds after which a caller is blocked."""
FIRST = 9
REFUSED = "an AsyncDibs belongs to one event loop"

Verb = Callable[[AsyncDibs, int], Awaitable[Any]]


def entered(**options: Any) -> Verb:
    """Hold a key for a moment."""

    async def hold(dibs: AsyncDibs, number: int) -> None:
        async with dibs.hold(f"user:{number}", ttl=3, **options):
            await asyncio.sleep(0)

    return hold


async def claim(dibs: AsyncDibs, number: int) -> None:
    async with dibs.claim(f"order:{number}", window=3, after="hold"):
        await asyncio.sleep(0)


async def lead(dibs: AsyncDibs, number: int) -> None:
    async with dibs.leader(f"poller:{number}", wait=5):
        await asyncio.sleep(0)


async def schedule(dibs: AsyncDibs, number: int) -> None:
    async def tick() -> None:
        pass

    if number == FIRST:  # as at import
        dibs.scheduled(every=1, key="tick", ttl=5)(tick)
    async with dibs.scheduler(drain=1):
        await dibs.peek("user:1")


def of_functions(name: str) -> Verb:
    """Call a function that is decorated anew; the same key in both loops."""

    async def load(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def load_all(numbers: list[int]) -> dict[int, int]:
        return {number: number for number in numbers}

    async def call(dibs: AsyncDibs, number: int) -> None:
        if name == "cached_many":
            await dibs.cached_many("menu:{number}", ttl=3)(load_all)([1, 2, number])
        elif name == "local":
            await dibs.cached("menu:{number}", ttl=3, local=True)(load)(1)
        elif name == "stale":
            await dibs.cached("menu:{number}", ttl=0.001, stale=3)(load)(1)
        elif name == "once":
            await dibs.once("job:{number}", window=3)(load)(number)
        elif name == "exclusive":
            await dibs.exclusive("job:{number}", ttl=3)(load)(number)
        else:
            await dibs.cached("menu:{number}", ttl=3)(load)(1)

    return call


async def get_or_load(dibs: AsyncDibs, number: int) -> None:
    async def load() -> int:
        return number

    await dibs.get_or_load("menu", load, ttl=3)


VERBS: dict[str, Verb] = {
    "hold": entered(),
    "hold wait": entered(wait=2),
    "hold renew": entered(renew=True),
    "hold limit": entered(limit=5),
    "try_hold": lambda dibs, number: dibs.try_hold(f"user:{number}", ttl=0.1),
    "peek": lambda dibs, number: dibs.peek("user:1"),
    "claim": claim,
    "throttle": lambda dibs, number: dibs.throttle("sms", limit=5, per=1),
    "leader": lead,
    "scheduler": schedule,
    "get_or_load": get_or_load,
    "invalidate": lambda dibs, number: dibs.invalidate("menu"),
    "invalidate_tag": lambda dibs, number: dibs.invalidate_tag("menus"),
    **{
        name: of_functions(name)
        for name in ("cached", "local", "stale", "cached_many", "once", "exclusive")
    },
}


def try_once(dibs: AsyncDibs, verb: Verb) -> list[str]:
    """What each of two threads got; "HUNG": nothing."""
    outcomes, gate = ["HUNG", "HUNG"], threading.Barrier(2)

    async def one_after_the_other() -> None:
        await verb(dibs, FIRST)

    def call(number: int) -> None:
        async def work() -> None:
            await verb(dibs, number)

        with asyncio.Runner() as runner:
            runner.get_loop()
            gate.wait()
            try:
                runner.run(work())
                outcomes[number] = "result"
            except UsageError as error:
                outcomes[number] = "refused" if str(error).startswith(REFUSED) else repr(error)
            except BaseException as error:
                outcomes[number] = repr(error)

    asyncio.run(one_after_the_other())
    threads = [threading.Thread(target=call, args=(each,), daemon=True) for each in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if "HUNG" not in outcomes:
        asyncio.run(dibs.aclose())
    return outcomes


def outcomes_of(url: str, name: str, rounds: int) -> Counter[str]:
    """What callers of a verb got, together."""
    seen = Counter[str]()
    for number in range(rounds):
        dibs = AsyncDibs(url, namespace=f"{name}:{number}:", budget=5)
        seen[" + ".join(sorted(try_once(dibs, VERBS[name])))] += 1
        if any("HUNG" in each for each in seen):
            break
    return seen


def broken(seen: Counter[str]) -> list[str]:
    """What should not be: each pair has a result, and nothing else but a refusal."""
    return [each for each in seen if each not in ("result + result", "refused + result")]


def main(rounds: int) -> None:
    wrong = 0
    with Server.start(ENGINES[0]) as server:
        for name in VERBS:
            seen = outcomes_of(server.url, name, rounds)
            wrong += bool(broken(seen))
            print(f"{name}: {dict(seen)}", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main(int(sys.argv[1]))
