"""The dispatcher for LINE bots: with line-bot-sdk, on LINE's platform on this machine."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
from fastapi import FastAPI, Request, Response
from flask import Flask, request
from linebot.v3 import WebhookHandler, WebhookParser
from linebot.v3.messaging import Configuration, TextMessage
from linebot.v3.webhooks import FollowEvent, MessageEvent, PostbackEvent, TextMessageContent
from local_line import BlockingLine

from dibs import AsyncDibs, Dibs, Duplicate, Unavailable, UsageError
from dibs.integrations.linebot import Dispatcher, ThreadDispatcher
from dibs.testing import Server, aeventually, eventually

from .test_linebot import SECRET, sign

BUSY = "⏳ 請稍候…"


@pytest.fixture
def local_line_options() -> dict[str, Any]:
    """Time for a bot on a busy machine."""
    return {"webhook_timeout": 30.0}


def is_weather(event: PostbackEvent) -> bool:
    return event.postback.data.startswith("weather:")


WEATHER: dict[str, Any] = {
    "at_least": 60, "busy": "looking",
    "key": lambda event: f"{event.source.user_id}:{event.postback.data}",
}  # fmt: skip
"""How taps for the weather are handled: one at a time for each button of each person."""


class Bot:
    """A bot that answers "weather" when its gate is open, everything else at once."""

    def __init__(self, line: BlockingLine, url: str) -> None:
        self.gate = threading.Event()
        self.runs: list[str] = []
        self.replied: list[bool] = []
        self.outcomes: list[str] = []
        self.options: dict[str, Any] = {
            "parser": WebhookParser(line.secret),
            "configuration": Configuration(host=line.api_base, access_token=line.access_token),
            "busy": BUSY,
            "ttl": 60,
            "ended": lambda outcome, number: self.outcomes.extend([outcome] * number),
        }
        self.url = url


def fastapi_bot(bot: Bot) -> FastAPI:
    dibs = AsyncDibs(bot.url, budget=5)
    dispatcher = Dispatcher(dibs, **bot.options)

    @dispatcher.on(MessageEvent, TextMessageContent)
    async def text(event: MessageEvent, reply: Callable[..., Any]) -> None:
        bot.runs.append(event.message.text)
        while event.message.text == "weather" and not bot.gate.is_set():
            await asyncio.sleep(0.01)
        bot.replied.append(await reply(f"{event.message.text}!", TextMessage(text="sunny")))
        bot.replied.append(await reply("again"))

    @dispatcher.on(PostbackEvent, when=is_weather, **WEATHER)
    async def weather(event: PostbackEvent, reply: Callable[..., Any]) -> None:
        bot.runs.append(event.postback.data)
        while not bot.gate.is_set():
            await asyncio.sleep(0.01)
        await reply("sunny")

    @dispatcher.on(PostbackEvent, when=lambda event: event.postback.data == "settings", alone=False)
    async def settings(event: PostbackEvent, reply: Callable[..., Any]) -> None:
        await reply("settings")

    @dispatcher.on(PostbackEvent)
    async def tapped(event: PostbackEvent, reply: Callable[..., Any]) -> None:
        raise RuntimeError(f"cannot handle {event.postback.data}")

    @dispatcher.on(FollowEvent)
    async def followed(event: FollowEvent, reply: Callable[..., Any]) -> None:
        await reply({"type": "text", "text": "welcome"})

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        async with dibs, dispatcher:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/callback")
    async def webhook(request: Request) -> Response:
        signature = request.headers.get("X-Line-Signature")
        return Response(status_code=dispatcher.receive(await request.body(), signature))

    return app


def flask_bot(bot: Bot, closing: list[Any]) -> Flask:
    dibs = Dibs(bot.url, budget=5)
    dispatcher = ThreadDispatcher(dibs, **bot.options)
    closing += [dispatcher, dibs]

    @dispatcher.on(MessageEvent, TextMessageContent)
    def text(event: MessageEvent, reply: Callable[..., Any]) -> None:
        bot.runs.append(event.message.text)
        assert event.message.text != "weather" or bot.gate.wait(60)
        bot.replied.append(reply(f"{event.message.text}!", TextMessage(text="sunny")))
        bot.replied.append(reply("again"))

    @dispatcher.on("postback", when=is_weather, **WEATHER)
    def weather(event: PostbackEvent, reply: Callable[..., Any]) -> None:
        bot.runs.append(event.postback.data)
        assert bot.gate.wait(60)
        reply("sunny")

    @dispatcher.on("postback", when=lambda event: event.postback.data == "settings", alone=False)
    def settings(event: PostbackEvent, reply: Callable[..., Any]) -> None:
        reply("settings")

    @dispatcher.on("postback")
    def tapped(event: PostbackEvent, reply: Callable[..., Any]) -> None:
        raise RuntimeError(f"cannot handle {event.postback.data}")

    @dispatcher.on("follow")
    def followed(event: FollowEvent, reply: Callable[..., Any]) -> None:
        reply({"type": "text", "text": "welcome"})

    app = Flask("bot")

    @app.post("/callback")
    def webhook() -> tuple[str, int]:
        return "", dispatcher.receive(request.get_data(), request.headers.get("X-Line-Signature"))

    return app


@pytest.fixture(params=["FastAPI", "Flask"])
def bot(request: pytest.FixtureRequest, local_line: BlockingLine, valkey: Server) -> Iterator[Bot]:
    """A bot of each kind, behind LINE."""
    made, closing = Bot(local_line, valkey.url), list[Any]()
    app = fastapi_bot(made) if request.param == "FastAPI" else flask_bot(made, closing)
    local_line.connect(app)
    yield made
    made.gate.set()
    for each in closing:
        each.close()


def test_line_is_answered_before_the_work_and_each_event_once(
    bot: Bot, local_line: BlockingLine, caplog: pytest.LogCaptureFixture
) -> None:
    """200 while the work runs; a redelivery is silent, the next message is told to wait; a reply
    token is spent once; what failed may come again, and its words are not in the log.
    """
    first = local_line.say("weather")
    assert first.is_ok
    eventually(lambda: bot.runs == ["weather"], within=60)
    again = local_line.redeliver(first.event_ids[0])
    assert again.is_ok and local_line.say("hello?").is_ok
    local_line.wait_for_messages(1)
    eventually(lambda: sorted(bot.outcomes) == ["busy", "duplicate"], within=60)
    assert bot.replied == [] and local_line.chat().texts == [BUSY]
    bot.gate.set()
    local_line.wait_for_messages(3)
    eventually(lambda: bot.replied == [True, False], within=60)
    assert local_line.chat().texts == [BUSY, "weather!", "sunny"]

    assert local_line.redeliver(first.event_ids[0]).is_ok and local_line.follow().is_ok
    local_line.wait_for_messages(4)
    tapped = local_line.tap("my secret")
    eventually(lambda: bot.outcomes.count("failed") == 1, within=60)  # or it is a duplicate
    assert tapped.is_ok and local_line.redeliver(tapped.event_ids[0]).is_ok
    eventually(lambda: bot.outcomes.count("failed") == 2 and len(bot.outcomes) == 7, within=60)
    assert sorted(bot.outcomes) == ["busy", "done", "done", "duplicate", "duplicate", "failed",
                                    "failed"]  # fmt: skip
    assert local_line.chat().texts[3:] == ["welcome"] and bot.runs == ["weather"]
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text
    forged = httpx.post(
        local_line.webhook_url, content=b'{"events":[]}', headers={"x-line-signature": "x"},
        trust_env=False,
    )  # fmt: skip
    assert forged.status_code == 400


def test_taps_of_one_button_give_one_answer(bot: Bot, local_line: BlockingLine) -> None:
    """While it is made, who taps again is told so in this handler's own words; after it, nothing is
    said for `at_least`. Another button is answered meanwhile, and what `when` leaves out never
    waits."""
    local_line.tap("weather:home")
    eventually(lambda: bot.runs == ["weather:home"], within=60)
    local_line.tap("weather:home")
    local_line.wait_for_messages(1)
    local_line.tap("settings")
    local_line.wait_for_messages(2)
    local_line.tap("weather:office")
    eventually(lambda: bot.runs == ["weather:home", "weather:office"], within=60)
    bot.gate.set()
    local_line.wait_for_messages(4)
    eventually(lambda: len(bot.outcomes) == 4, within=60)
    for _ in range(3):
        local_line.tap("weather:home")
    eventually(lambda: len(bot.outcomes) == 7, within=60)
    assert sorted(bot.outcomes) == ["busy"] * 4 + ["done"] * 3
    assert local_line.chat().texts == ["looking", "settings", "sunny", "sunny"]


def test_a_message_after_a_tap_that_cools_is_answered(
    local_line: BlockingLine, valkey: Server
) -> None:
    """The key of the person stays for the tap's `at_least`; a text waits for it, is not lost."""
    bot = Bot(local_line, valkey.url)
    with Dibs(bot.url, budget=5) as dibs, ThreadDispatcher(dibs, **bot.options) as dispatcher:

        @dispatcher.on("postback", at_least=1)
        def tapped(event: Any, reply: Any) -> None:
            reply("tapped")

        @dispatcher.on("message")
        def said(event: Any, reply: Any) -> None:
            reply("heard")

        app = Flask("bot")

        @app.post("/callback")
        def webhook() -> tuple[str, int]:
            signature = request.headers.get("X-Line-Signature")
            return "", dispatcher.receive(request.get_data(), signature)

        local_line.connect(app)
        local_line.tap("a")
        eventually(lambda: bot.outcomes == ["done"], within=60)
        local_line.say("hello")
        local_line.wait_for_messages(2)
        eventually(lambda: bot.outcomes == ["done", "done"], within=60)
        assert local_line.chat().texts == ["tapped", "heard"]


def test_a_time_that_is_longer_than_the_ttl_is_refused(valkey: Server) -> None:
    """When the dispatcher is made, or the handler registered: UsageError."""
    with Dibs(valkey.url) as dibs:
        with pytest.raises(UsageError, match="at_least"):
            ThreadDispatcher(dibs, **parts([]), ttl=5, at_least=6)
        with ThreadDispatcher(dibs, **parts([]), ttl=5) as dispatcher:
            with pytest.raises(UsageError, match="at_least"):
                dispatcher.on("postback", at_least=6)


def test_what_the_sdk_does_without_a_dispatcher(local_line: BlockingLine) -> None:
    """`WebhookHandler` works before LINE is answered, and again."""
    app, handler, order = Flask("bot"), WebhookHandler(local_line.secret), list[str]()

    @handler.add(MessageEvent, message=TextMessageContent)
    def text(event: MessageEvent) -> None:
        order.append("handled")

    @app.post("/callback")
    def webhook() -> str:
        handler.handle(request.get_data(as_text=True), request.headers["X-Line-Signature"])
        order.append("answered")
        return "OK"

    local_line.connect(app)
    said = local_line.say("weather")
    local_line.redeliver(said.event_ids[0])
    assert order == ["handled", "answered"] * 2


# ---- without a platform


def signed(*ids: str) -> tuple[bytes, str]:
    """A webhook with a text for each of *ids*."""
    listed = [
        {"type": "message", "mode": "active", "timestamp": 1, "webhookEventId": each,
         "deliveryContext": {"isRedelivery": False}, "replyToken": f"token-{each}",
         "source": {"type": "user", "userId": "U1"},
         "message": {"id": "1", "type": "text", "text": each, "quoteToken": "q"}}
        for each in ids
    ]  # fmt: skip
    body = json.dumps({"destination": "U0", "events": listed}).encode()
    return body, sign(body)


def parts(outcomes: list[str]) -> dict[str, Any]:
    return {
        "parser": WebhookParser(SECRET),
        "configuration": None,
        "ended": lambda outcome, number: outcomes.extend([outcome] * number),
    }


async def test_a_dispatcher_drains_at_its_end(valkey: Server, caplog: Any) -> None:
    """It waits for what it has said 200 to; what is not done in time is cut, and may come again."""
    outcomes, done = list[str](), list[str]()
    release, stuck = asyncio.Event(), asyncio.Event()
    caplog.set_level(logging.INFO)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        dispatcher = Dispatcher(dibs, **parts(outcomes))

        @dispatcher.on("message", "text")
        async def text(event: Any, reply: Any) -> None:
            await (stuck if event.message.text == "stuck" else release).wait()
            done.append(event.message.text)

        assert dispatcher.receive(*signed("a", "b", "stuck")) == 200 and done == []
        closing = asyncio.create_task(dispatcher.aclose(within=1))
        await aeventually(lambda: len(valkey.keys()) == 3, within=60)
        release.set()
        await closing
        assert sorted(done) == ["a", "b"] and sorted(outcomes) == ["cut", "done", "done"]
        assert sorted(valkey.keys()) == ["line:event:a", "line:event:b"]
        assert "1 events were not done" in caplog.text


def test_threads_are_waited_for_at_the_end(valkey: Server) -> None:
    """The same for plain functions: those that run are waited for, those that wait are dropped."""
    outcomes, gate, begun = list[str](), threading.Event(), threading.Event()
    with Dibs(valkey.url, budget=5) as dibs:
        dispatcher = ThreadDispatcher(dibs, concurrency=1, **parts(outcomes))

        @dispatcher.on("message")
        def text(event: Any, reply: Any) -> None:
            begun.set()
            gate.wait(60)

        assert dispatcher.receive(*signed("a", "b")) == 200
        assert begun.wait(60)
        dispatcher.close(within=0.01)
        gate.set()
        eventually(lambda: sorted(outcomes) == ["cut", "done"], within=60)


@pytest.mark.parametrize("messages", [(), ("a",) * 6, ({"type": "text"},)])
async def test_a_reply_that_cannot_be_sent_spends_no_token(valkey: Server, messages: Any) -> None:
    """An error of the handler's, before anything is sent: the next reply still has the token."""
    spent, errors = list[str](), list[Exception]()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        dispatcher = Dispatcher(dibs, **parts([]))

        @dispatcher.on("message")
        async def text(event: Any, reply: Any) -> None:
            try:
                await reply(*messages)
            except Exception as error:
                errors.append(error)
            spent.extend(key for key in valkey.keys() if key.startswith("line:reply:"))

        dispatcher.receive(*signed("a"))
        await dispatcher.aclose()
    assert len(errors) == 1 and spent == []


def test_a_reply_of_a_thread_that_cannot_be_sent_spends_no_token(valkey: Server) -> None:
    """The same for plain functions."""
    outcomes = list[str]()
    with (
        Dibs(valkey.url, budget=5) as dibs,
        ThreadDispatcher(dibs, **parts(outcomes)) as dispatcher,
    ):

        @dispatcher.on("message")
        def text(event: Any, reply: Any) -> None:
            reply()

        dispatcher.receive(*signed("a"))
    assert outcomes == ["failed"] and valkey.keys() == []


async def test_a_webhook_that_comes_while_the_process_ends_is_refused(valkey: Server) -> None:
    """503, so that another process gets it: not 200, and then cut before its time."""
    outcomes, gate = list[str](), asyncio.Event()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        dispatcher = Dispatcher(dibs, **parts(outcomes))

        @dispatcher.on("message")
        async def text(event: Any, reply: Any) -> None:
            await gate.wait()

        assert dispatcher.receive(*signed("a")) == 200
        closing = asyncio.create_task(dispatcher.aclose())
        await aeventually(lambda: len(valkey.keys()) == 1, within=60)
        assert dispatcher.receive(*signed("b")) == 503
        gate.set()
        await closing
        assert outcomes == ["refused", "done"]
        async with dispatcher:  # an application that is started again, as tests do
            assert dispatcher.receive(*signed("c")) == 200
    assert outcomes == ["refused", "done", "done"]


def test_a_webhook_that_comes_when_threads_have_ended_is_refused(valkey: Server) -> None:
    """503, while they are waited for and afterwards."""
    outcomes, gate, begun = list[str](), threading.Event(), threading.Event()
    with Dibs(valkey.url, budget=5) as dibs:
        dispatcher = ThreadDispatcher(dibs, **parts(outcomes))

        @dispatcher.on("message")
        def text(event: Any, reply: Any) -> None:
            begun.set()
            gate.wait(60)

        assert dispatcher.receive(*signed("a")) == 200 and begun.wait(60)
        closing = threading.Thread(target=dispatcher.close)
        closing.start()
        eventually(lambda: dispatcher.receive(*signed("b")) == 503, within=60)
        gate.set()
        closing.join()
        assert dispatcher.receive(*signed("c")) == 503
    assert "cut" not in outcomes and outcomes[-1] == "refused"


async def test_a_webhook_that_exceeds_the_queue_is_refused_as_a_whole(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """503, and none of its events is worked on, so that LINE may deliver it again."""
    outcomes, gate = list[str](), asyncio.Event()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        dispatcher = Dispatcher(dibs, limit=2, **parts(outcomes))

        @dispatcher.on("message")
        async def text(event: Any, reply: Any) -> None:
            await gate.wait()

        assert dispatcher.receive(*signed("a")) == 200
        assert dispatcher.receive(*signed("b", "c")) == 503
        assert dispatcher.receive(b"[]", sign(b"[]")) == 400
        assert dispatcher.receive(b"\xff", sign(b"\xff")) == 400
        gate.set()
        await dispatcher.aclose()
    assert outcomes == ["refused", "refused", "done"]
    assert caplog.text.count("refused with 400") == 2
    assert "the queue is full: a webhook of 2 events is refused" in caplog.text


async def test_side_by_side_without_a_sentence(valkey: Server) -> None:
    """Without `busy=` no event waits; with it, a handler may still be exempt.

    Standby is left out.
    """
    outcomes, running, both = list[str](), 0, asyncio.Event()
    for options, alone in (({}, None), ({"busy": BUSY}, False)):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            dispatcher = Dispatcher(dibs, **options, **parts(outcomes))

            @dispatcher.on("message", alone=alone)
            async def text(event: Any, reply: Any) -> None:
                nonlocal running
                running += 1
                if running == 2:
                    both.set()
                await both.wait()

            dispatcher.receive(*signed(f"a{alone}", f"b{alone}"))
            body = signed("c")[0].replace(b'"active"', b'"standby"')
            assert dispatcher.receive(body, sign(body)) == 200
            await dispatcher.aclose()
        running = 0
        both.clear()
    assert sorted(outcomes) == ["done"] * 4 + ["ignored"] * 2


def test_handlers_of_the_other_world_are_refused(valkey: Server) -> None:
    """When they are registered, with a sentence."""
    with Dibs(valkey.url) as dibs, ThreadDispatcher(dibs, **parts([])) as threads:
        with pytest.raises(UsageError, match="a plain function"):

            @threads.on("message")
            async def later(event: Any, reply: Any) -> None: ...


# ---- what the log says of an event that failed


async def test_the_log_says_why_the_server_refuses_everybody(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """dibs' own sentence, which names the setting to correct."""
    own_server.client().config_set("requirepass", "right")
    outcomes = list[str]()
    async with AsyncDibs(own_server.url, budget=5) as dibs:
        dispatcher = Dispatcher(dibs, **parts(outcomes))

        @dispatcher.on("message")
        async def text(event: Any, reply: Any) -> None: ...

        dispatcher.receive(*signed("a"))
        await dispatcher.aclose()
    assert outcomes == ["failed"]
    assert "failed with UsageError: the server refused the credentials; check user" in caplog.text


def test_the_log_has_the_status_with_which_line_refuses(
    bot: Bot, local_line: BlockingLine, caplog: pytest.LogCaptureFixture
) -> None:
    """401 for a wrong channel access token; what the bot and LINE wrote is not there."""
    local_line.fail_next("/v2/bot/message/reply", status=401)
    assert local_line.say("my secret").is_ok
    eventually(lambda: bot.outcomes == ["failed"], within=60)
    assert "Exception: HTTP status 401\n" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UsageError("ttl must be seconds, not 'my secret'"), "UsageError: ttl must be seconds\n"),
        (Duplicate("my secret", 1, "done", "my secret"), "Duplicate\n"),
        (Duplicate("my secret", 1, "done"), "Duplicate: the key was processed already; try again"),
        (Unavailable("it is silent", "chat:*"), "Unavailable: chat:* is unavailable: it is silent"),
        (RuntimeError("my secret"), "RuntimeError\n"),
        (type("Of", (UsageError,), {})("my secret"), "Of\n"),
    ],
)
async def test_the_log_has_no_words_but_those_of_dibs(
    valkey: Server, caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    """Neither a value that dibs quotes, nor a sentence that the bot's author has written."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        dispatcher = Dispatcher(dibs, **parts([]))

        @dispatcher.on("message")
        async def text(event: Any, reply: Any) -> None:
            raise error

        dispatcher.receive(*signed("a"))
        await dispatcher.aclose()
    assert f"an event failed with {said}" in caplog.text
    assert "secret" not in caplog.text
