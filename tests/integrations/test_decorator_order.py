"""A guard above the route would never run: FastAPI, Starlette and Flask refuse to serve."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from flask import Blueprint, Flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from dibs import AsyncDibs, Dibs, UsageError
from dibs.integrations import fastapi, flask, starlette
from dibs.testing import Server

from . import Call

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

WRONG = r"orders?' is registered without its guard"


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """Another decorator."""

    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapped


# ---- FastAPI and Starlette


def of_the_app(app: FastAPI) -> None:
    @fastapi.once(window=10, after="hold")
    @app.post("/orders")
    async def order() -> int:
        return 1


def of_a_router(app: FastAPI) -> None:
    router = APIRouter()

    @fastapi.prevent_duplicate_submit(interval=10)
    @router.post("/orders")
    async def order() -> int:
        return 1

    app.include_router(router, prefix="/v1")


def of_a_router_in_a_router(app: FastAPI) -> None:
    inner, outer = APIRouter(), APIRouter()

    @fastapi.once(window=10)
    @inner.post("/orders")
    def order() -> int:
        return 1

    outer.include_router(inner)
    app.include_router(outer)


def of_a_mounted_app(app: FastAPI) -> None:
    inner = FastAPI()
    of_the_app(inner)
    app.mount("/v1", inner)


def below_another_decorator(app: FastAPI) -> None:
    @fastapi.once(window=10)
    @passed_on
    @app.post("/orders")
    async def order() -> int:
        return 1


def one_route_of_two(app: FastAPI) -> None:
    @app.post("/guarded")
    @fastapi.once(window=10)
    @app.post("/orders")
    async def order() -> int:
        return 1


WRONG_IN_FASTAPI = [
    of_the_app, of_a_router, of_a_router_in_a_router, of_a_mounted_app, below_another_decorator,
    one_route_of_two,
]  # fmt: skip


@pytest.mark.parametrize("write", WRONG_IN_FASTAPI)
def test_a_guard_above_its_route_keeps_a_fastapi_app_from_starting(write: Any) -> None:
    """The startup fails, with the reason; no request is served."""
    app = FastAPI()
    fastapi.install(app, AsyncDibs("redis://nowhere.invalid"))
    write(app)
    with pytest.raises(UsageError, match=WRONG), TestClient(app):
        pass
    with pytest.raises(UsageError, match=WRONG):  # without a lifespan, and not only the first one
        TestClient(app).post("/other")
    assert TestClient(app, raise_server_exceptions=False).post("/orders").status_code == 500


async def test_a_server_learns_why_the_startup_failed() -> None:
    """It ends then, with the sentence in its log; an exception alone means: no lifespan here."""
    app, sent = FastAPI(), list[Any]()
    fastapi.install(app, AsyncDibs("redis://nowhere.invalid"))
    of_the_app(app)

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(UsageError):
        await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert [each["type"] for each in sent] == ["lifespan.startup.failed"]
    assert "is registered without its guard" in sent[0]["message"]


async def test_a_starlette_route_without_the_guard_is_found() -> None:
    """The function was put into a route before it was decorated, here in a mounted router."""

    async def order(request: Request) -> JSONResponse:
        return JSONResponse(1)

    app = Starlette(routes=[Mount("/v1", routes=[Route("/orders", order, methods=["POST"])])])
    starlette.install(app, AsyncDibs("redis://nowhere.invalid"))
    starlette.once(window=10)(order)
    with pytest.raises(UsageError, match=WRONG):
        await Call(app, "POST /v1/orders").run()


async def test_a_route_that_is_added_later_is_found_by_its_first_request(valkey: Server) -> None:
    """Where the application was checked before: the response is an error, not a success."""
    app = FastAPI()
    async with AsyncDibs(valkey.url) as dibs:
        fastapi.install(app, dibs)
        assert (await Call(app, "GET /openapi.json").run()).status == 200
        of_the_app(app)
        call = Call(app, "POST /orders")
        with pytest.raises(UsageError, match=WRONG):
            await call.run()
        assert call.status == 500


async def test_the_right_order_is_served_with_any_other_decorator(valkey: Server) -> None:
    """Below the route, above or below others; a function may be guarded twice, at two routes."""
    app = FastAPI()

    async def order() -> int:
        return 1

    app.post("/a")(fastapi.once(window=10, after="hold")(order))
    app.post("/b")(passed_on(fastapi.once(window=60, after="hold")(order)))
    app.post("/c")(fastapi.once(window=60, after="hold")(passed_on(order)))
    async with AsyncDibs(valkey.url) as dibs:
        fastapi.install(app, dibs)
        for path in ("/a", "/b", "/c"):
            calls = [await Call(app, f"POST {path}").run() for _ in range(2)]
            assert [call.status for call in calls] == [200, 429], path


# ---- Flask


@pytest.fixture
def app(valkey: Server) -> Iterator[Flask]:
    app = Flask(__name__)
    with Dibs(valkey.url) as dibs:
        flask.install(app, dibs)
        yield app


def test_a_guard_above_its_route_keeps_a_flask_app_from_serving(app: Flask) -> None:
    """Every request is an error, so that the first one shows it."""

    @flask.once(window=10, after="hold")
    @app.post("/orders")
    def order() -> str:
        return "done"

    for path in ("/orders", "/other"):
        with pytest.raises(UsageError, match=WRONG):
            app.test_client().post(path)


def test_a_guard_above_the_route_of_a_blueprint_is_found(app: Flask) -> None:
    """Blueprints within blueprints, and a guard above another decorator, too."""
    outer, inner = Blueprint("outer", __name__), Blueprint("inner", __name__)

    @flask.prevent_duplicate_submit(interval=10)
    @passed_on
    @inner.post("/orders")
    def order() -> str:
        return "done"

    outer.register_blueprint(inner)
    app.register_blueprint(outer, url_prefix="/v1")
    with pytest.raises(UsageError, match=WRONG):
        app.test_client().post("/v1/orders")


def test_flask_serves_a_function_that_is_guarded_below_its_route(app: Flask) -> None:
    """Also where another guard has the same function."""

    def order() -> str:
        return "done"

    for path in ("/a", "/b"):
        app.post(path, endpoint=path)(flask.once(window=10, after="hold")(order))
        client = app.test_client()
    for path in ("/a", "/b"):
        assert [client.post(path).status_code for _ in range(2)] == [200, 429]
