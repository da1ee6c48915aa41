"""Duplicate submissions and idempotency keys for any WSGI application: Bottle, Falcon, your own.

    app = DibsMiddleware(app, dibs=Dibs("redis://…"), policies=[
        Policy("POST /orders", window=86400, after="replay", key="required"),
    ])

A request that no policy is meant for is not touched at all. Flask and Django have their own.
"""

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from .._http.answers import Answer
from .._http.facts import Facts, KeyTrouble, Submission, submission_of
from .._http.identity import identify
from .._http.policy import Policy, check_routes, find
from .._http.recording import Recording
from .._http.site import make_site
from .._sync.claim import Claim
from .._sync.client import Dibs
from ._bodies import WsgiBody
from ._claims import applied, claimed, ended, key_lines

__all__ = ["DibsMiddleware", "Policy"]

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
User = Callable[[Environ], object]


class DibsMiddleware:
    """Does each submission once, by the policies of the routes.

    *dibs*: a Dibs (yours to close) or a URL. *user*: tells from the environment who submits, as a
    string, or None where it is not known. *session_cookie*: the name of the cookie that says so.
    Without either, it is the Authorization header. *secret*: keys the hashes under which
    submissions are stored; the same in all processes. *service*: the name of this application,
    where several use one store; *per_host*: the Host header counts, too.
    """

    def __init__(
        self,
        app: App,
        *,
        dibs: Dibs | str,
        policies: Iterable[Policy] = (),
        user: User | None = None,
        session_cookie: str | None = None,
        secret: str | bytes | None = None,
        service: str = "",
        per_host: bool = False,
    ) -> None:
        self._app = app
        self._dibs = Dibs(dibs) if isinstance(dibs, str) else dibs
        self._policies = tuple(policies)
        self._user = user
        self._site = make_site(secret, service, session_cookie, per_host=per_host)
        check_routes(self._policies)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path, root = _path(environ), environ.get("SCRIPT_NAME", "")
        paths = (path, _text(root) + path) if root else (path,)
        policy = find(self._policies, _method(environ), *paths)
        if policy is None or (policy.key == "only" and not _keys(environ, policy)):
            return self._app(environ, start_response)
        return self._guard(policy, environ, start_response)

    def _guard(
        self, policy: Policy, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        body = WsgiBody(is_ended=bool(environ.get("wsgi.input_terminated")))
        try:
            submission = self._submission(policy, environ, body)
            assert submission is not None
            outcome = claimed(self._dibs, policy, policy.route, submission)
        except BaseException:
            body.close()
            raise
        if isinstance(outcome, Answer):
            body.close()
            return give(outcome, start_response)
        environ["wsgi.input"] = body.file
        if environ.pop("HTTP_TRANSFER_ENCODING", None) is not None:
            environ["CONTENT_LENGTH"] = str(
                body.size
            )  # it is known now, and not in chunks any more
        watched = _Watched(applied(policy, submission), outcome, start_response, body.close)
        return watched.run(self._app, environ)

    def _submission(
        self, policy: Policy, environ: Environ, body: WsgiBody
    ) -> Submission | KeyTrouble | None:
        headers = header_fields(environ)
        trouble = body.read(environ["wsgi.input"], headers, policy.body_limit)
        if trouble is not None:
            return trouble
        who = identify(
            self._user(environ) if self._user else None,
            session=self._site.session_cookie,
            authorization=headers.get("authorization", ""),
            cookies=headers.get("cookie", ""),
            address=environ.get("REMOTE_ADDR"),
            agent=headers.get("user-agent", ""),
        )
        facts = Facts(
            method=_method(environ),
            route=policy.route,
            path=_path(environ),
            query=environ.get("QUERY_STRING", ""),
            headers=headers,
            body=body.data,
            long=body.long,
            user=who.user,
            client=who.client,
            path_fields=policy.parts_of(_path(environ)),
            service=self._site.service,
            host=self._site.host(headers.get("host", "")),
        )
        return submission_of(policy, facts, _keys(environ, policy), self._site.secret)


def give(answer: Answer, start_response: StartResponse) -> list[bytes]:
    """Send a whole answer."""
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    start_response(f"{answer.status} {phrase}", list(answer.headers))
    return [answer.body]


class CountedInput:
    """A body that counts how much of it was read: a server may end it too early, without a word."""

    __slots__ = ("_source", "count")

    def __init__(self, source: Any) -> None:
        self._source = source
        self.count = 0

    def _counted(self, data: bytes) -> bytes:
        self.count += len(data)
        return data

    def read(self, *size: int) -> bytes:
        """As the body does."""
        return self._counted(self._source.read(*size))

    def read1(self, *size: int) -> bytes:
        """As the body does."""
        return self.read(*size)

    def readinto(self, buffer: Any) -> int:
        """As the body does."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readline(self, *size: int) -> bytes:
        """As the body does."""
        return self._counted(self._source.readline(*size))

    def readlines(self, *hint: int) -> list[bytes]:
        """As the body does."""
        return [self._counted(line) for line in self._source.readlines(*hint)]

    def __iter__(self) -> Iterator[bytes]:
        return map(self._counted, self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


# ---- the answer


class _Watched:
    """The application at work, and its answer on its way: recorded, and the claim ended with it."""

    def __init__(
        self,
        policy: Policy,
        claim: Claim,
        start_response: StartResponse,
        close: Callable[[], object],
    ) -> None:
        self._claim = claim
        self._recording = Recording(policy)
        self._policy = policy
        self._start_response = start_response
        self._close = close
        self._pieces: Iterable[bytes] = ()
        self._left: int | None = None
        """Bytes that are still to come, where the answer says how long it is."""

    def run(self, app: App, environ: Environ) -> "_Watched":
        """Call the application. What it raises is raised, and ends the claim."""
        try:
            self._pieces = app(environ, self._start)
        except BaseException:
            self._fail()
            raise
        if isinstance(self._pieces, list | tuple) and self._left is None:
            self._left = sum(map(len, self._pieces))
        return self

    def _start(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        self._recording = Recording(self._policy)
        self._recording.begin(int(status.partition(" ")[0]), tuple(headers))
        named = {name.lower(): value for name, value in headers}
        self._left = int(named["content-length"]) if "content-length" in named else None
        write = self._start_response(status, headers, *error)

        def recorded(piece: bytes) -> object:
            self._see(piece)
            return write(piece)

        return recorded

    def _see(self, piece: bytes) -> None:
        """A piece is about to be sent. With the last one the claim ends, before it is sent."""
        self._recording.add(piece)
        if self._left is not None:
            self._left -= len(piece)
            if self._left <= 0:
                ended(self._claim, self._recording)

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._pieces:
                self._see(piece)
                yield piece
        except GeneratorExit:
            raise
        except BaseException:
            self._fail()
            raise
        if self._recording.status:
            ended(self._claim, self._recording)

    def close(self) -> None:
        """The server is done with it. If that is before its end, the client has left: the work was
        done, only the answer is incomplete.
        """
        try:
            close = getattr(self._pieces, "close", None)
            if close is not None:
                close()
        finally:
            if self._recording.status:
                self._recording.give_up()
                ended(self._claim, self._recording)
            self._fail()

    def _fail(self) -> None:
        self._claim.fail()
        self._close()


# ---- reading an environment


def header_fields(environ: Environ) -> dict[str, str]:
    """Names in lower case; several lines of one name are joined by the server."""
    found = {
        key[5:].replace("_", "-").lower(): str(value)
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            found[name.replace("_", "-").lower()] = str(environ[name])
    return found


def _keys(environ: Environ, policy: Policy) -> list[str]:
    value = environ.get("HTTP_" + policy.header.upper().replace("-", "_"))
    return [] if value is None else key_lines([value])


def _method(environ: Environ) -> str:
    """As applications read it: to many of them, "post" is a POST."""
    return environ["REQUEST_METHOD"].upper()


def _path(environ: Environ) -> str:
    return _text(environ.get("PATH_INFO", "")) or "/"


def _text(value: str) -> str:
    """WSGI has bytes of a path as Latin-1."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")
