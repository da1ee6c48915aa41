"""Rules of LINE's platform that bots meet only now and then: limits, audiences, logins, events."""

from __future__ import annotations

import io
import json
import shlex
from typing import Any

import pytest
from linebot.v3 import webhooks as hooks
from local_line import LocalLine, Source, create_api, events, wire
from local_line.contents import Content
from local_line.journal import Call
from local_line.rates import LIMITS, Rates
from local_line.sources import new_id
from PIL import Image

from .test_platform import SECRET, TOKEN, Clock, caller, stage

Json = dict[str, Any]
HELLO = [{"type": "text", "text": "哈囉"}]
SEND = "/v2/bot/message"


# ------------------------------------------------------------------------------- events


async def test_events_as_the_sdk_reads_them() -> None:
    """Everything that people can do has its class in LINE's SDK, and all its facts in there."""
    sound, film = Content(b"RIFF", "audio/wav"), Content(b"\0\0\0\x18ftyp", "video/mp4")
    group = new_id("group")
    async with stage() as (line, bot):
        ann, ben = line.somebody("Ann"), line.somebody("Ben")
        there = Source.group(group, ann.user_id)
        mention = events.Mention("@測試", line.channel.bot_id, is_self=True)
        everybody = events.Mention("@All")
        words = "👋 @測試 @All 天氣"
        await line.batch(
            [
                events.join(),
                events.text(words, mentions=[mention, everybody], quoting="123"),
                events.video(film, duration=1500),
                events.audio(sound, duration=700),
                events.file(Content(b"%PDF", "application/pdf", "menu.pdf")),
                events.unsend("123"),
                events.member_joined(ben.chat_id),
                events.member_left(ben.chat_id),
                events.video_played("clip-1"),
                events.beacon(dm="00"),
                events.account_link("nonce"),
                events.account_link("nonce", is_ok=False),
                events.leave(),
            ],
            source=there,
        )
    parsed = bot.parsed()
    assert [type(event).__name__ for event in parsed] == [
        "JoinEvent", "MessageEvent", "MessageEvent", "MessageEvent", "MessageEvent", "UnsendEvent",
        "MemberJoinedEvent", "MemberLeftEvent", "VideoPlayCompleteEvent", "BeaconEvent",
        "AccountLinkEvent", "AccountLinkEvent", "LeaveEvent",
    ]  # fmt: skip
    said = parsed[1].message
    assert isinstance(said, hooks.TextMessageContent)
    own, all_of_them = said.mention.mentionees
    assert (own.index, own.length, own.is_self, own.user_id) == (3, 3, True, line.channel.bot_id)
    assert (all_of_them.type, all_of_them.index) == ("all", 7)
    assert said.quoted_message_id == "123" and said.quote_token
    assert all(event.message.mark_as_read_token for event in parsed[1:5])
    assert parsed[2].message.duration == 1500 and parsed[4].message.file_name == "menu.pdf"
    tokens = [hasattr(event, "reply_token") and event.reply_token is not None for event in parsed]
    assert [parsed[index].type for index, has in enumerate(tokens) if not has] == [
        "unsend", "memberLeft", "accountLink", "leave",
    ]  # fmt: skip


def test_a_mention_that_is_not_in_the_text() -> None:
    """ValueError, before anything is sent."""
    with pytest.raises(ValueError, match="substring"):
        events.text("天氣", mentions=[events.Mention("@測試")])


async def test_what_was_taken_back_is_not_shown() -> None:
    """The chat keeps the place of it, and not what it was."""
    async with stage() as (line, bot):
        await line.say("秘密")
        await line.unsend(bot.events[0]["message"]["id"])
        entry = line.chat().entries[0]
        assert entry.is_unsent and "秘密" not in str(entry)
        assert bot.events[1]["unsend"] == {"messageId": entry.id}


async def test_a_picture_can_be_downloaded_as_it_was_sent() -> None:
    """To the byte, and only with the token."""
    file = io.BytesIO()
    Image.new("RGB", (300, 200), "#a8471f").save(file, "PNG")
    async with stage() as (line, bot), caller(line) as api, caller(line, "stolen") as thief:
        await line.send_picture(Content(file.getvalue(), "image/png"))
        path = f"{SEND}/{bot.events[0]['message']['id']}/content"
        answer = await api.get(path)
        assert answer.content == file.getvalue()
        assert answer.headers["content-type"] == "image/png"
        assert (await thief.get(path)).status_code == 401


async def test_an_account_is_linked_once() -> None:
    """With the token that the bot was given for this user, for ten minutes."""
    clock = Clock()
    async with stage(clock=clock) as (line, bot), caller(line) as api:
        line.accounts.person(line.me.chat_id)

        async def token() -> str:
            answer = await api.post(f"/v2/bot/user/{line.me.user_id}/linkToken")
            return answer.json()["linkToken"]

        first, late = await token(), await token()
        await line.link_account(first, "n1")
        await line.link_account(first, "n2")
        clock.now += 601
        await line.link_account(late, "n3")
        assert [event["link"]["result"] for event in bot.events] == ["ok", "failed", "failed"]


# ------------------------------------------------------------------------------- sending


async def test_a_narrowcast_goes_to_an_audience() -> None:
    """Audiences and operators are sets of friends; what was sent before is one, too."""
    async with stage() as (line, _), caller(line) as api:
        ann, ben, cleo = (line.somebody(name) for name in ("Ann", "Ben", "Cleo"))
        chosen = {"description": "a", "audiences": [{"id": u.chat_id} for u in (ann, ben)]}
        made = (await api.post("/v2/bot/audienceGroup/upload", json=chosen)).json()
        group = {"type": "audience", "audienceGroupId": made["audienceGroupId"]}
        body: Json = {"messages": HELLO, "recipient": group}
        first = await api.post(f"{SEND}/narrowcast", json=body)
        assert first.status_code == 202
        again = {"type": "redelivery", "requestId": first.headers["x-line-request-id"]}
        others: Json = {"type": "operator", "not": {"type": "operator", "or": [group, again]}}
        await api.post(f"{SEND}/narrowcast", json=body | {"recipient": others})
        await api.post(f"{SEND}/narrowcast", json={"messages": HELLO, "limit": {"max": 1}})
        assert [len(line.chat(each).sent) for each in (ann, ben, cleo)] == [2, 1, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"recipient": {"type": "audience", "audienceGroupId": 1}},
        {"recipient": {"type": "operator"}},
        {"recipient": {"type": "everybody"}},
        {"recipient": []},
        {"limit": {"max": 0}},
        {"messages": []},
    ],
    ids=str,
)
async def test_what_a_narrowcast_refuses(change: Json) -> None:
    """400, and no user gets anything."""
    async with stage() as (line, _), caller(line) as api:
        ann = line.somebody()
        body = {"messages": HELLO} | change
        assert (await api.post(f"{SEND}/narrowcast", json=body)).status_code == 400
        assert not line.chat(ann).sent


async def test_a_narrowcast_to_nobody_fails_later() -> None:
    """It is accepted; its progress says that there were too few recipients.

    No age is known here.
    """
    async with stage() as (line, _), caller(line) as api:
        line.somebody()
        body: Json = {"messages": HELLO, "filter": {"demographic": {"type": "gender"}}}
        sent = await api.post(f"{SEND}/narrowcast", json=body)
        asked = {"requestId": sent.headers["x-line-request-id"]}
        answer = (await api.get(f"{SEND}/progress/narrowcast", params=asked)).json()
        assert (sent.status_code, answer["phase"], answer["errorCode"]) == (202, "failed", 2)


@pytest.mark.parametrize("kind", ["push", "multicast", "broadcast", "narrowcast"])
async def test_a_retry_key_is_accepted_once_by_every_way_to_send(kind: str) -> None:
    """The second time 409, with the id of the first request, and nothing is sent."""
    async with stage() as (line, _), caller(line) as api:
        ann = line.somebody()
        to: Json = {"push": {"to": ann.chat_id}, "multicast": {"to": [ann.chat_id]}}.get(kind, {})
        key = {"X-Line-Retry-Key": "123e4567-e89b-12d3-a456-426614174000"}
        body = {"messages": HELLO} | to
        first = await api.post(f"{SEND}/{kind}", json=body, headers=key)
        again = await api.post(f"{SEND}/{kind}", json=body, headers=key)
        assert (first.status_code // 100, again.status_code) == (2, 409)
        accepted = again.headers["x-line-accepted-request-id"]
        assert accepted == first.headers["x-line-request-id"]
        assert len(line.chat(ann).sent) == 1


async def test_the_quota_counts_everybody_who_gets_it() -> None:
    """Replies cost nothing; a message that would exceed the quota is not sent at all."""
    async with stage(quota=3) as (line, bot), caller(line) as api:
        users = [line.somebody().chat_id for _ in range(2)]
        body: Json = {"to": users, "messages": HELLO * 2}
        assert (await api.post(f"{SEND}/multicast", json=body)).status_code == 200
        refused = await api.post(f"{SEND}/broadcast", json={"messages": HELLO})
        assert refused.json() == {"message": "You have reached your monthly limit."}
        await line.say("嗨")
        token = bot.events[0]["replyToken"]
        reply = {"replyToken": token, "messages": HELLO}
        assert (await api.post(f"{SEND}/reply", json=reply)).status_code == 200
        assert (await api.get(f"{SEND}/quota/consumption")).json() == {"totalUsage": 2}


async def test_a_plan_without_a_quota_says_so() -> None:
    """A plan without a limit says so."""
    async with stage(quota=None) as (line, _), caller(line) as api:
        assert (await api.get(f"{SEND}/quota")).json() == {"type": "none"}


# ------------------------------------------------------------------------------- how often


async def test_too_many_calls_are_refused_as_line_does() -> None:
    """By route and method, as in LINE's table: 429 in LINE's words; after the time calls work
    again."""
    clock = Clock()
    async with stage(clock=clock) as (line, _), caller(line) as api:
        for _ in range(60):
            await api.post(f"{SEND}/broadcast", json={"messages": HELLO})
        refused = await api.post(f"{SEND}/broadcast", json={"messages": HELLO})
        assert refused.status_code == 429
        words = "The API rate limit has been exceeded. Try again later."
        assert refused.json() == {"message": words}
        assert (await api.get("/v2/bot/info")).status_code == 200
        clock.now += 3600
        assert (await api.post(f"{SEND}/broadcast", json={"messages": HELLO})).status_code == 200


def test_rates_can_be_switched_off() -> None:
    """For load tests of a bot, which LINE forbids."""
    strict, lax = Rates(enabled=True), Rates(enabled=False)
    route = ("POST", "/v2/bot/richmenu/batch")
    assert [strict.admit(*route, 0.0) for _ in range(4)] == [True] * 3 + [False]
    assert all(lax.admit(*route, 0.0) for _ in range(10))


def test_every_limit_is_of_a_route() -> None:
    """A limit of a route that is not served would limit nothing."""
    from local_line.coverage import served_shapes, shape_of

    assert {(method, shape_of(path)) for method, path in LIMITS} <= served_shapes()


# ------------------------------------------------------------------------------- unknown


async def test_what_is_not_known_is_written_down() -> None:
    """404 in LINE's words, and a row that says so; with the token or without."""
    async with LocalLine(secret=SECRET, access_token=TOKEN) as line, caller(line) as api:
        answer = await api.post("/v2/bot/teleport?to=moon", json={"a": 1})
        assert (answer.status_code, answer.json()) == (404, {"message": "Not found"})
        assert (await api.delete("/v2/bot/info")).status_code == 405
        lost, wrong = line.calls
        assert (lost.is_known, lost.path, lost.status) == (False, "/v2/bot/teleport?to=moon", 404)
        assert (wrong.is_known, wrong.method, wrong.status) == (False, "DELETE", 405)


# ------------------------------------------------------------------------------- LINE Login


async def test_who_is_logged_in() -> None:
    """What a LIFF page sends to its server can be looked up there, as at LINE."""
    clock = Clock()
    async with stage(clock=clock, channel_id="1600000001") as (line, _), caller(line) as api:
        ann = line.somebody("Ann")
        login = line.log_in(ann, nonce="n")
        known = await api.get("/oauth2/v2.1/verify", params={"access_token": login.access_token})
        assert known.json()["client_id"] == "1600000001" and known.json()["expires_in"] > 0
        bearer = {"Authorization": f"Bearer {login.access_token}"}
        profile = await api.get("/v2/profile", headers=bearer)
        assert profile.json() == {"userId": ann.user_id, "displayName": "Ann"}
        friend = await api.get("/friendship/v1/status", headers=bearer)
        assert friend.json() == {"friendFlag": True}
        form = {"id_token": login.id_token, "client_id": "1600000001", "nonce": "n"}
        claims = (await api.post("/oauth2/v2.1/verify", data=form)).json()
        assert (claims["sub"], claims["aud"], claims["name"]) == (ann.user_id, "1600000001", "Ann")
        assert (await api.get("/v2/profile")).status_code == 401  # the token is the bot's
        clock.now += 3601
        late = await api.post("/oauth2/v2.1/verify", data=form)
        assert (late.status_code, late.json()["error_description"]) == (400, "IdToken expired.")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"client_id": "1"}, "Invalid IdToken Audience."),
        ({"nonce": "x"}, "Invalid IdToken Nonce."),
        ({"user_id": "U"}, "Invalid IdToken Subject Identifier."),
        ({"id_token": "a.b.c"}, "Invalid IdToken."),
        ({"id_token": ""}, "Invalid IdToken."),
    ],
)
async def test_an_id_token_that_is_not_for_this(change: Json, words: str) -> None:
    """400, in LINE's words."""
    async with stage(channel_id="1600000001") as (line, _), caller(line) as api:
        login = line.log_in()
        form = {"id_token": login.id_token, "client_id": "1600000001"} | change
        answer = await api.post("/oauth2/v2.1/verify", data=form)
        assert (answer.status_code, answer.json()["error_description"]) == (400, words)


async def test_a_users_token_is_no_bots_token() -> None:
    """Who has logged in may not send messages in the name of the bot."""
    async with stage() as (line, _):
        login = line.log_in()
        async with caller(line, login.access_token) as api:
            assert (await api.get("/v2/bot/info")).status_code == 401
            assert repr(login).count(login.access_token) == 0


# ------------------------------------------------------------------------------- once more


async def test_a_call_once_more() -> None:
    """Another request, with the same body and headers, answered as LINE answers a second one."""
    async with stage() as (line, bot), caller(line) as api:
        await line.say("嗨")
        reply = {"replyToken": bot.events[0]["replyToken"], "messages": HELLO}
        await api.post(f"{SEND}/reply", json=reply)
        await api.get("/v2/bot/followers/ids?limit=7")
        for call in line.calls:
            await wire.call_again(create_api(line), line.channel.access_token, call)
        assert [call.status for call in line.calls] == [200, 200, 400, 200]
        assert line.calls[2].note == "Invalid reply token"
        assert line.calls[3].path == "/v2/bot/followers/ids?limit=7"
        assert len({call.request_id for call in line.calls}) == 4


async def test_a_long_body_is_not_kept() -> None:
    """A picture goes through; once more it cannot be sent, and the row says so."""
    async with stage() as (line, _), caller(line) as api:
        words = "字" * 60_000
        await api.post("/v2/bot/teleport", json={"words": words})
        (call,) = line.calls
        assert call.is_cut and call.sent == b""
        assert wire.details(call, line.api_base)["request"] == "(too long to be kept)"
        with pytest.raises(ValueError, match="too long"):
            await wire.call_again(create_api(line), line.channel.access_token, call)


def test_a_command_for_a_terminal() -> None:
    """Quoted for a shell, for any text."""
    body = json.dumps({"text": "it's `rm`; $HOME"}).encode()
    call = Call(0.0, "POST", "/v2/bot/message/push", 200, 0.0, "id", sent=body, path="/v2/a?b=c&d")
    command = wire.details(call, "http://127.0.0.1:8800")["curl"]
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:4] == ["curl", "-X", "POST", "http://127.0.0.1:8800/v2/a?b=c&d"]
    assert words[words.index("--data-binary") + 1] == body.decode()


# ------------------------------------------------------------------------------- order


async def test_rows_are_numbered_as_they_begin() -> None:
    """A call that is made while a webhook waits for its answer stands after that webhook."""
    async with stage() as (line, bot), caller(line) as api:

        async def ask() -> None:
            await api.get("/v2/bot/info")

        bot.before_answer = ask
        delivery = await line.say("嗨")
        assert delivery.number < line.calls[0].number
        assert delivery.body == bot.bodies[0] and delivery.signature == bot.signatures[0]


async def test_a_liff_app_that_is_deleted_while_its_change_arrives_is_gone() -> None:
    """404: the body of the change comes in two parts, and the deletion between them."""
    async with LocalLine(secret=SECRET, access_token=TOKEN) as line:
        line.liff_apps["1-a"] = {"liffId": "1-a", "view": {"type": "full", "url": "https://a/"}}
        parts = [(b'{"view": {"type":', True), (b' "tall"}}', False)]
        statuses: list[int] = []

        async def receive() -> Any:
            body, more = parts.pop(0)
            if not more:
                del line.liff_apps["1-a"]
            return {"type": "http.request", "body": body, "more_body": more}

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "PUT", "path": "/liff/v1/apps/1-a", "headers": raw}
        scope |= {"query_string": b"", "root_path": "", "scheme": "http", "server": ("a", 80)}
        await create_api(line)(scope, receive, send)
        assert statuses[0] == 404
