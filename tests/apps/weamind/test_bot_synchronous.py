"""The example in the style of the seeds: line-bot-sdk's WebhookHandler on the lock for threads."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path

import pytest
from linebot.v3.exceptions import InvalidSignatureError
from local_line import events
from local_line.local import LocalLine, served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from apps.weamind.core.metrics import Metrics
from apps.weamind.core.processing_lock import ProcessingLockService
from apps.weamind.line import texts
from apps.weamind.places.place import Place
from apps.weamind.synchronous import SynchronousBot
from apps.weamind.user.database import UserDatabase
from apps.weamind.weather.forecast import TAIPEI, Forecast
from apps.weamind.weather.sample import make_up
from dibs.testing import Server, aeventually

from .conftest import ACCESS_TOKEN, HOME, SECRET, XINYI, is_busy, is_forecast

pytestmark = pytest.mark.only_on("linux", "darwin")


class Weather:
    """Forecasts that come when the test says so."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.asked = 0

    def __call__(self, place: Place) -> Forecast:
        self.asked += 1
        assert self.opened.wait(20)
        return make_up(place, now=datetime.now(TAIPEI))


def served_in_threads(bot: SynchronousBot) -> Starlette:
    """200 at once; the handlers run in a thread."""
    under_way: set[asyncio.Task[None]] = set()

    def work(body: str, signature: str) -> None:
        try:
            bot.handler.handle(body, signature)
        except Exception:
            traceback.print_exc()
            raise

    async def webhook(request: Request) -> Response:
        body, signature = await request.body(), request.headers["X-Line-Signature"]
        task = asyncio.create_task(asyncio.to_thread(work, body.decode(), signature))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        return PlainTextResponse("OK")

    app = Starlette(routes=[Route("/callback", webhook, methods=["POST"])])
    app.state.under_way = under_way
    return app


@asynccontextmanager
async def opened(
    valkey: Server, tmp_path: Path, *, at_least: float = 0.0
) -> AsyncIterator[tuple[LocalLine, Weather]]:
    users = UserDatabase(f"sqlite:///{tmp_path}/bot.db")
    users.prepare()
    lock = ProcessingLockService(valkey.url, at_least=at_least, counted_in=Metrics())
    weather = Weather()
    with closing(users), closing(lock):
        async with LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line:
            users.set_place(line.me.chat_id, "home", XINYI, 1)
            bot = SynchronousBot(
                secret=SECRET, access_token=ACCESS_TOKEN, users=users, forecast=weather, lock=lock,
                api_base=line.api_base,
            )  # fmt: skip
            app = served_in_threads(bot)
            async with served(app) as url:
                line.webhook_url = f"{url}/callback"
                yield line, weather
                await aeventually(lambda: not app.state.under_way)


async def test_a_second_tap_is_told_to_wait(valkey: Server, tmp_path: Path) -> None:
    """The seeds' sequence: one is served, the others get ⏳; then the next is served again."""
    async with opened(valkey, tmp_path) as (line, weather):
        await line.tap(HOME)
        await aeventually(lambda: weather.asked == 1)
        for _ in range(2):
            await line.tap(HOME)
        assert all(map(is_busy, await line.wait_for_messages(2)))
        weather.opened.set()
        assert is_forecast((await line.wait_for_messages(3))[-1])
        await aeventually(lambda: not valkey.keys())
        await line.tap(HOME)
        assert is_forecast((await line.wait_for_messages(4))[-1])


async def test_the_lock_stays_for_a_while(valkey: Server, tmp_path: Path) -> None:
    """With `at_least`, a quick answer does not let the next tap through."""
    async with opened(valkey, tmp_path, at_least=5) as (line, weather):
        weather.opened.set()
        await line.tap(HOME)
        await line.wait_for_messages(1)
        await line.tap(HOME)
        assert is_busy((await line.wait_for_messages(2))[-1]) and weather.asked == 1


async def test_texts_locations_and_other_taps(valkey: Server, tmp_path: Path) -> None:
    """They are answered without the lock."""
    async with opened(valkey, tmp_path) as (line, weather):
        weather.opened.set()
        for draft in (
            events.text("板橋"), events.text("東區"), events.text("阿斯嘉"),
            events.location(25.0337, 121.5645), events.location(0, 0),
            events.postback("action=weather&type=office"), events.postback("action=recent_queries"),
            events.postback("action=settings"),
        ):  # fmt: skip
            await line.send(draft)
            await line.wait_for_messages(len(line.chat().sent) + 1)
            await aeventually(lambda: valkey.keys() == [])  # the answer comes before the release
        said = [
            message.get("text", message["type"]).split("\n・")[0] for message in line.chat().sent
        ]
    assert said == [
        "flex", texts.WHICH_PLACE, texts.UNKNOWN_TEXT.format(said="阿斯嘉"), "flex", texts.OUTSIDE,
        texts.NO_PLACE_YET.format(kind="公司"), texts.NO_QUERIES_YET, texts.UNKNOWN_TAP,
    ]  # fmt: skip


def test_the_example_refuses_a_wrong_signature(tmp_path: Path) -> None:
    """The SDK refuses it before any handler runs."""
    users = UserDatabase(f"sqlite:///{tmp_path}/bot.db")
    with closing(users):
        bot = SynchronousBot(
            secret=SECRET, access_token=ACCESS_TOKEN, users=users, forecast=Weather()
        )
        with pytest.raises(InvalidSignatureError):
            bot.handler.handle('{"destination": "U0", "events": []}', "wrong")
