"""The platform on a loopback port, for tests and for bots in other processes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from .panel import ChatPanel, create_page
from .platform import Platform

_FAREWELL = 2.0
"""The most that answers under way may take at the end, in seconds."""
_LOOK = 0.005
"""Between two looks whether they are given: not the tenth of a second that uvicorn takes."""


class LocalLine(Platform):
    """LINE, on this machine: `async with LocalLine(secret=…, access_token=…) as line:`.

    The bot is given `line.api_base` as LINE's address, and `line.webhook_url` is where the bot is.
    Everything runs in the loop that entered it: blocking calls to it belong in a thread.
    """

    api_base: str
    """What a bot is told that LINE's API is."""
    page_url: str
    """The chat, to look at in a browser."""
    _serving: AsyncExitStack

    async def __aenter__(self) -> "LocalLine":
        panel = ChatPanel(self)
        async with AsyncExitStack() as serving:
            await super().__aenter__()
            serving.push_async_exit(super().__aexit__)
            url = await serving.enter_async_context(served(create_page(panel)))
            # What happens first at the end: streams, and answers that dawdle, would not end.
            serving.push_async_callback(panel.send_home)
            serving.callback(self.faults.end)
            self._serving = serving.pop_all()
        self.api_base, self.page_url = url, f"{url}/chat/"
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._serving.aclose()


class _Server(uvicorn.Server):
    """uvicorn, within a loop that is not its own: it looks at no signals, and ends at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self.end = asyncio.Event()

    @contextmanager
    def capture_signals(self):
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # uvicorn would end the process, which is not its own here
            raise OSError("the app does not start; its log says why") from None
        self.is_up.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.end.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._settle()
        await self.lifespan.shutdown()

    async def _settle(self) -> None:
        """Answers under way are given, or given up."""
        looks = int(_FAREWELL / _LOOK)
        for _ in range(looks):
            if not self.server_state.connections:
                break
            await asyncio.sleep(_LOOK)
        tasks = set(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@asynccontextmanager
async def served(app: ASGIApp, *, lifespan: bool = False) -> AsyncIterator[str]:
    """*app* answers at the address that is given, on a free loopback port, until the end.

    OSError: its lifespan does not start. Nothing is left open then.
    """
    config = uvicorn.Config(
        app,
        lifespan="on" if lifespan else "off",
        log_config=None,
        access_log=False,
        ws="none",
    )
    server = _Server(config)
    with _listen() as listener:
        serving = asyncio.create_task(server.serve([listener]))
        try:
            await _either(serving, server.is_up)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.end.set()
            await serving


def _listen() -> socket.socket:
    # TCP by name, which socket.create_server leaves out: asyncio sends small answers at once only
    # where it sees that name. Else each takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


async def _either(serving: "asyncio.Task[None]", is_up: asyncio.Event) -> None:
    """It is up; or it is not, and says why."""
    waiting = asyncio.create_task(is_up.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not is_up.is_set():
        waiting.cancel()
        await serving
