"""Middlewares for the tests of the suite: one that keeps every promise, and some with a flaw."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from dibs_torture import Adapter, App, Wrap
from dibs_torture.asgi import Headers, Message, Receive, Scope, Send

LIMIT = 64 * 1024
SMALL = Adapter(
    big=2 * LIMIT, oversized=2 * LIMIT, within=20, also_guarded="POST /guarded/also",
    also_method="PUT /guarded", compares="content",
)  # fmt: skip
NOT_FINAL = {400, 401, 403, 404, 422, 423, 425, 429}
PERSONAL = {b"set-cookie", b"connection", b"keep-alive", b"date"}
PERSONAL |= {b"proxy-authenticate", b"www-authenticate"}
PERSONAL |= {b"access-control-allow-origin", b"content-length"}
PERSONAL |= {b"x-request-id", b"x-correlation-id", b"traceparent"}


@dataclass
class Record:
    """What is known of a key; without an answer, it is still running."""

    payload: bytes
    answer: tuple[int, Headers, bytes | None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class CorrectMiddleware:
    """Guards POST and PUT of /guarded and all below it, in the memory of one process."""

    def __init__(
        self, app: App, *, after: str = "replay", keyed: bool = True, waits: bool = False
    ) -> None:
        self.app = app
        self.after = after
        self.keyed = keyed
        self.waits = waits
        self.records: dict[bytes, Record] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.guards(scope):
            return await self.app(scope, receive, send)
        keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
        if self.keyed and not self.fits(keys):
            return await refuse(send, 400)
        body, receive = await self.read(receive)
        if body is None:
            return await self.app(scope, receive, send)
        payload = self.payload(scope, body)
        key = self.who(scope) + (self.bare(keys[0]) if self.keyed else payload)
        if record := self.records.get(key):
            return await self.duplicate(record, payload, scope, send)
        return await self.run(key, payload, scope, receive, send)

    def guards(self, scope: Scope) -> bool:
        """Whether it is a POST or PUT below /guarded, as the application sees its path."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT"):
            return False
        return scope["path"].removeprefix(scope["root_path"]).startswith("/guarded")

    def who(self, scope: Scope) -> bytes:
        """Who submits, and where to; without a name and a key, all that tells people apart."""
        heads = dict(scope["headers"])
        login = heads.get(b"authorization", b"")
        who = login if login.startswith(b"Bearer ") else b""  # others may have a new signature
        if not self.keyed and not who:
            who = f"{scope['client'][0]} ".encode() + heads.get(b"cookie", b"")
        return f"{scope['method']} {scope['path']} ".encode() + who + b" "

    def payload(self, scope: Scope, body: bytes) -> bytes:
        """Everything that is submitted: the query, what kind of body it is, and the body."""
        kind = dict(scope["headers"]).get(b"content-type", b"")
        kind, _, boundary = kind.partition(b"; boundary=")
        body = body.replace(boundary, b"") if boundary else body
        if kind == b"application/json":
            with contextlib.suppress(ValueError):
                body = json.dumps(json.loads(body), sort_keys=True).encode()
        return b"%b %b %b" % (scope["query_string"], kind, body)

    def fits(self, keys: list[bytes]) -> bool:
        """Whether there is one key, of a decent length, of visible characters."""
        key = self.bare(keys[0]) if len(keys) == 1 else b""
        return 0 < len(key) <= 255 and all(32 < byte < 127 and byte != 34 for byte in key)

    def bare(self, key: bytes) -> bytes:
        """The key without its quotes."""
        quoted = len(key) > 1 and key[:1] == key[-1:] == b'"'
        return key[1:-1] if quoted else key

    async def read(self, receive: Receive) -> tuple[bytes | None, Receive]:
        """The whole body, and a receive that replays it and then continues."""
        messages: list[Message] = []
        while not messages or messages[-1].get("more_body"):
            messages.append(await receive())
        gone = messages[-1]["type"] == "http.disconnect"
        body = None if gone else b"".join(message["body"] for message in messages)

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        return body, again

    async def run(
        self, key: bytes, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the app do the work, and remember its result."""
        record = self.records[key] = Record(body)

        async def whole(*answer: Any) -> None:
            await asyncio.sleep(0)  # as if the store were far away
            self.settle(key, record, *answer)

        try:
            await asyncio.sleep(0)
            await self.app(scope, receive, Recorder(send, whole).send)
        finally:
            if record.answer is None:
                self.forget(key, record)

    def settle(
        self, key: bytes, record: Record, status: int, headers: Headers, body: bytes | None
    ) -> None:
        """The answer is whole, and about to be sent."""
        later = b"retry-after" in dict(headers)
        if status >= 500 or status in NOT_FINAL or later or self.after == "release":
            return self.forget(key, record)
        record.answer = status, self.kept(headers), body
        return record.ended.set()

    def kept(self, headers: Headers) -> Headers:
        """The headers that a replay may have."""
        return [(name, value) for name, value in headers if name not in PERSONAL]

    def forget(self, key: bytes, record: Record) -> None:
        """Forget the claim: there is no result to remember."""
        if self.records.get(key) is record:
            del self.records[key]
        record.ended.set()

    async def duplicate(self, record: Record, body: bytes, scope: Scope, send: Send) -> None:
        """Answer in place of the app."""
        if record.payload != body:
            return await refuse(send, 422)
        if self.waits:
            await record.ended.wait()
        if record.answer is None or self.after != "replay" or record.answer[2] is None:
            return await refuse(send, 409)
        status, headers, stored = record.answer
        packed = (b"content-encoding", b"gzip") in headers
        if packed and b"gzip" not in dict(scope["headers"]).get(b"accept-encoding", b""):
            return await refuse(send, 409)
        mark = (b"idempotent-replayed", b"true")
        await send({"type": "http.response.start", "status": status, "headers": [*headers, mark]})
        return await send({"type": "http.response.body", "body": stored})


class Recorder:
    """Passes an answer on frame by frame, and tells when it is whole, before its last frame."""

    def __init__(self, send: Send, whole: Callable[..., Awaitable[None]]) -> None:
        self._send = send
        self._whole = whole
        self._head: Message = {}
        self._body = b""
        self._storable = True

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._head = message
        self._body += message.get("body", b"")
        self._storable &= kind != "http.response.pathsend" and len(self._body) <= LIMIT
        last = kind in ("http.response.body", "http.response.pathsend")
        if last and not message.get("more_body"):
            body = self._body if self._storable else None
            await self._whole(self._head["status"], list(self._head["headers"]), body)
        try:
            await self._send(message)
        except OSError:
            if kind != "http.response.start":  # the rest may still come, and be stored
                raise


async def refuse(send: Send, status: int) -> None:
    headers = [(b"content-type", b"text/plain"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"refused"})


# ------------------------------------------------------------------------------- with a flaw


class EndsLate(CorrectMiddleware):
    """Remembers an answer when the app has returned."""

    async def run(
        self, key: bytes, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        record, answers = Record(body), list[Any]()
        self.records[key] = record

        async def whole(*answer: Any) -> None:
            answers.append(answer)

        try:
            await self.app(scope, receive, Recorder(send, whole).send)
        except BaseException:
            self.forget(key, record)
            raise
        self.settle(key, record, *answers[0]) if answers else self.forget(key, record)


class MissesCancellation(CorrectMiddleware):
    """Does not know that a cancellation is no Exception."""

    def forget(self, key: bytes, record: Record) -> None:
        if not isinstance(sys.exception(), asyncio.CancelledError):
            super().forget(key, record)


class ReleasesForAnybody(CorrectMiddleware):
    """Releases the key for any caller."""

    async def duplicate(self, record: Record, body: bytes, scope: Scope, send: Send) -> None:
        await super().duplicate(record, body, scope, send)
        self.records.clear()


class IgnoresPayload(CorrectMiddleware):
    """Does not look at the payload."""

    async def duplicate(self, record: Record, body: bytes, scope: Scope, send: Send) -> None:
        await super().duplicate(record, record.payload, scope, send)


class AnswersBeforeBody(CorrectMiddleware):
    """Answers a duplicate before it has read what is submitted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.guards(scope):
            keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
            record = self.records.get(self.who(scope) + self.bare((keys or [b""])[0]))
            if record is not None and record.answer is not None:
                return await self.duplicate(record, record.payload, scope, send)
        return await super().__call__(scope, receive, send)


class ReplaysEveryHeader(CorrectMiddleware):
    """Repeats every header."""

    def kept(self, headers: Headers) -> Headers:
        return headers


class TakesAnyKey(CorrectMiddleware):
    """Takes the first line of the header for the key, even if it is malformed."""

    def fits(self, keys: list[bytes]) -> bool:
        return bool(keys)

    def bare(self, key: bytes) -> bytes:
        return key


async def collects_every_body(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Collects the body of every request, and says afterwards that the client has left."""
    if scope["type"] != "http":
        return await app(scope, receive, send)
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())

    async def again() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    return await app(scope, again, send)


async def sends_at_the_end(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends every answer when the app has returned."""
    if scope["type"] != "http":
        return await app(scope, receive, send)
    messages: list[Message] = []

    async def later(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, later)
    for message in messages:
        await send(message)
    return None


async def hides_exceptions(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Keeps the app's exceptions to itself."""
    try:
        await app(scope, receive, send)
    except Exception:
        return


async def hides_disconnects(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Does not tell the app that the client has left."""

    async def anyway(message: Message) -> None:
        try:
            await send(message)
        except OSError:
            return

    await app(scope, receive, anyway)


async def detaches_the_app(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Runs the app in a task that knows nothing of its caller, and outlives it."""
    work = app(scope, receive, send)
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())  # type: ignore[arg-type]
    await asyncio.shield(task)


async def only_http(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Knows HTTP and nothing else."""
    if scope["type"] == "http":
        await app(scope, receive, send)


async def drops_unknown_facts(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Hands on only what it knows."""
    if scope["type"] != "http":
        return await app(scope, receive, send)
    kept = {name: value for name, value in scope.items() if "." not in name}
    return await app(kept | {"state": dict(scope["state"])}, receive, send)


async def cancels_when_client_leaves(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Stops the app when the client has left."""
    if scope["type"] != "http" or scope["path"] != "/guarded":
        return await app(scope, receive, send)
    work = asyncio.ensure_future(app(scope, receive, send))
    client = asyncio.ensure_future(receive_until_gone(receive))
    try:
        await asyncio.wait([work, client], return_when=asyncio.FIRST_COMPLETED)
    finally:
        client.cancel()
        work.cancel()
        await asyncio.wait([client, work])
    return await work


async def receive_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def around(layer: Callable[[App, Scope, Receive, Send], Any]) -> Wrap:
    return lambda app: functools.partial(layer, CorrectMiddleware(app))


def bare(app: App) -> App:
    """No middleware at all."""
    return app
