"""Whose submission it is, at every edge: cookies, logins, users, and those who are not known."""

import asyncio
from typing import Any

import pytest

from dibs import UsageError
from dibs.integrations._async import claims as async_claims
from dibs.integrations._sync import claims as sync_claims
from dibs.testing import Server

from .edges import opened
from .every_edge import KEYED, REPLAY, every_edge

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


# ---- who it is


COOKIES = ["session=a", "session=a; _ga=GA1.2", "session=resigned", "", "other=1"]


@every_edge
@pytest.mark.parametrize("after", ["replay", "hold"])
async def test_cookies_do_not_decide_about_a_clients_key(
    valkey: Server, edge: str, after: Any
) -> None:
    """A session with a new signature, a new tracker, another address: one execution."""
    async with opened(edge, valkey, after=after, key="required") as shop:
        for number, cookie in enumerate(COOKIES):
            headers = {**KEYED, **({"cookie": cookie} if cookie else {})}
            reply = await shop.post(headers=headers, client=f"10.0.0.{number + 1}")
            assert (reply.status, reply.is_replay) == (
                (201, number > 0) if after == "replay" or number == 0 else (409, False)
            )
        assert len(shop.runs) == 1


@every_edge
async def test_the_application_names_its_session_cookie(valkey: Server, edge: str) -> None:
    """Then two sessions are two people, regardless of other cookies."""
    site = {"session_cookie": "sid"}
    async with opened(edge, valkey, site=site, **REPLAY) as shop:
        for number, sid in enumerate(("a", "b"), start=1):
            for cookie in (f"sid={sid}", f"_ga=1; sid={sid}", f"sid={sid}; x=y"):
                await shop.post(headers={**KEYED, "cookie": cookie})
            assert len(shop.runs) == number


@every_edge
async def test_a_key_with_another_payload_gets_nobodys_answer(valkey: Server, edge: str) -> None:
    """Where nothing tells who it is, the key and its payload are all there is to go by."""
    async with opened(edge, valkey, **REPLAY) as shop:
        await shop.post(body=b'{"for":"a"}', headers={**KEYED, "cookie": "session=a"})
        other = await shop.post(body=b'{"for":"b"}', headers={**KEYED, "cookie": "session=b"})
        assert other.status == 422 and len(shop.runs) == 1


SIGNED = [
    "Digest", "Hawk", "OAuth", "Signature", "Negotiate", "NTLM", "HOBA", "HMAC", "HMAC-SHA256",
    "AWS", "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", "SharedKey", "TC3-HMAC-SHA256",
    "ACS3-HMAC-SHA256", "GOOG4-RSA-SHA256", "WECHATPAY2-SHA256-RSA2048", "EG1-HMAC-SHA256",
]  # fmt: skip


@every_edge
async def test_a_login_that_is_signed_for_each_request_does_not_decide(
    valkey: Server, edge: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such schemes send another Authorization header with every request. A warning asks for
    `user=`, once for a route, and without the header.
    """
    async_claims._warn_of_login.cache_clear()
    sync_claims._warn_of_login.cache_clear()
    async with opened(edge, valkey, **REPLAY) as shop:
        for number, scheme in enumerate([*SIGNED, "s3cret"]):
            for attempt in range(2):
                login = f'{scheme} username="a", response="{attempt}"'
                keyed = {"idempotency-key": f"k-{number}", "authorization": login.strip()}
                assert (await shop.post(headers=keyed)).status == 201
            assert len(shop.runs) == number + 1, scheme
    warnings = [each for each in caplog.messages if "user=" in each]
    assert len(warnings) == 1 and "s3cret" not in caplog.text and "Digest" not in caplog.text
    assert "POST" in warnings[0]


@every_edge
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Token", "ApiKey", "Api-Key"])
async def test_a_login_that_stays_the_same_tells_people_apart(
    valkey: Server, edge: str, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two of them with one key are two submissions, and there is no warning."""
    async with opened(edge, valkey, **REPLAY) as shop:
        for number, login in enumerate(("a", "b"), start=1):
            for _ in range(2):
                await shop.post(headers={**KEYED, "authorization": f"{scheme} {login}"})
            assert len(shop.runs) == number
    assert "user=" not in caplog.text


@every_edge
async def test_without_a_key_an_answer_goes_only_to_who_is_known(valkey: Server, edge: str) -> None:
    """People behind one address, with one kind of browser, may be two: none gets an answer."""
    async with opened(edge, valkey, after="replay") as shop:
        assert (await shop.post()).status == 201
        refused = await shop.post()
        assert refused.status == 429 and refused.json["state"] == "done"
        login = {"authorization": "Bearer a"}
        assert not (await shop.post(headers=login)).is_replay
        assert (await shop.post(headers=login)).is_replay
        assert len(shop.runs) == 2


# ---- no user


@every_edge
async def test_a_user_that_is_none_is_not_known(valkey: Server, edge: str) -> None:
    """They are not one person: each is who the request says."""
    async with opened(edge, valkey, site={"user": "x-user"}, **REPLAY) as shop:
        for number, login in enumerate(("Bearer a", "Bearer b"), start=1):
            for replayed in (False, True):
                reply = await shop.post(headers={**KEYED, "authorization": login})
                assert (reply.is_replay, len(shop.runs)) == (replayed, number)
        named = {**KEYED, "x-user": "a"}
        assert not (await shop.post(headers=named)).is_replay
        assert (await shop.post(headers={**named, "authorization": "Bearer new"})).is_replay


@every_edge
async def test_two_users_without_a_key_are_not_joined(valkey: Server, edge: str) -> None:
    """`user=` says None of both."""
    async with opened(edge, valkey, site={"user": "x-user"}, after="replay") as shop:
        replies = [await shop.post(client=f"10.0.0.{number}") for number in (1, 2)]
        assert [reply.status for reply in replies] == [201, 201] and len(shop.runs) == 2


# ---- settings that make no sense


@pytest.mark.parametrize("edge", ["asgi", "wsgi", "starlette", "fastapi", "flask"])
async def test_an_empty_secret_or_session_cookie_is_refused(valkey: Server, edge: str) -> None:
    """It is what an unset environment variable yields."""
    for site in ({"secret": ""}, {"secret": b""}, {"session_cookie": ""}):
        with pytest.raises(UsageError, match=r"must not be empty|name of a cookie"):
            async with opened(edge, valkey, site=site):
                pass


@every_edge
async def test_an_empty_user_is_not_known(valkey: Server, edge: str) -> None:
    """It identifies no user: it would join all users without a name."""
    async with opened(edge, valkey, site={"user": "x-user"}, **REPLAY) as shop:
        for login in ("Bearer a", "Bearer b"):
            headers = {**KEYED, "x-user": "", "authorization": login}
            assert not (await shop.post(headers=headers)).is_replay
        assert len(shop.runs) == 2


@every_edge
async def test_many_at_once_with_other_cookies_and_cuts_are_one(valkey: Server, edge: str) -> None:
    """The first runs; the others are told that it does, or get its answer."""
    body = b'"' + b"x" * (1 << 20) + b'"'
    async with opened(edge, valkey, **REPLAY) as shop:
        calls = [
            shop.post(
                body=body, headers={**KEYED, "cookie": f"s={number}"}, cuts=10_000 + 7919 * number
            )
            for number in range(8)
        ]
        replies = await asyncio.gather(*calls)
        assert len(shop.runs) == 1 and {reply.status for reply in replies} <= {201, 409}
