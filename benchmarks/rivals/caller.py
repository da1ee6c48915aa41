"""One process that uses one library: it reads orders from its input, and writes what happened.

    python caller.py LIBRARY SETTING URL

Runs in the library's own environment. An order is a line of JSON; so is an answer. Besides the
answers it writes a line when work *begins*: who kills this process knows then that it is at it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import sys
import threading
import time
from typing import Any

from libraries import LIBRARIES, Library, Refused

_writing = threading.Lock()


def write(**facts: Any) -> None:
    """Write a line, whole, also from several threads."""
    with _writing:
        os.write(1, f"{json.dumps(facts)}\n".encode())


class Caller:
    """The calls of one library."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def answer(self, order: dict[str, Any]) -> None:
        """Carry out an order, and write its answer."""
        number = order.pop("number")
        try:
            write(number=number, answer=await getattr(self, order.pop("do"))(**order))
        except Exception as error:
            write(number=number, broken=f"{type(error).__name__}: {error}"[:300])

    async def call(
        self, verb: str, key: str, *, work: float = 0, times: int = 1, cap: float = 70
    ) -> list[dict[str, Any]]:
        """Make *times* calls at once, whose work takes *work* seconds."""
        calls = (self._timed(verb, key, work, cap) for _ in range(times))
        return list(await asyncio.gather(*calls))

    async def _timed(self, verb: str, key: str, work: float, cap: float) -> dict[str, Any]:
        began = time.perf_counter()
        call = asyncio.ensure_future(self._made(verb, key, work))
        done, _ = await asyncio.wait([call], timeout=cap)
        facts: dict[str, Any] = {"took": time.perf_counter() - began}
        if not done:
            call.cancel()
            return facts | {"outcome": "no answer"}
        error = call.exception()
        if error is None:
            return facts | {"outcome": "ok", "value": call.result()}
        return facts | told(error)

    async def _made(self, verb: str, key: str, seconds: float) -> Any:
        def work() -> str:
            write(began=verb)
            time.sleep(seconds)
            return "paid"

        library = self._library
        if verb == "throttle":
            made = getattr(library, verb)
            return await made(key, 20) if library.is_async else await self._run(made, key, 20)
        if verb != "lock":
            made = getattr(library, verb)
            return await made(key, work) if library.is_async else await self._run(made, key, work)
        if library.is_async:
            async with library.lock(key):  # type: ignore[attr-defined]
                return await asyncio.to_thread(work)

        def hold() -> str:
            with library.lock(key):  # type: ignore[attr-defined]
                return work()

        return await self._run(hold)

    async def _run(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.to_thread(function, *arguments)

    async def spend(self, key: str, seconds: float) -> dict[str, Any]:
        """Call as often as the limit allows, for that long; return when each was granted."""
        granted: list[float] = []
        refused: list[float] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            answer = await self._timed("throttle", key, 0, 70)
            if answer["outcome"] == "ok":
                granted.append(time.time())
            elif "retry_after" in answer or answer["outcome"] == "Refused":
                refused.append(answer["took"])
                await asyncio.sleep(max(0.002, answer.get("retry_after") or 0))
            else:
                return {"broken": answer["outcome"]}
        return {"granted": granted, "refused": refused}

    async def order(self, key: str, database: str, stop: str) -> dict[str, Any]:
        """Place an order in a database; wait for ever at *stop*, a moment before or after."""

        def reach(moment: str) -> None:
            if moment == stop:
                write(began=moment)
                time.sleep(3600)

        began = time.perf_counter()
        made = self._library.order  # type: ignore[attr-defined]
        try:
            facts: dict[str, Any] = {
                "outcome": "ok",
                "value": await self._run(made, key, database, reach),
            }
        except Exception as error:
            facts = told(error)
        return facts | {"took": time.perf_counter() - began}


def told(error: BaseException) -> dict[str, Any]:
    """Return what an exception tells its caller."""
    facts: dict[str, Any] = {"outcome": type(error).__name__, "says": str(error)[:200]}
    for name in ("retry_after", "retry_after_seconds"):
        if isinstance(seconds := getattr(error, name, None), int | float):
            facts["retry_after"] = seconds
    return facts


async def main() -> None:
    """Serve orders until the input ends."""
    name, setting, url = sys.argv[1:4]
    loop = asyncio.get_running_loop()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(240))
    library = LIBRARIES[name](url, setting)
    await library.open()
    caller = Caller(library)
    orders: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(orders.put_nowait, json.loads(line))
        os._exit(0)  # whoever gave orders is gone; what hangs in a thread is not waited for

    threading.Thread(target=read, daemon=True).start()
    write(ready=os.getpid())
    running = set[asyncio.Task[None]]()
    while (order := await orders.get()) is not None:
        task = loop.create_task(caller.answer(order))
        running.add(task)
        task.add_done_callback(running.discard)


__all__ = ["Refused", "main"]

if __name__ == "__main__":
    asyncio.run(main())
