"""A page in place of the JSON of a refusal: the error handlers of FastAPI, Starlette and Flask.

Django, which has none for these statuses: tests/integrations/test_django.py.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx2 as httpx
import pytest
from fastapi import Depends, FastAPI
from flask import Blueprint, Flask, request
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from werkzeug import exceptions

from dibs import AsyncDibs, Dibs
from dibs.integrations import fastapi, flask, starlette
from dibs.testing import Server

from . import is_problem

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

HTML = {"accept": "text/html,*/*"}
once = fastapi.once(window=60, after="hold", message="Already sent.")
NOWHERE = "redis://127.0.0.1:1"


@asynccontextmanager
async def visiting(app: Any, url: str, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with AsyncDibs(url, **options) as dibs:
        starlette.install(app, dibs)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield client


# ---- FastAPI and Starlette


def shop() -> FastAPI:
    app = FastAPI()

    @app.post("/orders")
    @once
    async def order() -> str:
        return "done"

    return app


async def page(request: Request, error: Any) -> Response:
    """What a user would write."""
    assert isinstance(error, fastapi.Refused)
    if "text/html" not in request.headers.get("accept", ""):
        return error.response
    return HTMLResponse(f"<p>{error.detail}</p>", error.status_code, error.headers)


@pytest.mark.parametrize("handled", [fastapi.Refused, 429])
async def test_a_handler_of_fastapi_makes_a_page_of_a_refusal(valkey: Server, handled: Any) -> None:
    """By the exception or by the status; who asks for JSON gets what is sent without a handler."""
    app = shop()
    app.add_exception_handler(handled, page)
    async with visiting(app, valkey.url) as client:
        assert (await client.post("/orders")).json() == "done"
        shown = await client.post("/orders", headers=HTML)
        plain = await client.post("/orders")
    assert shown.status_code == 429 and shown.text == "<p>Already sent.</p>"
    assert 0 < int(shown.headers["retry-after"]) <= 60
    assert is_problem(plain.json(), plain.headers, 429)


async def test_an_outage_has_a_page_of_its_own() -> None:
    """The document says what happened; a handler of another status is not called."""
    app = shop()

    async def sorry(request: Request, error: Any) -> Response:
        return HTMLResponse(error.problem["type"], error.status_code)

    app.add_exception_handler(429, page)
    app.add_exception_handler(503, sorry)
    async with visiting(app, NOWHERE, on_outage="closed") as client:
        shown = await client.post("/orders", headers=HTML)
    assert shown.status_code == 503 and shown.text == "urn:dibs:unavailable"


async def test_without_a_handler_of_its_own_a_refusal_stays_what_it_is(valkey: Server) -> None:
    """A general handler of the application changes nothing for clients of an API."""
    app = shop()

    async def general(request: Request, error: Any) -> Response:
        return HTMLResponse("oh", 500)

    for kind in (HTTPException, Exception, 404):
        app.add_exception_handler(kind, general)
    async with visiting(app, valkey.url) as client:
        answers = [await client.post("/orders", headers=HTML) for _ in range(2)]
    assert is_problem(answers[1].json(), answers[1].headers, 429)


async def test_a_replay_is_no_refusal(valkey: Server) -> None:
    """It is the response of the first request, also if its status has a handler."""
    app = FastAPI()
    app.add_exception_handler(409, page)
    app.add_exception_handler(fastapi.Refused, page)

    @app.post("/orders", status_code=409)
    @fastapi.once(window=60, after="replay", key="required")
    async def order() -> str:
        return "sold out"

    async with visiting(app, valkey.url) as client:
        headers = {**HTML, "idempotency-key": "k"}
        answers = [await client.post("/orders", headers=headers) for _ in range(2)]
    assert [each.json() for each in answers] == ["sold out"] * 2
    assert answers[1].headers["idempotent-replayed"] == "true"


async def test_the_refusal_of_a_lease_has_the_same_page(valkey: Server) -> None:
    """`held` raises the same exception."""
    app = FastAPI()
    app.add_exception_handler(fastapi.Refused, page)

    @app.post("/pay")
    async def pay(lease: Annotated[Any, Depends(fastapi.held("pay", ttl=30))]) -> str:
        return "done"

    async with AsyncDibs(valkey.url) as other, visiting(app, valkey.url) as client:
        async with other.hold("pay", ttl=30):
            shown = await client.post("/pay", headers=HTML)
            plain = await client.post("/pay")
    assert shown.status_code == 409 and shown.text.startswith("<p>Another request")
    assert is_problem(plain.json(), plain.headers, 409)


async def test_a_handler_of_starlette_makes_a_page_of_a_refusal(valkey: Server) -> None:
    """The same as in FastAPI, here also for a request that cannot be guarded."""

    @starlette.once(window=60, after="replay", key="required")
    async def order(request: Request) -> Response:
        return JSONResponse("done")

    app = Starlette(
        routes=[Route("/orders", order, methods=["POST"])],
        exception_handlers={starlette.Refused: page},
    )
    async with visiting(app, valkey.url) as client:
        shown = await client.post("/orders", headers=HTML)
    assert shown.status_code == 400 and "Idempotency-Key is required" in shown.text


async def test_a_page_has_the_headers_of_its_refusal(valkey: Server) -> None:
    """Without any code in the handler; what it sets itself stays."""
    app = shop()

    async def bare(request: Request, error: Any) -> Response:
        headers = {"cache-control": "private"} if "own" in request.headers else {}
        return HTMLResponse("a page", error.status_code, headers)

    app.add_exception_handler(fastapi.Refused, bare)
    async with visiting(app, valkey.url) as client:
        await client.post("/orders")
        shown, own = [await client.post("/orders", headers=more) for more in ({}, {"own": "1"})]
    assert 0 < int(shown.headers["retry-after"]) <= 60
    assert shown.headers["cache-control"] == "no-store"
    assert own.headers["cache-control"] == "private" and "retry-after" in own.headers


# ---- Flask


@pytest.fixture
def app(valkey: Server) -> Iterator[Flask]:
    app = Flask(__name__)
    with Dibs(valkey.url) as dibs:
        flask.install(app, dibs)
        orders = Blueprint("orders", __name__)

        @orders.post("/orders")
        @flask.once(window=60, after="hold", message="Already sent.")
        def order() -> str:
            return "done"

        app.orders = orders  # type: ignore[attr-defined]
        yield app


def html(error: flask.Refused) -> Any:
    """What a user would write."""
    if request.accept_mimetypes.best == "application/json":
        return error
    return f"<p>{error.description}</p>", error.code, {"Retry-After": error.problem["retryAfter"]}


def handled_by(app: Flask, kind: Any) -> None:
    app.register_error_handler(kind, html)


def handled_in_its_blueprint(app: Any, kind: Any) -> None:
    app.orders.register_error_handler(kind, html)


@pytest.mark.parametrize("register", [handled_by, handled_in_its_blueprint])
@pytest.mark.parametrize("kind", [flask.Refused, 429, exceptions.TooManyRequests])
def test_a_handler_of_flask_makes_a_page_of_a_refusal(
    app: Any, register: Callable[..., None], kind: Any
) -> None:
    """By exception or status, of the application or a blueprint; or JSON, for who asks for it."""
    register(app, kind)
    app.register_blueprint(app.orders)
    client = app.test_client()
    assert client.post("/orders", headers=HTML).text == "done"
    shown = client.post("/orders", headers=HTML)
    assert shown.status_code == 429 and shown.text == "<p>Already sent.</p>"
    assert 0 < int(shown.headers["Retry-After"]) <= 60
    plain = client.post("/orders", headers={"accept": "application/json"})
    assert is_problem(plain.get_json(force=True), plain.headers, 429)


def test_general_handlers_of_flask_leave_a_refusal_as_it_is(app: Any) -> None:
    """An application that answers every exception with a 500 does not do so to a double click."""
    for kind in (Exception, exceptions.HTTPException, 404, 503):
        app.register_error_handler(kind, lambda error: ("oh", 500))
    app.register_blueprint(app.orders)
    answers = [app.test_client().post("/orders", headers=HTML) for _ in range(2)]
    assert is_problem(answers[1].get_json(force=True), answers[1].headers, 429)


def test_an_outage_has_a_page_of_its_own_in_flask() -> None:
    """The page that says *try again* is not the one that says *already sent*."""
    app = Flask(__name__)
    app.register_error_handler(429, lambda error: ("already sent", 429))
    app.register_error_handler(503, lambda error: (error.problem["type"], 503))
    with Dibs(NOWHERE) as dibs:
        flask.install(app, dibs)

        @app.post("/orders")
        @flask.once(window=60, on_outage="closed")
        def order() -> str:
            return "done"

        shown = app.test_client().post("/orders")
    assert shown.status_code == 503 and shown.text == "urn:dibs:unavailable"


def test_a_page_has_the_headers_of_its_refusal_in_flask(app: Any) -> None:
    """The same."""
    app.register_error_handler(flask.Refused, lambda error: ("a page", error.code))
    app.register_blueprint(app.orders)
    client = app.test_client()
    client.post("/orders")
    shown = client.post("/orders")
    assert shown.text == "a page" and 0 < int(shown.headers["Retry-After"]) <= 60
    assert shown.headers["Cache-Control"] == "no-store"
