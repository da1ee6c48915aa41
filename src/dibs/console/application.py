"""The console as an application: one, that servers for ASGI and for WSGI can call."""

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from http import HTTPStatus
from time import monotonic, time
from typing import TYPE_CHECKING, Any, TypeVar

from .._internal_api import RenewedLock, ServerInfo, inspector, try_lock
from .._key_texts import Place, found_at
from .._process_state import alive, process_state
from ..errors import DibsError, UsageError
from .http import (
    FORBIDDEN,
    JSON,
    LONGEST_BODY,
    RELEASE,
    WHY,
    AccessRule,
    ConsoleRequest,
    ConsoleResponse,
    Rights,
    Rules,
    asked,
    checked_rules,
    decided,
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

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Environ = dict[str, Any]
StartResponse = Callable[..., Any]

SWEEP_EVERY = 1.5
READ_FOR = 0.15
"""Seconds that one request may read for all viewers; a later one continues."""
REST = 2
"""How many times as long nothing is read after that: the process belongs to the application."""


def console(
    dibs: "AsyncDibs | Dibs",
    *,
    allow: AccessRule,
    allow_release: AccessRule | None = None,
    allow_keys: AccessRule | None = None,
) -> "Console":
    """Create an application that shows what *dibs* and its server do.

    It is an ASGI application; its `wsgi` is a WSGI application, for a `Dibs`.

    Args:
        allow: Who may read it: a function of the ASGI scope or WSGI environ that returns a bool
            (under ASGI it may be async), or "host" if the application around it has decided.
        allow_release: Who may also release keys. Default: no one.
        allow_keys: Who sees whole keys, which may contain personal data. Default: no one.

    Raises:
        UsageError: A rule is invalid.
    """
    return Console(dibs, checked_rules(allow, allow_release, allow_keys))


class Console:
    """See `console`."""

    def __init__(self, dibs: Any, rules: Rules, *, does_work: bool = True) -> None:
        self._dibs = dibs
        self._rules = rules
        self._statistics: Statistics | None = statistics_of(dibs) if does_work else None
        self._reader = _Reader(inspector(dibs))
        self._states = SharedStates(self._state_response)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._dibs!r}>"

    @property
    def survey(self) -> Survey:
        """Return what was read of the server."""
        return self._reader.survey

    # ---- ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an ASGI server."""
        if scope["type"] == "lifespan":
            await _stay_alive(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            request = request_of_scope(scope)
            response = await self._respond_to_scope(request, scope, receive)
            headers = [(name.encode().lower(), value.encode()) for name, value in response.headers]
            start = {"type": "http.response.start", "status": response.status, "headers": headers}
            await send(start)
            await send({"type": "http.response.body", "body": _body_for(request, response)})

    async def _respond_to_scope(
        self, request: ConsoleRequest, scope: Scope, receive: Receive
    ) -> ConsoleResponse:
        rights = await self._rights_of(scope)
        is_sent = rights.release and request.path == RELEASE
        body = await _received_body(receive) if is_sent else b""
        if self._reader.is_async:
            return await self._respond_to(request, rights, body)
        return await asyncio.to_thread(
            lambda: _completed_at_once(self._respond_to(request, rights, body))
        )

    # ---- WSGI

    def wsgi(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request of a WSGI server."""
        status, headers, body = self._respond_to_environ(environ)
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    def respond(self, environ: Environ, path: str) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body, for a view of Flask or Django in front of the console.

        *path*: what follows the path of the view, "" for the page itself.
        """
        whole = environ.get("PATH_INFO", "")
        before = whole.encode("latin-1")[: len(whole) - len(path.encode())].decode("latin-1")
        root = environ.get("SCRIPT_NAME", "") + before.rstrip("/")
        return self._respond_to_environ(
            {**environ, "SCRIPT_NAME": root, "PATH_INFO": whole[len(before) - 1 :]}
        )

    def _respond_to_environ(self, environ: Environ) -> tuple[int, list[tuple[str, str]], bytes]:
        if self._reader.is_async:
            raise UsageError("under WSGI, the console needs a Dibs, not an AsyncDibs")
        request = request_of_environ(environ)
        rights = _completed_at_once(self._rights_of(environ))
        body = _read(environ) if rights.release and request.path == RELEASE else b""
        response = _completed_at_once(self._respond_to(request, rights, body))
        return response.status, response.headers, _body_for(request, response)

    # ---- both

    async def _rights_of(self, asker: Any) -> Rights:
        rules = self._rules
        if not decided(await _awaited_value(asked(rules.read, asker))):
            return Rights(read=False)
        release, keys = [
            await _awaited_value(asked(rule, asker)) for rule in (rules.release, rules.keys)
        ]
        return Rights(True, decided(release), decided(keys))

    async def _respond_to(
        self, request: ConsoleRequest, rights: Rights, body: bytes
    ) -> ConsoleResponse:
        if not rights.read:
            return FORBIDDEN
        response = respond(request, new_token=secrets.token_hex(16))
        if response is not None:
            return response
        try:
            if request.path == RELEASE:
                return await self._release_response(rights, body)
            if request.path == WHY:
                return await self._explain_response(request, rights)
        except DibsError as error:
            return json_response(503, {"error": str(error)})
        await self._reader.read_some()
        state = self._states.of(view_of(request.fields), rights, request.cookie, monotonic())
        return ConsoleResponse(200, state, JSON)

    def _state_response(self, view: SurveyView, rights: Rights) -> dict[str, Any]:
        process = process_state(self._dibs)
        figures = None if self._statistics is None else self._statistics.facts()
        at = Moment(monotonic(), time())
        return state_of(self.survey, process, figures, view, rights, at, alive)

    async def _release_response(self, rights: Rights, body: bytes) -> ConsoleResponse:
        release = wanted_release(body, is_allowed=rights.release)
        if isinstance(release, ConsoleResponse):
            return release
        key = await self._reader.find(release.row_id)
        if key is None:
            return released("lost")
        outcome = await _awaited_value(self._reader.inspector.release_whatever(key, release.seen))
        self.survey.look_again()
        self._states.forget()
        return released(outcome)

    async def _explain_response(self, request: ConsoleRequest, rights: Rights) -> ConsoleResponse:
        key = await self._reader.find(request.fields.get("id", ""))
        entry = None if key is None else await _awaited_value(self._reader.inspector.entry(key))
        if key is None or entry is None:
            return explained(None, keys=rights.keys)
        place = Place(process_state(self._dibs, 0).namespace, key)
        return explained(found_at(place, entry, alive), keys=rights.keys)


class _Reader:
    """Reads the server for all viewers: one request at a time, when a viewer asks."""

    def __init__(self, inspecting: Any) -> None:
        self.inspector: Any = inspecting
        self.is_async = inspect.iscoroutinefunction(inspecting.page)
        self.survey = Survey()
        self._lock = RenewedLock()
        self._rests_until = 0.0

    async def read_some(self) -> None:
        """Go on with the sweep, for a moment; nothing if another request does so."""
        lock = self._lock.lock
        if monotonic() < self._rests_until or not try_lock(lock):
            return
        began = monotonic()
        try:
            await self._read(began, began + READ_FOR)
        except Exception as error:  # viewers see it; the next look may work
            self.survey.failed(why_failed(error), monotonic())
        finally:
            self._rests_until = monotonic() + REST * (monotonic() - began)
            lock.release()

    async def _read(self, now: float, until: float) -> None:
        survey = self.survey
        if survey.are_facts_due(now, FACTS_EVERY):
            await self._read_facts(now)
        while now < until and survey.is_due(now, SWEEP_EVERY):
            page = await self._read_page(survey.next_cursor(now))
            now = monotonic()
            survey.read(page, now)

    async def _read_facts(self, now: float) -> None:
        try:
            facts: list[ServerInfo] = await _awaited_value(self.inspector.server())
        except UsageError:  # this user may not call INFO: keys can be read all the same
            facts = []
        self.survey.read_facts(facts, monotonic() - now, now)

    async def _read_page(self, cursor: str) -> Any:
        return await _awaited_value(self.inspector.page(cursor=cursor, count=COUNT))

    async def find(self, row_id: str) -> str | None:
        """Return the key with this id. None: it is not there, or not among the first ones."""
        key, cursor, looked = self.survey.find(row_id), "", 0
        while key is None and cursor is not None and looked < MOST_LOOKED:
            page = await self._read_page(cursor)
            key, looked = key_in(page, row_id), looked + len(page.entries)
            cursor = page.cursor
        return key


# ---- clients for threads and for asyncio


async def _awaited_value(answer: Any) -> Any:
    """Return what *answer* is, or what it will be."""
    return await answer if inspect.isawaitable(answer) else answer


def _completed_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run *work*, which calls rules and a client for threads: there is nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise UsageError("this rule is asynchronous; under WSGI the console needs plain functions")


# ---- requests


async def _stay_alive(receive: Receive, send: Send) -> None:
    kind = ""
    while kind != "lifespan.shutdown":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})


def request_of_scope(scope: Scope) -> ConsoleRequest:
    """Return what the console reads of an ASGI request."""
    root = scope.get("root_path", "").rstrip("/")
    path = _path_below(scope["path"], root, scope.get("app_root_path", ""))
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        text, before = name.decode("latin-1").lower(), value.decode("latin-1")
        joint = "; " if text == "cookie" else ", "
        headers[text] = f"{headers[text]}{joint}{before}" if text in headers else before
    query = scope.get("query_string", b"").decode("latin-1")
    is_https = scope.get("scheme", "http") == "https"
    return ConsoleRequest(scope["method"], path, root, query, headers, is_https)


def _path_below(path: str, root: str, outer: str) -> str:
    """Return *path* after the mount point of the console, which it contains wholly, partly, or not.

    A proxy may cut off its own prefix, *outer*; Starlette's `Mount` leaves its prefix in the path.
    """
    for before in (root, root.removeprefix(outer.rstrip("/"))):
        if before and (path == before or path.startswith(f"{before}/")):
            return path[len(before) :]
    return path


async def _received_body(receive: Receive) -> bytes:
    """Return the body of a request, if it is no longer than is allowed."""
    body, more = b"", True
    while more and len(body) <= LONGEST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
    return body if len(body) <= LONGEST_BODY else b""


def request_of_environ(environ: Environ) -> ConsoleRequest:
    """Return what the console reads of a WSGI request."""
    headers = {
        name[5:].replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    headers["content-type"] = environ.get("CONTENT_TYPE", "")
    headers.setdefault("host", f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}")
    return ConsoleRequest(
        environ["REQUEST_METHOD"],
        _path_text(environ.get("PATH_INFO", "")),
        _path_text(environ.get("SCRIPT_NAME", "")).rstrip("/"),
        environ.get("QUERY_STRING", ""),
        headers,
        environ.get("wsgi.url_scheme") == "https",
    )


def _path_text(path: str) -> str:
    return path.encode("latin-1", "replace").decode("utf-8", "replace")


def _read(environ: Environ) -> bytes:
    """Return the body of a request, if it is no longer than is allowed."""
    length = environ.get("CONTENT_LENGTH") or "0"
    size = int(length) if length.isascii() and length.isdigit() else 0
    return environ["wsgi.input"].read(size) if 0 < size <= LONGEST_BODY else b""


def _body_for(request: ConsoleRequest, response: ConsoleResponse) -> bytes:
    return b"" if request.method == "HEAD" else response.body
