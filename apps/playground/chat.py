"""The LINE bot behind the chat page: WeaMind as it is, in its own process.

GET  /chat/      the chat's page, and the controls of this bot
GET  /chat/bot   200: {"delay"}, the seconds that its weather takes
POST /chat/bot   {"delay": 0–4}   200: from now on it takes so long · 400 · 503
POST /chat/kill  202: the bot's process was killed, and comes back · 409: another fault, or no bot
GET  /chat/lock?as=   200: {"remaining"}, the seconds for which that person's lock is held; 0: free

`local_line.panel` has the rest. The bot is started when the page is first opened. How long its
weather takes is one of its settings: a change starts another bot, and the previous one finishes its
work.
"""

import asyncio
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from os import environ
from pathlib import Path
from typing import Any

from local_line import ChatPanel, KnownHosts, Platform, create_api, served
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from dibs import AsyncDibs, Unavailable

from .child import Child
from .engine import Engine
from .faults import Faults, Remedy, visitor_of, welcome

DELAY = 2.0
"""Seconds that the weather takes at first: long enough to tap five times meanwhile."""
MOST_DELAY = 4.0
"""Less than the bot's lock lasts."""
_CONTROLS = (
    '  <link rel="stylesheet" href="/static/faults.css">\n'
    '  <link rel="stylesheet" href="/static/chat-bot.css">\n'
    '  <script type="module" src="/static/chat-bot.js"></script>\n</head>'
)
_FIXED = {
    "WEATHER_PROVIDER": "sample",
    "PROCESSING_LOCK_ENABLED": "true",
    "PROCESSING_LOCK_TIMEOUT_SECONDS": "5",
    "PROCESSING_LOCK_SCOPE": "selective",
    "PROCESSING_LOCK_BUSY_REPLY": "every",
    "LOG_LEVEL": "WARNING",
    # It calls only the platform on this machine.
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}
"""Settings that the page relies on; they override the environment and `.env`."""


class Bot:
    """WeaMind, behind the platform: started when first needed, stopped on exit."""

    def __init__(self, engine: Engine, platform: Platform, api: Starlette) -> None:
        self.delay = DELAY
        self._engine = engine
        self._platform = platform
        self._api = api
        self._child: Child | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._settings: Mapping[str, str] | None = None
        self._folder = ""
        self._open = AsyncExitStack()
        self._turn: asyncio.Lock
        self._is_killed = False

    async def __aenter__(self) -> "Bot":
        self._child, self._settings, self._is_killed = None, None, False
        self._platform.webhook_url = ""
        self._turn = asyncio.Lock()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()
        if self._child is not None:
            await self._child.aclose()
        await self._open.aclose()

    async def end_requests(self) -> None:
        """Stop without waiting for a bot that is being started or is finishing."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def open(self) -> None:
        """Start the bot, unless it runs.

        OSError: it cannot be started, or the page is about to end.
        """
        await self._done(self._start(None))

    async def slow_down(self, delay: float) -> None:
        """Restart the bot with *delay* seconds for its weather.

        OSError: as before; it stays as it is.
        """
        await self._done(self._start(delay))

    async def kill(self) -> None:
        """Kill the bot with SIGKILL, in the middle of its work. OSError: there is none."""
        if self._child is None or self._child.is_gone:
            raise OSError("the bot does not run")
        self._is_killed = True
        await self._child.kill()

    async def come_back(self) -> None:
        """Start another bot, with the same database. OSError: it cannot be started."""
        self._is_killed = False
        await self.open()

    async def _done(self, work: Coroutine[Any, Any, None]) -> None:
        """Finish *work* even if the browser that asked for it has left."""
        task = self._spawn(work)
        await asyncio.wait([task])
        if task.cancelled():
            raise OSError("the playground ends")
        task.result()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- one after the other

    async def _start(self, delay: float | None) -> None:
        """Start the bot. *delay* None: unchanged."""
        async with self._turn:
            if self._is_killed:
                raise OSError("it was killed, and comes back in a moment")
            delay = self.delay if delay is None else delay
            is_there = self._child is not None and not self._child.is_gone
            if not is_there or delay != self.delay:
                await self._replace(delay)

    async def _replace(self, delay: float) -> None:
        if self._settings is None:
            self._settings = await self._prepare()
        child = Child("apps.weamind.main:app", folder=self._folder)
        try:
            await child.start({**self._settings, "SAMPLE_DELAY_SECONDS": f"{delay:g}"})
        except BaseException:
            await child.aclose()
            raise
        before, self._child, self.delay = self._child, child, delay
        self._platform.webhook_url = f"{child.url}/line/webhook"
        self._spawn(before.retire() if before else _apply_rich_menu(self._settings))

    async def _prepare(self) -> Mapping[str, str]:
        """The bot's settings. LINE's API and the folder that they name are created."""
        api = await self._open.enter_async_context(served(KnownHosts(self._api)))
        self._platform.api_base = api
        self._folder = tempfile.mkdtemp(prefix="dibs-weamind-")
        self._open.callback(shutil.rmtree, self._folder, ignore_errors=True)
        return {
            **_FIXED,
            "LINE_CHANNEL_SECRET": self._platform.channel.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": self._platform.channel.access_token,
            "LINE_API_BASE": api,
            "REDIS_URL": self._engine.target,
            "DATABASE_URL": f"sqlite:///{self._folder}/weamind.db",
        }


async def _apply_rich_menu(settings: Mapping[str, str]) -> None:
    """Show the bot's rich menu, if the bot has a command for that.

    The command runs while the first messages are sent. Errors are on stderr.
    """
    if find_spec("apps.weamind.richmenu") is None:
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "apps.weamind", "richmenu", "apply"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env={**environ, **settings},
        start_new_session=True,
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class BotPanel(ChatPanel):
    """The chat page, whose bot is WeaMind."""

    _dibs: AsyncDibs

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults
        platform = Platform(
            secret=secrets.token_hex(16), access_token=secrets.token_hex(32), name="WeaMind"
        )
        api = create_api(platform)
        self._bot = Bot(engine, platform, api)
        super().__init__(platform, api=api, open_bot=self._bot.open)

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes of the panel, below its own path."""
        return [
            Route("/bot", self.tell_delay, methods=["GET"]),
            Route("/bot", self.slow_down, methods=["POST"]),
            Route("/kill", self.kill, methods=["POST"]),
            Route("/lock", self.tell_lock, methods=["GET"]),
            *super().routes,
        ]

    async def __aenter__(self) -> "BotPanel":
        await super().__aenter__()
        await self._bot.__aenter__()
        self._dibs = AsyncDibs(self._engine.target)  # to look with: it holds nothing
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()
        await self._bot.__aexit__(*exception)
        await self._dibs.aclose()
        await super().__aexit__(*exception)

    async def end_requests(self) -> None:
        """End all streams and all requests that wait for a bot."""
        await self._bot.end_requests()
        await super().end_requests()

    # ---- answers

    async def page(self, request: Request) -> Response:
        """Serve the page, which is for any bot, with the controls of this one."""
        plain = await super().page(request)
        assert isinstance(plain, FileResponse)
        ours = HTMLResponse(_with_controls(Path(plain.path)), headers=dict(plain.headers))
        return welcome(request, ours)

    async def tell_delay(self, request: Request) -> Response:
        """Return how long the weather takes."""
        self.visitor(request)
        return JSONResponse({"delay": self._bot.delay})

    async def tell_lock(self, request: Request) -> Response:
        """Seconds that the bot's lock for this person still lasts; 0.0: it is free, or unknown."""
        phones = self.visitor(request).phones
        phone = phones.get(request.query_params.get("as", "ann"), phones["ann"])
        try:
            held = await self._dibs.peek(f"processing:user:{phone.private.user_id}")
        except Unavailable:
            held = None
        return JSONResponse({"remaining": held.remaining if held is not None else 0.0})

    async def kill(self, request: Request) -> Response:
        """Kill the bot, and start it again after a while."""
        visitor = visitor_of(request)
        remedy = Remedy(self._bot.kill, self._bot.come_back)
        fault = await self._faults.begin("kill", "the bot", visitor, remedy)
        return JSONResponse(fault.report(visitor), 202)

    async def slow_down(self, request: Request) -> Response:
        """Set how long the weather takes. 503: no bot can be started that way."""
        self.visitor(request)
        delay = await _delay(request)
        try:
            await self._bot.slow_down(delay)
        except OSError as error:
            raise HTTPException(503, f"The bot does not start: {error}.") from None
        return JSONResponse({"delay": self._bot.delay})


def _with_controls(page: Path) -> str:
    return page.read_text(encoding="utf-8").replace("</head>", _CONTROLS, 1)


async def _delay(request: Request) -> float:
    try:
        body = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body must be JSON.") from None
    delay: Any = body.get("delay") if isinstance(body, dict) else None
    if type(delay) not in (int, float) or not 0 <= delay <= MOST_DELAY:
        raise HTTPException(400, f"delay must be a number of seconds from 0 to {MOST_DELAY:g}.")
    return delay
