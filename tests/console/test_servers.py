"""The console in the servers that applications run in: what it does when they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.routing import Mount

from dibs import AsyncDibs
from dibs.console import console
from dibs.testing import Server
from dibs.testing.servers import free_port


async def test_a_server_that_gives_responses_little_time_at_its_end_ends_as_without_viewers(
    valkey: Server,
) -> None:
    """Hypercorn cancels what is left after `graceful_timeout`, and skips the lifespan then."""
    ended: list[str] = []
    async with AsyncDibs(valkey.url) as dibs:
        page = console(dibs, allow="host")

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            yield
            ended.append("app")

        app = Starlette(routes=[Mount("/dibs", page)], lifespan=lifespan)
        stop, config = asyncio.Event(), Config()
        port, config.graceful_timeout = free_port(), 15  # less than a stream lasts with uvicorn
        config.bind, config.errorlog = [f"127.0.0.1:{port}"], None
        serving = asyncio.create_task(_served(app, config, stop))
        reader, writer = await _opened(port)
        await reader.readuntil(b"data: ")
        stop.set()
        assert (await reader.read()).endswith(b"\r\n0\r\n\r\n")  # the stream has an end
        writer.close()
        await serving
        await page.stop()
    assert ended == ["app"]


async def _served(app: Any, config: Config, stop: asyncio.Event) -> None:
    await serve(app, config, shutdown_trigger=stop.wait)


async def _opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A viewer, as soon as the server listens."""
    async with asyncio.timeout(30):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.write(b"GET /dibs/api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return reader, writer
