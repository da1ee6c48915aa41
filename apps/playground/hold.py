"""The `hold` panel: Ann and Ben want the same key.

POST   /hold/{person}   {"ttl": 2–10, "wait": 0–10}   200: they have it, or Busy · 400
DELETE /hold/{person}   let go, or stop waiting       200 · 404: there is nothing to end
POST   /hold/kill       the holder's process dies     202 · 409: it is free, or another fault
GET    /hold/events     Server-Sent Events: `dibs` (what dibs said), `state` (how it stands)
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

from local_line.streams import Stream
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dibs import AsyncDibs, Unavailable

from .engine import Engine, reach
from .faults import Faults, Remedy, visitor_of
from .key_state import PEOPLE, KeyState, Message, Visit
from .people import Person

_LOOK_AGAIN = 1.0
"""Seconds between two checks of a key without events."""


class HoldPanel:
    """Two people, each a process with its own dibs object."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        self._states: dict[str, KeyState] = {}
        self._closing = False
        self._open = AsyncExitStack()
        self._people = {name: Person(name, self._received) for name in PEOPLE}
        self._page: AsyncDibs

    @property
    def routes(self) -> list[Route]:
        """The routes of the panel, below its own path."""
        return [
            Route("/events", self.watch, methods=["GET"]),
            Route("/kill", self.kill, methods=["POST"]),
            Route("/{person}", self.enter, methods=["POST"]),
            Route("/{person}", self.leave, methods=["DELETE"]),
        ]

    # ---- beginning and end

    async def __aenter__(self) -> "HoldPanel":
        """Connect everything. DibsError, OSError: the server or a process does not start."""
        self._closing = False
        async with AsyncExitStack() as opening:
            opening.push_async_callback(self._close_people)
            for person in self._people.values():
                await person.start(self._engine.target)  # not waited for
            self._page = await opening.enter_async_context(AsyncDibs(self._engine.target))
            await reach(self._page)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()
        await self._open.aclose()

    async def _close_people(self) -> None:
        await asyncio.gather(*(person.aclose() for person in self._people.values()))

    async def end_requests(self) -> None:
        """End all visits and streams, so that every pending request is answered."""
        self._closing = True
        visits = [(state, name) for state in self._states.values() for name in state.visits]
        for state, name in visits:
            await self._leave(state, name)
        for state in self._states.values():
            state.changed()

    # ---- answers

    async def enter(self, request: Request) -> Response:
        """Get a lease for this person, or say when to try again.

        503: their process is dead.
        """
        name = _person(request)
        asked_for = await _read_request(request)
        try:
            await self._people[name].ready()
        except OSError:
            raise HTTPException(
                503, f"{name.title()}’s process is dead, and not back yet."
            ) from None
        state = self._state_of(visitor_of(request))  # without a wait before the next line
        visit = state.enter(name, ttl=asked_for.ttl, wait=asked_for.wait)
        if visit is None:
            raise HTTPException(409, f"{name.title()} is still in, or still waits.")
        asked = {
            "visitor": state.visitor,
            "key": state.key,
            "ttl": asked_for.ttl,
            "wait": asked_for.wait,
        }
        self._people[name].ask(asked)
        await visit.answered.wait()
        if asked_for.wait:
            await state.settled()
        return _answer(name, visit)

    async def leave(self, request: Request) -> Response:
        """Release this person's lease, or stop their waiting."""
        name = _person(request)
        state = self._states.get(visitor_of(request))
        visit = state and state.visits.get(name)
        if state is None or visit is None or visit.over:
            raise HTTPException(404, f"{name.title()} neither holds the key nor waits for it.")
        await self._leave(state, name)
        return JSONResponse(visit.report())

    async def _leave(self, state: KeyState, name: str) -> None:
        if not state.visits[name].over:
            self._people[name].ask({"visitor": state.visitor, "leave": True})
            await state.visits[name].ended.wait()

    async def kill(self, request: Request) -> Response:
        """Kill the process that holds this visitor's key, and start it again after a while."""
        state = self._states.get(visitor_of(request))
        name = state and state.holder()
        if state is None or name is None:
            raise HTTPException(409, "Nobody holds your key: let Ann or Ben hold it first.")
        person = self._people[name]
        remedy = Remedy(person.kill, partial(person.start, self._engine.target))
        fault = await self._faults.begin("kill", f"{name.title()}’s process", state.visitor, remedy)
        return JSONResponse(fault.report(state.visitor), 202)

    def _state_of(self, visitor: str) -> KeyState:
        """The state of this visitor's key. It may be dropped while it is idle."""
        return self._states.setdefault(visitor, KeyState(visitor))

    # ---- watching

    async def watch(self, request: Request) -> Response:
        """Stream what happens to the key of this visitor."""
        return Stream(self._seen(visitor_of(request)))

    async def _seen(self, visitor: str) -> AsyncGenerator[str, None]:
        state = self._state_of(visitor)
        queue = state.subscribe()
        try:
            yield _sse("state", await self._state(state))
            while not self._closing:
                message = await _next(queue)
                if message is not None:
                    yield _sse("dibs", message)
                elif queue.empty():
                    yield _sse("state", await self._state(state))
        finally:
            state.unsubscribe(queue)
            self._forget_idle(state)

    async def _state(self, state: KeyState) -> Message:
        """What the server knows, and the state of the people."""
        key: Message | None = None
        answers = True
        try:
            holding = await self._page.peek(state.key)
            key = holding and {"remaining": holding.remaining, "holder": holding.holder}
        except Unavailable:
            answers = False
        return state.report() | {"held": key, "answers": answers, "out": self._engine.is_frozen}

    def _received(self, name: str, message: Message) -> None:
        """Handle a line of a person's process: for one visitor, or for all of them."""
        visitor = message.get("visitor")
        states = list(self._states.values()) if visitor is None else [self._states.get(visitor)]
        for state in filter(None, states):
            if "gone" in message:
                state.kill(name)
            elif "visit" in message:
                state.update(name, message["visit"])
            elif visitor is not None or message["event"]["kind"] == "recovered":
                state.show_event(name, message["event"])
            self._forget_idle(state)

    def _forget_idle(self, state: KeyState) -> None:
        if state.idle:
            self._states.pop(state.visitor, None)


# ---- in


class HoldRequest(NamedTuple):
    """A checked request of a person."""

    ttl: float
    wait: float


def _person(request: Request) -> str:
    person = request.path_params["person"]
    if person not in PEOPLE:
        raise HTTPException(404, "Only ann and ben live here.")
    return person


async def _read_request(request: Request) -> HoldRequest:
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body must be JSON.") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "The body must be a JSON object.")
    ttl = _number(body.get("ttl", 5), 2, 10, "ttl must be a number of seconds from 2 to 10.")
    wait = _number(body.get("wait", 0), 0, 10, "wait must be a number of seconds from 0 to 10.")
    return HoldRequest(ttl, wait if wait >= 0.01 else 0)


def _number(value: Any, least: float, most: float, sentence: str) -> float:
    if type(value) not in (int, float) or not least <= value <= most:
        raise HTTPException(400, sentence)
    return value


# ---- out


def _answer(name: str, visit: Visit) -> Response:
    report = visit.report()
    if visit.refusal is not None:
        # With 409, every refusal would be an error in a browser's developer tools.
        return JSONResponse({"busy": visit.refusal} | report)
    if visit.has_had_it:
        return JSONResponse(report)
    if report["how"] == "killed":
        return JSONResponse({"error": f"{name.title()}’s process was killed."}, 503)
    return JSONResponse({"stopped": f"{name.title()} stopped waiting."})


def _sse(kind: str, message: Message) -> str:
    return f"event: {kind}\ndata: {json.dumps(message)}\n\n"


async def _next(queue: "asyncio.Queue[Message | None]") -> Message | None:
    """The next event; None: check again, because something has changed or a second has passed."""
    try:
        return await asyncio.wait_for(queue.get(), _LOOK_AGAIN)
    except TimeoutError:
        return None
