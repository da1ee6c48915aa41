"""Faults that visitors cause on purpose: one at a time, for a while, visible to all visitors.

POST   /faults/stop     the server does not run for 5 s        202 · 409: there is one already · 503
POST   /faults/slow     it answers ten times a second, 10 s long
POST   /faults/switch   its replica becomes the master for 15 s
DELETE /faults          what is wrong is undone now            200 · 404: nothing is wrong
GET    /faults/events   Server-Sent Events: `faults` (what is wrong, what was, which is the master)

Processes are killed by the panels that own them. A fault ends by itself, when a visitor ends it,
and a moment after the visitor who caused it has closed the last page.
"""

import asyncio
import json
import re
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

import redis
from local_line.streams import Stream
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dibs import DibsError

from .engine import Engine

COOKIE = "dibs_playground"
VISITOR = re.compile(r"[0-9a-f]{8}")
SECONDS = {"stop": 5.0, "slow": 10.0, "switch": 15.0, "kill": 3.0}
"""How long each kind lasts."""
_RELOAD = 1.5
"""Seconds in which a page may be opened again, as by a reload or a link."""
_LOOK_AGAIN = 1.0
_FAILURES = (OSError, redis.RedisError, DibsError, TimeoutError)

Message = dict[str, Any]
Work = Callable[[], Awaitable[None]]


class Remedy(NamedTuple):
    """What a fault does, and what undoes it."""

    apply: Work
    undo: Work


@dataclass
class Fault:
    """A fault."""

    kind: str
    what: str
    """What was stopped, slowed, switched or killed."""
    owner: str
    """The visitor who caused it."""
    seconds: float
    can_be_undone: bool = True
    has_begun: bool = False
    since: float = field(default_factory=monotonic)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def report(self, visitor: str) -> Message:
        """The JSON for *visitor*."""
        lasted = monotonic() - self.since
        facts: Message = {"kind": self.kind, "what": self.what, "lasted": lasted}
        facts |= {"left": max(self.seconds - lasted, 0.0), "mine": self.owner == visitor}
        return facts | {"undo": self.can_be_undone}


class Faults:
    """The current fault, if any, and the pages that show it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._fault: Fault | None = None
        self._last: Message | None = None
        self._task: asyncio.Task[None] | None = None
        self._pages = Counter[str]()
        self._news = asyncio.Event()
        self._is_closing = False

    @property
    def routes(self) -> list[Route]:
        """The routes below /faults."""
        return [
            Route("/events", self.watch, methods=["GET"]),
            Route("/{kind}", self.make, methods=["POST"]),
            Route("/", self.undo, methods=["DELETE"]),
        ]

    async def __aenter__(self) -> "Faults":
        self._fault, self._last, self._task, self._is_closing = None, None, None, False
        self._pages.clear()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()

    async def end_requests(self) -> None:
        """End all streams. Servers resume; killed processes are not started again."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._engine.speed_up()
        self._tell()

    # ---- answers

    async def make(self, request: Request) -> Response:
        """Cause a fault of the server for a while."""
        visitor, kind = visitor_of(request), request.path_params["kind"]
        remedies = {
            "stop": Remedy(self._engine.freeze, self._engine.thaw),
            "slow": Remedy(self._engine.slow_down, self._engine.speed_up),
            "switch": Remedy(self._engine.switch_masters, self._engine.switch_masters),
        }
        if kind not in remedies:
            raise HTTPException(404, "The faults are stop, slow and switch.")
        fault = await self.begin(kind, f"server {self._engine.master}", visitor, remedies[kind])
        return JSONResponse(fault.report(visitor), 202)

    async def undo(self, request: Request) -> Response:
        """Undo the current fault, also that of another visitor."""
        visitor_of(request)
        if self._fault is None:
            raise HTTPException(404, "Nothing is wrong.")
        if not self._fault.can_be_undone or not self._fault.has_begun:
            raise HTTPException(409, "This one ends by itself, in a moment.")
        await self._end()
        return JSONResponse(self._last)

    async def begin(self, kind: str, what: str, owner: str, remedy: Remedy) -> Fault:
        """Begin a fault, which will be undone.

        409: there is another one; 503: it is not possible.
        """
        fault = self._record(kind, what, owner)
        try:
            await remedy.apply()
        except BaseException as error:
            self._fault = None
            self._tell()
            if not isinstance(error, _FAILURES):
                raise
            raise HTTPException(503, f"It cannot be done here: {error}.") from None
        fault.since, fault.has_begun = monotonic(), True
        self._task = asyncio.create_task(self._undo_later(fault, remedy.undo))
        self._tell()
        return fault

    @asynccontextmanager
    async def during(self, kind: str, what: str, owner: str) -> AsyncIterator[None]:
        """Show a fault as long as the block lasts. 409: there is another one."""
        fault = self._record(kind, what, owner)
        fault.can_be_undone, fault.has_begun = False, True
        fault.seconds = 0.0  # unknown
        self._tell()
        try:
            yield
        finally:
            self._forget(fault)

    def _record(self, kind: str, what: str, owner: str) -> Fault:
        if self._fault is not None or self._is_closing:
            raise HTTPException(409, "One fault at a time: undo the other one first, or wait.")
        self._fault = Fault(kind, what, owner, SECONDS[kind])
        return self._fault

    async def _undo_later(self, fault: Fault, undo: Work) -> None:
        try:
            await asyncio.wait_for(fault.over.wait(), fault.seconds)
        except TimeoutError:
            pass
        try:
            await undo()
        except _FAILURES as error:
            fault.what += f" ({error})"
        finally:
            self._forget(fault)

    def _forget(self, fault: Fault) -> None:
        self._last = {"kind": fault.kind, "what": fault.what, "lasted": monotonic() - fault.since}
        self._fault = None
        self._tell()

    async def _end(self) -> None:
        if self._fault is not None and self._task is not None and not self._task.done():
            self._fault.over.set()
            await asyncio.wait([self._task])

    # ---- watching

    async def watch(self, request: Request) -> Response:
        """Stream the current fault, as it changes."""
        return Stream(self._seen(visitor_of(request)))

    async def _seen(self, visitor: str) -> AsyncGenerator[str, None]:
        self._pages[visitor] += 1
        try:
            while not self._is_closing:
                news = self._news
                yield f"event: faults\ndata: {json.dumps(self._report(visitor))}\n\n"
                try:
                    await asyncio.wait_for(news.wait(), _LOOK_AGAIN)
                except TimeoutError:
                    pass  # a line now and then: a page that was closed is noticed
        finally:
            self._pages[visitor] -= 1
            asyncio.get_running_loop().call_later(_RELOAD, self._look_after, visitor)

    def _look_after(self, visitor: str) -> None:
        """Undo the fault of a visitor who has closed all pages."""
        if self._pages[visitor]:
            return
        del self._pages[visitor]
        if self._fault is not None and self._fault.owner == visitor:
            self._fault.over.set()

    def _report(self, visitor: str) -> Message:
        has_begun = self._fault is not None and self._fault.has_begun
        fault = self._fault.report(visitor) if self._fault and has_begun else None
        return {"fault": fault, "last": self._last, "master": self._engine.master}

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def welcome(request: Request, response: Response) -> Response:
    """Return *response*, with a cookie that gives a new visitor their own keys."""
    if not VISITOR.fullmatch(request.cookies.get(COOKIE, "")):
        response.set_cookie(COOKIE, secrets.token_hex(4), httponly=True, samesite="strict")
    return response


def visitor_of(request: Request) -> str:
    """The visitor of this browser. 400: the page was never opened here."""
    visitor = request.cookies.get(COOKIE, "")
    if not VISITOR.fullmatch(visitor):
        raise HTTPException(400, "Open the page first: it gives you keys of your own.")
    return visitor
