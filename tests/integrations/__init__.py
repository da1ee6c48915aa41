"""The HTTP guard: its engine, and each edge that uses it.

`Call` is one request without a server in between: what the application receives is ours to say,
what it sends is looked at frame by frame.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

Message = dict[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]

DISCONNECT: Message = {"type": "http.disconnect"}


class Call:
    """One request to an ASGI application. Nothing happens before `run()` or `start()`."""

    def __init__(
        self,
        app: App,
        route: str = "POST /orders",
        *,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | Iterable[bytes] = b"{}",
        client: str | None = "10.0.0.1",
        sending: Callable[[Message], Awaitable[None]] | None = None,
        **facts: Any,
    ) -> None:
        method, _, target = route.partition(" ")
        path, _, query = target.partition("?")
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        self.scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1", "method": method, "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(n.lower().encode(), v.encode("latin-1")) for n, v in pairs],
            "client": None if client is None else (client, 1), "server": ("shop", 80),
            **facts,
        }  # fmt: skip
        self.sent: list[Message] = []
        self._app = app
        self._inbox = _frames(body)
        self._sending = sending
        self._left = asyncio.Event()

    async def run(self) -> Call:
        """To its end. What the application raises is raised."""
        await self._app(self.scope, self._receive, self._send)
        return self

    def start(self) -> asyncio.Task[Call]:
        """Beside us."""
        return asyncio.create_task(self.run())

    def leave(self) -> None:
        """The client hangs up."""
        self._left.set()

    def leave_after_body(self) -> None:
        """The client hangs up when what it has sent was read."""
        self._inbox.append(DISCONNECT)

    async def _receive(self) -> Message:
        if self._inbox and not self._left.is_set():
            return self._inbox.popleft()
        await self._left.wait()
        return DISCONNECT

    async def _send(self, message: Message) -> None:
        if self._sending is not None:
            await self._sending(message)
        self.sent.append(message)

    # ---- the answer

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join([message.get("body", b"") for message in self.sent[1:]])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def header_lines(self) -> list[tuple[str, str]]:
        return [(n.decode().lower(), v.decode("latin-1")) for n, v in self.sent[0]["headers"]]

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.header_lines)

    @property
    def is_replay(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"


def _frames(body: bytes | Iterable[bytes]) -> deque[Message]:
    pieces = [body] if isinstance(body, bytes) else list(body)
    last = len(pieces) - 1
    return deque(
        [
            {"type": "http.request", "body": piece, "more_body": number < last}
            for number, piece in enumerate(pieces)
        ]
    )


async def read(receive: Callable[[], Awaitable[Message]]) -> bytes:
    """The whole body, as an application reads it."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        assert message["type"] == "http.request", message
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def answer(
    send: Callable[[Message], Awaitable[None]],
    status: int = 201,
    body: bytes = b'{"order":17}',
    headers: Iterable[tuple[str, str]] = (("content-type", "application/json"),),
) -> None:
    """A whole answer, as an application sends it."""
    lines = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


def is_problem(body: Any, headers: Mapping[str, str], status: int) -> bool:
    """A refusal says the same in its status, its headers and its body."""
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    assert body["status"] == status and body["type"].startswith("urn:dibs:")
    assert body["title"] and body["detail"]
    assert str(body.get("retryAfter", "")) == headers.get("retry-after", "")
    return True


def lifespan(app: App) -> Callable[[str], Awaitable[str]]:
    """Tells an application one thing after the other, as a server does; returns what it says."""
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    said: asyncio.Queue[Message] = asyncio.Queue()
    life: list[asyncio.Future[None]] = []

    async def tell(kind: str) -> str:
        if not life:
            call = app({"type": "lifespan", "state": {}}, inbox.get, said.put)
            life.append(asyncio.ensure_future(call))
        await inbox.put({"type": kind})
        reply = await said.get()
        if kind == "lifespan.shutdown":
            await life[0]
        return reply["type"]

    return tell
