"""The `machines` panel: one schedule and one leader on five machines; a limit and a throttle.

GET  /machines/events      Server-Sent Events: `machines`, as they stand
POST /machines/kill/{n}    kill that machine's process    202 · 409: another fault
POST /machines/call        call a slow service, at most three at a time    200
POST /machines/message     send a message, five in ten seconds    200
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from typing import Any

from local_line.streams import Stream
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dibs import AsyncDibs, Busy

from .engine import Engine, reach
from .faults import Faults, Remedy, visitor_of
from .opening import Opening
from .people import Person

MACHINES = tuple(f"machine {number}" for number in range(1, 6))
AT_ONCE = 3
LASTS = 3.0
"""Seconds that a call of the slow service takes."""
MESSAGES, PER = 5, 10
SHOWN = 40.0
"""Seconds for which a run is shown."""
_LOOK_AGAIN = 1.0


class MachinesPanel:
    """Five processes with the same program, started for the first visitor."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        self._machines = {
            name: Person(name, self._hear, "apps.playground.machine") for name in MACHINES
        }
        self._fences: dict[str, int] = {}
        """Who leads, as far as they know themselves."""
        self._runs: deque[tuple[float, str]] = deque(maxlen=100)
        self._news = asyncio.Event()
        self._is_closing = False
        self._open = AsyncExitStack()
        self._page: AsyncDibs
        self._opening = self._new_opening()

    def _new_opening(self) -> "Opening[None]":
        return Opening("computer room", self._start)

    @property
    def routes(self) -> list[Route]:
        """The routes of the panel, below its own path."""
        return [
            Route("/events", self.watch, methods=["GET"]),
            Route("/kill/{number:int}", self.kill, methods=["POST"]),
            Route("/call", self.call, methods=["POST"]),
            Route("/message", self.send_message, methods=["POST"]),
        ]

    # ---- beginning and end

    async def __aenter__(self) -> "MachinesPanel":
        """Connect the page. DibsError: the server does not answer."""
        self._is_closing = False
        self._opening = self._new_opening()
        async with AsyncExitStack() as opening:
            opening.push_async_callback(self._close_machines)
            self._page = await opening.enter_async_context(AsyncDibs(self._engine.target))
            await reach(self._page)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()
        await self._open.aclose()

    async def _start(self) -> None:
        for machine in self._machines.values():
            await machine.start(self._engine.target)

    async def _close_machines(self) -> None:
        await asyncio.gather(*(machine.aclose() for machine in self._machines.values()))

    async def end_requests(self) -> None:
        """End all streams."""
        self._is_closing = True
        await self._opening.stop()
        self._tell()

    # ---- machines

    def _hear(self, name: str, message: dict[str, Any]) -> None:
        """Handle a line of a machine's process."""
        if "ran" in message:
            self._runs.append((message["ran"], name))
        if message.get("leads") is not None:
            self._fences[name] = message["leads"]
        elif "leads" in message or "gone" in message:
            self._fences.pop(name, None)
        self._tell()

    async def kill(self, request: Request) -> Response:
        """Kill the process of one machine, and start it again after a while."""
        visitor, number = visitor_of(request), request.path_params["number"]
        if not 1 <= number <= len(MACHINES):
            raise HTTPException(404, f"The machines are 1 to {len(MACHINES)}.")
        machine = self._machines[MACHINES[number - 1]]
        if machine.pid is None:
            raise HTTPException(409, "This one is dead already.")
        remedy = Remedy(machine.kill, partial(machine.start, self._engine.target))
        fault = await self._faults.begin("kill", machine.name, visitor, remedy)
        return JSONResponse(fault.report(visitor), 202)

    async def watch(self, request: Request) -> Response:
        """Stream how the machines stand; the first visitor starts them."""
        visitor_of(request)
        await self._opening.result()
        return Stream(self._seen())

    async def _seen(self) -> AsyncGenerator[str, None]:
        while not self._is_closing:
            news = self._news
            yield f"event: machines\ndata: {json.dumps(self._report())}\n\n"
            try:
                await asyncio.wait_for(news.wait(), _LOOK_AGAIN)
            except TimeoutError:
                pass

    def _report(self) -> dict[str, Any]:
        now = monotonic()
        runs = [(now - at, name) for at, name in self._runs if now - at < SHOWN]
        machines = [
            {"name": name, "alive": each.pid is not None, "fence": self._fences.get(name)}
            for name, each in self._machines.items()
        ]
        return {
            "machines": machines,
            "runs": [{"ago": ago, "machine": MACHINES.index(name)} for ago, name in runs],
        }

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # ---- limits

    async def call(self, request: Request) -> Response:
        """Call the slow service: `hold` with `limit`. A refusal says when to try again."""
        key = f"playground:service:{visitor_of(request)}"
        try:
            async with self._page.hold(key, ttl=10, limit=AT_ONCE):
                await asyncio.sleep(LASTS)
        except Busy as busy:
            return JSONResponse({"busy": f"{busy}.", "retry_after": busy.retry_after})
        return JSONResponse({"done": LASTS})

    async def send_message(self, request: Request) -> Response:
        """Send a message, if `throttle` allows it."""
        key = f"playground:messages:{visitor_of(request)}"
        try:
            allowed = await self._page.throttle(key, limit=MESSAGES, per=PER)
        except Busy as busy:
            return JSONResponse({"busy": f"{busy}.", "retry_after": busy.retry_after})
        return JSONResponse({"left": allowed.left, "limit": MESSAGES, "per": PER})
