"""The app behind the middleware: it runs the handler of the case, and counts the runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .asgi import App, Headers, Message, Receive, Scope, Send
from .exchange import DISCONNECT
from .notifier import Notifier

JSON: Headers = [(b"content-type", b"application/json")]


class HandlerError(Exception):
    """Raised by the app where a case wants it to fail."""


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


@dataclass(frozen=True)
class Call:
    """One run of the app: the request, and how to respond to it."""

    run: int
    scope: Scope
    receive: Receive
    send: Send

    async def respond(
        self, status: int = 201, body: bytes | None = None, *, headers: Headers = JSON
    ) -> None:
        """Send a whole answer; without a body, a small JSON that names the run."""
        await self.start(status, headers=headers)
        await self.chunk(b'{"run":%d}' % self.run if body is None else body, more=False)

    async def start(self, status: int = 201, *, headers: Headers = JSON, **more: Any) -> None:
        """Send the head of an answer."""
        head = {"type": "http.response.start", "status": status, "headers": list(headers)}
        await self.send(head | more)

    async def chunk(self, body: bytes, *, more: bool = True) -> None:
        """Send a frame of the body."""
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def read(self) -> bytes:
        """Return the whole body. ClientDisconnected: the client left before its end."""
        body, more = b"", True
        while more:
            message = await self.receive()
            if message["type"] == DISCONNECT:
                raise ClientDisconnected
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body


Handler = Callable[[Call], Awaitable[None]]


class CaseApplication:
    """An ASGI app for one case: its `handler` responds to every request."""

    def __init__(self, *, notifier: Notifier) -> None:
        self.runs = 0
        self.handler: Handler = Call.respond
        self.websocket: App | None = None
        self.lifespan: App = default_lifespan
        self._notifier = notifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a lifespan, a websocket or a request, each as the case has set it."""
        if scope["type"] == "lifespan":
            await self.lifespan(scope, receive, send)
        elif scope["type"] == "websocket" and self.websocket is not None:
            await self.websocket(scope, receive, send)
        else:
            self.runs += 1
            self._notifier.notify()
            await self.handler(Call(self.runs, scope, receive, send))


async def default_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    """Start and stop on request, leaving a trace in the state that requests will see."""
    await _received(receive, "lifespan.startup")
    scope["state"]["torture"] = "started"
    await send({"type": "lifespan.startup.complete"})
    await _received(receive, "lifespan.shutdown")
    await send({"type": "lifespan.shutdown.complete"})


async def _received(receive: Receive, kind: str) -> Message:
    message = await receive()
    if message["type"] != kind:
        raise HandlerError(f"{message['type']} instead of {kind}")
    return message
