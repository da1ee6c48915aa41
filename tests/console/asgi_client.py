"""A client that speaks ASGI to an application, without a server between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote


class Answer:
    """A response."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.is_over = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.arrived.put_nowait(message.get("body", b""))
            self.is_over = not message.get("more_body", False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def state(self) -> Any:
        """The next state of a stream."""
        return json.loads((await self.arrived.get()).partition(b"data: ")[2])


def scope_of(method: str, address: str, headers: dict[str, str], root: str = "") -> Any:
    path, _, query = address.partition("?")
    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http", "method": method, "path": unquote(root + path), "root_path": root,
        "query_string": query.encode(), "headers": [(b"host", b"shop.example"), *given],
        "scheme": "http",
    }  # fmt: skip


async def request(
    app: Any,
    address: str = "/",
    method: str = "GET",
    body: bytes = b"",
    root: str = "",
    **headers: str,
) -> Answer:
    """The whole response to one request."""
    answer = Answer()
    messages = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.disconnect"}

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    await app(scope_of(method, address, named, root), receive, answer.send)
    return answer


@asynccontextmanager
async def stream(app: Any, address: str = "/api/events") -> AsyncIterator[Answer]:
    """A response that continues until the block ends: then the client disconnects."""
    answer, gone = Answer(), asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    task = asyncio.create_task(app(scope_of("GET", address, {}), receive, answer.send))
    try:
        yield answer
    finally:
        gone.set()
        await asyncio.wait_for(task, 30)
