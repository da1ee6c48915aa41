"""A client that speaks ASGI to an application, without a server between them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote


class Answer:
    """A response."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


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
