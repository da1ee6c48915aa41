"""Duplicate submissions and idempotency keys for any ASGI application.

    app = DibsMiddleware(app, dibs=AsyncDibs("redis://…"), policies=[
        Policy("POST /orders", window=86400, after="replay", key="required"),
        Policy("POST /forms/*", window=10, after="hold", message="Already sent, please wait."),
    ])

A request that no policy guards is passed on unchanged.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from typing import IO, Any, Unpack, cast

from .. import AsyncDibs
from .._http.bodies import PIECE, SHORT, BodyHash, LongBody, Spool, SpooledSize
from .._http.facts import (
    INCOMPLETE,
    NO_ROOM,
    TIMED_OUT,
    InvalidRequest,
    RequestFacts,
    RequestHeaders,
    read_headers,
    too_large,
)
from .._http.policy import (
    GuardKeywords,
    GuardOptions,
    Policy,
    check_routes,
    guard_options,
    inner_path,
    mark_guarded,
    match_policy,
    unmark_guarded,
)
from .._http.responses import Response
from .._http.submission import Submission, applied, submission_of
from ._async.http_claims import claim_request
from ._response_end import App as App
from ._response_end import Message, Recorder, RequestEnd
from ._response_end import Receive as Receive
from ._response_end import Scope as Scope
from ._response_end import Send as Send

__all__ = ["DibsMiddleware", "Policy"]

User = Callable[[Scope], Any]


class DibsMiddleware:
    """Processes each submission once, by the policies of the routes.

    Args:
        dibs: An AsyncDibs, which you close, or a URL.
        user: Called with the scope; may be async.
        **options: `GuardKeywords`.
    """

    def __init__(
        self,
        app: App,
        *,
        dibs: AsyncDibs | str,
        policies: Iterable[Policy] = (),
        **options: Unpack[GuardKeywords[User]],
    ) -> None:
        self._app = app
        self._url = dibs if isinstance(dibs, str) else None
        self._dibs = AsyncDibs(dibs) if isinstance(dibs, str) else dibs
        self._policies = tuple(policies)
        self._options = guard_options("DibsMiddleware", options, "dibs", "policies")
        check_routes(self._policies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and self._url is not None:
            return await self._app(scope, receive, closing(send, self._close_client))
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        policy = match_policy(self._policies, method_of(scope), *paths_of(scope))
        if policy is None or (policy.key == "only" and not keys_of(policy, scope)):
            return await self._app(scope, receive, send)
        return await self._guard_request(policy, scope, receive, send)

    async def _guard_request(
        self, policy: Policy, scope: Scope, receive: Receive, send: Send
    ) -> None:
        mark_guarded(scope)
        keep_headers(scope)
        body = RequestBody(receive, self._options.spool)
        try:
            submission = await self._submission_of(policy, scope, body)
            if body.is_disconnected or submission is None:
                return None  # the client has left before the end of its request: it must not run
            outcome = await claim_request(self._dibs, policy, policy.route, submission)
            if isinstance(outcome, Response):
                return await send_response(outcome, send)
            end = RequestEnd(scope, body.receive, send)
            end.recorder = Recorder(applied(policy, submission), outcome, str(scope["path"]))
            return await end.run(self._app)
        finally:
            unmark_guarded(scope)
            body.close()

    async def _submission_of(
        self, policy: Policy, scope: Scope, body: "RequestBody"
    ) -> Submission | InvalidRequest | None:
        headers, options = headers_of(scope), self._options
        invalid = await body.read(headers, policy)
        if invalid is not None:
            return invalid
        user = await resolved(options.user(scope)) if options.user is not None else None
        facts = RequestFacts(
            method=method_of(scope),
            route=policy.route,
            path=path_of(scope),
            query=query_of(scope),
            headers=headers,
            body=body.data,
            long=body.long,
            user=user,
            address=client_address(scope),
            path_fields=_path_fields(policy, scope) if "{" in policy.route else {},
        )
        return await decided(policy, facts, keys_of(policy, scope), options)

    async def _close_client(self) -> None:
        """Close the AsyncDibs that was made from a URL. The application may start again."""
        assert self._url is not None
        old, self._dibs = self._dibs, AsyncDibs(self._url)
        await old.aclose()


def closing(send: Send, close: Callable[[], Awaitable[None]]) -> Send:
    """*send* for a lifespan; it calls *close* before the server learns that shutdown is complete.

    An application without lifespan support raises or returns at once; that is not a shutdown.
    """

    async def wrapped(message: Message) -> None:
        if message["type"].startswith("lifespan.shutdown."):
            await close()
        await send(message)

    return wrapped


async def send_response(response: Response, send: Send) -> None:
    """Send a whole response."""
    headers = encoded(response)
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def encoded(response: Response) -> list[tuple[bytes, bytes]]:
    """Return the headers as ASGI has them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]


# ---- the body of a request


class RequestBody:
    """The body of a request, read to its end before the claim; `receive` then replays it.

    A short body stays in memory. A long one is hashed and written to a temporary file.
    """

    # Defaults on the class: most bodies are short, and arrive in one message.
    _size = 0
    _first: Message | None = None
    """The whole body, as one message."""
    _file: IO[bytes] | None = None
    _hash: BodyHash | None = None
    _spooled: SpooledSize | None = None
    _has_no_room = False
    is_disconnected = False
    """True: the client has left before the end of the body."""
    long: LongBody | None = None
    """What is known of a body that is not held in memory."""

    def __init__(self, receive: Receive, spool: Spool) -> None:
        self._receive = receive
        self._spool_of = spool

    @property
    def data(self) -> bytes:
        """The body, if it is short."""
        return b"" if self._first is None else self._first.get("body", b"")

    async def read(self, headers: dict[str, str], policy: Policy) -> InvalidRequest | None:
        """Read to the end. Returns what is wrong with the body: incomplete, too long, too slow."""
        message = await self._receive()
        if self._is_whole(message, policy.body_limit):
            self._first = message
            return None
        try:  # from its first piece: before that it costs nothing
            async with asyncio.timeout(policy.body_seconds):
                return await self._read(message, headers, policy.body_limit)
        except TimeoutError:
            return TIMED_OUT

    async def _read(
        self, message: Message, headers: dict[str, str], limit: int
    ) -> InvalidRequest | None:
        # One buffer for all messages: a client may send as many small ones as it likes.
        buffer = bytearray()
        while await self._take(message, buffer, headers, limit):
            message = await self._receive()
        if self._size > limit:
            return too_large(limit)
        if self._has_no_room:
            return NO_ROOM
        if self.is_disconnected:
            return INCOMPLETE
        await self._finish_body(buffer)
        return None

    def _is_whole(self, message: Message, limit: int) -> bool:
        """Return True if the first message is a whole, short body."""
        is_last = message["type"] == "http.request" and not message.get("more_body")
        return is_last and len(message.get("body", b"")) <= min(SHORT, limit)

    async def _take(
        self, message: Message, buffer: bytearray, headers: dict[str, str], limit: int
    ) -> bool:
        """Process one message. False: it was the last one."""
        if message["type"] == "http.disconnect":
            self.is_disconnected = True
            return False
        piece = message.get("body", b"")
        self._size += len(piece)
        if self._size > SHORT and not self._reserve_room(min(self._size, limit)):
            self._has_no_room = True
        elif self._size <= limit:
            buffer += piece
            await self._move_to_file(buffer, headers)
        # A body that is too long is read nevertheless, up to twice the limit: a client that is
        # answered while it sends would lose its connection, and the response with it.
        return bool(message.get("more_body")) and self._size <= 2 * limit

    def _reserve_room(self, size: int) -> bool:
        """Return False if there is no room for a body of *size*."""
        if self._spooled is None:
            self._spooled = SpooledSize(self._spool_of)
        return self._spooled.grow(size)

    async def _move_to_file(self, buffer: bytearray, headers: dict[str, str]) -> None:
        """Move *buffer* to a file, if the body is long."""
        if self._file is None and self._size > SHORT:
            self._file = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 – see close()
            self._hash = BodyHash(headers.get("content-type", ""))
        if self._file is not None and self._hash is not None and len(buffer) >= PIECE:
            await asyncio.to_thread(_hash_and_write, buffer, self._hash, self._file)

    async def _finish_body(self, buffer: bytearray) -> None:
        if self._file is None or self._hash is None:
            self._first = {"type": "http.request", "body": bytes(buffer), "more_body": False}
            return
        await asyncio.to_thread(_hash_and_write, buffer, self._hash, self._file)
        self._file.seek(0)
        self.long = self._hash.result()

    async def receive(self) -> Message:
        """Return the body that was read, then what the server sends: `http.disconnect`."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._file is None:
            return await self._receive()
        piece = await asyncio.to_thread(self._file.read, PIECE)
        self._size -= len(piece)
        is_more = self._size > 0 and bool(piece)
        if not is_more:
            self.close()
        return {"type": "http.request", "body": piece, "more_body": is_more}

    def close(self) -> None:
        """Remove the file, if there is one."""
        file, self._file = self._file, None
        if self._spooled is not None:
            self._spooled.close()
        if file is not None:
            file.close()


async def decided(
    policy: Policy, facts: RequestFacts, keys: list[str], options: GuardOptions[Any]
) -> Submission | InvalidRequest | None:
    """`submission_of`, beside the event loop if the body takes long to parse."""
    if facts.is_long_to_parse:
        return await asyncio.to_thread(submission_of, policy, facts, keys, options)
    return submission_of(policy, facts, keys, options)


def _hash_and_write(buffer: bytearray, hashing: BodyHash, file: IO[bytes]) -> None:
    """Hash and write the content of *buffer*, and empty it."""
    data = bytes(buffer)
    buffer.clear()
    hashing.add(data)
    file.write(data)


# ---- reading a scope


def paths_of(scope: Scope) -> tuple[str, ...]:
    """Return the path as the application sees it; with a prefix (`root_path`), both forms."""
    path, root = str(scope["path"]), scope.get("root_path", "")
    return (inner_path(path, root), path) if root else (path,)


def path_of(scope: Scope) -> str:
    """Return the path that is part of the key.

    Without the prefix of the server, with that of a mount.
    """
    root = scope.get("app_root_path", scope.get("root_path", ""))
    return inner_path(str(scope["path"]), root) if root else str(scope["path"])


def mount_of(scope: Scope) -> str:
    """Return the path under which a mounted application is; "": it is not mounted."""
    if "app_root_path" not in scope:
        return ""
    return inner_path(str(scope.get("root_path", "")), scope["app_root_path"])


def _path_fields(policy: Policy, scope: Scope) -> dict[str, str]:
    """Return the values of the `{fields}` of the route."""
    return policy.path_fields(method_of(scope), *paths_of(scope))


def method_of(scope: Scope) -> str:
    """In upper case: some servers pass "post" on, and some applications treat it as POST."""
    return scope["method"].upper()


def query_of(scope: Scope) -> str:
    """Return the query string as it was sent."""
    return scope.get("query_string", b"").decode("latin-1")


def client_address(scope: Scope) -> str | None:
    """Return the address of the client."""
    client = scope.get("client")
    return client[0] if client else None


def keys_of(policy: Policy, scope: Scope) -> list[str]:
    """Return the lines of the key's header."""
    name = policy.header_name
    return [
        value.decode("latin-1") for each, value in scope.get("headers", ()) if each.lower() == name
    ]


def keep_headers(scope: Scope) -> None:
    """Let the application see the headers that the guard sees.

    To the list of uvicorn with httptools, the trailers of a chunked body are added: a client could
    be somebody else after the body than before it.
    """
    scope["headers"] = [*scope.get("headers", ())]


def headers_of(scope: Scope) -> RequestHeaders:
    """Return the headers of a request."""
    return read_headers(
        [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope.get("headers", ())
        ]
    )


async def resolved(user: Any) -> object:
    """Return what `user=` returned, awaited if it is awaitable."""
    return cast(Any, await user) if isinstance(user, Awaitable) else user
