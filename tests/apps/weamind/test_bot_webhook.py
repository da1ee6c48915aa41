"""The webhook: who may call it, what it believes, and that its 200 does not wait for the work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_line import events
from starlette.requests import Request
from starlette.types import Message

from apps.weamind.core.metrics import Metrics
from apps.weamind.line.events import Event, Malformed, parse_webhook
from apps.weamind.line.webhook import LONGEST_BODY, TooLong, read_body
from apps.weamind.line.workers import WorkerPool
from dibs.testing import Server, aeventually

from .conftest import HOME, SECRET, XINYI, RunBot, RunningBot, is_forecast, signed

pytestmark = pytest.mark.only_on("linux", "darwin")
PERSON = "U0123456789abcdef0123456789abcdef"
WORDS = "a text of somebody"


def tapped(data: str = HOME, *, number: int = 1, **facts: Any) -> dict[str, Any]:
    return {
        "type": "postback",
        "mode": "active",
        "timestamp": 1_700_000_000_000,
        "source": {"type": "user", "userId": PERSON},
        "webhookEventId": f"01HTEST{number}",
        "deliveryContext": {"isRedelivery": False},
        "replyToken": f"token-{number}",
        "postback": {"data": data},
        **facts,
    }


def body_of(*made: Any) -> bytes:
    return json.dumps({"destination": "U0", "events": made}).encode()


GOOD = body_of(tapped(WORDS))


# ------------------------------------------------------------------------------- who may call


async def refused_with(bot: RunningBot, status: int, body: bytes, headers: dict[str, str]) -> None:
    answer = await bot.post(body, headers)
    assert answer.status_code == status, answer.text
    assert bot.count("line_events_total", outcome="done") == 0
    assert bot.line.calls == []


async def test_a_webhook_that_is_not_from_line_is_refused(
    run_bot: RunBot, caplog: pytest.LogCaptureFixture
) -> None:
    """Tampered, signed by another, unsigned: 400, nothing is done, and no log repeats it."""
    caplog.set_level(logging.DEBUG)
    async with run_bot() as bot:
        wrong = signed(GOOD, "another-secret")
        await refused_with(bot, 400, GOOD.replace(b"text", b"test"), signed(GOOD))
        await refused_with(bot, 400, GOOD, wrong)
        await refused_with(bot, 400, GOOD, {})
        await refused_with(bot, 400, GOOD, {"X-Line-Signature": ""})
        await refused_with(bot, 400, GOOD, {"X-Line-Signature": "\u00e9".encode("latin-1")})  # type: ignore[dict-item]
        assert bot.count("line_webhook_total", status="400") == 5
    ours = "\n".join(record.getMessage() for record in caplog.records)
    for private in (PERSON, WORDS, "token-1", "01HTEST1", SECRET, wrong["X-Line-Signature"]):
        assert private not in ours


async def test_a_body_of_ten_megabytes_is_refused(run_bot: RunBot) -> None:
    """413, whether its length is announced or not; the next call is answered as ever."""
    body = b" " * 10_000_000

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    async with run_bot() as bot:
        await refused_with(bot, 413, body, signed(body))
        chunked = await bot.http.post("/line/webhook", content=pieces(), headers=signed(body))
        assert chunked.status_code == 413
        assert bot.count("line_webhook_total", status="413") == 2
        assert (await bot.post(body_of())).status_code == 200


@pytest.mark.parametrize(("length", "read"), [("10000000", 0), ("", 17), ("5", 17), ("x", 17)])
async def test_no_more_is_read_than_may_be(length: str, read: int) -> None:
    """An announced length is believed if it is too long; else it ends where it is too long."""
    asked = 0

    async def receive() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    headers = [(b"content-length", length.encode())] if length else []
    with pytest.raises(TooLong):
        await read_body(Request({"type": "http", "headers": headers}, receive))
    assert asked == read


async def test_the_longest_body_that_is_read(run_bot: RunBot) -> None:
    """One byte more is too long; one less is read, and found to be nonsense."""
    async with run_bot() as bot:
        for length, status in [(LONGEST_BODY, 400), (LONGEST_BODY + 1, 413)]:
            body = b"x" * length
            await refused_with(bot, status, body, signed(body))


async def test_not_what_line_sends(run_bot: RunBot) -> None:
    """Signed, but no webhook: 400, nothing is done."""
    async with run_bot() as bot:
        for body in (b"", b"{", b"{}", b"[]", b"null", b"5", b'"events"', b"\xff\xfe",
                     b'{"events":{}}', b'{"events":null}', b'{"events":"[]"}', b"[" * 100_000,
                     b"9" * 100_000, b'{"a":' * 50_000):  # fmt: skip
            await refused_with(bot, 400, body, signed(body))


async def test_the_verify_button(run_bot: RunBot) -> None:
    """A webhook without events is 200; so is one with unknown fields beside them."""
    async with run_bot() as bot:
        assert (await bot.line.verify()).status == 200
        assert (await bot.post(b'{"events":[],"new":{"x":1}}')).status_code == 200
        assert (await bot.http.get("/line/webhook")).status_code == 405


# ------------------------------------------------------------------------------- events


async def test_a_broken_event_does_not_stop_the_others(run_bot: RunBot) -> None:
    """Unreadable, unknown, incomplete and failing events, and the one between them is answered."""
    async with run_bot() as bot:
        strange = [
            None, 5, "event", [], {}, {"type": 7}, {"type": "newThing", "replyToken": "t"},
            {"type": "message"}, {"type": "message", "message": {"type": "hologram"}},
            {"type": "postback"}, {"type": "postback", "postback": {"data": 5}},
            {"type": "postback", "postback": None, "source": "nowhere"},
            {"type": "follow", "source": {"type": "user", "userId": ["U"]}},
            {"type": "message", "message": {"type": "location", "latitude": "x"}, "source": {}},
        ]  # fmt: skip
        good = bot.line.happen([events.text("台北信義")])[0]
        answer = await bot.deliver(*strange[:7], good, *strange[7:])
        assert answer.status_code == 200
        [message] = await bot.replies(1)
        assert is_forecast(message)
        assert bot.count("line_events_total", outcome="malformed") == 4
        assert bot.count("line_events_total", outcome="failed") == 0


async def test_an_event_that_fails(
    run_bot: RunBot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted, and said without its words; the others of the same webhook are answered."""

    def broken(text: str) -> Any:
        if "壞" in text:
            raise RuntimeError(f"cannot read {text}")
        return found(text)

    from apps.weamind.line import service

    found = service.search
    monkeypatch.setattr(service, "search", broken)
    async with run_bot() as bot:
        await bot.line.batch([events.text("壞掉"), events.text("板橋")])
        [message] = await bot.replies(1)
        assert is_forecast(message)
        assert bot.count("line_events_total", outcome="failed") == 1
    said = [record.getMessage() for record in caplog.records if "failed with" in record.message]
    assert len(said) == 1 and "RuntimeError" in said[0] and "壞" not in said[0]


async def test_standby_is_not_ours(run_bot: RunBot) -> None:
    """While another bot has the chat, this one is silent."""
    async with run_bot() as bot:
        assert (await bot.line.send(events.text("板橋").in_standby())).status == 200
        await bot.settled()
        assert bot.line.calls == []
        assert bot.count("line_events_total", outcome="standby") == 1


async def test_a_new_mode_is_tolerated(run_bot: RunBot) -> None:
    """LINE may invent modes, and leave out what it always sent."""
    async with run_bot() as bot:
        event = bot.line.happen([events.text("板橋")])[0]
        event["mode"] = "hyperactive"
        del event["deliveryContext"], event["webhookEventId"], event["timestamp"]
        await bot.deliver(event)
        assert is_forecast((await bot.replies(1))[0])


async def test_the_200_waits_for_nobody(run_bot: RunBot) -> None:
    """LINE has its answer while the forecast, and even the reply to it, is still to come."""
    async with run_bot(sample_delay_seconds=1) as bot:
        delivery = await bot.line.say("板橋")
        assert delivery.status == 200 and bot.line.calls == []
        assert is_forecast((await bot.replies(1))[0])


# ------------------------------------------------------------------------------- the worker pool


async def test_a_webhook_beyond_the_queue_limit_is_refused(run_bot: RunBot) -> None:
    """A webhook whose events do not all fit is refused with 503, and comes again: nothing is lost.

    What LINE redelivers is answered when there is room.
    """
    options = {"redelivery": True, "redelivered_after": (0.2,) * 50}
    async with run_bot(sample_delay_seconds=0.5, event_queue_limit=2, line=options) as bot:
        people = [bot.line.somebody() for _ in range(5)]
        statuses = [
            delivery.status
            for delivery in await asyncio.gather(
                *(bot.line.say("板橋", source=person) for person in people)
            )
        ]
        assert statuses.count(503) == 3
        batch = [events.text("板橋").by(bot.line.me)] * 3
        assert (await bot.deliver(*bot.line.happen(batch))).status_code == 503
        for person in people:
            assert is_forecast((await bot.line.wait_for_messages(1, source=person))[0])
        assert bot.count("line_events_total", outcome="refused") >= 6


async def test_one_after_the_other_where_there_is_room_for_one() -> None:
    """No more than `concurrency` at once; the others wait for their turn, and all are done."""
    running, most, done = 0, 0, 0

    async def work(event: Event) -> str:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running, done = running - 1, done + 1
        return "done"

    workers = WorkerPool(work, concurrency=3, limit=100, counted_in=Metrics())
    assert workers.accept([Event()] * 40) and workers.accept([Event()] * 60)
    assert not workers.accept([Event()])
    assert await workers.drain(within=20) == 0
    assert (most, done) == (3, 100)
    assert workers.accept([Event()]) and await workers.drain(within=20) == 0


async def test_an_event_that_hangs_is_given_up() -> None:
    """It does not occupy its place for ever, nor block the others."""
    metrics = Metrics()
    hanging = asyncio.Event()

    async def work(event: Event) -> str:
        if event.type == "hang":
            await hanging.wait()
        return "done"

    workers = WorkerPool(work, concurrency=1, limit=10, counted_in=metrics, longest=0.05)
    workers.accept([Event(type="hang"), Event()])
    assert await workers.drain(within=20) == 0
    counted = metrics.registry.get_sample_value
    assert counted("line_events_total", {"outcome": "late"}) == 1
    assert counted("line_events_total", {"outcome": "done"}) == 1


async def test_what_is_not_done_in_time_is_cut() -> None:
    """The end of the process has a deadline; how many were cut is logged and counted."""
    metrics = Metrics()
    hanging = asyncio.Event()

    async def work(event: Event) -> str:
        await hanging.wait()
        return "done"

    workers = WorkerPool(work, concurrency=1, limit=10, counted_in=metrics)
    workers.accept([Event(), Event()])
    await asyncio.sleep(0)
    assert await workers.drain(within=0.05) == 2
    assert metrics.registry.get_sample_value("line_events_total", {"outcome": "cut"}) == 2
    assert metrics.registry.get_sample_value("line_events_pending") == 0


# ------------------------------------------------------------------------------- health


async def test_health_and_readiness(run_bot: RunBot, own_server: Server) -> None:
    """Without Redis it is ready, and says so; /health makes no request."""
    async with run_bot(redis_url=own_server.url) as bot:
        assert (await bot.http.get("/health")).json() == {"status": "ok"}
        ready = await bot.http.get("/ready")
        assert ready.status_code == 200 and ready.json()["status"] == "ok"
        own_server.kill()
        ready = await bot.http.get("/ready")
        assert ready.status_code == 200
        assert ready.json() == {"status": "degraded", "database": "ok", "redis": "out"}
        assert (await bot.http.get("/health")).status_code == 200


async def test_not_ready_without_the_database(run_bot: RunBot, postgres: Any) -> None:
    """503 while it is out; 200 when it is back."""
    async with run_bot(database_url=postgres.new_database()) as bot:
        postgres.stop()
        try:
            ready = await bot.http.get("/ready")
            assert ready.status_code == 503 and ready.json()["database"] == "out"
        finally:
            await asyncio.to_thread(postgres.start)
        assert (await bot.http.get("/ready")).status_code == 200


async def test_metrics_have_the_seeds_names(run_bot: RunBot) -> None:
    """Those of the seeds, with their labels, and without any id."""
    async with run_bot() as bot:
        await bot.line.tap(f"action=set&type=home&place={XINYI}")
        await bot.replies(1)
        await bot.line.tap(HOME)
        await bot.replies(2)
        text = (await bot.http.get("/metrics")).text
        # What the alerts in deploy/ watch.
        assert 'dibs_claims_set_total{name="line:event:{webhookEventId}",outcome="ok"}' in text
        assert "dibs_open_claims" in text and "dibs_hold_seconds" in text
        assert 'processing_lock_acquire_total{source_type="user",status="acquired"} 1.0' in text
        assert "processing_lock_miss_total 0.0" in text
        assert "processing_lock_release_total 1.0" in text
        assert 'processing_duration_seconds_count{event_type="postback"} 2.0' in text
        assert 'line_reply_total{outcome="sent"} 2.0' in text
        assert bot.line.me.chat_id not in text


# ------------------------------------------------------------------------------- fuzz

NAMES = st.sampled_from(
    ["type", "mode", "timestamp", "source", "userId", "groupId", "roomId", "webhookEventId",
     "deliveryContext", "isRedelivery", "replyToken", "message", "text", "latitude", "longitude",
     "mention", "mentionees", "index", "length", "isSelf", "postback", "data", "title"]
)  # fmt: skip
WORDS_OF_LINE = st.sampled_from(
    ["message", "postback", "follow", "unfollow", "join", "text", "location", "sticker", "user",
     "group", "room", "active", "standby", HOME, "action=settings&type=home&page=99", "\ud800",
     "action=set&type=home&place=63000020", "action=delete&sure=yes", "action=recent_queries", "\0",
     "action=weather&type=place&place=x", "台北", "東區", "刪除我的資料", "板橋天氣", "a" * 400],
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS_OF_LINE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=12,
)
EVENTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=9) | VALUES, max_size=4)
REPAIRED = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "postback", "follow", "unfollow", "join"]),
        "source": st.fixed_dictionaries(
            {"type": st.sampled_from(["user", "group", "room"])},
            optional={"userId": st.just(PERSON) | VALUES, "groupId": st.just("C1") | VALUES},
        ),
        "message": st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "location", "sticker"])},
            optional={
                "text": WORDS_OF_LINE | st.text(max_size=20),
                "latitude": st.floats() | VALUES,
                "longitude": st.floats() | VALUES,
                "mention": VALUES,
            },
        ),
        "postback": st.fixed_dictionaries({"data": WORDS_OF_LINE | st.text(max_size=40)}),
        "webhookEventId": VALUES,
        "replyToken": st.text(max_size=5),
        "timestamp": VALUES,
    },
)


async def test_whatever_line_may_send(run_bot: RunBot) -> None:
    """Any JSON in place of events: 200, no event fails, and the bot still answers afterwards."""
    async with run_bot() as bot:
        loop = asyncio.get_running_loop()

        @settings(max_examples=100, suppress_health_check=list(HealthCheck))
        @given(EVENTS | st.lists(REPAIRED, max_size=4))
        def fuzz(made: list[Any]) -> None:
            sending = asyncio.run_coroutine_threadsafe(bot.deliver(*made), loop)
            assert sending.result(20).status_code == 200

        await asyncio.to_thread(fuzz)
        await bot.settled()
        assert bot.count("line_events_total", outcome="failed") == 0
        assert bot.count("line_events_total", outcome="late") == 0
        assert bot.count("line_events_total", outcome="done") > 20
        await bot.line.say("板橋")
        await aeventually(lambda: any(map(is_forecast, bot.line.chat().sent)))


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_events_or_malformed(body: bytes) -> None:
    """The parser has two outcomes and raises nothing else."""
    with contextlib.suppress(Malformed):
        assert all(isinstance(event, Event) for event in parse_webhook(body).events)
