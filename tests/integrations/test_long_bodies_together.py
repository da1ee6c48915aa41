"""What request bodies cost before it is known who sends them: room, time, and the event loop."""

import asyncio
import threading
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from dibs import AsyncDibs, Dibs, UsageError
from dibs._http import submission
from dibs._http.bodies import SHORT, Spool, SpooledSize, spool_of
from dibs._http.policy import GuardOptions, Policy
from dibs.integrations import asgi, fastapi, starlette, wsgi
from dibs.testing import Server

from . import Call, answer, is_problem, read
from .two_readers import Sent, _through_wsgi

pytestmark = pytest.mark.usefixtures("nothing_stays_open")
KINDS = ["asgi", "starlette", "fastapi"]
every_kind = pytest.mark.parametrize("kind", KINDS)
LONG = b"x" * (SHORT + 500_000)


def app_of(kind: str, dibs: AsyncDibs, runs: list[int], limit: int = 1 << 20, **policy: Any) -> Any:
    """An application whose bodies have room for *limit* bytes together."""
    given = {"window": 60, "body_limit": 4 << 20, "after": "hold", **policy}
    if kind == "asgi":

        async def plain(scope: Any, receive: Any, send: Any) -> None:
            runs.append(len(await read(receive)))
            await answer(send)

        policies = [asgi.Policy("POST /orders", **given)]
        return asgi.DibsMiddleware(plain, dibs=dibs, policies=policies, spool_limit=limit)
    if kind == "starlette":

        @starlette.once(**given)
        async def order(request: StarletteRequest) -> PlainTextResponse:
            runs.append(len(await request.body()))
            return PlainTextResponse("done", 201)

        app: Any = Starlette(routes=[Route("/orders", order, methods=["POST"])])
        starlette.install(app, dibs, spool_limit=limit)
        return app
    app = FastAPI()

    @app.post("/orders", status_code=201)
    @fastapi.once(**given)
    async def order_of(request: Request) -> None:
        runs.append(len(await request.body()))

    fastapi.install(app, dibs, spool_limit=limit)
    return app


class Slow:
    """A body whose rest comes when it is let go."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.waiting = asyncio.Event()
        self.rest = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if len(self._pieces) == 1:
            self.waiting.set()
            await self.rest.wait()
        if not self._pieces:
            return {"type": "http.disconnect"}
        piece = self._pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}


def started(app: Any, body: Slow) -> tuple[Call, "asyncio.Task[Call]"]:
    call = Call(app)
    call._receive = body.receive  # type: ignore[method-assign]
    return call, call.start()


@every_kind
async def test_long_bodies_share_their_room(valkey: Server, kind: str) -> None:
    """While one is on its way, another has no room: 503 with Retry-After; a short one has."""
    runs, limit = list[int](), 1_000_000 + KINDS.index(kind)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app, first = app_of(kind, dibs, runs, limit), Slow(LONG, b"1")
        _, task = started(app, first)
        await first.waiting.wait()
        refused = await Call(app, body=[LONG, b"x" * 200_000]).run()
        assert is_problem(refused.json, refused.headers, 503)
        assert refused.json["type"] == "urn:dibs:overloaded" and refused.json["retryAfter"] == 1
        assert (await Call(app, body=b"short").run()).status == 201
        first.rest.set()
        assert (await task).status == 201
        assert (await Call(app, body=[LONG, b"x" * 200_000]).run()).status == 201
    assert sorted(runs) == [5, len(LONG) + 1, len(LONG) + 200_000]
    assert spool_of(limit).used == 0


@every_kind
@pytest.mark.parametrize("pieces", [(b"x", b"x"), (LONG, b"x")], ids=len)
async def test_a_body_has_to_arrive_in_time(
    valkey: Server, kind: str, pieces: tuple[bytes, ...]
) -> None:
    """408, and nothing runs: a client that sends a byte at a time does not stay for ever."""
    runs, limit = list[int](), 2_000_000 + KINDS.index(kind)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app = app_of(kind, dibs, runs, limit, body_timeout=0.05)
        call, task = started(app, Slow(*pieces))
        await task
        assert is_problem(call.json, call.headers, 408) and runs == [] and valkey.keys() == []
    assert spool_of(limit).used == 0


@every_kind
async def test_the_time_ends_with_the_body(valkey: Server, kind: str) -> None:
    """An endpoint may take longer, and learn later that its client has left."""
    heard = list[str]()
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        async def listening(scope: Any, receive: Any, send: Any) -> None:
            await read(receive)
            await asyncio.sleep(0.1)
            await answer(send)
            heard.append((await receive())["type"])

        policies = [asgi.Policy("POST /orders", window=60, body_timeout=0.05)]
        app = asgi.DibsMiddleware(listening, dibs=dibs, policies=policies)
        if kind != "asgi":
            runs = list[int]()
            inner = app_of(kind, dibs, runs, body_timeout=0.05)
            assert (await Call(inner, body=b"1").run()).status == 201
            return
        call = Call(app, body=b"1")
        call.leave_after_body()
        await call.run()
    assert call.status == 201 and heard == ["http.disconnect"]


def test_long_bodies_share_their_room_under_wsgi(valkey: Server) -> None:
    """The same room for all threads; what is refused leaves nothing behind."""
    limit = 3_000_001
    policies = [wsgi.Policy("POST /orders", window=60, after="hold")]

    def plain(environ: Any, start_response: Any) -> list[bytes]:
        start_response("201 Created", [])
        return [str(len(environ["wsgi.input"].read())).encode()]

    with Dibs(valkey.url, budget=5) as dibs:
        app = wsgi.DibsMiddleware(plain, dibs=dibs, policies=policies, spool_limit=limit)
        sent = Sent("/orders", [("Host", "shop")], b"x" * (SHORT + 2_000_000), odd=False)
        assert spool_of(limit).take(2_000_000)
        refused = _through_wsgi(app, sent)
        assert refused.status == 503 and refused.headers["retry-after"] == "1"
        spool_of(limit).give_back(2_000_000)
        assert _through_wsgi(app, sent).status == 201
    assert spool_of(limit).used == 0


def test_room_is_counted_beyond_what_is_held_in_memory() -> None:
    """Once, however a body grows; and given back once."""
    spool = Spool(100)
    one, other = SpooledSize(spool), SpooledSize(spool)
    assert one.grow(SHORT) and spool.used == 0
    assert one.grow(SHORT + 60) and one.grow(SHORT + 60) and spool.used == 60
    assert not other.grow(SHORT + 41) and other.grow(SHORT + 40) and spool.used == 100
    one.close(), one.close()
    assert spool.used == 40
    with pytest.raises(UsageError, match="spool_limit"):
        GuardOptions(spool_limit=-1)
    with pytest.raises(UsageError, match="body_timeout"):
        Policy(window=1, body_timeout=0)


@every_kind
async def test_a_long_body_is_parsed_beside_the_event_loop(
    valkey: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of numbers or of fields takes a third of a second."""
    threads, true = list[threading.Thread](), submission.content_of

    def seen(facts: Any) -> Any:
        threads.append(threading.current_thread())
        return true(facts)

    monkeypatch.setattr(submission, "content_of", seen)
    floats = b"[" + b",".join([b"0.1234567890123456789"] * 10_000) + b"]"
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app = app_of(kind, dibs, [])
        for body in (floats, b"[1]"):
            assert (await Call(app, headers=JSON, body=body).run()).status == 201
    assert [each is threading.main_thread() for each in threads] == [False, True]


JSON = {"content-type": "application/json"}
