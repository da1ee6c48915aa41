"""`body_limit` bounds what a request body costs while it is read, at every edge."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask
from flask import request as flask_request
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from dibs import AsyncDibs, Dibs
from dibs.integrations import asgi, fastapi, flask, starlette, wsgi
from dibs.testing import Server

from . import Call, answer, is_problem, read

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

LIMIT = 256 * 1024
SENT = 32 * 1024 * 1024
PIECE = b"x" * (64 * 1024)
BEGINNINGS = {
    "application/json": b'"',
    "multipart/form-data; boundary=b": b"--b\r\nContent-Disposition: form-data; "
    b'name="picture"; filename="p.png"\r\n\r\n',
}
every_kind_of_body = pytest.mark.parametrize("media", BEGINNINGS)
POLICY: dict[str, Any] = {"window": 60, "body_limit": LIMIT}
# Werkzeug and old versions of Starlette leave the file of a form open whose end is missing.
unclosed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
runs: list[str] = []


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    runs.clear()
    yield
    tracemalloc.stop()


def peak() -> int:
    """The most memory that was in use since the last call."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    most = tracemalloc.get_traced_memory()[1] - tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    return most


# ---- ASGI


def app_of(kind: str, dibs: AsyncDibs) -> Any:
    if kind == "asgi":

        async def plain(scope: Any, receive: Any, send: Any) -> None:
            await read(receive)
            runs.append("ran")
            await answer(send)

        return asgi.DibsMiddleware(
            plain, dibs=dibs, policies=[asgi.Policy("POST /orders", **POLICY)]
        )
    if kind == "starlette":

        @starlette.once(**POLICY)
        async def order(request: Request) -> PlainTextResponse:
            runs.append("ran")
            return PlainTextResponse("done")

        app: Any = Starlette(routes=[Route("/orders", order, methods=["POST"])])
        starlette.install(app, dibs)
        return app
    app = FastAPI()
    if kind == "fastapi":

        @app.post("/orders")
        @fastapi.once(**POLICY)
        async def order_nothing() -> None:
            runs.append("ran")
    else:

        @app.post("/orders")
        @fastapi.once(**POLICY)
        async def order_something(cart: dict[str, int]) -> None:
            runs.append("ran")

    fastapi.install(app, dibs)
    return app


class Endless:
    """The pieces of a body; how much of it was asked for."""

    def __init__(self, beginning: bytes) -> None:
        self.size = 0
        self._beginning = beginning

    async def receive(self) -> dict[str, Any]:
        piece = PIECE if self.size else self._beginning + PIECE
        self.size += len(piece)
        return {"type": "http.request", "body": piece[:], "more_body": self.size < SENT}


@pytest.mark.parametrize("kind", ["asgi", "starlette", "fastapi", "fastapi body"])
@every_kind_of_body
@unclosed
async def test_a_body_of_unknown_length_is_not_held(valkey: Server, kind: str, media: str) -> None:
    """413, not more than twice the limit is read, nothing runs; memory stays near the limit."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        call = Call(app_of(kind, dibs), headers={"content-type": media})
        body = Endless(BEGINNINGS[media])
        call._receive = body.receive  # type: ignore[method-assign]
        peak()
        await call.run()
        assert peak() < 8 * LIMIT
    assert is_problem(call.json, call.headers, 413) and runs == []
    assert body.size <= 2 * LIMIT + 2 * len(PIECE) and valkey.keys() == []


@pytest.mark.parametrize("kind", ["asgi", "starlette", "fastapi", "fastapi body"])
async def test_a_body_up_to_the_limit_is_read(valkey: Server, kind: str) -> None:
    """To the byte; and without a guard, or without its key, there is no limit of ours."""
    app = FastAPI()

    @app.post("/free")
    async def free(request: Request) -> int:
        return len(await request.body())

    @app.post("/keyed")
    @fastapi.once(window=60, key="only", body_limit=10)
    async def keyed(request: Request) -> int:
        return len(await request.body())

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        body = b'{"a":' + b"1" * (LIMIT - 6) + b"}"
        assert len(body) == LIMIT
        call = await Call(app_of(kind, dibs), body=[body[:100_000], body[100_000:]]).run()
        assert call.status != 413
        longer = await Call(app_of(kind, dibs), body=[body[:100_000], body[100_000:], b" "]).run()
        assert is_problem(longer.json, longer.headers, 413)
        fastapi.install(app, dibs)
        for path in ("/free", "/keyed"):
            assert (await Call(app, f"POST {path}", body=[body, body]).run()).json == 2 * LIMIT


# ---- WSGI


class EndlessInput:
    """A body as a server hands it over, which ends it (`wsgi.input_terminated`)."""

    def __init__(self, beginning: bytes) -> None:
        self.size = 0
        self._beginning = beginning

    def read(self, size: int = -1) -> bytes:
        most = SENT - self.size if size < 0 else min(size, SENT - self.size)
        beginning = self._beginning[self.size : self.size + most]
        self.size += most
        return beginning + b"x" * (most - len(beginning))


@pytest.mark.parametrize("kind", ["wsgi", "flask"])
@every_kind_of_body
@unclosed
def test_a_body_of_unknown_length_is_not_held_under_wsgi(
    valkey: Server, kind: str, media: str
) -> None:
    """The same."""
    with Dibs(valkey.url, budget=5) as dibs:
        source, started = EndlessInput(BEGINNINGS[media]), list[Any]()
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "SERVER_NAME": "shop",
            "SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.input": source,
            "wsgi.input_terminated": True, "CONTENT_TYPE": media, "REMOTE_ADDR": "10.0.0.1",
            "HTTP_TRANSFER_ENCODING": "chunked",
        }  # fmt: skip

        def start(status: str, headers: Any, error: Any = None) -> Any:
            started[:] = [int(status[:3]), dict(headers)]

        app = wsgi_app_of(kind, dibs)
        peak()
        pieces = app(environ, start)
        body = b"".join(pieces)
        assert peak() < 8 * LIMIT
        getattr(pieces, "close", bool)()
    assert started[0] == 413 and b"urn:dibs:too-large" in body and runs == []
    assert source.size <= 2 * LIMIT + (1 << 20) and valkey.keys() == []


def wsgi_app_of(kind: str, dibs: Dibs) -> Any:
    if kind == "wsgi":

        def plain(environ: Any, start_response: Any) -> list[bytes]:
            runs.append("ran")
            return []

        policies = [wsgi.Policy("POST /orders", **POLICY)]
        return wsgi.DibsMiddleware(plain, dibs=dibs, policies=policies)
    app = Flask("shop")

    @app.post("/orders")
    @flask.once(**POLICY)
    def order() -> str:
        runs.append("ran")
        return str(len(flask_request.get_data()))

    flask.install(app, dibs)
    return app
