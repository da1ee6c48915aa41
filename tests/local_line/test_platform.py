"""The local LINE platform, as a bot meets it: over HTTP, and through LINE's own SDK."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linebot.v3 import WebhookParser
from linebot.v3 import webhooks as hooks
from linebot.v3.messaging import (
    ApiClient,
    ApiException,
    AsyncApiClient,
    AsyncMessagingApi,
    AsyncMessagingApiBlob,
    Configuration,
    MessagingApi,
    PushMessageRequest,
    ReplyMessageRequest,
    RichMenuRequest,
    ShowLoadingAnimationRequest,
)
from local_line import (
    ChatPanel,
    LocalLine,
    Platform,
    Source,
    chat_routes,
    events,
    served,
)
from local_line.lengths import graphemes, utf16
from local_line.messages import check_messages
from local_line.refusals import Refusal
from local_line.routes import create_page
from local_line.sources import new_id
from local_line.troubles import trouble
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

SECRET, TOKEN = "channel secret", "channel access token"
REPLY, PUSH = "/v2/bot/message/reply", "/v2/bot/message/push"
LOADING = "/v2/bot/chat/loading/start"
HELLO = [{"type": "text", "text": "哈囉"}]
KEY = "123e4567-e89b-12d3-a456-426614174000"
TIMEOUT = 10.0
"""How long anything may take on a busy machine, in seconds."""

Json = dict[str, Any]


class Bot:
    """A bot that records what it gets, and answers as scripted."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.signatures: list[str] = []
        self.status = 200
        self.before_answer: Callable[[], Any] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.bodies.append(await request.body())
        self.signatures.append(request.headers["x-line-signature"])
        if self.before_answer is not None:
            await self.before_answer()
        await Response(status_code=self.status)(scope, receive, send)

    @property
    def events(self) -> list[Json]:
        """All events so far, as they came."""
        return [event for body in self.bodies for event in json.loads(body)["events"]]

    def parsed(self) -> list[Any]:
        """The same through LINE's SDK, which checks the signature."""
        parser = WebhookParser(SECRET)
        pairs = zip(self.bodies, self.signatures, strict=True)
        return [event for body, sign in pairs for event in parser.parse(body.decode(), sign)]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def stage(**options: Any) -> AsyncIterator[tuple[LocalLine, Bot]]:
    """LINE and a bot, each on a port."""
    bot = Bot()
    async with LocalLine(secret=SECRET, access_token=TOKEN, **options) as line, served(bot) as url:
        line.webhook_url = f"{url}/line/webhook"
        yield line, bot


@asynccontextmanager
async def caller(line: LocalLine, token: str = TOKEN) -> AsyncIterator[httpx.AsyncClient]:
    """The bot's side of the API, without an SDK."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=line.api_base, headers=headers, timeout=TIMEOUT, trust_env=False, verify=False
    ) as client:
        yield client


@asynccontextmanager
async def sdk(line: LocalLine) -> AsyncIterator[AsyncMessagingApi]:
    """LINE's own client."""
    async with AsyncApiClient(Configuration(host=line.api_base, access_token=TOKEN)) as client:
        yield AsyncMessagingApi(client)


async def reply(line: LocalLine, token: str, messages: Any = HELLO) -> httpx.Response:
    async with caller(line) as api:
        return await api.post(REPLY, json={"replyToken": token, "messages": messages})


# ------------------------------------------------------------------------------- webhooks


async def test_the_sdk_knows_every_event() -> None:
    """Each is signed rightly, and is to LINE's own parser what it is meant to be."""
    group = Source.group(new_id("group"), new_id("user"))
    async with stage() as (line, bot):
        await line.say("台北")
        await line.share_location(25.03, 121.56, title="臺北 101", address="臺北市信義區")
        await line.send(events.sticker())
        await line.send(events.image())
        await line.tap("a=b", params={"date": "2026-01-02"})
        await line.follow()
        await line.unfollow()
        await line.join(source=group)
        await line.send(events.member_joined(new_id("user")), source=group)
        await line.send(events.leave(), source=group)
        seen = bot.parsed()
    kinds = [type(event) for event in seen]
    assert kinds == [hooks.MessageEvent] * 4 + [
        hooks.PostbackEvent, hooks.FollowEvent, hooks.UnfollowEvent,
        hooks.JoinEvent, hooks.MemberJoinedEvent, hooks.LeaveEvent,
    ]  # fmt: skip
    text, place, sticker, image = [event.message for event in seen[:4]]
    assert isinstance(text, hooks.TextMessageContent) and text.text == "台北" and text.quote_token
    assert isinstance(place, hooks.LocationMessageContent) and place.title == "臺北 101"
    assert isinstance(sticker, hooks.StickerMessageContent)
    assert isinstance(image, hooks.ImageMessageContent)
    assert seen[4].postback.data == "a=b" and seen[4].postback.params == {"date": "2026-01-02"}
    assert len({event.webhook_event_id for event in seen}) == len(seen)
    assert all(event.mode == "active" for event in seen)
    assert not any(event.delivery_context.is_redelivery for event in seen)


async def test_the_signature_is_over_the_very_bytes() -> None:
    """HMAC-SHA256 of the raw body with the channel secret; the body names the bot."""
    async with stage() as (line, bot):
        await line.say("雨☂️ <b>")
        async with sdk(line) as api:
            me = await api.get_bot_info(_request_timeout=TIMEOUT)
    digest = hmac.digest(SECRET.encode(), bot.bodies[0], hashlib.sha256)
    assert bot.signatures == [base64.b64encode(digest).decode()]
    assert json.loads(bot.bodies[0])["destination"] == me.user_id


async def test_where_it_comes_from() -> None:
    """A person, a group or a room; in the latter two with and without the person's id."""
    me, group, room = new_id("user"), new_id("group"), new_id("room")
    sources = [
        Source.user(me), Source.group(group, me), Source.group(group), Source.room(room, me),
        Source.room(room),
    ]  # fmt: skip
    async with stage() as (line, bot):
        for source in sources:
            await line.say("嗨", source=source)
    assert [event["source"] for event in bot.events] == [
        {"type": "user", "userId": me},
        {"type": "group", "groupId": group, "userId": me},
        {"type": "group", "groupId": group},
        {"type": "room", "roomId": room, "userId": me},
        {"type": "room", "roomId": room},
    ]


async def test_event_ids_are_ulids() -> None:
    """26 characters of which the first ten are the time, so that they sort by it."""
    clock = Clock()
    async with stage(clock=clock) as (line, bot):
        for _ in range(3):
            await line.say("嗨")
            clock.now += 0.25
    ids = [event["webhookEventId"] for event in bot.events]
    assert ids == sorted(set(ids)) and all(len(each) == 26 for each in ids)
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    times = [sum(alphabet.index(c) << 5 * (9 - i) for i, c in enumerate(id[:10])) for id in ids]
    assert times == [event["timestamp"] for event in bot.events]


async def test_several_events_in_one_webhook() -> None:
    """One body, each event with its own id and token, also from several people."""
    async with stage() as (line, bot):
        other = line.somebody()
        delivery = await line.batch(
            [events.postback("a=1"), events.postback("a=1"), events.text("嗨").by(other)]
        )
    assert len(bot.bodies) == 1 and delivery.is_ok
    assert len(set(delivery.event_ids)) == 3
    assert len({event["replyToken"] for event in bot.events}) == 3
    assert bot.events[2]["source"] == {"type": "user", "userId": other.user_id}


async def test_standby_has_no_reply_token() -> None:
    """Another module has the conversation: the mode says so, and no reply is possible."""
    async with stage() as (line, bot):
        await line.send(events.text("嗨").in_standby())
        await line.unfollow()
    assert bot.events[0]["mode"] == "standby"
    assert not any("replyToken" in event for event in bot.events)


async def test_verify_sends_no_events() -> None:
    """An empty list, signed as always, and no trace in the journal."""
    async with stage() as (line, bot):
        assert (await line.verify()).status == 200
        assert bot.events == [] and bot.parsed() == [] and len(bot.bodies) == 1
        assert line.deliveries == []


async def test_taps_do_not_wait_for_each_other() -> None:
    """Five webhooks are at the bot at the same time: it answers none before it has all."""
    all_there = asyncio.Barrier(5)
    async with stage(webhook_timeout=TIMEOUT) as (line, bot):
        bot.before_answer = all_there.wait
        taps = await asyncio.gather(*(line.tap("action=weather&type=home") for _ in range(5)))
    assert [tap.status for tap in taps] == [200] * 5
    assert len({tap.event_ids[0] for tap in taps}) == 5


async def test_what_a_bot_can_do_wrong() -> None:
    """A status that is not 2xx, silence, and no server: told apart, in LINE's words."""
    silence = asyncio.Event()
    async with stage(webhook_timeout=0.3) as (line, bot):
        bot.status = 503
        refused = await line.say("嗨")
        bot.before_answer = silence.wait
        silent = await line.say("嗨")
        silence.set()
        async with served(bot) as gone:
            pass
        line.webhook_url = gone
        absent = await line.say("嗨")
        assert line.deliveries == [refused, silent, absent]
    assert (refused.status, refused.reason) == (503, "error_status_code")
    assert (silent.status, silent.reason) == (None, "request_timeout")
    assert (absent.status, absent.reason) == (None, "could_not_connect")
    assert 0.3 <= silent.took < TIMEOUT


@pytest.mark.parametrize("how", ["closed", "reset", "not HTTP"])
async def test_a_bot_that_crashes_at_work(how: str) -> None:
    """It was reachable and sends no answer: that is reported, and not that there is no server."""

    async def crash(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if how == "reset":
            writer.transport.abort()
        elif how == "not HTTP":
            writer.write(b"Traceback (most recent call last):\r\n\r\n")
        writer.close()

    async with LocalLine() as line, await asyncio.start_server(crash, "127.0.0.1", 0) as server:
        line.webhook_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
        row = await line.say("嗨")
    assert (row.status, row.reason) == (None, "unclassified")
    assert trouble(row) == f"webhook: no HTTP answer from {row.url}. Did the bot crash?"


async def test_two_seconds_is_what_a_bot_has() -> None:
    """Unless told otherwise, as at LINE."""
    assert Platform(secret=SECRET, access_token=TOKEN)._sender._timeout == 2.0


@pytest.mark.parametrize("redelivery", [True, False])
async def test_what_failed_is_redelivered(redelivery: bool) -> None:
    """Until there is a 2xx: the same event and token, flagged. Not where it is switched off."""
    async with stage(redelivery=redelivery, redelivered_after=(0.01, 0.01, 0.01)) as (line, bot):
        bot.status = 500
        await line.batch([events.text("嗨"), events.postback("a=b")])
        if redelivery:
            await until(lambda: len(bot.bodies) == 2)
            bot.status = 200
            await until(lambda: line.deliveries[-1].is_ok)
        tries = list(line.deliveries)
    assert [each.is_redelivery for each in tries] == [False] + [True] * (len(tries) - 1)
    assert len(tries) >= 3 if redelivery else len(tries) == 1
    for again in tries[1:]:
        assert [unflagged(event) for event in again.events] == [
            unflagged(event) for event in tries[0].events
        ]
        assert all(event["deliveryContext"] == {"isRedelivery": True} for event in again.events)


def unflagged(event: Json) -> Json:
    return {name: value for name, value in event.items() if name != "deliveryContext"}


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not check():
            await asyncio.sleep(0.005)


async def test_redelivery_by_hand() -> None:
    """One event of a batch, alone, flagged; or the very same once more, as a bad line does it."""
    async with stage() as (line, bot):
        first = await line.batch([events.text("一"), events.text("二")])
        await line.redeliver(first.event_ids[1])
        await line.redeliver(first.event_ids[1], is_flagged=False)
        with pytest.raises(KeyError):
            await line.redeliver("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    _, second, flagged, again = bot.events
    assert flagged == second | {"deliveryContext": {"isRedelivery": True}} and again == second
    assert len(line.chat().entries) == 2  # what was said was said once


async def test_friends_come_and_go() -> None:
    """A block ends friendship without a reply token; taking it back says so."""
    async with stage() as (line, bot):
        for act in (line.follow, line.unfollow, line.follow):
            await act()
        async with caller(line) as api:
            assert (await api.get("/v2/bot/followers/ids")).json() == {"userIds": [line.me.user_id]}
    assert [event["type"] for event in bot.events] == ["follow", "unfollow", "follow"]
    assert [event.get("follow") for event in bot.events] == [
        {"isUnblocked": False}, None, {"isUnblocked": True},
    ]  # fmt: skip
    assert "replyToken" not in bot.events[1]


async def test_who_has_blocked_the_bot_sees_nothing() -> None:
    """The bot is told 200 all the same, and its dots are not shown."""
    async with stage() as (line, bot):
        await line.say("嗨")
        await line.unfollow()
        assert (await reply(line, bot.events[0]["replyToken"])).status_code == 200
        async with caller(line) as api:
            chat = {"chatId": line.me.user_id, "loadingSeconds": 5}
            assert (await api.post(LOADING, json=chat)).status_code == 202
            pushed = await api.post(PUSH, json={"to": line.me.user_id, "messages": HELLO})
            assert pushed.status_code == 200
        assert line.chat().sent == [] and line.chat().loading(line.clock()) == 0


async def test_it_needs_to_know_where_the_bot_is() -> None:
    """And a channel has a secret and a token: one sentence, before anything is sent."""
    async with LocalLine(secret=SECRET, access_token=TOKEN) as line:
        with pytest.raises(ValueError, match="webhook_url"):
            await line.say("嗨")
        assert line.chat().entries == type(line.chat().entries)()
    with pytest.raises(ValueError, match="secret"):
        LocalLine(secret="", access_token=TOKEN)


# ------------------------------------------------------------------------------- reply


async def test_a_reply_through_the_sdk() -> None:
    """What LINE's own client sends is in the chat, with its quick replies, until the next
    message."""
    items = [{"type": "action", "action": {"type": "message", "label": "臺北", "text": "臺北"}}]
    message = {"type": "text", "text": "哪裡？", "quickReply": {"items": items}}
    async with stage() as (line, bot):
        await line.say("天氣")
        async with sdk(line) as api:
            request = {"replyToken": bot.parsed()[0].reply_token, "messages": [message]}
            answer = await api.reply_message_with_http_info(
                ReplyMessageRequest.from_dict(request), _request_timeout=TIMEOUT
            )
        assert answer.status_code == 200 and len(answer.headers["x-line-request-id"]) == 36
        assert answer.data.sent_messages[0].id == line.chat().entries[-1].id
        assert line.chat().sent == [message] and line.chat().entries[-1].via == "reply"
        assert line.chat().quick_reply == items
        await line.say("臺北")
        assert line.chat().quick_reply == []
        assert await line.wait_for_messages(1) == [message]


async def test_a_reply_token_works_once() -> None:
    """Then it is like one that never existed: 400, and no message."""
    async with stage() as (line, bot):
        await line.say("嗨")
        token = bot.events[0]["replyToken"]
        answers = [await reply(line, each) for each in (token, token, "f" * 32)]
        assert [answer.status_code for answer in answers] == [200, 400, 400]
        assert [answer.json() for answer in answers[1:]] == [{"message": "Invalid reply token"}] * 2
        assert len(line.chat().sent) == 1
        async with sdk(line) as api:
            request = ReplyMessageRequest.from_dict({"replyToken": token, "messages": HELLO})
            with pytest.raises(ApiException) as refused:
                await api.reply_message(request, _request_timeout=TIMEOUT)
            assert refused.value.status == 400 and "Invalid reply token" in refused.value.body


async def test_of_two_replies_at_once_one_is_sent() -> None:
    """However close they are."""
    async with stage() as (line, bot):
        await line.say("嗨")
        token = bot.events[0]["replyToken"]
        answers = await asyncio.gather(*(reply(line, token) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400, 400]
        assert len(line.chat().sent) == 1


@pytest.mark.parametrize(
    ("after", "status"), [(59.9, 200), (60.1, 400)], ids=["in time", "too late"]
)
async def test_a_reply_token_works_for_a_minute(after: float, status: int) -> None:
    """Counted from the event."""
    clock = Clock()
    async with stage(clock=clock) as (line, bot):
        await line.say("嗨")
        clock.now += after
        assert (await reply(line, bot.events[0]["replyToken"])).status_code == status


async def test_the_minute_can_be_shorter() -> None:
    """For those who test what happens then."""
    clock = Clock()
    async with stage(clock=clock, reply_token_ttl=5) as (line, bot):
        await line.say("嗨")
        clock.now += 6
        assert (await reply(line, bot.events[0]["replyToken"])).status_code == 400


@pytest.mark.parametrize(
    ("redelivered_at", "replied_at", "status"),
    [(100, 159, 200), (100, 161, 400), (1190, 1199, 200), (1190, 1201, 400)],
)
async def test_a_redelivery_renews_the_token(
    redelivered_at: float, replied_at: float, status: int
) -> None:
    """For another minute, but not beyond twenty minutes after the event."""
    clock = Clock()
    began = clock.now
    async with stage(clock=clock) as (line, bot):
        delivery = await line.say("嗨")
        clock.now = began + redelivered_at
        await line.redeliver(delivery.event_ids[0])
        clock.now = began + replied_at
        assert (await reply(line, bot.events[0]["replyToken"])).status_code == status


async def test_a_used_token_stays_used() -> None:
    """No redelivery brings it back."""
    async with stage() as (line, bot):
        delivery = await line.say("嗨")
        assert (await reply(line, bot.events[0]["replyToken"])).status_code == 200
        await line.redeliver(delivery.event_ids[0])
        assert (await reply(line, bot.events[1]["replyToken"])).status_code == 400


async def test_a_refused_reply_does_not_spend_the_token() -> None:
    """Bad messages, or a retry key, which replies do not take: the next one is sent."""
    async with stage() as (line, bot):
        await line.say("嗨")
        token = bot.events[0]["replyToken"]
        bad = await reply(line, token, [{"type": "text", "text": ""}])
        assert bad.status_code == 400 and bad.json() == {
            "message": "The request body has 1 error(s)",
            "details": [{"message": "May not be empty", "property": "messages[0].text"}],
        }
        async with caller(line) as api:
            body = {"replyToken": token, "messages": HELLO}
            keyed = await api.post(REPLY, json=body, headers={"X-Line-Retry-Key": KEY})
            missing = await api.post(REPLY, json={"messages": HELLO})
        assert keyed.status_code == 400 and "retry key" in keyed.json()["message"]
        assert missing.json()["details"] == [
            {"message": "May not be empty", "property": "replyToken"}
        ]
        assert (await reply(line, token)).status_code == 200


# ------------------------------------------------------------------------------- push


async def test_a_retry_key_is_accepted_once() -> None:
    """The second time: 409, with the first one's request id and messages. A day later: again."""
    clock = Clock()
    async with stage(clock=clock) as (line, _), sdk(line) as api:
        to = line.somebody()
        request = PushMessageRequest.from_dict({"to": to.chat_id, "messages": HELLO})
        first = await api.push_message_with_http_info(
            request, x_line_retry_key=KEY, _request_timeout=TIMEOUT
        )
        with pytest.raises(ApiException) as refused:
            await api.push_message(request, x_line_retry_key=KEY.upper(), _request_timeout=TIMEOUT)
        accepted = first.headers["x-line-request-id"]
        assert refused.value.status == 409
        assert refused.value.headers["x-line-accepted-request-id"] == accepted
        body = json.loads(refused.value.body)
        assert body["message"] == "The retry key is already accepted"
        assert body["sentMessages"][0]["id"] == first.data.sent_messages[0].id
        assert len(line.chat(to).sent) == 1
        clock.now += 24 * 3600 + 1
        await api.push_message(request, x_line_retry_key=KEY, _request_timeout=TIMEOUT)
        assert len(line.chat(to).sent) == 2


async def test_a_refused_push_does_not_take_the_key() -> None:
    """Only what was accepted is not accepted again."""
    async with stage() as (line, _), caller(line) as api:
        to, headers = line.somebody().chat_id, {"X-Line-Retry-Key": KEY}
        bad = await api.post(PUSH, json={"to": to, "messages": []}, headers=headers)
        good = await api.post(PUSH, json={"to": to, "messages": HELLO}, headers=headers)
        wild = await api.post(
            PUSH, json={"to": to, "messages": HELLO}, headers={"X-Line-Retry-Key": "again"}
        )
    assert [bad.status_code, good.status_code, wild.status_code] == [400, 200, 400]
    assert bad.json()["details"] == [
        {"message": "Size must be between 1 and 5", "property": "messages"}
    ]


async def test_the_quota_is_counted() -> None:
    """One for each who gets it; beyond it 429, and the message is not sent."""
    group = new_id("group")
    async with stage(quota=3) as (line, _), caller(line) as api:
        for _ in range(2):
            await line.say("嗨", source=Source.group(group, new_id("user")))
        assert (await api.get("/v2/bot/message/quota")).json() == {"type": "limited", "value": 3}
        first = await api.post(PUSH, json={"to": group, "messages": HELLO * 2})
        usage = await api.get("/v2/bot/message/quota/consumption")
        second = await api.post(PUSH, json={"to": group, "messages": HELLO})
        assert first.status_code == 200 and usage.json() == {"totalUsage": 2}
        assert second.status_code == 429
        assert second.json() == {"message": "You have reached your monthly limit."}
        assert len(line.chat(Source.group(group)).sent) == 2


async def test_a_push_needs_somebody() -> None:
    """A malformed or unknown id: 400, in LINE's words."""
    async with stage() as (line, _), caller(line) as api:
        for to in ("kutemukan", None, 7, "U123", new_id("user").upper()):
            answer = await api.post(PUSH, json={"to": to, "messages": HELLO})
            assert answer.status_code == 400
            assert answer.json()["message"].startswith("The property, 'to', in the request body")
        unknown = await api.post(PUSH, json={"to": new_id("user"), "messages": HELLO})
        assert (unknown.status_code, unknown.json()["message"]) == (400, "Failed to send messages")


# ------------------------------------------------------------------------------- loading


async def test_the_dots_end_with_the_next_message() -> None:
    """Or when their time is over; asking again gives them a new time."""
    clock = Clock()
    async with stage(clock=clock) as (line, bot), sdk(line) as api:
        await line.say("嗨")

        async def start(**seconds: int) -> None:
            body = {"chatId": line.me.user_id, **seconds}
            request = ShowLoadingAnimationRequest.from_dict(body)
            await api.show_loading_animation(request, _request_timeout=TIMEOUT)

        def left() -> float:
            return line.chat().loading(clock.now)

        await start()
        assert left() == 20
        clock.now += 15
        await start(loadingSeconds=10)
        assert left() == 10
        await line.say("還在嗎")
        assert left() == 10  # what the person says does not end them
        assert (await reply(line, bot.events[0]["replyToken"])).status_code == 200
        assert left() == 0
        await start(loadingSeconds=5)
        clock.now += 5
        assert left() == 0


@pytest.mark.parametrize(
    ("body", "details"),
    [
        ({"loadingSeconds": 3}, ["Must be between 5 and 60", "must be a multiple of five"]),
        ({"loadingSeconds": 62}, ["Must be between 5 and 60", "must be a multiple of five"]),
        ({"loadingSeconds": 65}, ["Must be between 5 and 60"]),
        ({"loadingSeconds": 12}, ["must be a multiple of five"]),
        ({"chatId": "C" + "0" * 32}, ["Only user id is acceptable"]),
        ({"chatId": None}, ["Only user id is acceptable"]),
    ],
)
async def test_loading_is_for_one_person_and_a_while(body: Json, details: list[str]) -> None:
    """400, with each mistake by name."""
    async with stage() as (line, _), caller(line) as api:
        answer = await api.post(LOADING, json={"chatId": line.me.user_id} | body)
        assert answer.status_code == 400
        said = answer.json()
        assert said["message"] == f"The request body has {len(details)} error(s)"
        words = [detail["message"] for detail in said["details"]]
        assert all(word.startswith(start) for word, start in zip(words, details, strict=True))


# ------------------------------------------------------------------------------- messages

TAP = {"type": "message", "label": "好", "text": "好"}
BUTTON = {"type": "button", "action": TAP}


def flex(contents: Any) -> Json:
    return {"type": "flex", "altText": "卡片", "contents": contents}


def bubble(*contents: Json, **rest: Any) -> Json:
    return {"type": "bubble", "body": box(*contents), **rest}


def box(*contents: Json, layout: str = "vertical", **rest: Any) -> Json:
    return {"type": "box", "layout": layout, "contents": list(contents), **rest}


def words(text: str = "字", **rest: Any) -> Json:
    return {"type": "text", "text": text, **rest}


def quick(*actions: Json) -> Json:
    items = [{"type": "action", "action": action} for action in actions]
    return {"type": "text", "text": "哪個？", "quickReply": {"items": items}}


def template(**rest: Any) -> Json:
    return {"type": "template", "altText": "選", "template": rest}


KITCHEN_SINK = bubble(
    box(
        words("A", size="xxl", weight="bold", color="#ff0000", flex=0),
        words("B", align="end", gravity="center", wrap=True, maxLines=2),
        layout="horizontal",
        spacing="md",
        margin="20px",
    ),
    box(
        {"type": "icon", "url": "https://example.com/i.png", "size": "sm"},
        words("C", style="italic", decoration="line-through", lineSpacing="4px", scaling=True),
        {"type": "filler"},
        layout="baseline",
    ),
    {"type": "text", "contents": [{"type": "span", "text": "D", "size": "12px", "weight": "bold"}]},
    {"type": "separator", "margin": "lg", "color": "#00000020"},
    {"type": "image", "url": "https://example.com/p.png", "size": "full", "aspectRatio": "20:13",
     "aspectMode": "cover", "action": {"type": "uri", "uri": "https://example.com/"}},
    {"type": "button", "style": "primary", "color": "#112233", "height": "sm",
     "action": {"type": "postback", "label": "四十個字以內" * 6, "data": "x" * 300}},
    box(
        paddingAll="md", paddingStart="5%", cornerRadius="xl", borderWidth="semi-bold",
        borderColor="#123456", backgroundColor="#12345678", width="50%", height="30px",
        position="absolute", offsetTop="-3px", offsetEnd="10%", justifyContent="space-evenly",
        alignItems="flex-end", action=TAP,
        background={"type": "linearGradient", "angle": "12.5deg", "startColor": "#000000",
                    "endColor": "#ffffff", "centerColor": "#808080", "centerPosition": "33%"},
    ),
    size="giga",
    direction="rtl",
    header=box(),
    hero={"type": "video", "url": "https://example.com/v.mp4",
          "previewUrl": "https://example.com/v.png", "aspectRatio": "20:13",
          "altContent": {"type": "image", "url": "https://example.com/v.png"}},
    footer=box(BUTTON),
    styles={"footer": {"separator": True, "separatorColor": "#111111"}},
)  # fmt: skip

GOOD = [
    {"type": "text", "text": "😀" * 2500},
    {"type": "text", "text": "嗨", "sender": {"name": "小幫手", "iconUrl": "https://example.com/"}},
    {"type": "textV2", "text": "嗨 {who}", "substitution": {
        "who": {"type": "mention", "mentionee": {"type": "all"}}}},
    {"type": "sticker", "packageId": "446", "stickerId": "1988"},
    {"type": "image", "originalContentUrl": "https://a.tw/1", "previewImageUrl": "https://a.tw/2"},
    {"type": "location", "title": "101", "address": "信義路", "latitude": 25, "longitude": 121},
    quick(*[TAP] * 9, {"type": "location", "label": "位置"}, {"type": "camera", "label": "相機"},
          {"type": "datetimepicker", "label": "日期", "data": "d", "mode": "date"},
          {"type": "clipboard", "label": "複製", "clipboardText": "文字"}),
    template(type="confirm", text="確定？", actions=[TAP, TAP]),
    template(type="buttons", title="標題", text="說" * 60, actions=[TAP] * 4),
    template(type="buttons", text="說" * 160, actions=[TAP]),
    template(type="carousel", columns=[{"text": "一", "actions": [TAP]}] * 10),
    template(type="image_carousel", columns=[{"imageUrl": "https://a.tw/1", "action": TAP}]),
    flex(KITCHEN_SINK),
    flex({"type": "carousel", "contents": [bubble(words())] * 12}),
]  # fmt: skip


@pytest.mark.parametrize("message", GOOD, ids=lambda message: message["type"])
async def test_what_line_takes_is_taken(message: Json) -> None:
    """Every kind of message, up to the limits that LINE documents."""
    async with stage() as (line, _), caller(line) as api:
        for kind in ("reply", "push"):
            url = f"/v2/bot/message/validate/{kind}"
            answer = await api.post(url, json={"messages": [message]})
            assert (answer.status_code, answer.json()) == (200, {})
        assert line.chat().sent == []


ONE_OF = "Must be one of the following values: ["
BAD = [
    ({"type": "text", "text": "😀" * 2500 + "a"}, "text", "Length must be between 0 and 5000"),
    ({"type": "text"}, "text", "May not be empty"),
    ({"type": "news"}, "type", ONE_OF + "text, textV2, sticker, image,"),
    ("text", "", "must be specified"),
    ({"type": "sticker", "packageId": "1"}, "stickerId", "must be specified"),
    ({"type": "image", "originalContentUrl": "http://a.tw/1", "previewImageUrl": "https://a.tw/2"},
     "originalContentUrl", "invalid uri scheme"),
    ({"type": "location", "title": "x", "address": "x", "latitude": 91, "longitude": 0},
     "latitude", "Must be between -90 and 90"),
    (quick(*[TAP] * 14), "quickReply.items", "Size must be between 1 and 13"),
    (quick({"type": "message", "label": "好"}), "quickReply.items[0].action.text",
     "must be specified"),
    (quick(TAP, TAP | {"label": "字" * 21}), "quickReply.items[1].action.label",
     "must not be longer than 20 characters"),
    (quick({"type": "message", "text": "好"}), "quickReply.items[0].action.label",
     "must be specified"),
    (quick({"type": "postback", "label": "好", "data": "x" * 301}),
     "quickReply.items[0].action.data", "must not be longer than 300 characters"),
    (quick({"type": "uri", "label": "好", "uri": "ftp://a.tw"}), "quickReply.items[0].action.uri",
     "invalid uri scheme"),
    (quick({"type": "richmenuswitch", "label": "好"}), "quickReply.items[0].action.type", ONE_OF),
    (template(type="confirm", text="？", actions=[TAP]), "template.actions",
     "Size must be between 2 and 2"),
    (template(type="buttons", title="題", text="說" * 61, actions=[TAP]), "template.text",
     "must not be longer than 60 characters"),
    (template(type="buttons", text="說", actions=[{"type": "location", "label": "位置"}]),
     "template.actions[0].type", ONE_OF),
    (template(type="carousel", columns=[{"text": "一", "actions": [TAP]},
                                        {"text": "二", "actions": [TAP, TAP]}]),
     "template.columns", "the number of actions must be the same"),
    ({"type": "template", "altText": "x" * 1501, "template": {"type": "poll"}}, "altText",
     "must not be longer than 1500 characters"),
    ({"type": "text", "text": "嗨", "sender": {"name": "字" * 21}}, "sender.name",
     "must not be longer than 20 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "property", "sentence"), BAD)
async def test_what_line_refuses_is_refused(message: Any, property: str, sentence: str) -> None:
    """400, and the first error with its place, as LINE names it."""
    with pytest.raises(Refusal) as refused:
        check_messages({"messages": [*HELLO, message]})
    body = json.loads(bytes(refused.value.response().body))
    assert body["message"] == f"The request body has {len(body['details'])} error(s)"
    first = body["details"][0]
    assert first["property"] == "messages[1]" + (f".{property}" if property else "")
    assert first["message"].startswith(sentence)


LARGE = bubble(*[words("字" * 2000)] * 6)
BAD_FLEX = [
    (bubble(words("")), "/body/contents/0/text", "must be non-empty text"),
    (bubble(words(color="#444")), "/body/contents/0/color", "invalid property"),
    (bubble(words(colour="#444444")), "/body/contents/0/colour", "unknown field"),
    (bubble(words(size="huge")), "/body/contents/0/size", "invalid property"),
    (bubble(words(flex=-1)), "/body/contents/0/flex", "invalid property"),
    (bubble(words(wrap="true")), "/body/contents/0/wrap", "invalid property"),
    (bubble({"type": "text"}), "/body/contents/0/text", "must be specified"),
    (bubble({"type": "button"}), "/body/contents/0/action", "must be specified"),
    (bubble({"type": "icon", "url": "https://a.tw/"}), "/body/contents/0", "invalid property"),
    (bubble(box(BUTTON, layout="baseline")), "/body/contents/0/contents/0", "invalid property"),
    (bubble({"type": "button", "action": TAP | {"label": "字" * 41}}),
     "/body/contents/0/action/label", "must not be longer than 40 characters"),
    (bubble({"type": "image", "url": "http://a.tw/"}), "/body/contents/0/url",
     "invalid uri scheme"),
    (bubble({"type": "image", "url": "https://a.tw/", "aspectRatio": "1:4"}),
     "/body/contents/0/aspectRatio", "invalid property"),
    (bubble(words(), hero=words()), "/hero", "invalid property"),
    (bubble(words(), styles={"type": "x"}), "/styles/type", "unknown field"),
    (bubble(words(), size="huge"), "/size", "invalid property"),
    ({"type": "bubble", "body": {"type": "box", "contents": []}}, "/body/layout",
     "must be specified"),
    ({"type": "bubble"}, "/", "at least one block must be specified"),
    ({"type": "box"}, "/type", "invalid property"),
    (None, "/type", "invalid property"),
    (LARGE, "/", "must not be larger than 30 KB"),
    ({"type": "carousel", "contents": [bubble(words())] * 13}, "/contents",
     "size must be between 1 and 12"),
    ({"type": "carousel", "contents": [bubble(words()), bubble(words(""))]},
     "/contents/1/body/contents/0/text", "must be non-empty text"),
    ({"type": "carousel", "contents": [bubble(words(), size="kilo"), bubble(words())]},
     "/contents", "all bubbles must have the same size"),
    ({"type": "carousel", "contents": [bubble(words("字" * 2000))] * 9}, "/",
     "must not be larger than 50 KB"),
]  # fmt: skip


@pytest.mark.parametrize(("contents", "property", "sentence"), BAD_FLEX)
async def test_flex_is_refused_in_words_of_its_own(
    contents: Any, property: str, sentence: str
) -> None:
    """The message by its number, the mistake by its path within the card."""
    with pytest.raises(Refusal) as refused:
        check_messages({"messages": [*HELLO, flex(contents)]})
    body = json.loads(bytes(refused.value.response().body))
    assert body["message"] == "A message (messages[1]) in the request body is invalid"
    assert {"property": property, "message": sentence} in body["details"]


def test_a_card_in_a_card_in_a_card() -> None:
    """Too much depth is refused, and breaks nothing."""
    deep = words()
    for _ in range(200):
        deep = box(deep)
    with pytest.raises(Refusal, match=r"messages\[0\]"):
        check_messages({"messages": [flex(bubble(deep))]})


NAMES = [
    "type", "text", "contents", "template", "actions", "action", "columns", "altText", "sender",
    "quickReply", "items", "label", "data", "body", "layout", "size", "url",
]  # fmt: skip
KINDS = [
    "text", "flex", "template", "bubble", "carousel", "box", "buttons", "message", "vertical",
    "button", "image", "confirm", "span", "postback", "video",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), inner | st.sampled_from(KINDS), max_size=5)
    ),
    max_leaves=25,
)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_nothing_that_is_sent_breaks_the_check(messages: list[Any]) -> None:
    """Any input is accepted or refused."""
    refused: Refusal | None = None
    try:
        check_messages({"messages": messages})
    except Refusal as refusal:
        refused = refusal
    assert refused is None or json.loads(bytes(refused.response().body))["details"]


@pytest.mark.parametrize(
    ("text", "units", "seen"),
    [("a", 1, 1), ("臺北", 2, 2), ("😀", 2, 1), ("👨‍👩‍👧‍👦", 11, 1), ("🇹🇼🇯🇵", 8, 2), ("👍🏽", 4, 1),
     ("e\u0301", 2, 1), ("☀️", 2, 1), ("", 0, 0)],
)  # fmt: skip
def test_lengths_are_counted_as_line_counts_them(text: str, units: int, seen: int) -> None:
    """Messages are counted in UTF-16 units, labels as people see them."""
    assert (utf16(text), graphemes(text)) == (units, seen)


# ------------------------------------------------------------------------------- rich menus

MENU: Json = {
    "size": {"width": 2500, "height": 1686},
    "selected": True,
    "name": "主選單",
    "chatBarText": "天氣選單",
    "areas": [
        {
            "bounds": {"x": x, "y": 0, "width": 1250, "height": 1686},
            "action": {"type": "postback", "label": "住家", "data": "action=weather&type=home"},
        }
        for x in (0, 1250)
    ],
}


def picture(width: int = 2500, height: int = 1686, format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "#1d6660").save(file, format)
    return file.getvalue()


async def test_the_life_of_a_rich_menu_through_the_sdk() -> None:
    """Created, drawn on, shown to all users, read back to the byte, and deleted."""
    async with stage() as (line, _):
        configuration = Configuration(host=line.api_base, access_token=TOKEN)
        async with AsyncApiClient(configuration) as client:
            api, blob = AsyncMessagingApi(client), AsyncMessagingApiBlob(client)
            request = RichMenuRequest.from_dict(MENU)
            await api.validate_rich_menu_object(request, _request_timeout=TIMEOUT)
            made = await api.create_rich_menu(request, _request_timeout=TIMEOUT)
            id = made.rich_menu_id
            data = picture()
            await blob.set_rich_menu_image(
                id, body=bytearray(data), _headers={"Content-Type": "image/png"}
            )
            await api.set_default_rich_menu(id, _request_timeout=TIMEOUT)
            default = await api.get_default_rich_menu_id(_request_timeout=TIMEOUT)
            assert default.rich_menu_id == id and line.menus.seen_by(line.me.chat_id)
            assert bytes(await blob.get_rich_menu_image(id)) == data
            known = await api.get_rich_menu(id, _request_timeout=TIMEOUT)
            assert known.to_dict() == {"richMenuId": id} | MENU
            listed = await api.get_rich_menu_list(_request_timeout=TIMEOUT)
            assert [menu.rich_menu_id for menu in listed.richmenus] == [id]
            await api.delete_rich_menu(id, _request_timeout=TIMEOUT)
        async with caller(line) as http:
            gone = await http.get("/v2/bot/user/all/richmenu")
            unknown = await http.get(f"/v2/bot/richmenu/{id}")
        assert (gone.status_code, gone.json()["message"]) == (404, "no default richmenu")
        assert unknown.json() == {"message": "richmenu not found", "details": []}
        assert line.menus.seen_by(line.me.chat_id) is None


async def made(api: httpx.AsyncClient) -> str:
    return (await api.post("/v2/bot/richmenu", json=MENU)).json()["richMenuId"]


async def upload(
    api: httpx.AsyncClient, id: str, data: bytes, kind: str = "image/png"
) -> httpx.Response:
    headers = {"Content-Type": kind}
    return await api.post(f"/v2/bot/richmenu/{id}/content", content=data, headers=headers)


async def test_a_picture_is_for_ever_and_needed() -> None:
    """Without one a menu is not shown; with one it gets no other."""
    async with stage() as (line, _), caller(line) as api:
        id = await made(api)
        early = await api.post(f"/v2/bot/user/all/richmenu/{id}")
        assert early.status_code == 400
        assert early.json()["message"] == "must upload richmenu image before applying it to user"
        refusals = [
            await upload(api, id, picture(700, 400)),
            await upload(api, id, picture(1000, 1000)),
            await upload(api, id, b"no picture"),
            await upload(api, id, picture(), "image/gif"),
            await upload(api, id, picture(), "image/jpeg"),
            await upload(api, id, picture() + b"\0" * 1024 * 1024),
            await upload(api, "richmenu-0", picture()),
        ]
        assert [each.status_code for each in refusals] == [400, 400, 400, 415, 400, 413, 404]
        assert refusals[0].json()["message"] == "The image size is not allowed for richmenu"
        assert (await upload(api, id, picture(format="JPEG"), "image/jpeg")).status_code == 200
        second = await upload(api, id, picture())
        assert (second.status_code, second.json()["message"]) == (
            400, "An image has already been uploaded to the richmenu",
        )  # fmt: skip
        assert (await api.post(f"/v2/bot/user/all/richmenu/{id}")).status_code == 200
        assert (await api.delete("/v2/bot/user/all/richmenu")).status_code == 200
        assert (await api.get("/v2/bot/user/all/richmenu")).status_code == 404
        assert (await api.post("/v2/bot/user/all/richmenu/richmenu-0")).json() == {
            "message": "Not found"
        }


@pytest.mark.parametrize(
    ("change", "property"),
    [
        ({"chatBarText": "字" * 15}, "chatBarText"),
        ({"name": "字" * 301}, "name"),
        ({"selected": "yes"}, "selected"),
        ({"areas": MENU["areas"] * 11}, "areas"),
        ({"size": {"width": 2501, "height": 800}}, "size.width"),
        ({"size": {"width": 1000, "height": 900}}, "size"),
        ({"areas": [{"bounds": {"x": 2500, "y": 0, "width": 9, "height": 9}, "action": TAP}]},
         "areas[0].bounds"),
        ({"areas": [{"bounds": {"x": 0, "y": 0, "width": 0, "height": 9}, "action": TAP}]},
         "areas[0].bounds.width"),
        ({"areas": [{"bounds": MENU["areas"][0]["bounds"], "action": {"type": "camera"}}]},
         "areas[0].action.type"),
    ],
)  # fmt: skip
async def test_a_menu_is_checked(change: Json, property: str) -> None:
    """Before it is made, and by the same rules where nothing is made."""
    async with stage() as (line, _), caller(line) as api:
        for path in ("/v2/bot/richmenu", "/v2/bot/richmenu/validate"):
            answer = await api.post(path, json=MENU | change)
            assert answer.status_code == 400
            assert answer.json()["details"][0]["property"] == property
        assert line.menus.all() == []


async def test_a_menu_for_one_person() -> None:
    """It hides the default, until it is unlinked; one call can do it for many."""
    async with stage() as (line, _), caller(line) as api:
        everybody, mine = await made(api), await made(api)
        for id in (everybody, mine):
            await upload(api, id, picture())
        await api.post(f"/v2/bot/user/all/richmenu/{everybody}")
        me, other = line.me.chat_id, line.somebody().chat_id
        path = f"/v2/bot/user/{me}/richmenu"
        none = await api.get(path)
        assert none.json() == {"message": "the user has no richmenu", "details": []}
        assert (await api.post(f"{path}/{mine}")).status_code == 200
        assert (await api.get(path)).json() == {"richMenuId": mine}
        assert [line.menus.seen_by(each)["richMenuId"] for each in (me, other)] == [mine, everybody]
        assert (await api.delete(path)).status_code == 200
        body = {"richMenuId": mine, "userIds": [me, other]}
        assert (await api.post("/v2/bot/richmenu/bulk/link", json=body)).status_code == 202
        assert line.menus.seen_by(other)["richMenuId"] == mine
        assert (await api.post("/v2/bot/richmenu/bulk/unlink", json=body)).status_code == 202
        assert line.menus.seen_by(me)["richMenuId"] == everybody
        wrong = await api.post(f"/v2/bot/user/somebody/richmenu/{mine}")
        assert wrong.json() == {"message": "The value for the 'userId' parameter is invalid"}


async def test_menus_have_other_names() -> None:
    """A name means one menu at a time, and is new only once."""
    async with stage() as (line, _), caller(line) as api:
        first, second = await made(api), await made(api)
        for id in (first, second):
            await upload(api, id, picture())
        path = "/v2/bot/richmenu/alias"
        name = {"richMenuAliasId": "tab-a", "richMenuId": first}
        assert (await api.post(path, json=name)).status_code == 200
        again = await api.post(path, json=name)
        assert again.json() == {"message": "conflict richmenu alias id", "details": []}
        moved = await api.post(f"{path}/tab-a", json={"richMenuId": second})
        assert moved.status_code == 200
        assert (await api.get(f"{path}/tab-a")).json()["richMenuId"] == second
        aliases = {"aliases": [{"richMenuAliasId": "tab-a", "richMenuId": second}]}
        assert (await api.get(f"{path}/list")).json() == aliases
        assert (await api.delete(f"{path}/tab-a")).status_code == 200
        assert (await api.get(f"{path}/tab-a")).status_code == 404
        assert (await api.post(f"{path}/tab-b", json={"richMenuId": first})).status_code == 404


# ------------------------------------------------------------------------------- accounts


async def test_a_profile_is_for_friends() -> None:
    """Not a friend, a user who has blocked the bot, or an unknown one: 404.

    In a group, members suffice.
    """
    async with stage() as (line, _), caller(line) as api:
        me = line.me.user_id
        profile = f"/v2/bot/profile/{me}"
        await line.say("嗨")
        assert (await api.get(profile)).json() == {"message": "Not found"}
        await line.follow()
        known = (await api.get(profile)).json()
        assert known["userId"] == me and known["displayName"]
        await line.unfollow()
        assert (await api.get(profile)).status_code == 404
        assert (await api.get("/v2/bot/profile/me")).status_code == 400
        group = Source.group(new_id("group"), me)
        member = f"/v2/bot/group/{group.chat_id}/member/{me}"
        assert (await api.get(member)).status_code == 404
        await line.join(source=group)
        assert (await api.get(member)).json()["userId"] == me
        summary = f"/v2/bot/group/{group.chat_id}"
        assert (await api.get(f"{summary}/summary")).json()["groupId"] == group.chat_id
        assert (await api.post(f"{summary}/leave")).status_code == 200
        assert (await api.get(f"{summary}/summary")).status_code == 404


async def test_the_webhook_can_be_moved_and_tested() -> None:
    """Through the API, as `doctor` commands do it; the test says what went wrong."""
    endpoint, test = "/v2/bot/channel/webhook/endpoint", "/v2/bot/channel/webhook/test"
    async with stage() as (line, bot), caller(line) as api:
        url, line.webhook_url = line.webhook_url, ""
        assert (await api.get(endpoint)).status_code == 404
        assert (await api.put(endpoint, json={"endpoint": url})).status_code == 200
        assert (await api.get(endpoint)).json() == {"endpoint": url, "active": True}
        fine = (await api.post(test, json={})).json()
        assert fine.pop("timestamp").endswith("Z")
        assert fine == {"success": True, "statusCode": 200, "reason": "OK", "detail": "200"}
        bot.status = 404
        assert (await api.post(test)).json()["reason"] == "ERROR_STATUS_CODE"
        async with served(bot) as gone:
            pass
        nobody = (await api.post(test, json={"endpoint": gone})).json()
        assert (nobody["success"], nobody["reason"]) == (False, "COULD_NOT_CONNECT")
        for wrong in ("ftp://a.tw", "http://", "nowhere", "https://a.tw/" + "x" * 500, 7):
            answer = await api.put(endpoint, json={"endpoint": wrong})
            assert answer.json()["details"][0]["property"] == "endpoint"
        assert line.webhook_url == url


# ------------------------------------------------------------------------------- every call


async def test_only_the_bot_may_call() -> None:
    """401 without its token, in LINE's words; nothing is done then."""
    async with stage() as (line, bot):
        await line.say("嗨")
        body = {"replyToken": bot.events[0]["replyToken"], "messages": HELLO}
        for token in ("wrong", "x y", TOKEN + "x", "ü"):
            headers = {"Authorization": f"Bearer {token}".encode()}
            async with caller(line) as api:
                answer = await api.post(REPLY, json=body, headers=headers)
            assert answer.status_code == 401
            assert answer.json()["message"].startswith("Authentication failed due to the following")
        async with httpx.AsyncClient(trust_env=False, verify=False) as other:
            assert (await other.get(f"{line.api_base}/v2/bot/info")).status_code == 401
        assert line.chat().sent == []


async def test_every_answer_has_a_request_id() -> None:
    """Also those that say no; and each says no in JSON."""
    async with stage() as (line, _), caller(line) as api:
        json_type = {"Content-Type": "application/json"}
        answers = [
            await api.get("/v2/bot/info"),
            await api.get("/v2/bot/nothing"),
            await api.get(REPLY),
            await api.post(REPLY, content=b"{", headers=json_type),
            await api.post(REPLY, content=b"[]", headers=json_type),
            await api.post(REPLY, content=b"[" * 100_000, headers=json_type),
            await api.post(REPLY, content=b"\xff", headers=json_type),
            await api.post(REPLY, content=b"x=1", headers={"Content-Type": "text/plain"}),
        ]
        statuses = [answer.status_code for answer in answers]
        assert statuses == [200, 404, 405, 400, 400, 400, 400, 415]
        ids = {answer.headers["x-line-request-id"] for answer in answers}
        assert len(ids) == len(answers) and all(answer.json() for answer in answers)
        assert answers[3].json()["message"] == (
            "The request body could not be parsed as JSON (line: 1, column: 2)"
        )
        assert answers[7].json()["message"] == "The content type, text/plain, is not supported"


async def test_a_body_has_an_end() -> None:
    """2 MB: 413 beyond."""
    async with stage() as (line, _), caller(line) as api:
        headers = {"Content-Type": "application/json"}
        answer = await api.post(REPLY, content=b" " * (2 * 1024 * 1024 + 1), headers=headers)
        assert answer.status_code == 413


async def test_bad_days_on_demand() -> None:
    """The next calls are refused, and nothing is done; or done, and answered late."""
    async with stage() as (line, bot), caller(line) as api:
        await line.say("嗨")
        body = {"replyToken": bot.events[0]["replyToken"], "messages": HELLO}
        line.fail_next(REPLY, status=429)
        line.fail_next(REPLY, status=500, times=2)
        line.fail_next(REPLY, delay=60)
        statuses = [(await api.post(REPLY, json=body)).status_code for _ in range(3)]
        assert statuses == [429, 500, 500] and line.chat().sent == []
        with pytest.raises(httpx.ReadTimeout):
            await api.post(REPLY, json=body, timeout=0.3)
        assert len(line.chat().sent) == 1  # it was sent all the same
        assert (await api.post(REPLY, json=body)).status_code == 400


async def test_the_journal_keeps_secrets() -> None:
    """Its `repr` names no person; the page gets all of it, except the secrets of the channel."""
    async with stage() as (line, bot), caller(line) as api:
        await line.say("嗨")
        await api.get(f"/v2/bot/profile/{line.me.user_id}")
        await reply(line, bot.events[0]["replyToken"])
        entries = [call.json() for call in line.calls] + [each.json() for each in line.deliveries]
        shown = repr([line, line.channel, line.calls, line.deliveries])
        assert [call.route for call in line.calls] == ["/v2/bot/profile/{userId}", REPLY]
        assert [call.status for call in line.calls] == [404, 200]
        assert line.calls[1].body["messages"] == HELLO
        secret = [line.me.user_id, bot.events[0]["replyToken"], SECRET, TOKEN]
        assert not any(word in shown for word in secret)
        assert not any(word in json.dumps(entries) for word in (SECRET, TOKEN))


async def test_the_blocking_sdk_belongs_in_a_thread() -> None:
    """There it works as it does against LINE."""
    async with stage() as (line, bot):
        await line.say("嗨")
        request = ReplyMessageRequest.from_dict(
            {"replyToken": bot.events[0]["replyToken"], "messages": HELLO}
        )

        def answer() -> None:
            with ApiClient(Configuration(host=line.api_base, access_token=TOKEN)) as client:
                MessagingApi(client).reply_message(request, _request_timeout=TIMEOUT)
                client.rest_client.pool_manager.clear()

        await asyncio.to_thread(answer)
        assert line.chat().sent == HELLO


async def test_waiting_for_the_bot_has_an_end() -> None:
    """TimeoutError, when it says nothing."""
    async with stage() as (line, _):
        with pytest.raises(TimeoutError):
            await line.wait_for_messages(1, within=0.05)


async def test_sixty_people_at_once() -> None:
    """60 people at once, each with their own webhook, and each answered in their own chat."""
    async with stage(webhook_timeout=TIMEOUT) as (line, bot):
        people = [line.somebody() for _ in range(60)]
        said = [line.say(f"第 {n} 位", source=who) for n, who in enumerate(people)]
        assert all(each.is_ok for each in await asyncio.gather(*said))
        async with caller(line) as api:
            for event in bot.events:
                echo = [{"type": "text", "text": event["message"]["text"]}]
                body = {"replyToken": event["replyToken"], "messages": echo}
                assert (await api.post(REPLY, json=body)).status_code == 200
        assert [line.chat(who).sent[0]["text"] for who in people] == [
            f"第 {n} 位" for n in range(60)
        ]


# ------------------------------------------------------------------------------- the page's side


@asynccontextmanager
async def visitor(line: LocalLine) -> AsyncIterator[httpx.AsyncClient]:
    """A visitor who has opened the page."""
    base = line.page_url.removesuffix("/chat/")
    async with httpx.AsyncClient(
        base_url=base, timeout=TIMEOUT, trust_env=False, verify=False
    ) as client:
        page = await client.get("/chat/")
        assert page.status_code == 200 and "default-src 'self'" in str(page.headers)
        yield client


class EventStream:
    """The events that the page receives.

    On a bare connection: a client library closes what is left unread some time later, in its own
    task.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._port = client.base_url.port
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        self._request = f"GET /chat/api/events HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\n\r\n"

    async def __aenter__(self) -> EventStream:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(self._request.encode())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def next(self) -> tuple[str, Json]:
        """The next message: its kind, and what it says."""
        async with asyncio.timeout(TIMEOUT):
            message = await self._reader.readuntil(b"\n\n")
        kind, data = message[message.index(b"event: ") :].decode().strip().split("\n")
        return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_the_page_is_told_what_happens() -> None:
    """All of it first, then each thing once: said, delivered, answered, thinking."""
    async with stage() as (line, bot), visitor(line) as client, caller(line) as api:
        async with EventStream(client) as seen:
            assert [(await seen.next())[0] for _ in range(2)] == ["opening", "state"]
            assert (await client.post("/chat/api/say", json={"text": "台北"})).status_code == 202
            await until(lambda: len(line.deliveries) == 1)
            event = bot.events[0]
            chat = {"chatId": event["source"]["userId"], "loadingSeconds": 5}
            await api.post(LOADING, json=chat)
            await api.post(REPLY, json={"replyToken": event["replyToken"], "messages": HELLO})
            news = [await seen.next() for _ in range(7)]
        assert sorted(kind for kind, _ in news) == [
            "call", "call", "delivery", "entry", "entry", "friendship", "loading",
        ]  # fmt: skip
        entries = [facts for kind, facts in news if kind == "entry"]
        assert [entry["author"] for entry in entries] == ["person", "bot"]
        assert all(facts["chat"] == "private" for kind, facts in news if kind != "menu")


async def test_a_page_that_is_too_slow_is_told_everything_again() -> None:
    """It misses no message for good."""
    async with stage() as (line, _):
        panel = ChatPanel(line)
        from local_line.panel import Visitor

        visitor = Visitor("00000000")
        who = visitor.phones["ann"]
        seen = panel._seen(visitor, who)
        first = [await anext(seen), await anext(seen)]
        assert "event: state" in first[1]
        for n in range(300):
            line.happen([events.text(f"第 {n} 句")], source=who.private)
        again = await anext(seen)
        assert again.startswith("event: state") and "\\u7b2c 299" in again
        await panel.end_requests()
        with pytest.raises(StopAsyncIteration):
            await anext(seen)


async def test_visitors_have_phones_of_their_own() -> None:
    """Visitors do not see each other's messages, in the 1:1 chat or in the group."""
    async with stage() as (line, bot), visitor(line) as one, visitor(line) as two:
        for client in (one, two):
            for place in ("private", "group", "anonymous"):
                await client.post("/chat/api/say", json={"text": "嗨", "place": place})
        await until(lambda: len(bot.events) == 6)
        sources = [json.dumps(event["source"], sort_keys=True) for event in bot.events]
        assert len(set(sources)) == 6
        assert sum("userId" not in event["source"] for event in bot.events) == 2


@pytest.mark.parametrize(
    ("verb", "given", "status"),
    [
        ("say", {"text": ""}, 400),
        ("say", {"text": "字" * 5001}, 400),
        ("say", {"text": 7}, 400),
        ("say", [], 400),
        ("say", {"text": "嗨", "place": "moon"}, 400),
        ("tap", {"data": "x" * 301}, 400),
        ("tap", {"data": "x", "params": {"userId": "x"}}, 400),
        ("location", {"latitude": "25", "longitude": 121}, 400),
        ("location", {"latitude": 25, "longitude": 181}, 400),
        ("join", {"place": "private"}, 400),
        ("switch", {"data": "x"}, 400),
        ("dance", {}, 404),
        ("redeliver", {}, 409),
        ("pair", {}, 409),
        ("say", {"text": "x" * 40_000}, 413),
    ],
)
async def test_the_page_is_not_believed(verb: str, given: Any, status: int) -> None:
    """What cannot be is answered in one sentence, and the bot gets no event."""
    async with stage() as (line, bot), visitor(line) as client:
        answer = await client.post(f"/chat/api/{verb}", json=given)
        assert answer.status_code == status
        assert status == 413 or answer.json()["error"].endswith(".")
        assert bot.bodies == [] and line.deliveries == []


async def test_who_has_not_opened_the_page_and_a_missing_bot() -> None:
    """A visitor who has not opened the page has no phone; without a bot, nothing can be said."""
    async with stage() as (line, bot), visitor(line) as client:
        base = line.page_url.removesuffix("/chat/")
        async with httpx.AsyncClient(base_url=base, trust_env=False, verify=False) as other:
            for path in ("/chat/api/events", "/chat/api/menu/x"):
                assert (await other.get(path)).status_code == 400
            assert (await other.post("/chat/api/say", json={"text": "嗨"})).status_code == 400
        assert (await client.get("/chat/api/menu/richmenu-0")).status_code == 404
        await client.post("/chat/api/unfollow", json={})
        blocked = await client.post("/chat/api/say", json={"text": "嗨"})
        assert blocked.status_code == 409 and "blocked" in blocked.json()["error"]
        line.webhook_url = ""
        assert (await client.post("/chat/api/follow", json={})).status_code == 503
        await until(lambda: len(bot.bodies) == 1)


async def test_it_is_mounted_in_an_app_with_limits_of_its_own() -> None:
    """Where others may send a kilobyte, a menu's picture and a long message still pass."""
    platform = Platform(secret=SECRET, access_token=TOKEN)
    panel, bot = ChatPanel(platform), Bot()
    app = Starlette(routes=chat_routes(panel), max_body_size=1024)
    async with panel, served(bot) as webhook, served(app) as url:
        platform.webhook_url = webhook
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as client:
            assert (await client.get("/chat", follow_redirects=True)).status_code == 200
            words = {"text": "字" * 5000}
            assert (await client.post("/chat/api/say", json=words)).status_code == 202
            menu = await client.post("/v2/bot/richmenu", json=MENU, headers=headers)
            path = f"/v2/bot/richmenu/{menu.json()['richMenuId']}/content"
            kind = headers | {"Content-Type": "image/png"}
            assert (await client.post(path, content=picture(), headers=kind)).status_code == 200
            await until(lambda: len(bot.events) == 1)


async def test_menus_are_switched_on_the_phone() -> None:
    """A tap that switches: another menu is shown, and the bot gets an event that says which."""
    async with stage() as (line, bot), visitor(line) as client, caller(line) as api:
        id = await made(api)
        await upload(api, id, picture())
        name = {"richMenuAliasId": "tab-b", "richMenuId": id}
        await api.post("/v2/bot/richmenu/alias", json=name)
        for alias in ("tab-b", "tab-z"):
            body = {"alias": alias, "data": "tab"}
            assert (await client.post("/chat/api/switch", json=body)).status_code == 202
        await until(lambda: len(bot.events) == 2)
        by_alias = {
            event["postback"]["params"]["newRichMenuAliasId"]: event for event in bot.events
        }
        assert by_alias["tab-b"]["postback"]["params"]["status"] == "SUCCESS"
        status = by_alias["tab-z"]["postback"]["params"]["status"]
        assert status == "RICHMENU_ALIAS_ID_NOTFOUND"
        assert line.menus.seen_by(by_alias["tab-b"]["source"]["userId"])["richMenuId"] == id


async def test_the_panel_opens_the_bot_when_it_is_needed() -> None:
    """A visitor who opens the page waits for it, and is told if it does not start."""
    opened: list[str] = []

    async def open_bot() -> None:
        opened.append("asked")
        if len(opened) == 1:
            raise OSError("it did not start")

    platform = Platform(secret=SECRET, access_token=TOKEN)
    panel = ChatPanel(platform, open_bot=open_bot)
    async with panel, served(create_page(panel)) as url:
        async with httpx.AsyncClient(
            base_url=url, timeout=TIMEOUT, trust_env=False, verify=False
        ) as client:
            await client.get("/chat/")
            kinds: list[list[str]] = []
            for number in (3, 2):
                async with EventStream(client) as seen:
                    news = [await seen.next() for _ in range(number)]
                kinds.append([kind for kind, _ in news])
                assert all(
                    facts["error"].endswith("it did not start.")
                    for kind, facts in news
                    if kind == "closed"
                )
    assert kinds == [["opening", "closed", "state"], ["opening", "state"]]
