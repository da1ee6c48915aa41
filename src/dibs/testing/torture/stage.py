"""The suite's own app: it does what a case tells it, and counts how often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .asgi import App, Headers, Message, Receive, Scope, Send
from .exchange import DISCONNECT
from .news import News

JSON: Headers = [(b"content-type", b"application/json")]


class Breakdown(Exception):
    """What the suite's own app raises when it is told to fail."""


class ClientLeft(Exception):
    """The suite's own app was told that the client has left before its request was whole."""


@dataclass(frozen=True)
class Call:
    """One run of the app: the request, and the words to answer it."""

    run: int
    scope: Scope
    receive: Receive
    send: Send

    async def answer(
        self, status: int = 201, body: bytes | None = None, *, headers: Headers = JSON
    ) -> None:
        """Send a whole answer; without a body, a small JSON that names the run."""
        await self.start(status, headers=headers)
        await self.chunk(b'{"run":%d}' % self.run if body is None else body, more=False)

    async def start(self, status: int = 201, *, headers: Headers = JSON, **facts: Any) -> None:
        """Send the head of an answer."""
        head = {"type": "http.response.start", "status": status, "headers": list(headers)}
        await self.send(head | facts)

    async def chunk(self, body: bytes, *, more: bool = True) -> None:
        """Send a frame of the body."""
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def read(self) -> bytes:
        """Return the whole body of the request; raises ClientLeft if there is no whole one."""
        body, more = b"", True
        while more:
            message = await self.receive()
            if message["type"] == DISCONNECT:
                raise ClientLeft
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body


Handler = Callable[[Call], Awaitable[None]]


class Stage:
    """An ASGI app for one case: whatever is asked, its `handler` answers."""

    def __init__(self, *, news: News) -> None:
        self.runs = 0
        self.handler: Handler = Call.answer
        self.sockets: App | None = None
        self.lifespan: App = well_lived
        self._news = news

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a lifespan, a websocket or a request, each as the case has told us."""
        if scope["type"] == "lifespan":
            await self.lifespan(scope, receive, send)
        elif scope["type"] == "websocket" and self.sockets is not None:
            await self.sockets(scope, receive, send)
        else:
            self.runs += 1
            self._news.tell()
            await self.handler(Call(self.runs, scope, receive, send))


async def well_lived(scope: Scope, receive: Receive, send: Send) -> None:
    """Start and stop when told to, leaving a trace in the state that requests will see."""
    await _heard(receive, "lifespan.startup")
    scope["state"]["torture"] = "started"
    await send({"type": "lifespan.startup.complete"})
    await _heard(receive, "lifespan.shutdown")
    await send({"type": "lifespan.shutdown.complete"})


async def _heard(receive: Receive, kind: str) -> Message:
    message = await receive()
    if message["type"] != kind:
        raise Breakdown(f"{message['type']} instead of {kind}")
    return message
