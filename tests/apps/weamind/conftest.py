"""A bot as its users meet it: real HTTP, a real Valkey, and LINE's platform on this machine."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from local_line.local import LocalLine, served

from apps.weamind.core.config import Settings
from apps.weamind.core.metrics import Metrics
from apps.weamind.main import create_app
from apps.weamind.places.place import Place
from apps.weamind.weather.forecast import Forecast
from apps.weamind.weather.sample import Sample
from dibs.testing import Child, Server, aeventually
from dibs.testing.servers import free_port

SECRET = "the secret of a channel that does not exist".replace(" ", "-")
ACCESS_TOKEN = "no-token-of-anybody"
XINYI, BANQIAO = "63000020", "65000010"
HOME, OFFICE = "action=weather&type=home", "action=weather&type=office"
BUSY = "⏳ 正在為您查詢天氣，請稍候..."


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """The headers with which LINE sends *body*."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).digest()
    return {"X-Line-Signature": base64.b64encode(digest).decode()}


def is_forecast(message: dict[str, Any]) -> bool:
    return message["type"] == "flex"


def is_busy(message: dict[str, Any]) -> bool:
    return message.get("text") == BUSY


class Gate(Sample):
    """A provider whose forecasts arrive when the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        self.asked = 0
        """How many forecasts were asked for."""

    async def fetch(self, place: Place) -> Forecast:
        self.asked += 1
        await self.opened.wait()
        return await super().fetch(place)


@dataclass
class RunningBot:
    """A running bot, and LINE beside it."""

    line: LocalLine
    url: str
    metrics: Metrics
    gate: Gate
    """With `gated=True`, forecasts wait for `gate.opened`."""
    http: httpx.AsyncClient = field(repr=False)

    async def post(self, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        """Post any body to the webhook; with LINE's headers, unless *headers* say otherwise."""
        return await self.http.post(
            "/line/webhook", content=body, headers=signed(body) if headers is None else headers
        )

    async def deliver(self, *events: Any) -> httpx.Response:
        return await self.post(json.dumps({"destination": "U0", "events": events}).encode())

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def settled(self, within: float = 20.0) -> None:
        """Wait until no event is being handled."""
        await aeventually(lambda: not self.count("line_events_pending"), within=within)

    async def replies(self, number: int, **options: Any) -> list[dict[str, Any]]:
        """What was sent to the person, when it is *number* messages and no event is left."""
        await self.line.wait_for_messages(number, **options)
        await self.settled()
        sent = self.line.chat(options.get("source")).sent
        assert len(sent) == number, sent
        return sent

    @property
    def answers(self) -> list[int]:
        """The statuses of all calls of LINE's reply, in their order."""
        return [call.status for call in self.line.calls if call.route.endswith("/message/reply")]


RunBot = Callable[..., AbstractAsyncContextManager[RunningBot]]


def settings_for(tmp_path: Path, redis_url: str, **options: Any) -> Settings:
    given = {
        "line_channel_secret": SECRET,
        "line_channel_access_token": ACCESS_TOKEN,
        "redis_url": redis_url,
        "database_url": f"sqlite:///{tmp_path}/bot.db",
        "weather_provider": "sample",
        "processing_lock_min_seconds": 0,  # tests tap faster than people; test_bot_taps.py does not
    }
    return Settings(_env_file=None, **(given | options))  # pyright: ignore[reportCallIssue]


@pytest.fixture
def run_bot(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> RunBot:
    """`async with run_bot(sample_delay_seconds=1) as bot:`, on the shared Valkey."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[RunningBot]:
        redis_url = options.pop("redis_url", None)
        if redis_url is None:  # a test about outages has its own server
            redis_url = request.getfixturevalue("valkey").url
            monkeypatch.setattr("apps.weamind.main._BUDGET", 30.0)
        line_options = options.pop("line", {})
        metrics, gate = Metrics(), Gate()
        if options.pop("gated", False):
            monkeypatch.setattr("apps.weamind.main.open_provider", lambda *_, **__: gate)
        async with AsyncExitStack() as stack:
            line = LocalLine(secret=SECRET, access_token=ACCESS_TOKEN, **line_options)
            await stack.enter_async_context(line)
            given = {"line_api_base": line.api_base} | options
            app = create_app(settings_for(tmp_path, redis_url, **given), counted_in=metrics)
            url = await stack.enter_async_context(served(app, lifespan=True))
            line.webhook_url = f"{url}/line/webhook"
            client = httpx.AsyncClient(base_url=url, timeout=20, trust_env=False, verify=False)
            http = await stack.enter_async_context(client)
            yield RunningBot(line, url, metrics, gate, http)

    return opened


# ------------------------------------------------------------------------------- processes


def serve(port: int, environment: dict[str, str]) -> None:
    """What `uvicorn apps.weamind.main:app --port …` does; says when it is ready."""
    import os

    import uvicorn

    os.environ.update(environment)

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)
            if self.started:
                print("ready", flush=True)

    config = uvicorn.Config(
        "apps.weamind.main:app", port=port, log_level="warning", access_log=False
    )
    Announcing(config).run()


class Process:
    """The bot in its own process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.webhook_url = f"{self.url}/line/webhook"
        self.child = Child(serve, self.port, environment)

    def wait(self) -> None:
        assert self.child.line(within=60) == "ready"


@pytest.fixture
def start_bots(tmp_path: Path) -> Iterator[Callable[..., list[Process]]]:
    """`start_bots(2, api_base, redis_url, …)`: bots in processes, on one database."""
    with ExitStack() as running:

        def start(number: int, api_base: str, redis_url: str, **settings: str) -> list[Process]:
            environment = {
                "LINE_CHANNEL_SECRET": SECRET,
                "LINE_CHANNEL_ACCESS_TOKEN": ACCESS_TOKEN,
                "LINE_API_BASE": api_base,
                "REDIS_URL": redis_url,
                "DATABASE_URL": f"sqlite:///{tmp_path}/bot.db",
                "WEATHER_PROVIDER": "sample",
                "PROCESSING_LOCK_MIN_SECONDS": "0",
                **settings,
            }
            bots = [Process(environment) for _ in range(number)]
            for bot in bots:
                running.callback(bot.child.close)
            for bot in bots:
                bot.wait()
            return bots

        yield start


@pytest.fixture
def frozen(own_server: Server) -> Iterator[Server]:
    """A Valkey to freeze; it resumes at the end."""
    yield own_server
    with contextlib.suppress(Exception):
        own_server.thaw()
