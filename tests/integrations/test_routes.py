"""Which requests are guarded, and which are different ones: routes, hosts, queries, root paths."""

from typing import Any

import pytest
from flask import Flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from dibs import AsyncDibs, Dibs
from dibs.integrations import flask, starlette
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server

from . import Call
from .edges import MIDDLEWARES, OF_WSGI, opened
from .every_edge import KEYED, REPLAY, every_edge

pytestmark = pytest.mark.usefixtures("nothing_stays_open")
every_middleware = pytest.mark.parametrize("edge", MIDDLEWARES)


# ---- what carries a key


@every_edge
async def test_only_what_carries_a_key_is_guarded(valkey: Server, edge: str) -> None:
    """Three orders without a key are three orders, and nothing is kept of them."""
    async with opened(edge, valkey, after="replay", key="only") as shop:
        for number in range(1, 4):
            assert (await shop.post()).json == {"order": number}
        assert valkey.keys() == []
        assert not (await shop.post(headers=KEYED)).is_replay
        assert (await shop.post(headers=KEYED)).is_replay
        assert (await shop.post(body=b"[]", headers=KEYED)).status == 422
        assert (await shop.post(headers={"idempotency-key": ""})).status == 400
        assert len(shop.runs) == 4


@every_middleware
async def test_routes_are_exempt_from_a_wildcard(valkey: Server, edge: str) -> None:
    """As the application sees them."""
    exempt = ("POST /hooks/*", "POST /login")
    async with opened(edge, valkey, route="* /*", exempt=exempt, after="hold") as shop:
        for path, second in (("/orders", 429), ("/hooks/a", 201), ("/login", 201), ("/in", 429)):
            assert (await shop.post(path)).status == 201
            assert (await shop.post(path)).status == second
            assert (await shop.post(path, root="/api")).status == second


@every_edge
async def test_held_without_a_key_replayed_with_one(valkey: Server, edge: str) -> None:
    """One policy for a form and for an API: each with its own window."""
    both: dict[str, Any] = {"key": "optional", "after": "replay", "keyless": "hold"}
    async with opened(edge, valkey, window=86_400, keyless_window=10, **both) as shop:
        assert [(await shop.post()).status for _ in range(2)] == [201, 429]
        assert [(await shop.post(headers=KEYED)).is_replay for _ in range(2)] == [False, True]
        left = sorted(valkey.client().ttl(key) for key in valkey.keys())
        assert left[0] <= 10 and left[1] > 80_000


# ---- places


@every_edge
async def test_two_services_on_one_store_are_apart(valkey: Server, edge: str) -> None:
    """By their names; the same name is the same service."""
    for name, replayed in (("orders", False), ("menu", False), ("orders", True)):
        async with opened(edge, valkey, site={"service": name}, **REPLAY) as shop:
            assert (await shop.post(headers=KEYED)).is_replay is replayed


@every_edge
async def test_two_hosts_are_apart_where_the_application_says_so(valkey: Server, edge: str) -> None:
    """In any spelling; else a host is only another way in."""
    hosts = (("a.example", False), ("b.example", False), ("A.example:80", True))
    for per_host in (True, False):
        async with opened(edge, valkey, site={"per_host": per_host}, **REPLAY) as shop:
            for number, (host, replayed) in enumerate(hosts):
                reply = await shop.post(headers={**KEYED, "host": host})
                assert reply.is_replay is (replayed if per_host else number > 0)
        valkey.flush()


# ---- 9, 10: addresses


@every_edge
async def test_another_query_is_another_request(valkey: Server, edge: str) -> None:
    """Also behind a path that holds a `%23`, which is no fragment."""
    async with opened(edge, valkey, **REPLAY) as shop:
        path = "/orders/a%23b" if edge in ("wsgi", "flask", "django") else "/orders/a#b"
        assert (await shop.post(f"{path}?n=1", headers=KEYED)).status == 201
        assert (await shop.post(f"{path}?n=1", headers=KEYED)).is_replay
        assert (await shop.post(f"{path}?n=2", headers=KEYED)).status == 422


@every_edge
async def test_a_root_path_turns_nothing_off(valkey: Server, edge: str) -> None:
    """Nor is the same request under another prefix another one."""
    policy = {"route": "POST /orders"} if edge in MIDDLEWARES else {}
    async with opened(edge, valkey, **policy, **REPLAY) as shop:
        for number, root in enumerate(("/api", "", "/v2/api")):
            reply = await shop.post(root=root, headers=KEYED)
            assert (reply.status, reply.is_replay) == (201, number > 0), root
        assert len(shop.runs) == 1


@every_middleware
async def test_a_route_may_be_written_with_its_prefix(valkey: Server, edge: str) -> None:
    """As the server sees it, as before."""
    async with opened(edge, valkey, route="POST /api/orders", **REPLAY) as shop:
        assert [(await shop.post(root="/api", headers=KEYED)).is_replay for _ in range(2)] == [
            False,
            True,
        ]


@every_middleware
@pytest.mark.parametrize("status", [404, 405])
async def test_a_middleware_does_not_keep_that_nobody_is_there(
    valkey: Server, edge: str, status: int
) -> None:
    """A route may come with the next deployment."""
    async with opened(edge, valkey, **REPLAY) as shop:
        shop.status = status
        assert (await shop.post(headers=KEYED)).status == status
        assert valkey.keys() == []
        shop.status = 201
        assert (await shop.post(headers=KEYED)).status == 201


@pytest.mark.parametrize("method", ["POST", "post"])
async def test_a_method_counts_in_any_case_under_asgi(valkey: Server, method: str) -> None:
    """Some servers pass on what was sent, and some applications treat it as POST."""
    async with opened("asgi", valkey, after="hold") as shop:
        calls = [await Call(shop.app, f"{method} /orders").run() for _ in range(2)]
    assert [call.status for call in calls] == [201, 429]


# ---- one place in several spellings


@pytest.mark.parametrize("edge", ["asgi", "wsgi"])
async def test_a_second_spelling_of_a_path_is_guarded(valkey: Server, edge: str) -> None:
    """Some routers ignore slashes before the first one, and a line feed after the last word: what
    reaches the endpoint must not pass its guard.
    """
    async with opened(edge, valkey, route="POST /orders", **REPLAY) as shop:
        assert (await shop.post("/orders", headers=KEYED)).status == 201
        assert (await shop.post("//orders", headers=KEYED)).is_replay
        assert (await shop.post("///orders")).status == 400, "it has no key"
        line_feed = "/orders%0A" if edge in OF_WSGI else "/orders\n"
        for path in (line_feed, f"/{line_feed}"):
            reply = await shop.post(path, headers=KEYED)
            assert (reply.status, reply.json["type"]) == (400, "urn:dibs:ambiguous"), path
        assert len(shop.runs) == 1


async def test_an_exemption_holds_for_a_second_spelling(valkey: Server) -> None:
    """And the first policy that matches is the same one."""
    async with opened("asgi", valkey, route="* /*", exempt=("POST /hooks/*",), **REPLAY) as shop:
        assert [(await shop.post("//hooks/a")).status for _ in range(2)] == [201, 201]
        assert (await shop.post("//orders")).status == 400


@pytest.mark.parametrize("edge", ["asgi", "wsgi"])
async def test_a_slash_at_the_end_passes_no_guard(valkey: Server, edge: str) -> None:
    """Flask may be told to ignore it, Litestar and Falcon do; and slashes in a row."""
    for route in ("POST /orders", "POST /orders/"):
        options = {**REPLAY, "route": route, "exempt": ["POST /orders/x"]}
        async with opened(edge, valkey, site={"service": route}, **options) as shop:
            assert (await shop.post("/orders", headers=KEYED)).status == 201
            for path in ("/orders/", "/orders//", "//orders/"):
                assert (await shop.post(path, headers=KEYED)).is_replay, path
                assert (await shop.post(path)).status == 400, "it has no key"
            assert len(shop.runs) == 1


async def test_a_router_that_redirects_to_another_slash_has_done_nothing(valkey: Server) -> None:
    """Starlette answers 307, and its client sends the same again: that is no duplicate. What an
    endpoint redirects to is done.
    """
    runs = list[str]()

    async def order(request: Request) -> JSONResponse:
        runs.append(request.url.path)
        return JSONResponse({}, 201)

    async def moved(request: Request) -> RedirectResponse:
        runs.append(request.url.path)
        return RedirectResponse("/orders")

    routes = [Route("/orders", order, methods=["POST"]), Route("/moved", moved, methods=["POST"])]
    async with AsyncDibs(valkey.url) as dibs:
        policies = [Policy("POST /*", window=60, after="hold")]
        app = DibsMiddleware(Starlette(routes=routes), dibs=dibs, policies=policies)
        for statuses in ([307, 201], [429, 429]):
            calls = [await Call(app, f"POST {path}").run() for path in ("/orders/", "/orders")]
            assert [call.status for call in calls] == statuses
        for status in (307, 429):
            assert (await Call(app, "POST /moved").run()).status == status
    assert runs == ["/orders", "/moved"]


# ---- HEAD


@pytest.mark.parametrize("edge", ["asgi", "wsgi"])
async def test_head_is_guarded_where_get_is(valkey: Server, edge: str) -> None:
    """Frameworks run the endpoint of GET for HEAD: a preview of a link would be its first use."""
    options: dict[str, Any] = {"route": "GET /links/*", "after": "replay"}
    async with opened(edge, valkey, site={"user": "x-user"}, **options) as shop:
        for path, methods, statuses in (
            ("/links/a", ("GET", "HEAD"), [201, 429]),
            ("/links/b", ("HEAD", "GET", "HEAD"), [201, 429, 429]),
            ("/links/c", ("GET", "GET", "OPTIONS"), [201, 201, 201]),
        ):
            replies = [await shop.send(method, path, headers={"x-user": "a"}) for method in methods]
            assert [reply.status for reply in replies] == statuses, path
            for method, reply in zip(methods, replies, strict=True):
                assert method != "HEAD" or edge == "asgi" or reply.status == 201 or not reply.body
        assert len(shop.runs) == 4


async def test_an_endpoint_of_get_and_head_is_one(valkey: Server) -> None:
    """In frameworks that route HEAD to it."""
    runs = list[str]()

    @starlette.once(window=60, after="hold")
    async def of_starlette(request: Request) -> JSONResponse:
        runs.append(request.method)
        return JSONResponse({})

    app = Starlette(routes=[Route("/link", of_starlette)])
    async with AsyncDibs(valkey.url) as dibs:
        starlette.install(app, dibs)
        calls = [await Call(app, f"{method} /link").run() for method in ("HEAD", "GET")]
    assert [call.status for call in calls] == [200, 429] and runs == ["HEAD"]

    site = Flask("shop")

    @site.get("/link")
    @flask.once(window=60, after="hold")
    def of_flask() -> str:
        runs.append("flask")
        return ""

    with Dibs(valkey.url) as dibs:
        flask.install(site, dibs)
        client = site.test_client()
        assert [client.head("/link").status_code, client.get("/link").status_code] == [200, 429]
    assert runs == ["HEAD", "flask"]
