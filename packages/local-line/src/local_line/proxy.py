"""LINE's hosts over TLS, and an HTTPS proxy that leads there; other hosts are reached as usual."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import SplitResult, unquote, urlsplit

from .hosts import HOSTS

_HEAD = 64 * 1024
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Ports:
    """The ports of both."""

    def __init__(self, tls: int, proxy: int) -> None:
        self.tls, self.proxy = tls, proxy


@asynccontextmanager
async def proxied(api_port: int, context: ssl.SSLContext, upstream: str) -> AsyncIterator[Ports]:
    """Serve both until the end. *upstream*: the URL of the proxy for other hosts, if any."""
    door = _Door(api_port, upstream)
    async with AsyncExitStack() as stack:
        tls = await stack.enter_async_context(_listening(door.serve_line, context))
        door.tls_port = tls
        proxy = await stack.enter_async_context(_listening(door.serve_proxy, None))
        stack.callback(door.end)
        yield Ports(tls, proxy)


@asynccontextmanager
async def _listening(serve: Serve, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, limit=_HEAD)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class _Door:
    def __init__(self, api_port: int, upstream: str) -> None:
        self.tls_port = 0
        self._api_port = api_port
        self._upstream = urlsplit(upstream if "://" in upstream else f"http://{upstream}")
        self._tasks: set[asyncio.Task[None]] = set()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def serve_line(self, *client: *Streams) -> None:
        await self._run(client, self._to_line)

    async def serve_proxy(self, *client: *Streams) -> None:
        await self._run(client, self._to_anywhere)

    async def _run(self, client: Streams, answer: Callable[[Streams], Awaitable[None]]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await answer(client)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # one of both has gone, or is no HTTP client
        finally:
            self._tasks.discard(task)
            client[1].close()

    async def _to_line(self, client: Streams) -> None:
        await _join(client, await asyncio.open_connection("127.0.0.1", self._api_port))

    async def _to_anywhere(self, client: Streams) -> None:
        head = await client[0].readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if method == "CONNECT":
            await self._tunnel(client, head, target)
        else:
            await self._forward(client, head, target)

    async def _tunnel(self, client: Streams, head: bytes, target: str) -> None:
        host, _, port = target.rpartition(":")
        if host in HOSTS:
            server = await asyncio.open_connection("127.0.0.1", self.tls_port)
        elif self._upstream.hostname:
            server = await self._open_upstream(self._upstream.hostname)
            server[1].write(head[:-2] + _authorization(self._upstream) + b"\r\n")
            await _join(client, server)
            return
        else:
            server = await asyncio.open_connection(host.strip("[]"), int(port))
        client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _join(client, server)

    async def _open_upstream(self, host: str) -> Streams:
        secure = self._upstream.scheme == "https"
        port = self._upstream.port or (443 if secure else 80)
        return await asyncio.open_connection(host, port, ssl=secure or None)

    async def _forward(self, client: Streams, head: bytes, target: str) -> None:
        """Old clients (axios 0) send whole URLs to a proxy, in the clear."""
        url = urlsplit(target)
        if url.hostname in HOSTS:
            server = await asyncio.open_connection("127.0.0.1", self._api_port)
        else:
            secure = url.scheme == "https"
            port = url.port or (443 if secure else 80)
            server = await asyncio.open_connection(url.hostname, port, ssl=secure or None)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        first, rest = head.split(b"\r\n", 1)
        first = first.replace(target.encode("latin-1"), path.encode("latin-1"), 1)
        kept = [line for line in rest.split(b"\r\n") if not _is_connection(line)]
        # One request for each connection: the next one would have to be read, too.
        server[1].write(b"\r\n".join([first, b"Connection: close", *kept]))
        await _join(client, server)


def _authorization(proxy: SplitResult) -> bytes:
    """The header for the name and the password in its URL, which the program does not get."""
    if proxy.username is None:
        return b""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return b"Proxy-Authorization: Basic " + b64encode(pair.encode()) + b"\r\n"


def _is_connection(line: bytes) -> bool:
    return line.lower().startswith((b"connection:", b"proxy-"))


async def _join(one: Streams, other: Streams) -> None:
    """Copy in both directions, until both have ended."""
    try:
        await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))
    finally:
        other[1].close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_HEAD):
        target.write(data)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()
    else:  # TLS cannot end one half
        target.close()
