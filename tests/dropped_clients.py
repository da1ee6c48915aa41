"""Clients that are dropped without being closed: `python -m tests.dropped_clients 500`.

A notebook creates one in each cell, Streamlit at each click. So many clients of each kind are used
and dropped; ten seconds later no thread and no connection of theirs may be left.
"""

import asyncio
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from dibs import AsyncDibs, Dibs
from dibs.testing import ENGINES, Server

WITHIN = 10.0
"""Seconds after which nothing of a client is left."""


def enter(verb: str, **options: Any) -> Callable[[Any], None]:
    """A verb of a threads client that is entered."""

    def use(dibs: Any) -> None:
        with getattr(dibs, verb)("user:1", **options):
            pass

    return use


def call(verb: str, **options: Any) -> Callable[[Any], None]:
    """A function that is decorated by a threads client, and called."""

    def use(dibs: Any) -> None:
        getattr(dibs, verb)("menu:{number}", **options)(lambda number: number)(time.time_ns())

    return use


def claim(dibs: Dibs) -> None:
    with dibs.claim(f"order:{time.time_ns()}", window=1):
        pass


THREADS: dict[str, Callable[[Any], object]] = {
    "nothing": lambda dibs: None,
    "peek": lambda dibs: dibs.peek("user:1"),
    "hold": enter("hold", ttl=5),
    "hold wait": enter("hold", ttl=5, wait=1),
    "hold renew": enter("hold", ttl=5, renew=True),
    "leader": enter("leader", ttl=5),
    "claim": claim,
    "once": call("once", window=1),
    "throttle": lambda dibs: dibs.throttle("sms", limit=1000, per=1),
    "cached": call("cached", ttl=60),
    "cached local": call("cached", ttl=60, local=True),
}


async def hold(dibs: AsyncDibs, **options: Any) -> None:
    async with dibs.hold("user:1", ttl=5, **options):
        pass


async def cached(dibs: AsyncDibs, **options: Any) -> None:
    async def load(number: int) -> int:
        return number

    await dibs.cached("menu:{number}", ttl=60, **options)(load)(time.time_ns())


ASYNCIO: dict[str, Callable[[AsyncDibs], Any]] = {
    "async peek": lambda dibs: dibs.peek("user:1"),
    "async hold": hold,
    "async hold wait": lambda dibs: hold(dibs, wait=1),
    "async hold renew": lambda dibs: hold(dibs, renew=True),
    "async cached": cached,
    "async cached local": lambda dibs: cached(dibs, local=True),
}


def threads() -> list[str]:
    """The threads of dibs; one of them is shared by all clients."""
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if "dibs" in name and name != "dibs loop watch"]


def connections(server: Server) -> int:
    """Those of other clients than the one that asks."""
    return len(server.client().client_list()) - 1


def left(server: Server, kind: str, number: int, url: str | None = None) -> tuple[int, int, int]:
    """Threads, connections and warnings after so many dropped clients, when none are left or late.

    The warnings say that a client was not closed.
    """
    url = url or server.url
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        if kind in ASYNCIO:
            asyncio.run(_drop_in_a_loop(server, kind, number, url))
        else:
            for _ in range(number):
                THREADS[kind](Dibs(url))
            wait_until_over(server)
        seen = [each for each in caught if "unclosed" in str(each.message)]
    return len(threads()), connections(server), len(seen)


async def _drop_in_a_loop(server: Server, kind: str, number: int, url: str) -> None:
    for _ in range(number):
        await ASYNCIO[kind](AsyncDibs(url))
    until = time.monotonic() + WITHIN
    while (gc.collect(), connections(server))[1] and time.monotonic() < until:
        await asyncio.sleep(0.1)
    assert not connections(server), "connections are left while the loop runs"


def wait_until_over(server: Server, within: float = WITHIN) -> None:
    until = time.monotonic() + within
    while (gc.collect(), threads() or connections(server))[1] and time.monotonic() < until:
        time.sleep(0.1)


def main(number: int) -> None:
    wrong = 0
    with Server.start(ENGINES[0]) as server:
        for kind in (*THREADS, *ASYNCIO):
            at_end = left(server, kind, number)
            wrong += any(at_end[:2])
            print(f"{kind}: {number} dropped; threads, connections, warnings:", *at_end, flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main(int(sys.argv[1]))
