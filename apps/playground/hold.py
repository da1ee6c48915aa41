"""The `hold` panel: Ann and Ben want the same key.

POST   /hold/{person}   {"ttl": 2–10, "wait": 0–10}   200 · 409 + Retry-After: Busy · 400
DELETE /hold/{person}   let go, or stop waiting       200 · 404: there is nothing to end
POST   /hold/outage     the server stops for 5 s      202 · 409: it is stopped · 503
GET    /hold/events     Server-Sent Events: `dibs` (what dibs said), `state` (how it stands)
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import redis
from local_line.streams import Stream
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dibs import AsyncDibs, Event, Unavailable

from .door import PEOPLE, Door, Message, Visit, at_door
from .engine import OUTAGE, Engine

COOKIE = "dibs_playground"
VISITOR = re.compile(r"[0-9a-f]{8}")
_START = 5.0
"""How long the server may not answer at the start, in seconds."""
_LOOK_AGAIN = 1.0
"""Seconds between two looks at a key of which nothing is heard."""


class HoldPanel:
    """Two people, each with a dibs object of their own, as two processes would have."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._doors: dict[str, Door] = {}
        self._closing = False
        self._open = AsyncExitStack()
        self._people: dict[str, AsyncDibs] = {}
        self._page: AsyncDibs

    @property
    def routes(self) -> list[Route]:
        """What the panel answers, below its own path."""
        return [
            Route("/events", self.watch, methods=["GET"]),
            Route("/outage", self.stop_server, methods=["POST"]),
            Route("/{person}", self.enter, methods=["POST"]),
            Route("/{person}", self.leave, methods=["DELETE"]),
        ]

    # ---- beginning and end

    async def __aenter__(self) -> "HoldPanel":
        """Everything is connected. DibsError: the server cannot be started."""
        self._closing = False
        async with AsyncExitStack() as opening:
            for person in PEOPLE:
                dibs = AsyncDibs(self._engine.target, listeners=[partial(self._heard, person)])
                self._people[person] = await opening.enter_async_context(dibs)
            # A third one to look with: what it sees is not among the events of Ann and Ben.
            self._page = await opening.enter_async_context(AsyncDibs(self._engine.target))
            for dibs in (*self._people.values(), self._page):
                await _reach(dibs)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.send_home()
        await self._open.aclose()

    async def send_home(self) -> None:
        """Nobody is in, waits or watches any more: every answer under way is given now."""
        self._closing = True
        for door in list(self._doors.values()):
            await door.clear()
            door.changed()

    # ---- answers

    async def enter(self, request: Request) -> Response:
        """A lease for this person; or 409, and when to try again."""
        person = _person(request)
        wish = await _wish(request)
        door = self._doors.setdefault(_visitor(request), Door(_visitor(request)))
        visit = door.enter(person, self._people[person], ttl=wish.ttl, wait=wish.wait)
        if visit is None:
            raise HTTPException(409, f"{person.title()} is still in, or still waits.")
        visit.task.add_done_callback(lambda _: self._forget_idle(door))
        await visit.answered.wait()
        return _answer(person, visit)

    async def leave(self, request: Request) -> Response:
        """This person lets go, or stops waiting."""
        person = _person(request)
        door = self._doors.get(_visitor(request))
        visit = door and door.visits.get(person)
        if visit is None or visit.over:
            raise HTTPException(404, f"{person.title()} neither holds the key nor waits for it.")
        await visit.leave()
        return JSONResponse(visit.report())

    async def stop_server(self, request: Request) -> Response:
        """The server is stopped, and goes on by itself."""
        _visitor(request)
        try:
            stopped = await self._engine.pause()
        except (OSError, redis.RedisError):
            raise HTTPException(503, "The embedded server cannot be stopped here.") from None
        if not stopped:
            raise HTTPException(409, "The server is stopped already.")
        for door in self._doors.values():
            door.changed()
        return JSONResponse({"seconds": OUTAGE}, 202)

    async def watch(self, request: Request) -> Response:
        """What happens at this visitor's door, as it happens."""
        door = self._doors.setdefault(_visitor(request), Door(_visitor(request)))
        return Stream(self._seen(door))

    async def _seen(self, door: Door) -> AsyncGenerator[str, None]:
        window = door.open_window()
        try:
            yield _sse("state", await self._state(door))
            while not self._closing:
                message = await _next(window)
                if message is not None:
                    yield _sse("dibs", message)
                elif window.empty():
                    yield _sse("state", await self._state(door))
        finally:
            door.close_window(window)
            self._forget_idle(door)

    async def _state(self, door: Door) -> Message:
        """What the server knows, and how it stands with the people."""
        key: Message | None = None
        answers = True
        try:
            holding = await self._page.peek(door.key)
            key = holding and {"remaining": holding.remaining, "holder": holding.holder}
        except Unavailable:
            answers = False
        return door.report() | {"held": key, "answers": answers, "out_for": self._engine.out_for}

    def _heard(self, person: str, event: Event) -> None:
        """A listener. `recovered` is news for every door; all else for the one it happened at."""
        door = at_door.get()
        doors = self._doors.values() if event.kind == "recovered" else [door] if door else []
        for door in doors:
            door.heard(person, event)

    def _forget_idle(self, door: Door) -> None:
        if door.idle:
            self._doors = {name: each for name, each in self._doors.items() if each is not door}


async def _reach(dibs: AsyncDibs) -> None:
    """Connected. Unavailable: not for a while; a machine that is busy at the start is no outage."""
    until = monotonic() + _START
    while True:
        try:
            await dibs.peek("playground:start")
            return
        except Unavailable:
            if monotonic() > until:
                raise
            await asyncio.sleep(_LOOK_AGAIN / 10)


# ---- in


class Wish(NamedTuple):
    """What a person asks for, checked."""

    ttl: float
    wait: float


def _visitor(request: Request) -> str:
    """Whose door it is. 400: the page was never opened here."""
    visitor = request.cookies.get(COOKIE, "")
    if not VISITOR.fullmatch(visitor):
        raise HTTPException(400, "Open the page first: it gives you a door of your own.")
    return visitor


def _person(request: Request) -> str:
    person = request.path_params["person"]
    if person not in PEOPLE:
        raise HTTPException(404, "Only ann and ben live here.")
    return person


async def _wish(request: Request) -> Wish:
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body must be JSON.") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "The body must be a JSON object.")
    ttl = _number(body.get("ttl", 5), 2, 10, "ttl must be a number of seconds from 2 to 10.")
    wait = _number(body.get("wait", 0), 0, 10, "wait must be a number of seconds from 0 to 10.")
    return Wish(ttl, wait if wait >= 0.01 else 0)


def _number(value: Any, least: float, most: float, sentence: str) -> float:
    if type(value) not in (int, float) or not least <= value <= most:
        raise HTTPException(400, sentence)
    return value


# ---- out


def _answer(person: str, visit: Visit) -> Response:
    report = visit.report()
    if visit.lease is not None:
        return JSONResponse(report)
    if visit.busy is None:
        visit.check()
        return JSONResponse({"error": f"{person.title()} stopped waiting."}, 409)
    headers = {"Retry-After": str(max(math.ceil(min(visit.busy.retry_after, 3600)), 1))}
    return JSONResponse({"error": f"{visit.busy}."} | report, 409, headers)


def _sse(kind: str, message: Message) -> str:
    return f"event: {kind}\ndata: {json.dumps(message)}\n\n"


async def _next(window: "asyncio.Queue[Message | None]") -> Message | None:
    """The next event; None: look again, because something has changed or a second has passed."""
    try:
        return await asyncio.wait_for(window.get(), _LOOK_AGAIN)
    except TimeoutError:
        return None
