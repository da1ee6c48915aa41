"""The platform on a loopback port, for tests and for bots in other processes."""

import asyncio
import secrets as _secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any, Literal
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn
from starlette.types import ASGIApp

from .hosts import KnownHosts
from .panel import ChatPanel
from .platform import Platform
from .routes import create_page
from .state import StateFile, kept, read, restore, snapshot

_SHUTDOWN_LIMIT = 2.0
"""How long pending answers may take at the end, in seconds."""
_LOOK = 0.005
"""Seconds between two checks for pending answers: uvicorn's tenth of a second is too slow."""


class LocalLine(Platform):
    """LINE, on this machine: `async with LocalLine() as line:`.

    The bot is given `line.api_base` as LINE's address, and `line.webhook_url` is where the bot is;
    `connect` puts an app there. Everything runs in the loop that entered it: blocking calls to it
    belong in a thread, or use `BlockingLine`.
    """

    page_url: str
    """The chat, to look at in a browser."""
    _serving: AsyncExitStack

    def __init__(
        self,
        *,
        secret: str | None = None,
        access_token: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        state: str | Path | None = None,
        **options: Any,
    ) -> None:
        """*secret*, *access_token*: made up, if there are none. *port* 0: a free one.
        *state*: the file in which everything is kept for the next run.

        The other options are those of `Platform`. ValueError: an empty secret or token, or
        a file that is no state.
        """
        self._file = None if state is None else Path(state).resolve()
        earlier = read(self._file) if self._file else {}
        known: dict[str, str] = dict(earlier.get("channel", {}))
        made_up = known.pop("secret", _secrets.token_hex(16))
        secret = made_up if secret is None else secret
        made_up = known.pop("access_token", _secrets.token_urlsafe(48))
        access_token = made_up if access_token is None else access_token
        super().__init__(secret=secret, access_token=access_token, identity=known, **options)
        restore(self, earlier)
        self._address = (host, port)

    async def __aenter__(self) -> "LocalLine":
        """OSError: the port is taken, or the state cannot be written or is that of another run."""
        panel = ChatPanel(self)
        host, port = self._address
        async with AsyncExitStack() as serving:
            file = None if self._file is None else StateFile(self._file)
            if file is not None:
                serving.callback(file.close)
            await super().__aenter__()
            if file is not None:
                await serving.enter_async_context(kept(self, file))
            serving.push_async_exit(super().__aexit__)
            app = KnownHosts(create_page(panel), {host})
            url = await serving.enter_async_context(served(app, host=host, port=port))
            if file is not None:
                file.write(snapshot(self))
            # What happens first at the end: streams, and delayed answers, would not end.
            serving.push_async_callback(panel.end_requests)
            serving.callback(self.faults.end)
            self._serving = serving.pop_all()
        self.api_base, self.page_url = url, f"{url}/chat/"
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._serving.aclose()

    async def connect(self, app: Any, path: str = "/callback") -> str:
        """Serve the bot, an ASGI or WSGI app, until the end; webhooks go to its *path*.

        Returns its address. OSError: it does not start. TypeError: it is not an app.
        """
        _check_app(app)
        bot = served(app, lifespan="auto") if is_asgi(app) else served_wsgi(app)
        url = await self._serving.enter_async_context(bot)
        self.webhook_url = url + path
        return self.webhook_url


def _check_app(app: Any) -> None:
    if isinstance(app, str):
        raise TypeError(f"connect() takes an app; for a bot elsewhere set webhook_url = {app!r}")
    if not callable(app):
        raise TypeError(f"connect() takes an ASGI or WSGI app, not {type(app).__name__}")


class _Server(uvicorn.Server):
    """uvicorn, within a loop that is not its own: it handles no signals, and ends at once."""

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
        """Wait for pending answers, up to the limit."""
        looks = int(_SHUTDOWN_LIMIT / _LOOK)
        for _ in range(looks):
            if not self.server_state.connections and not self.server_state.tasks:
                break
            await asyncio.sleep(_LOOK)
        tasks = set(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@asynccontextmanager
async def served(
    app: ASGIApp,
    *,
    lifespan: bool | Literal["auto"] = False,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[str]:
    """Serve *app* on a free loopback port until the end, and yield its address.

    OSError: the port is taken, or its lifespan does not start. Nothing is left open then.
    """
    config = uvicorn.Config(
        app,
        lifespan="auto" if lifespan == "auto" else "on" if lifespan else "off",
        log_config=None,
        access_log=False,
        ws="none",
    )
    server = _Server(config)
    with _listen(host, port) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        try:
            await _either(serving, server.is_up)
            yield f"http://{host}:{listener.getsockname()[1]}"
        finally:
            server.end.set()
            await serving


def is_asgi(app: Any) -> bool:
    """True: it is called with a scope; False: with an environ, as WSGI has it."""
    return iscoroutinefunction(app) or iscoroutinefunction(type(app).__call__)


@asynccontextmanager
async def served_wsgi(app: Any) -> AsyncIterator[str]:
    """The same, for a WSGI app: every request in its own thread."""
    server = make_server("127.0.0.1", 0, app, _Threads, _Quiet)
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the journal has it."""


def _listen(host: str, port: int) -> socket.socket:
    # TCP by name, which socket.create_server leaves out: asyncio sends small answers at once only
    # where it sees that name. Else each takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


async def _either(serving: "asyncio.Task[None]", is_up: asyncio.Event) -> None:
    """Wait until the server is up. Raises why it is not."""
    waiting = asyncio.create_task(is_up.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not is_up.is_set():
        waiting.cancel()
        await serving
