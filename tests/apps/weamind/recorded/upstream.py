"""A real HTTP server in the test's own loop, which answers, hangs, drips or lies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

HERE = Path(__file__).parent
Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


def recorded(name: str) -> Any:
    """The recorded answer of that name, as a new document."""
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


class Asked(NamedTuple):
    path: str
    query: dict[str, str]
    headers: dict[str, str]


class Upstream:
    """Starts on entry at `url`, remembers what it was `asked`, and leaves nothing behind."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[Asked] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            self.asked.append(_parsed(await reader.readuntil(b"\r\n\r\n")))
            await self.behaviour(writer)
            await writer.drain()
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the test is over, or the client has had enough
        finally:
            writer.close()


def _parsed(head: bytes) -> Asked:
    first, *lines = head.decode().strip().split("\r\n")
    parts = urlsplit(first.split(" ")[1])
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Asked(parts.path, query, headers)


# ---- behaviours


def saying(
    body: bytes | Any, status: int = 200, *, after: float = 0.0, **headers: str
) -> Behaviour:
    """An answer; *body*: bytes, or a document. `content_type="…"` is a header."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named = {"content-type": "application/json"} | named | {"content-length": str(len(content))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    head = f"HTTP/1.1 {status} Whatever\r\n{lines}connection: close\r\n\r\n".encode()

    async def answer(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(after)
        writer.write(head + content)

    return answer


async def hanging(writer: asyncio.StreamWriter) -> None:
    """Never a word."""
    await asyncio.Event().wait()


async def dripping(writer: asyncio.StreamWriter) -> None:
    """A good head, and then a blank every now and then: no single read takes long."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def endless(writer: asyncio.StreamWriter) -> None:
    """A body without an end, as quick as it can be taken."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[")
    while True:
        writer.write(b"0," * 32_768)
        await writer.drain()


async def hanging_up(writer: asyncio.StreamWriter) -> None:
    """The connection is closed without an answer."""


async def cut_short(writer: asyncio.StreamWriter) -> None:
    """Less of a body than was promised."""
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"hourly":')


async def not_http(writer: asyncio.StreamWriter) -> None:
    """Another protocol."""
    writer.write(b"220 mail.example ESMTP ready\r\n")
