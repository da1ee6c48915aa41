"""Sending: one reply for each token, and the outcome of those that LINE refuses."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
from local_line import events
from local_line.local import LocalLine

from apps.weamind.core.metrics import Metrics
from apps.weamind.line.outcomes import outcome_of_push, outcome_of_reply
from apps.weamind.line.sender import Sender
from dibs import AsyncDibs
from dibs.testing import Server
from dibs.testing.servers import free_port

from .conftest import ACCESS_TOKEN, SECRET, RunBot, is_forecast

pytestmark = pytest.mark.only_on("linux", "darwin")
HELLO = [{"type": "text", "text": "哈囉"}]
REPLY, PUSH = "/v2/bot/message/reply", "/v2/bot/message/push"


class Outbound:
    """A sender, and the LINE that it talks to."""

    def __init__(self, line: LocalLine, sender: Sender, metrics: Metrics) -> None:
        self.line, self.sender, self.metrics = line, sender, metrics

    def token(self) -> str:
        """Of something that was said just now."""
        return self.line.happen([events.text("嗨")])[0]["replyToken"]

    def replied(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.metrics.registry.get_sample_value("line_reply_total", labels) or 0.0

    def pushed(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.metrics.registry.get_sample_value("line_push_total", labels) or 0.0

    @property
    def routes(self) -> list[str]:
        return [call.route for call in self.line.calls]


@asynccontextmanager
async def sending(redis_url: str, **options: Any) -> AsyncIterator[Outbound]:
    metrics = Metrics()
    given = {"push": False, "access_token": ACCESS_TOKEN} | options
    ttl = given.pop("reply_token_ttl", 60.0)
    line = LocalLine(
        secret=SECRET, access_token=ACCESS_TOKEN, webhook_url="http://x", reply_token_ttl=ttl
    )
    async with line, AsyncDibs(redis_url) as dibs:
        line.accounts.person(line.me.chat_id).is_friend = True
        api_base = given.pop("api_base", line.api_base)
        sender = Sender(api_base, given.pop("access_token"), dibs=dibs, counted_in=metrics, **given)
        try:
            yield Outbound(line, sender, metrics)
        finally:
            await sender.aclose()


# ------------------------------------------------------------------------------- replies


async def test_a_reply_is_sent_counted_and_marked(valkey: Server) -> None:
    """It is in the chat, it is counted, and the token is marked, not written down."""
    async with sending(valkey.url) as outbound:
        token = outbound.token()
        assert await outbound.sender.reply(token, HELLO) == "sent"
        assert outbound.line.chat().sent == HELLO and outbound.replied("sent") == 1
        digest = hashlib.sha256(token.encode()).hexdigest()[:32]
        assert valkey.keys() == [f"line:reply:{digest}"]
        assert valkey.client().ttl(valkey.keys()[0]) > 20 * 60


async def test_a_token_is_spent_once(valkey: Server) -> None:
    """A second reply is not even sent, by any process."""
    async with sending(valkey.url) as outbound, AsyncDibs(valkey.url) as other:
        token = outbound.token()
        assert await outbound.sender.reply(token, HELLO) == "sent"
        assert await outbound.sender.reply(token, HELLO) == "spent"
        elsewhere = Sender(
            outbound.line.api_base, ACCESS_TOKEN, dibs=other, push=True, counted_in=Metrics()
        )
        assert await elsewhere.reply(token, HELLO, to=outbound.line.me.chat_id) == "spent"
        await elsewhere.aclose()
        assert outbound.routes == [REPLY]


async def test_of_two_that_reply_at_once_one_is_sent(valkey: Server) -> None:
    """Of two that reply at the same moment, one does."""
    async with sending(valkey.url) as outbound:
        token = outbound.token()
        outcomes = await asyncio.gather(*(outbound.sender.reply(token, HELLO) for _ in range(5)))
        assert sorted(outcomes) == ["sent", *["spent"] * 4]
        assert outbound.routes == [REPLY]


async def test_nothing_to_reply_to(valkey: Server) -> None:
    """Events without a token get no reply."""
    async with sending(valkey.url) as outbound:
        assert await outbound.sender.reply(None, HELLO, to="U1") == "no_token"
        assert outbound.routes == []


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(429, "rate_limited"), (500, "server_error"), (503, "server_error"), (403, "unauthorized")],
)
async def test_line_says_no(valkey: Server, status: int, outcome: str) -> None:
    """Told apart, counted, not repeated, and not pushed: it may have been sent, or must not be."""
    async with sending(valkey.url, push=True) as outbound:
        outbound.line.fail_next(REPLY, status=status)
        token = outbound.token()
        assert await outbound.sender.reply(token, HELLO, to=outbound.line.me.chat_id) == outcome
        assert outbound.replied(outcome) == 1 and outbound.routes == [REPLY]


async def test_a_message_that_line_does_not_like(valkey: Server) -> None:
    """A mistake of ours is not taken for an old token."""
    async with sending(valkey.url, push=True) as outbound:
        wrong = [{"type": "text", "text": ""}]
        assert (
            await outbound.sender.reply(outbound.token(), wrong, to=outbound.line.me.chat_id)
            == "rejected"
        )
        assert outbound.routes == [REPLY]


async def test_a_token_of_another_channel(valkey: Server) -> None:
    """LINE does not know us: counted as that, so that an operator can be alerted."""
    async with sending(valkey.url, access_token="another") as outbound:
        assert await outbound.sender.reply(outbound.token(), HELLO) == "unauthorized"


async def test_a_late_answer_is_not_repeated(valkey: Server) -> None:
    """LINE took the reply and answered too late: it was sent once, and stays once."""
    async with sending(valkey.url, push=True, longest=0.5) as outbound:
        outbound.line.fail_next(REPLY, delay=1)
        token = outbound.token()
        assert await outbound.sender.reply(token, HELLO, to=outbound.line.me.chat_id) == "timeout"
        assert outbound.line.chat().sent == HELLO
        assert await outbound.sender.reply(token, HELLO) == "spent"
        assert outbound.line.chat().sent == HELLO and PUSH not in outbound.routes


async def test_line_is_not_there(valkey: Server) -> None:
    """Nothing listens: unreachable, and no exception."""
    async with sending(valkey.url, api_base=f"http://127.0.0.1:{free_port()}") as outbound:
        assert await outbound.sender.reply(outbound.token(), HELLO) == "unreachable"
        await outbound.sender.show_loading(outbound.line.me.chat_id)


async def test_no_ids_in_the_log(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    """An error is logged with LINE's request id, and with no id of a person."""
    caplog.set_level(logging.DEBUG, logger="apps.weamind")
    async with sending(valkey.url) as outbound:
        outbound.line.fail_next(REPLY, status=500)
        token = outbound.token()
        await outbound.sender.reply(token, HELLO, to=outbound.line.me.chat_id)
        assert f"server_error (500, request {outbound.line.calls[0].request_id})" in caplog.text
        for private in (token, outbound.line.me.chat_id, "哈囉", ACCESS_TOKEN):
            assert private not in caplog.text


# ------------------------------------------------------------------------------- pushes


async def test_an_expired_token_is_pushed(valkey: Server) -> None:
    """Only where that is allowed: it surely was not sent, and a push costs quota."""
    for allowed in (True, False):
        async with sending(valkey.url, push=allowed, reply_token_ttl=-1.0) as outbound:
            me = outbound.line.me.chat_id
            assert await outbound.sender.reply(outbound.token(), HELLO, to=me) == "invalid_token"
            assert outbound.routes == ([REPLY, PUSH] if allowed else [REPLY])
            assert outbound.line.chat().sent == (HELLO if allowed else [])
            assert outbound.pushed("sent") == (1 if allowed else 0)


async def test_a_push_is_repeated_with_its_key(valkey: Server) -> None:
    """LINE took it and answered too late: the second try says the same key, and it came once."""
    async with sending(valkey.url, push=True, reply_token_ttl=-1.0, longest=1.0) as outbound:
        outbound.line.fail_next(PUSH, delay=1.5)
        await outbound.sender.reply(outbound.token(), HELLO, to=outbound.line.me.chat_id)
        assert outbound.line.chat().sent == HELLO and outbound.pushed("sent") == 1
        assert [call.status for call in outbound.line.calls if call.route == PUSH][-1] == 409


async def test_a_push_that_line_refuses(valkey: Server) -> None:
    """The quota is used up: counted, said, and not tried again."""
    async with sending(valkey.url, push=True, reply_token_ttl=-1.0) as outbound:
        outbound.line.fail_next(PUSH, status=429, times=9)
        await outbound.sender.reply(outbound.token(), HELLO, to=outbound.line.me.chat_id)
        assert outbound.routes == [REPLY, PUSH] and outbound.pushed("rate_limited") == 1


async def test_in_doubt_nothing_is_pushed(own_server: Server) -> None:
    """While Redis is out it is unknown whether a token was used: what LINE refuses is not
    pushed."""
    own_server.kill()
    async with sending(own_server.url, push=True) as outbound:
        token, me = outbound.token(), outbound.line.me.chat_id
        assert await outbound.sender.reply(token, HELLO, to=me) == "sent"
        assert await outbound.sender.reply(token, HELLO, to=me) == "invalid_token"
        assert outbound.routes == [REPLY, REPLY]


async def test_the_bot_pushes_where_it_may(run_bot: RunBot) -> None:
    """From the webhook to the chat: an answer whose token has expired, as a push."""
    async with run_bot(push_fallback=True, line={"reply_token_ttl": -1.0}) as bot:
        bot.line.accounts.person(bot.line.me.chat_id).is_friend = True
        await bot.line.say("板橋")
        assert is_forecast((await bot.replies(1))[0])
        assert [entry.via for entry in bot.line.chat().entries][-1] == "push"


# ------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    ("answer", "reply", "push"),
    [
        (httpx.Response(200), "sent", "sent"),
        (httpx.Response(202), "sent", "sent"),
        (httpx.Response(400, json={"message": "Invalid reply token"}), "invalid_token", "rejected"),
        (httpx.Response(400, json={"message": "The property, 'text', …"}), "rejected", "rejected"),
        (httpx.Response(400, content=b"<html>"), "rejected", "rejected"),
        (httpx.Response(400, json=["x"]), "rejected", "rejected"),
        (httpx.Response(400, json={"message": 5}), "rejected", "rejected"),
        (httpx.Response(409), "rejected", "sent"),
        (httpx.Response(401), "unauthorized", "unauthorized"),
        (httpx.Response(429), "rate_limited", "rate_limited"),
        (httpx.Response(302), "rejected", "rejected"),
        (httpx.Response(502), "server_error", "server_error"),
        (httpx.ConnectError(""), "unreachable", "unreachable"),
        (httpx.ConnectTimeout(""), "unreachable", "unreachable"),
        (httpx.ReadTimeout(""), "timeout", "timeout"),
        (httpx.RemoteProtocolError(""), "timeout", "timeout"),
        (TimeoutError(), "timeout", "timeout"),
    ],
)
def test_what_an_answer_means(answer: Any, reply: str, push: str) -> None:
    """Only what cannot have arrived is called unreachable; only a 400 about it, an old token."""
    assert outcome_of_reply(answer) == reply
    assert outcome_of_push(answer) == push
