"""The LINE integration: signatures, actors, and events that come twice, without any SDK."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import AsyncDibs, Dibs, Duplicate, UsageError
from dibs.integrations.linebot import (
    actor_key,
    event_id,
    event_key,
    once_per_event,
    signature_is_right,
)
from dibs.testing import Server

SECRET = "not-a-secret"
BODY = '{"events":[{"text":"天氣"}]}'.encode()


def sign(body: bytes, secret: str = SECRET) -> str:
    return base64.b64encode(hmac.new(secret.encode(), body, hashlib.sha256).digest()).decode()


def event(number: int = 1) -> dict[str, Any]:
    return {"webhookEventId": f"01H{number}", "replyToken": "r", "source": {"userId": "U1"}}


# ------------------------------------------------------------------------------- signatures


def test_a_right_signature_is_accepted() -> None:
    """What was signed with the secret is from LINE, also an empty body."""
    assert signature_is_right(BODY, sign(BODY), SECRET)
    assert signature_is_right(b"", sign(b""), SECRET)


@pytest.mark.parametrize(
    "signature",
    [None, "", " ", "x", "=", "é" * 44, "\ud800", sign(BODY)[:-1], sign(BODY) + "=",
     sign(BODY, "o"), sign(BODY + b" "), sign(BODY).lower(), " " + sign(BODY)],
)  # fmt: skip
def test_a_wrong_signature_is_refused(signature: str | None) -> None:
    """Anything else is not, and nothing raises."""
    assert not signature_is_right(BODY, signature, SECRET)


def test_without_a_secret_nothing_is_right() -> None:
    """A variable that is not set says so; else whoever signs with nothing would be LINE."""
    with pytest.raises(UsageError, match="secret is empty"):
        signature_is_right(BODY, sign(BODY, ""), "")


@given(body=st.binary(), other=st.binary(), secret=st.text(min_size=1))
def test_signatures_belong_to_a_body(body: bytes, other: bytes, secret: str) -> None:
    """The SDK's own validator agrees, for any body and secret."""
    from linebot.v3.webhook import SignatureValidator

    secret = secret.encode("utf-8", "replace").decode()
    signature = sign(body, secret)
    assert signature_is_right(body, signature, secret)
    assert signature_is_right(other, signature, secret) == (other == body)
    text = body.decode("latin-1")
    validates = SignatureValidator(secret).validate(text, signature)
    assert validates == signature_is_right(text.encode(), signature, secret)


# ------------------------------------------------------------------------------- who and which


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ({"type": "user", "userId": "U1"}, "processing:user:U1"),
        ({"type": "group", "groupId": "C1", "userId": "U1"}, "processing:user:U1"),
        ({"type": "room", "roomId": "R1"}, None),
        ({"type": "user", "userId": 5}, None),
        ({"userId": ""}, None),
        (SimpleNamespace(user_id="U2"), "processing:user:U2"),
        (SimpleNamespace(user_id=None), None),
        (object(), None),
        (None, None),
        ("U1", None),
    ],
)
def test_the_actor_is_the_user_whatever_the_source(source: object, key: str | None) -> None:
    """The user, alone or in a group, for any type of source; None: LINE does not say."""
    assert actor_key(source) == key


def test_the_id_of_an_event_is_read_from_json_and_objects() -> None:
    """Its webhookEventId, from JSON or from an object; None: it has none."""
    assert event_id(event(7)) == event_id(SimpleNamespace(webhook_event_id="01H7")) == "01H7"
    assert event_key(event(7)) == "line:event:01H7"
    assert event_id({}) is event_key({}) is event_id(None) is None


def test_the_sdks_own_objects_fit() -> None:
    """What line-bot-sdk makes of a webhook has the same keys."""
    from linebot.v3 import WebhookParser

    for source in ({"type": "user", "userId": "U1"},
                   {"type": "group", "groupId": "C1", "userId": "U1"},
                   {"type": "room", "roomId": "R1", "userId": "U1"}):  # fmt: skip
        body = json.dumps({
            "destination": "U0",
            "events": [{"type": "unfollow", "mode": "active", "timestamp": 1, "source": source,
                        "webhookEventId": "01H7", "deliveryContext": {"isRedelivery": True}}],
        })  # fmt: skip
        [parsed] = WebhookParser(SECRET).parse(body, sign(body.encode()))
        assert event_key(parsed) == "line:event:01H7"
        assert actor_key(parsed.source) == "processing:user:U1"


def test_it_needs_no_sdk() -> None:
    """Importing it loads no part of line-bot-sdk."""
    code = (
        "import sys, dibs.integrations.linebot; print([m for m in sys.modules if 'linebot' in m])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["['dibs.integrations.linebot']"]


# ------------------------------------------------------------------------------- once


async def test_an_event_is_handled_once(server: Server) -> None:
    """However often it comes, whether the first is done or under way; another one is another."""
    handled: list[str] = []
    states: list[str] = []
    async with AsyncDibs(server.url) as dibs:

        @once_per_event(dibs, skipped=lambda duplicate: states.append(duplicate.state))
        async def handle(event: dict[str, Any], *, tag: str = "") -> str:
            handled.append(event["webhookEventId"])
            await asyncio.sleep(0.05)
            return f"done{tag}"

        answers = await asyncio.gather(*(handle(event(1)) for _ in range(5)), handle(event(2)))
        assert sorted(map(str, answers)) == ["None"] * 4 + ["done"] * 2
        assert await handle(event(1)) is None and await handle(event(3), tag="!") == "done!"
    assert handled == ["01H1", "01H2", "01H3"]
    assert states == ["running"] * 4 + ["done"]
    assert server.keys() == [f"line:event:01H{number}" for number in (1, 2, 3)]


def test_an_event_is_handled_once_by_threads(server: Server) -> None:
    """The same for plain functions, and for objects of the SDK's shape."""
    handled: list[str] = []
    with Dibs(server.url) as dibs:

        @once_per_event(dibs)
        def handle(event: Any) -> str:
            handled.append(event.webhook_event_id)
            return "done"

        taken = SimpleNamespace(webhook_event_id="01H1")
        threads = [threading.Thread(target=handle, args=[taken]) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert handle(taken) is None
    assert handled == ["01H1"]


async def test_two_processes_share_the_events(server: Server) -> None:
    """What one has handled, the other skips."""
    async with AsyncDibs(server.url) as here, AsyncDibs(server.url) as there:

        async def handle(event: dict[str, Any]) -> str:
            return "done"

        assert await once_per_event(here)(handle)(event()) == "done"
        assert await once_per_event(there)(handle)(event()) is None


async def test_a_failure_may_come_again(valkey: Server) -> None:
    """An event whose handler raised is handled when it is delivered again."""
    tries: list[int] = []
    async with AsyncDibs(valkey.url) as dibs:

        @once_per_event(dibs)
        async def handle(event: dict[str, Any]) -> str:
            tries.append(1)
            if len(tries) == 1:
                raise RuntimeError("the first time")
            return "done"

        with pytest.raises(RuntimeError, match="the first time"):
            await handle(event())
        assert await handle(event()) == "done" and await handle(event()) is None


async def test_a_duplicate_of_another_kind_is_not_swallowed(valkey: Server) -> None:
    """A handler may claim other things, and fail to: that is its own affair."""
    async with AsyncDibs(valkey.url) as dibs, dibs.claim("order:1", window=10):

        @once_per_event(dibs)
        async def handle(event: dict[str, Any]) -> None:
            async with dibs.claim("order:1", window=10):
                raise AssertionError("two at once")

        with pytest.raises(Duplicate):
            await handle(event())
    with Dibs(valkey.url) as dibs, dibs.claim("order:2", window=10):

        @once_per_event(dibs)
        def handle_too(event: dict[str, Any]) -> None:
            with dibs.claim("order:2", window=10):
                raise AssertionError("two at once")

        with pytest.raises(Duplicate):
            handle_too(event())


async def test_without_an_id_it_always_runs(valkey: Server) -> None:
    """What cannot be distinguished from others is not skipped."""
    handled: list[int] = []
    async with AsyncDibs(valkey.url) as dibs:

        @once_per_event(dibs)
        async def handle(event: dict[str, Any]) -> None:
            handled.append(1)

        await handle({})
        await handle({})
    with Dibs(valkey.url) as dibs:
        once_per_event(dibs)(lambda event: handled.append(1))({})
    assert len(handled) == 3 and valkey.keys() == []


async def test_without_a_store_it_runs(own_server: Server) -> None:
    """An outage costs no event: it is handled, unguarded."""
    own_server.kill()
    async with AsyncDibs(own_server.url) as dibs:

        @once_per_event(dibs)
        async def handle(event: dict[str, Any]) -> str:
            return "done"

        assert await handle(event()) == "done"


async def test_the_two_worlds_are_not_mixed(valkey: Server) -> None:
    """A coroutine function needs an AsyncDibs, a plain one a Dibs: said when it is decorated."""

    async def later(event: object) -> None: ...

    def now(event: object) -> None: ...

    async with AsyncDibs(valkey.url) as tasks:
        with pytest.raises(UsageError):
            once_per_event(tasks)(now)  # type: ignore[arg-type]
    with Dibs(valkey.url) as threads, pytest.raises(UsageError):
        once_per_event(threads)(later)
