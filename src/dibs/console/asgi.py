"""The console as an ASGI application."""

import asyncio
import inspect
import secrets
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING, Any, cast

from .._internal_api import ServerInfo, inspector
from .._key_texts import Place, found_at
from .._process_state import alive, process_state
from ..errors import DibsError, UsageError
from .http import (
    EVENTS,
    FORBIDDEN,
    JSON,
    LONGEST_BODY,
    RELEASE,
    STREAM,
    WHY,
    AccessRule,
    ConsoleRequest,
    ConsoleResponse,
    Rights,
    asked,
    checked_rules,
    decided,
    event,
    explained,
    json_response,
    released,
    respond,
    wanted_release,
)
from .key_rows import (
    COUNT,
    FACTS_EVERY,
    MOST_LOOKED,
    Moment,
    SharedStates,
    Survey,
    SurveyView,
    key_in,
    state_of,
    view_of,
    why_failed,
)
from .statistics import Statistics, statistics_of

if TYPE_CHECKING:
    from .. import AsyncDibs, Dibs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LONGEST_TURN = 0.02
"""Seconds between two pages of a sweep, at most: what took long was not our work alone."""
SWEEP_EVERY = 2.0
TICK = 1.0
"""Seconds between two states that a viewer is sent."""
STREAM_FOR = 20.0
"""Seconds after which a stream ends and the page opens another one: rights are asked for again."""
BRIEF = 2.0
"""That of a stream in a server that cannot be seen ending. At its end, hypercorn waits three
seconds for responses; then it cancels them, and does not end the application's lifespan."""
SLOWEST = 10.0
"""Seconds that a viewer may be slower than that, before its stream is given up."""
WANTED_FOR = 10.0
"""Seconds after a viewer was last seen for which the server is still read."""


def console(
    dibs: "AsyncDibs | Dibs",
    *,
    allow: AccessRule,
    allow_release: AccessRule | None = None,
    allow_keys: AccessRule | None = None,
    most_viewers: int = 20,
) -> "Console":
    """Create an ASGI application that shows what *dibs* and its server do.

    Args:
        allow: Who may read it: a function of the ASGI scope that returns a bool (it may be async),
            or "host" if the application around it has decided.
        allow_release: Who may also release keys. Default: no one.
        allow_keys: Who sees whole keys, which may contain personal data. Default: no one.
        most_viewers: How many pages get live updates at once; others poll every few seconds.

    Raises:
        UsageError: A rule is invalid.
    """
    return Console(dibs, allow, allow_release, allow_keys, most_viewers)


class Console:
    """See `console`."""

    def __init__(
        self,
        dibs: Any,
        allow: AccessRule,
        allow_release: AccessRule | None,
        allow_keys: AccessRule | None,
        most_viewers: int,
    ) -> None:
        if most_viewers < 1:
            raise UsageError(f"most_viewers must be at least 1, not {most_viewers}")
        self._rules = checked_rules(allow, allow_release, allow_keys)
        self._dibs = dibs
        self._statistics: Statistics = statistics_of(dibs)
        self._reader = _Reader(inspector(dibs))
        self._states = SharedStates(self._state)
        self._most = most_viewers
        self._streams = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._dibs!r}, {self._streams} viewers>"

    @property
    def is_reading(self) -> bool:
        """Whether the server is being read: while there are viewers."""
        return self._reader.is_running

    @property
    def survey(self) -> Survey:
        """What was read of the server."""
        return self._reader.survey

    async def stop(self) -> None:
        """Stop reading the server; it begins again with the next viewer."""
        await self._reader.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            is_end = message["type"] == "lifespan.shutdown"
            if is_end:
                await self.stop()  # before it is said: the client may be closed then
            await send({"type": f"{message['type']}.complete"})
            if is_end:
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = request_of(scope)
        rights = await self._rights(scope)
        if not rights.read:
            return await _send(send, request, FORBIDDEN)
        response = respond(request, is_live=True, new_token=secrets.token_hex(16))
        if response is not None:
            return await _send(send, request, response)
        if request.path == EVENTS:
            return await self._stream(request, rights, receive, send)
        if request.path == RELEASE:
            return await _send(send, request, await self._release(rights, receive))
        if request.path == WHY:
            return await _send(send, request, await self._why(request, rights))
        await self._reader.want(wait=True)
        body = self._states.of(view_of(request.fields), rights, request.cookie, monotonic())
        return await _send(send, request, ConsoleResponse(200, body, JSON))

    async def _rights(self, scope: Scope) -> Rights:
        rules = self._rules
        if not await _decided(rules.read, scope):
            return Rights(read=False)
        return Rights(True, await _decided(rules.release, scope), await _decided(rules.keys, scope))

    def _state(self, view: SurveyView, rights: Rights) -> dict[str, Any]:
        process, figures = process_state(self._dibs), self._statistics.facts()
        at = Moment(monotonic(), time())
        return state_of(self.survey, process, figures, view, rights, at)

    # ---- live updates

    async def _stream(
        self, request: ConsoleRequest, rights: Rights, receive: Receive, send: Send
    ) -> None:
        if self._streams >= self._most:
            full = json_response(
                503, {"error": "There are too many viewers."}, ("Retry-After", "5")
            )
            return await _send(send, request, full)
        self._streams += 1
        disconnect = asyncio.ensure_future(_disconnected(receive))
        try:
            await self._reader.want(wait=True)
            await _start(
                send, ConsoleResponse(200, kind=STREAM, more=(("X-Accel-Buffering", "no"),))
            )
            lasts = BRIEF if _is_ending() is None else STREAM_FOR
            until = monotonic() + lasts
            # A viewer that reads nothing would hold its place for ever.
            with suppress(TimeoutError):
                async with asyncio.timeout(lasts + SLOWEST):
                    await self._send_states(request, rights, disconnect, until, send)
        finally:
            self._streams -= 1
            disconnect.cancel()
            await asyncio.wait([disconnect])

    async def _send_states(
        self,
        request: ConsoleRequest,
        rights: Rights,
        disconnect: "asyncio.Future[None]",
        until: float,
        send: Send,
    ) -> None:
        view = view_of(request.fields)
        # The first word: how long the page waits before it opens the next stream.
        first, body = b"retry: 1000\n", b""
        while not disconnect.done():
            body = first + event(self._states.of(view, rights, request.cookie, monotonic()))
            first = b""
            is_last = monotonic() >= until or _is_ending()
            await send({"type": "http.response.body", "body": body, "more_body": not is_last})
            if is_last:
                return
            await self._reader.want()
            await asyncio.wait([disconnect], timeout=TICK)

    # ---- releasing

    async def _release(self, rights: Rights, receive: Receive) -> ConsoleResponse:
        release = wanted_release(await _body(receive), is_allowed=rights.release)
        if isinstance(release, ConsoleResponse):
            return release
        try:
            key = await self._reader.find(release.row_id)
            if key is None:
                return released("lost")
            outcome = await self._reader.inspector.release_whatever(key, release.seen)
        except DibsError as error:
            return json_response(503, {"error": str(error)})
        self.survey.look_again()
        self._states.forget()
        return released(outcome)

    async def _why(self, request: ConsoleRequest, rights: Rights) -> ConsoleResponse:
        look, namespace = self._reader.inspector, process_state(self._dibs, 0).namespace
        try:
            key = await self._reader.find(request.fields.get("id", ""))
            entry = None if key is None else await look.entry(key)
        except DibsError as error:
            return json_response(503, {"error": str(error)})
        if key is None or entry is None:
            return explained(None, keys=rights.keys)
        return explained(found_at(Place(namespace, key), entry, alive), keys=rights.keys)


class _Reader:
    """Reads the server, once for all viewers, for as long as there are any."""

    def __init__(self, inspecting: Any) -> None:
        is_async = inspect.iscoroutinefunction(inspecting.page)
        self.inspector: Any = inspecting if is_async else _Threaded(inspecting)
        self.survey = Survey()
        self._wanted_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._read = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether there is a task that reads, in a loop that runs."""
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def want(self, *, wait: bool = False) -> None:
        """There is a viewer. *wait*: until something was read, for a moment."""
        self._wanted_until = monotonic() + WANTED_FOR
        if not self.is_running:
            self._read = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="dibs console")
        if wait:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._read.wait(), 0.5)

    async def stop(self) -> None:
        """End what runs in the background."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while monotonic() < self._wanted_until:
            try:
                await self._read_some()
            except Exception as error:  # viewers see it; the next look may work
                self.survey.failed(why_failed(error), monotonic())
                await asyncio.sleep(SWEEP_EVERY / 2)
            finally:
                self._read.set()

    async def _read_some(self) -> None:
        survey, began = self.survey, monotonic()
        if survey.are_facts_due(began, FACTS_EVERY):
            await self._read_facts(began)
        if not survey.is_due(began, SWEEP_EVERY):
            return await asyncio.sleep(SWEEP_EVERY / 4)
        page = await self.inspector.page(cursor=survey.next_cursor(began), count=COUNT)
        now = monotonic()
        survey.read(page, now)
        # About a quarter of the time: the loop belongs to the application.
        return await asyncio.sleep(min(3 * (now - began), LONGEST_TURN))

    async def _read_facts(self, now: float) -> None:
        try:
            facts: list[ServerInfo] = await self.inspector.server()
        except UsageError:  # this user may not call INFO: keys can be read all the same
            facts = []
        self.survey.read_facts(facts, monotonic() - now, now)

    async def find(self, row_id: str) -> str | None:
        """The key with this id. None: it is not there, or not among the first ones."""
        key, cursor, looked = self.survey.find(row_id), "", 0
        while key is None and cursor is not None and looked < MOST_LOOKED:
            page = await self.inspector.page(cursor=cursor, count=COUNT)
            key, looked = key_in(page, row_id), looked + len(page.entries)
            cursor = page.cursor
        return key


class _Threaded:
    """The inspector of a `Dibs`, for an event loop."""

    def __init__(self, inspecting: Any) -> None:
        self._inspecting = inspecting

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inspecting, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call


# ---- ASGI


def request_of(scope: Scope) -> ConsoleRequest:
    """What the console reads of *scope*."""
    root = scope.get("root_path", "").rstrip("/")
    path = _below(scope["path"], root, scope.get("app_root_path", ""))
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        text, before = name.decode("latin-1").lower(), value.decode("latin-1")
        joint = "; " if text == "cookie" else ", "
        headers[text] = f"{headers[text]}{joint}{before}" if text in headers else before
    query = scope.get("query_string", b"").decode("latin-1")
    is_https = scope.get("scheme", "http") == "https"
    return ConsoleRequest(scope["method"], path, root, query, headers, is_https)


def _below(path: str, root: str, outer: str) -> str:
    """*path* after the mount point of the console, which it contains wholly, partly, or not.

    A proxy may cut off its own prefix, *outer*; Starlette's `Mount` leaves its prefix in the path.
    """
    for before in (root, root.removeprefix(outer.rstrip("/"))):
        if before and (path == before or path.startswith(f"{before}/")):
            return path[len(before) :]
    return path


async def _decided(rule: AccessRule | None, scope: Scope) -> bool:
    answer: object = asked(rule, scope)
    if isinstance(answer, Awaitable):
        return decided(await cast("Awaitable[object]", answer))
    return decided(answer)


async def _start(send: Send, response: ConsoleResponse) -> None:
    headers = [(name.encode().lower(), value.encode()) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})


async def _send(send: Send, request: ConsoleRequest, response: ConsoleResponse) -> None:
    await _start(send, response)
    body = b"" if request.method == "HEAD" else response.body
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes:
    """The body of a request, no more of it than is allowed."""
    body, more = b"", True
    while more and len(body) <= LONGEST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
    return body if len(body) <= LONGEST_BODY else b""


def _is_ending() -> bool | None:
    """Whether uvicorn has got a signal: it waits for every response, and tells no application.

    None: this is another server, or it runs in a thread; it cannot be known.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", None)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
