"""`throttled` in every framework: a 429 with Retry-After and the RateLimit fields."""

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs
from dibs._http.throttle import _printable
from dibs.testing import Server

Answers = Callable[[int], list[tuple[int, dict[str, str], bytes]]]
"""So many requests of POST /sms/7, one after the other: status, headers, body."""
OPTIONS: Any = {"limit": 2, "per": 3600, "message": "Slow down."}
POLICY = '"sms:{user}";q=2;w=3600'


@contextmanager
def fastapi(server: Server) -> Iterator[Answers]:
    from fastapi import Depends, FastAPI
    from fastapi.responses import PlainTextResponse

    from dibs.integrations.fastapi import install, throttled

    def make(dibs: AsyncDibs) -> Any:
        app = FastAPI()
        install(app, dibs)
        counted = Depends(throttled("sms:{user}", **OPTIONS))

        @app.post("/sms/{user}", dependencies=[counted, counted])
        async def send(user: int) -> Any:
            return PlainTextResponse("sent")

        assert "429" in app.openapi()["paths"]["/sms/{user}"]["post"]["responses"]
        return app

    yield _asgi(make, server)


@contextmanager
def starlette(server: Server) -> Iterator[Answers]:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from dibs.integrations.starlette import install, throttled

    @throttled("sms:{user}", **OPTIONS)
    async def send(request: Any) -> Any:
        return PlainTextResponse("sent")

    def make(dibs: AsyncDibs) -> Any:
        app = Starlette(routes=[Route("/sms/{user}", send, methods=["POST"])])
        install(app, dibs)
        return app

    yield _asgi(make, server)


def _asgi(make: Callable[[AsyncDibs], Any], server: Server) -> Answers:
    import asyncio

    import httpx2 as httpx

    async def ask(number: int) -> list[tuple[int, dict[str, str], bytes]]:
        async with AsyncDibs(server.url, budget=5) as dibs:
            transport = httpx.ASGITransport(app=make(dibs))
            async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
                got = [await client.post("/sms/7") for _ in range(number)]
        return [(each.status_code, dict(each.headers), each.content) for each in got]

    return lambda number: asyncio.run(ask(number))


@contextmanager
def flask(server: Server) -> Iterator[Answers]:
    from flask import Flask

    from dibs.integrations.flask import install, throttled

    with Dibs(server.url, budget=5) as dibs:
        app = Flask("shop")
        install(app, dibs)

        @app.post("/sms/<int:user>")
        @throttled("sms:{user}", **OPTIONS)
        def send(user: int) -> str:
            return "sent"

        def answers(number: int) -> list[tuple[int, dict[str, str], bytes]]:
            got = [app.test_client().post("/sms/7") for _ in range(number)]
            return [
                (each.status_code, {k.lower(): v for k, v in each.headers}, each.data)
                for each in got
            ]

        yield answers


@contextmanager
def django(server: Server, *, is_async: bool = False) -> Iterator[Answers]:
    from django.conf import settings
    from django.http import HttpResponse
    from django.test import RequestFactory

    from dibs.integrations import django as guard

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="for tests")
    with Dibs(server.url, budget=5) as dibs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "_dibs", lambda: dibs)

        @guard.throttled("sms:{user}", **OPTIONS)
        def send(request: Any, user: int) -> HttpResponse:
            return HttpResponse("sent")

        @guard.throttled("sms:{user}", **OPTIONS)
        async def asend(request: Any, user: int) -> HttpResponse:
            return HttpResponse("sent")

        def answers(number: int) -> list[tuple[int, dict[str, str], bytes]]:
            from asgiref.sync import async_to_sync

            view: Any = async_to_sync(asend) if is_async else send
            got = [view(RequestFactory().post("/sms/7"), user=7) for _ in range(number)]
            return [
                (each.status_code, {k.lower(): v for k, v in each.items()}, each.content)
                for each in got
            ]

        yield answers


FRAMEWORKS = {
    "fastapi": fastapi,
    "starlette": starlette,
    "flask": flask,
    "django": django,
    "django, async": functools.partial(django, is_async=True),
}


@pytest.fixture(params=FRAMEWORKS)
def answers(request: pytest.FixtureRequest, valkey: Server) -> Iterator[Answers]:
    """In one framework."""
    with FRAMEWORKS[request.param](valkey) as answers:
        yield answers


def test_what_comes_too_often_is_refused_with_a_429(answers: Answers, valkey: Server) -> None:
    """It says when to come again; what is left is in every response, without the key."""
    first, second, third = answers(3)
    assert [each[0] for each in (first, second, third)] == [200, 200, 429]
    assert [each[1]["ratelimit-policy"] for each in (first, second, third)] == [POLICY] * 3
    assert first[1]["ratelimit"] == '"sms:{user}";r=1;t=1800'
    left, _, wait = second[1]["ratelimit"].rpartition("=")
    assert left == '"sms:{user}";r=0;t' and 1700 < int(wait) <= 1800
    _, headers, body = third
    problem = json.loads(body)
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert (problem["status"], problem["detail"]) == (429, "Slow down.")
    assert problem["message"] == "Slow down."
    assert problem["violated-policies"] == ["sms:{user}"]
    assert headers["retry-after"] == str(problem["retryAfter"])
    assert headers["ratelimit"] == f'"sms:{{user}}";r=0;t={headers["retry-after"]}'
    assert headers["cache-control"] == "no-store"
    assert valkey.keys() == ["sms:7"]


def test_a_function_may_say_who_calls(valkey: Server) -> None:
    """In Flask without an argument; its name is that of the policy."""
    from flask import Flask, request

    from dibs.integrations.flask import install, throttled

    def by_user() -> str:
        return f"api:{request.headers['x-user']}"

    with Dibs(valkey.url, budget=5) as dibs:
        app = Flask("shop")
        install(app, dibs)

        @app.get("/")
        @throttled(by_user, limit=1, per=0.5)
        def page() -> str:
            return "page"

        got = [app.test_client().get("/", headers={"x-user": user}) for user in "ab"]
        assert [each.headers["RateLimit-Policy"] for each in got] == ['"by_user";q=1;w=1'] * 2
        assert app.test_client().get("/", headers={"x-user": "a"}).status_code in (200, 429)


def test_an_outage_is_let_through_or_refused_as_the_policy_says() -> None:
    """open: without the fields, because nothing was counted; closed: 503."""
    from flask import Flask

    from dibs.integrations.flask import install, throttled

    with Dibs("redis://127.0.0.1:1") as dibs:
        app = Flask("shop")
        install(app, dibs)
        for policy in ("open", "closed"):
            view = throttled(policy, limit=1, per=60, on_outage=policy)(lambda: "page")
            app.add_url_rule(f"/{policy}", policy, view)
        got = app.test_client().get("/open")
        assert got.status_code == 200 and "RateLimit" not in got.headers
        assert app.test_client().get("/closed").status_code == 503


def test_names_that_differ_are_different_policies() -> None:
    """In the RateLimit fields, which are ASCII: also names in other scripts, and with signs."""
    names = ["登入", "註冊", "sms:{user}", 'a"b', "a\\b", "a_b", "a%22b", "é"]
    shown = {_printable(name) for name in names}
    assert len(shown) == len(names) and "sms:{user}" in shown
    assert all(each.isascii() and not set('"\\') & set(each[1:-1]) for each in shown)


@pytest.mark.parametrize("cost", [2, lambda *request: 2], ids=["number", "function"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_request_has_a_cost(
    framework: str, cost: Any, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number, or what a function says of the request; what does not fit is refused as a whole."""
    monkeypatch.setitem(OPTIONS, "cost", cost)
    monkeypatch.setitem(OPTIONS, "limit", 3)
    with FRAMEWORKS[framework](valkey) as answers:
        first, second = answers(2)
    assert (first[0], second[0]) == (200, 429)
    assert '"sms:{user}";r=1;t=' in first[1]["ratelimit"]


def test_a_cost_that_never_passes_is_a_mistake() -> None:
    """UsageError where the endpoint is decorated."""
    from dibs import UsageError
    from dibs.integrations.starlette import throttled

    with pytest.raises(UsageError, match="a cost of 4 is more than the burst of 3"):
        throttled("sms:{user}", limit=3, per=60, cost=4)
