"""Duplicate submissions and idempotency keys for any WSGI application: Bottle, Falcon, your own.

    app = DibsMiddleware(app, dibs=Dibs("redis://…"), policies=[
        Policy("POST /orders", window=86400, after="replay", key="required"),
    ])

A request that no policy guards is passed on unchanged. Flask and Django have separate modules.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import IO, Any, Unpack, cast

from .. import Dibs
from .._http.bodies import (
    PIECE,
    SHORT,
    BodyHash,
    LongBody,
    Spool,
    SpooledSize,
    declared_length,
)
from .._http.facts import (
    INCOMPLETE,
    NO_ROOM,
    InvalidRequest,
    RequestFacts,
    RequestHeaders,
    read_headers,
    too_large,
)
from .._http.policy import (
    GuardKeywords,
    Policy,
    check_routes,
    guard_options,
    mark_guarded,
    match_policy,
)
from .._http.responses import Response
from .._http.submission import Submission, applied, split_key_lines, submission_of
from ._request_claims import RequestClaim, ResponseBody
from ._request_claims import StartResponse as StartResponse
from ._sync.http_claims import claim_request

__all__ = ["DibsMiddleware", "Policy"]

Environ = dict[str, Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
User = Callable[[Environ], object]


class DibsMiddleware:
    """Processes each submission once, by the policies of the routes.

    Args:
        dibs: A Dibs, which you close, or a URL.
        user: Called with the environ.
        **options: `GuardKeywords`.
    """

    def __init__(
        self,
        app: App,
        *,
        dibs: Dibs | str,
        policies: Iterable[Policy] = (),
        **options: Unpack[GuardKeywords[User]],
    ) -> None:
        self._app = app
        self._dibs = Dibs(dibs) if isinstance(dibs, str) else dibs
        self._policies = tuple(policies)
        self._options = guard_options("DibsMiddleware", options, "dibs", "policies")
        check_routes(self._policies)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        policy = match_policy(self._policies, _request_method(environ), *_request_paths(environ))
        if policy is None or (policy.key == "only" and not _client_keys(environ, policy)):
            return self._app(environ, start_response)
        return self._guard_request(policy, environ, start_response)

    def _guard_request(
        self, policy: Policy, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        mark_guarded(environ)
        is_terminated = bool(environ.get("wsgi.input_terminated"))
        body = RequestBody(self._options.spool, is_terminated=is_terminated)
        try:
            submission = self._submission_of(policy, environ, body)
            assert submission is not None
            outcome = claim_request(self._dibs, policy, policy.route, submission)
        except BaseException:
            body.close()
            raise
        if isinstance(outcome, Response):
            body.close()
            return send_response(outcome, start_response, _request_method(environ))
        environ["wsgi.input"] = body.file
        if environ.pop("HTTP_TRANSFER_ENCODING", None) is not None:
            environ["CONTENT_LENGTH"] = str(body.size)  # known now; it is no longer chunked
        path = _path_text(environ.get("SCRIPT_NAME", "")) + _request_path(environ)
        claim = RequestClaim(applied(policy, submission), outcome, path)
        response = ResponseBody(
            _request_method(environ), start_response, [claim], body.close, is_recorded=True
        )
        return response.run(self._app, environ)

    def _submission_of(
        self, policy: Policy, environ: Environ, body: "RequestBody"
    ) -> Submission | InvalidRequest | None:
        headers, options = header_fields(environ), self._options
        invalid = body.read(environ["wsgi.input"], headers, policy.body_limit)
        if invalid is not None:
            return invalid
        facts = RequestFacts(
            method=_request_method(environ),
            route=policy.route,
            path=_request_path(environ),
            query=environ.get("QUERY_STRING", ""),
            headers=headers,
            body=body.data,
            long=body.long,
            user=options.user(environ) if options.user is not None else None,
            address=environ.get("REMOTE_ADDR"),
            path_fields=_path_fields(policy, environ) if "{" in policy.route else {},
        )
        return submission_of(policy, facts, _client_keys(environ, policy), options)


def send_response(response: Response, start_response: StartResponse, method: str) -> list[bytes]:
    """Send a whole response. *method*: of the request, in upper case."""
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = "Unknown"
    start_response(f"{response.status} {phrase}", list(response.headers))
    return [] if method == "HEAD" else [response.body]


# ---- the body of a request


class RequestBody:
    """The body of a request, read to its end before the claim; the application reads `file`."""

    __slots__ = ("_has_no_room", "_is_terminated", "_spooled", "data", "file", "long", "size")

    def __init__(self, spool: Spool, *, is_terminated: bool) -> None:
        """*is_terminated*: the server ends the input (`wsgi.input_terminated`)."""
        self._spooled = SpooledSize(spool)
        self._has_no_room = False
        self._is_terminated = is_terminated
        self.data = b""
        self.size = 0
        self.long: LongBody | None = None
        file = tempfile.SpooledTemporaryFile(SHORT)  # noqa: SIM115 – see close()
        self.file: IO[bytes] = cast("IO[bytes]", file)

    def read(self, source: Any, headers: dict[str, str], limit: int) -> InvalidRequest | None:
        """Read to the end. Returns what is wrong with the body: incomplete, or too long."""
        length = declared_length(headers)
        self.size = self._copy_body(source, headers, limit, length)
        if self.size > limit:
            return too_large(limit)
        if self._has_no_room:
            return NO_ROOM
        if length is not None and self.size < length:
            return INCOMPLETE
        self.file.seek(0)
        if self.long is None:
            self.data = self.file.read()
            self.file.seek(0)
        return None

    def _copy_body(
        self, source: Any, headers: dict[str, str], limit: int, length: int | None
    ) -> int:
        """Return the number of bytes.

        Without a length, only an input that is terminated can be read.
        """
        if length is None and not self._is_terminated:
            return 0
        hashing, size = BodyHash(headers.get("content-type", "")), 0
        while size <= 2 * limit and (length is None or size < length):
            piece = source.read(PIECE if length is None else min(PIECE, length - size))
            if not piece:
                break
            size += len(piece)
            if not self._spooled.grow(min(size, limit)):
                self._has_no_room = True
            elif size <= limit:
                hashing.add(piece)
                self.file.write(piece)
        self.long = hashing.result() if SHORT < size <= limit else None
        return size

    def close(self) -> None:
        """Remove the file."""
        self._spooled.close()
        self.file.close()


class CountedInput:
    """A body that counts the bytes that were read: servers may end it early without an error."""

    __slots__ = ("_source", "count", "limit")

    def __init__(self, source: Any) -> None:
        self._source = source
        self.count = 0
        self.limit: int | None = None
        """Bytes after which nothing more is returned; None: no limit."""

    def _counted_data(self, data: bytes) -> bytes:
        self.count += len(data)
        return data

    def read(self, size: int | None = -1) -> bytes:
        """See io.BufferedIOBase."""
        size = -1 if size is None else size
        if self.limit is not None:
            most = max(self.limit - self.count + 1, 0)  # one more, by which the excess is noticed
            size = most if size < 0 else min(size, most)
        return self._counted_data(self._source.read(size))

    def drop(self, most: int) -> None:
        """Read and drop up to *most* bytes.

        A client that is still sending would lose its connection, and the response with it.
        """
        while most > 0 and (piece := self._counted_data(self._source.read(min(most, 65536)))):
            most -= len(piece)

    def read1(self, size: int | None = -1) -> bytes:
        """See io.BufferedIOBase."""
        return self.read(size)

    def readinto(self, buffer: Any) -> int:
        """See io.BufferedIOBase."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readline(self, *size: int) -> bytes:
        """See io.BufferedIOBase."""
        return self._counted_data(self._source.readline(*size))

    def readlines(self, *hint: int) -> list[bytes]:
        """See io.BufferedIOBase."""
        return [self._counted_data(line) for line in self._source.readlines(*hint)]

    def __iter__(self) -> Iterator[bytes]:
        return map(self._counted_data, self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


# ---- reading an environment


def header_fields(environ: Environ) -> RequestHeaders:
    """Return the headers; several lines of one name are joined by the server."""
    lines = [
        (key[5:].replace("_", "-"), str(value))
        for key, value in environ.items()
        if key.startswith("HTTP_")
    ]
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            lines.append((name.replace("_", "-"), str(environ[name])))
    return read_headers(lines)


def _client_keys(environ: Environ, policy: Policy) -> list[str]:
    value = environ.get("HTTP_" + policy.header.upper().replace("-", "_"))
    return [] if value is None else split_key_lines([value])


def _request_method(environ: Environ) -> str:
    """In upper case: many applications treat "post" as POST."""
    return environ["REQUEST_METHOD"].upper()


def _path_fields(policy: Policy, environ: Environ) -> dict[str, str]:
    """Return the values of the `{fields}` of the route."""
    return policy.path_fields(_request_method(environ), *_request_paths(environ))


def _request_path(environ: Environ) -> str:
    return _path_text(environ.get("PATH_INFO", "")) or "/"


def _request_paths(environ: Environ) -> tuple[str, ...]:
    """Return the path as the application sees it; with a prefix (`SCRIPT_NAME`), both forms."""
    path, root = _request_path(environ), environ.get("SCRIPT_NAME", "")
    return (path, _path_text(root) + path) if root else (path,)


def _path_text(value: str) -> str:
    """Return the text of a path: WSGI decodes its bytes as Latin-1."""
    return value.encode("latin-1").decode("utf-8", "surrogateescape")
