"""Whose submission it is, at every edge: cookies, logins, users, and those who are not known."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from dibs import AsyncDibs, UsageError
from dibs.integrations import fastapi, starlette
from dibs.integrations._async import http_claims as async_claims
from dibs.integrations._sync import http_claims as sync_claims
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server

from . import Call
from .edges import OF_WSGI, opened
from .every_edge import KEYED, REPLAY, every_edge

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


def _forget_warnings() -> None:
    async_claims._warn_once.cache_clear()
    sync_claims._warn_once.cache_clear()


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


TOSSED = [
    "sid=mine; sid=yours", "sid=yours; sid=mine", "sid=yours; x=1 sid=mine", "sid=; sid=yours",
    'sid=yours; q="; sid=mine; z="', "sid=a b", 'sid="', "sid=\u00e9",
]  # fmt: skip


@every_edge
@pytest.mark.parametrize("cookie", TOSSED)
async def test_a_session_that_comes_twice_is_nobodys(
    valkey: Server, edge: str, cookie: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A page on another subdomain can add a cookie. The application would take one of them and the
    guard perhaps the other, and who added it would get the response.
    """
    _forget_warnings()
    site = {"session_cookie": "sid"}
    async with opened(edge, valkey, site=site, **REPLAY) as shop:
        reply = await shop.post(headers={**KEYED, "cookie": cookie})
        assert (reply.status, reply.json["type"]) == (400, "urn:dibs:ambiguous")
        assert not (await shop.post(headers={**KEYED, "cookie": "sid=mine"})).is_replay
        assert len(shop.runs) == 1
    assert "__Host-" in caplog.text and "yours" not in caplog.text


@every_edge
async def test_one_session_in_several_spellings_is_one(valkey: Server, edge: str) -> None:
    """As Python's own parser reads it."""
    site = {"session_cookie": "sid"}
    cookies = (
        "sid=a1",
        'sid="a1"',
        "theme=dark; sid=a1",
        r'sid="\1411"',
        "sid=a1; sid=a1",
        "sid= a1",
    )
    async with opened(edge, valkey, site=site, **REPLAY) as shop:
        for number, cookie in enumerate(cookies):
            reply = await shop.post(headers={**KEYED, "cookie": cookie})
            assert reply.is_replay is (number > 0), cookie
        assert len(shop.runs) == 1


@every_edge
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("authorization", "Bearer a", "Bearer b"),
        ("host", "a.example", "b.example"),
        ("content-type", "application/json", "text/plain"),
    ],
)
async def test_what_says_who_or_where_comes_once(
    valkey: Server, edge: str, name: str, first: str, second: str
) -> None:
    """Some take the first line, some the last: one tenant would get the response of another."""
    async with opened(edge, valkey, site={"per_host": True}, **REPLAY) as shop:
        reply = await shop.post(headers={**KEYED, name: first}, again={name: second})
        assert reply.status == 400 and shop.runs == []


@every_edge
async def test_a_header_that_is_selected_comes_once(valkey: Server, edge: str) -> None:
    """Once for each tenant: a second line does not make another tenant. Where the server or the
    framework joins the lines, the guard sees what the application sees.
    """
    is_joined = edge in OF_WSGI or "django" in edge
    async with opened(edge, valkey, after="hold", by=["header.X-Tenant"]) as shop:
        assert (await shop.post(headers={"x-tenant": "a"})).status == 201
        reply = await shop.post(headers={"x-tenant": "b"}, again={"x-tenant": "a"})
        assert reply.status == (201 if is_joined else 400)


@every_edge
async def test_one_login_in_several_spellings_is_one(valkey: Server, edge: str) -> None:
    """The scheme in any case, and spaces around the credential."""
    async with opened(edge, valkey, **REPLAY) as shop:
        for number, login in enumerate(("Bearer a", "bearer a", "Bearer  a", "BEARER a ")):
            reply = await shop.post(headers={**KEYED, "authorization": login})
            assert reply.is_replay is (number > 0), login
        assert len(shop.runs) == 1


@every_edge
async def test_a_login_by_cookies_asks_for_a_name(
    valkey: Server, edge: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sends the same key and payload gets the stored response: a warning says so, once for
    a route; not for cookies of a tracker, and not if the session is named.
    """
    _forget_warnings()
    async with opened(edge, valkey, **REPLAY) as shop:
        for cookie in ("_ga=GA1.2; csrftoken=a", "theme=dark", ""):
            await shop.post(headers={**KEYED, "cookie": cookie})
        assert caplog.messages == []
        for cookie in ("sessionid=s3cret", "PHPSESSID=s3cret", "a=b; auth_token=s3cret"):
            await shop.post(headers={**KEYED, "cookie": cookie})
    [warning] = caplog.messages
    assert "session_cookie=" in warning and "s3cret" not in warning and "POST" in warning
    caplog.clear()
    _forget_warnings()
    async with opened(edge, valkey, site={"session_cookie": "sid"}, **REPLAY) as shop:
        await shop.post(headers={**KEYED, "cookie": "sid=a"})
    assert caplog.messages == []


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
    _forget_warnings()
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


class TrailingCall(Call):
    """A request whose headers grow while its body arrives: uvicorn with httptools adds trailers."""

    async def _receive(self) -> dict[str, Any]:
        message = await super()._receive()
        if not message.get("more_body"):
            self.headers_at_first.append((b"cookie", b"sid=ann"))
        return message

    async def run(self) -> Call:
        self.headers_at_first = self.scope["headers"]
        return await super().run()


@pytest.mark.parametrize("kind", ["asgi", "starlette", "fastapi"])
async def test_what_comes_after_the_body_says_nothing(valkey: Server, kind: str) -> None:
    """The guard has read the headers by then. The application must not see others, or one person
    would be as many as they have names for themselves.
    """
    seen = list[str]()

    async def order(request: Request) -> JSONResponse:
        seen.append(request.cookies.get("sid", "nobody"))
        return JSONResponse({}, 201)

    options: dict[str, Any] = {"window": 60, "after": "hold"}
    site: dict[str, Any] = {"session_cookie": "sid", "secret": "s"}
    async with AsyncDibs(valkey.url) as dibs:
        app: Any
        if kind == "fastapi":
            app = FastAPI()
            order.__annotations__["request"] = Request
            app.post("/orders", response_model=None)(fastapi.once(**options)(order))
            fastapi.install(app, dibs, **site)
        elif kind == "starlette":
            guarded = starlette.once(**options)(order)
            app = Starlette(routes=[Route("/orders", guarded, methods=["POST"])])
            starlette.install(app, dibs, **site)
        else:
            app = Starlette(routes=[Route("/orders", order, methods=["POST"])])
            policies = [Policy("POST /orders", **options)]
            app = DibsMiddleware(app, dibs=dibs, policies=policies, **site)
        for name in ("x", "y"):
            headers = [("content-type", "application/json"), ("cookie", f"sid={name}")]
            call = TrailingCall(app, headers=headers, body=[b"{", b"}"])
            assert (await call.run()).status == 201
    assert seen == ["x", "y"]


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
