"""The console as a WSGI application: the same page, which asks every two seconds."""

import inspect
import secrets
from collections.abc import Callable, Iterable
from http import HTTPStatus
from time import monotonic, time
from typing import TYPE_CHECKING, Any, cast

from .._internal_api import RenewedLock, ServerInfo, inspector, try_lock
from .._key_texts import Place, found_at
from .._process_state import alive, process_state
from ..errors import DibsError, UsageError
from .http import (
    FORBIDDEN,
    LONGEST_BODY,
    RELEASE,
    WHY,
    AccessRule,
    ConsoleRequest,
    ConsoleResponse,
    Rights,
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
    Survey,
    key_in,
    state_of,
    view_of,
    why_failed,
)
from .statistics import Statistics, statistics_of

if TYPE_CHECKING:
    from .. import Dibs

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

SWEEP_EVERY = 1.5
READ_FOR = 0.15
"""Seconds that one request may read for all; the next one continues."""


def console_wsgi(
    dibs: "Dibs",
    *,
    allow: AccessRule,
    allow_release: AccessRule | None = None,
    allow_keys: AccessRule | None = None,
) -> "WsgiConsole":
    """Create a WSGI application that shows what *dibs* and its server do.

    Args:
        allow: Who may read it: a plain function of the WSGI environ that returns a bool, or "host"
            if the application around it has decided.
        allow_release: Who may also release keys. Default: no one.
        allow_keys: Who sees whole keys, which may contain personal data. Default: no one.

    Raises:
        UsageError: A rule is invalid, or *dibs* is an AsyncDibs.
    """
    return WsgiConsole(dibs, allow, allow_release, allow_keys)


class WsgiConsole:
    """See `console_wsgi`."""

    def __init__(
        self,
        dibs: Any,
        allow: AccessRule,
        allow_release: AccessRule | None,
        allow_keys: AccessRule | None,
        *,
        does_work: bool = True,
    ) -> None:
        inspecting = cast(Any, inspector(dibs))
        if inspect.iscoroutinefunction(inspecting.page):
            raise UsageError("console_wsgi needs a Dibs; for an AsyncDibs there is console")
        self._rules = checked_rules(allow, allow_release, allow_keys)
        self._dibs = dibs
        self._statistics: Statistics | None = statistics_of(dibs) if does_work else None
        self._reader = _Reader(inspecting)

    @property
    def survey(self) -> Survey:
        """What was read of the server."""
        return self._reader.survey

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._dibs!r}>"

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        status, headers, body = self._respond(environ)
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    def respond(self, environ: Environ, path: str) -> tuple[int, list[tuple[str, str]], bytes]:
        """Status, headers and body, for a view of Flask or Django in front of the console.

        *path*: what follows the path of the view, "" for the page itself.
        """
        whole = environ.get("PATH_INFO", "")
        before = whole.encode("latin-1")[: len(whole) - len(path.encode())].decode("latin-1")
        root = environ.get("SCRIPT_NAME", "") + before.rstrip("/")
        return self._respond(
            {**environ, "SCRIPT_NAME": root, "PATH_INFO": whole[len(before) - 1 :]}
        )

    def _respond(self, environ: Environ) -> tuple[int, list[tuple[str, str]], bytes]:
        request = request_of(environ)
        response = self._answer(request, environ)
        body = b"" if request.method == "HEAD" else response.body
        return response.status, response.headers, body

    def _answer(self, request: ConsoleRequest, environ: Environ) -> ConsoleResponse:
        rights = self._rights(environ)
        if not rights.read:
            return FORBIDDEN
        response = respond(request, is_live=False, new_token=secrets.token_hex(16))
        if response is not None:
            return response
        if request.path == RELEASE:
            return self._release(rights, _body(environ))
        if request.path == WHY:
            return self._why(request, rights)
        self._reader.read_some()
        return json_response(200, self._state(request, rights))

    def _rights(self, environ: Environ) -> Rights:
        rules = self._rules
        if not decided(asked(rules.read, environ)):
            return Rights(read=False)
        release, keys = (decided(asked(rule, environ)) for rule in (rules.release, rules.keys))
        return Rights(True, release, keys)

    def _state(self, request: ConsoleRequest, rights: Rights) -> dict[str, Any]:
        process = process_state(self._dibs)
        figures = None if self._statistics is None else self._statistics.facts()
        at, view = Moment(monotonic(), time()), view_of(request.fields)
        state = state_of(self.survey, process, figures, view, rights, at)
        return {**state, "token": request.cookie if rights.release else None}

    def _release(self, rights: Rights, body: bytes) -> ConsoleResponse:
        release = wanted_release(body, is_allowed=rights.release)
        if isinstance(release, ConsoleResponse):
            return release
        try:
            key = self._reader.find(release.row_id)
            if key is None:
                return released("lost")
            return released(self._reader.release(key, release.seen))
        except DibsError as error:
            return json_response(503, {"error": str(error)})

    def _why(self, request: ConsoleRequest, rights: Rights) -> ConsoleResponse:
        look, namespace = self._reader.inspector, process_state(self._dibs, 0).namespace
        try:
            key = self._reader.find(request.fields.get("id", ""))
            entry = None if key is None else look.entry(key)
        except DibsError as error:
            return json_response(503, {"error": str(error)})
        if key is None or entry is None:
            return explained(None, keys=rights.keys)
        return explained(found_at(Place(namespace, key), entry, alive), keys=rights.keys)


class _Reader:
    """Reads the server for all viewers: one thread at a time, when a viewer asks."""

    def __init__(self, inspecting: Any) -> None:
        self.inspector: Any = inspecting
        self._lock = RenewedLock()
        self.survey = Survey()

    def read_some(self) -> None:
        """Go on with the sweep, for a moment; nothing if another thread does so."""
        lock = self._lock.lock
        if not try_lock(lock):
            return
        try:
            self._read(monotonic() + READ_FOR)
        except Exception as error:  # viewers see it; the next look may work
            self.survey.failed(why_failed(error), monotonic())
        finally:
            lock.release()

    def _read(self, until: float) -> None:
        survey, now = self.survey, monotonic()
        if survey.are_facts_due(now, FACTS_EVERY):
            self._read_facts(now)
        while now < until and survey.is_due(now, SWEEP_EVERY):
            page = self.inspector.page(cursor=survey.next_cursor(now), count=COUNT)
            now = monotonic()
            survey.read(page, now)

    def _read_facts(self, now: float) -> None:
        try:
            facts: list[ServerInfo] = self.inspector.server()
        except UsageError:  # this user may not call INFO: keys can be read all the same
            facts = []
        self.survey.read_facts(facts, monotonic() - now, now)

    def find(self, row_id: str) -> str | None:
        """The key with this id. None: it is not there, or not among the first ones."""
        key, cursor, looked = self.survey.find(row_id), "", 0
        while key is None and cursor is not None and looked < MOST_LOOKED:
            page = self.inspector.page(cursor=cursor, count=COUNT)
            key, looked = key_in(page, row_id), looked + len(page.entries)
            cursor = page.cursor
        return key

    def release(self, key: str, seen: str) -> str:
        """Free *key* if it is still the holding that was seen."""
        outcome = self.inspector.release_whatever(key, seen)
        self.survey.look_again()
        return outcome


# ---- WSGI


def request_of(environ: Environ) -> ConsoleRequest:
    """What the console reads of *environ*."""
    headers = {
        name[5:].replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    headers["content-type"] = environ.get("CONTENT_TYPE", "")
    headers.setdefault("host", f"{environ['SERVER_NAME']}:{environ['SERVER_PORT']}")
    return ConsoleRequest(
        environ["REQUEST_METHOD"],
        _text(environ.get("PATH_INFO", "")),
        _text(environ.get("SCRIPT_NAME", "")).rstrip("/"),
        environ.get("QUERY_STRING", ""),
        headers,
        environ.get("wsgi.url_scheme") == "https",
    )


def _text(path: str) -> str:
    return path.encode("latin-1", "replace").decode("utf-8", "replace")


def _body(environ: Environ) -> bytes:
    """The body of a request, if it is no longer than is allowed."""
    length = environ.get("CONTENT_LENGTH") or "0"
    size = int(length) if length.isascii() and length.isdigit() else 0
    return environ["wsgi.input"].read(size) if 0 < size <= LONGEST_BODY else b""
