"""Nothing that completes a response for its client is sent before the work is decided.

Random responses, whose messages a real HTTP parser reads as a client does: the commit, the ends of
dependencies, the release of leases and the end of the claim all come before the byte with which it
has the whole response, in this order.
"""

import asyncio
import contextlib
import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import h11
import pytest
from fastapi import APIRouter, Depends, FastAPI, routing
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dibs import AsyncDibs
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.integrations.fastapi import held, install, once
from dibs.testing import Server

from . import Call

pytestmark = [
    pytest.mark.usefixtures("nothing_stays_open"),
    # Starlette 0.37 does not close the streams of an http middleware whose application raises.
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]

REPLAY: dict[str, Any] = {"window": 60, "after": "replay", "key": "required"}
SEEDS = 60
KINDS = (
    "decorator",
    "lease",
    "middleware",
    "http middleware",
    "http middleware that reads",
    "task",
)


class Client:
    """Reads the messages of a response as they are on the wire, by h11."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._server, self._client = h11.Connection(h11.SERVER), h11.Connection(h11.CLIENT)
        request = h11.Request(method=method, target="/", headers=[("host", "shop")])
        sent = [self._client.send(each) for each in (request, h11.EndOfMessage())]
        self._server.receive_data(b"".join(map(bytes, filter(None, sent))))
        while self._server.their_state is not h11.DONE:
            self._server.next_event()
        self.has_all = False

    def get(self, message: Any) -> bool:
        """Returns whether the client has the whole response with this message."""
        for data in self._wire(message):
            self._client.receive_data(data)
            while not self.has_all:
                found = self._client.next_event()
                if found is h11.NEED_DATA or found is h11.PAUSED:
                    break
                self.has_all = isinstance(found, h11.EndOfMessage)
        return self.has_all

    def _wire(self, message: Any) -> Iterator[bytes]:
        send: Callable[[Any], bytes] = self._server.send  # type: ignore[assignment]
        if message["type"] == "http.response.start":
            yield send(h11.Response(status_code=message["status"], headers=message["headers"]))
            return
        if message.get("body") and self._method != "HEAD":
            yield send(h11.Data(data=message["body"]))
        if not message.get("more_body"):
            yield send(h11.EndOfMessage())


class Shuffled(Response):
    """A response that is sent in some pieces, with a length or without."""

    def __init__(self, seed: int) -> None:
        chosen = random.Random(seed)
        super().__init__(status_code=chosen.choice((200, 200, 201, 204, 303, 304)))
        has_body = self.status_code not in (204, 304)
        sizes = [chosen.choice((0, 0, 1, 7, 70_000)) for _ in range(chosen.randrange(4))]
        self.pieces = [b"x" * size for size in sizes] if has_body else [b""] * len(sizes)
        self.has_length = has_body and chosen.random() < 0.7
        self.ends_apart = not self.pieces or chosen.random() < 0.6
        self.raw_headers = [(b"x-seed", b"%d" % seed)]
        if self.has_length:
            self.raw_headers.append((b"Content-Length", b"%d" % sum(sizes)))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        for number, piece in enumerate(self.pieces, 1):
            more = number < len(self.pieces) or self.ends_apart
            if not self.has_length and more and not piece:
                continue
            await send({"type": "http.response.body", "body": piece, "more_body": more})
        if self.ends_apart:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Shop:
    """An application with all that ends with a response; `log` is the order in which it ends."""

    def __init__(self, dibs: AsyncDibs, kind: str, *, fails: bool = False) -> None:
        self.log: list[str] = []
        self._fails = fails
        app = self._app = FastAPI()
        route: Any = app.api_route("/{seed}", methods=["POST", "HEAD"])
        lease = Depends(held("stock", ttl=30))

        async def session() -> AsyncIterator[None]:
            yield
            self.log.append("dependency")
            if self._fails:
                raise OSError("the commit failed")

        async def endpoint(seed: int, session: Annotated[None, Depends(session)]) -> Response:
            response = Shuffled(seed)
            if kind != "task":
                return response

            async def pieces() -> AsyncIterator[bytes]:
                for piece in response.pieces:
                    yield piece

            streamed = StreamingResponse(pieces(), 200)
            if response.has_length:
                streamed.headers["content-length"] = str(sum(map(len, response.pieces)))
            return streamed

        if kind in ("decorator", "lease", "task"):
            install(app, dibs, secret="s")
            app.api_route("/{seed}", methods=["POST", "HEAD"], dependencies=[lease])(
                endpoint if kind == "lease" else once(**REPLAY)(endpoint)
            )
            return
        route(endpoint)
        if kind != "middleware":

            async def between(request: Request, call_next: Any) -> Any:
                if kind == "http middleware that reads":
                    await request.body()
                return await call_next(request)

            app.add_middleware(BaseHTTPMiddleware, dispatch=between)
        policies = [Policy("POST,HEAD /{seed}", **REPLAY)]
        app.add_middleware(DibsMiddleware, dibs=dibs, policies=policies, secret="s")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    async def call(self, server: Server, method: str, seed: int) -> None:
        """Send a request; `log` tells what was over when its client had the whole response."""
        client = Client(method)

        async def sending(message: Any) -> None:
            if client.has_all or not client.get(message):
                return
            self.log.append("lease" if "stock" in server.keys() else "no lease")
            before = [*self.log]
            again = await Call(self, f"{method} /{seed}", headers=keyed).run()
            self.log[:] = before  # without the dependencies of the second request
            problem = again.status == 409 and again.body and again.json["type"]
            self.log.append("claim" if problem == "urn:dibs:in-progress" else "no claim")

        keyed = {"idempotency-key": f"{method}-{seed}"}
        with contextlib.suppress(OSError, RuntimeError):
            await Call(self, f"{method} /{seed}", headers=keyed, sending=sending).run()


@pytest.mark.parametrize("kind", KINDS)
async def test_all_has_ended_before_the_byte_that_completes_a_response(
    valkey: Server, kind: str
) -> None:
    """Whatever status, length, pieces and middlewares; 500 comes in place of what was not begun."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for seed in range(SEEDS):
            for method in ("POST", "HEAD"):
                shop = Shop(dibs, kind)
                await shop.call(valkey, method, seed)
                assert shop.log == ["dependency", "no lease", "no claim"], (method, seed, shop.log)
                valkey.flush()


@pytest.mark.parametrize("kind", KINDS)
async def test_no_response_is_complete_if_a_dependency_fails(valkey: Server, kind: str) -> None:
    """Its client has a 500, or a response that is cut off; nothing is stored, and nothing held."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for seed in range(SEEDS):
            for method in ("POST", "HEAD"):
                shop = Shop(dibs, kind, fails=True)
                call = Call(shop, f"{method} /{seed}", headers={"idempotency-key": "k"})
                with contextlib.suppress(OSError, RuntimeError):
                    await call.run()
                client = Client(method)
                for message in call.sent:
                    client.get(message)
                assert not client.has_all or call.status == 500, (method, seed, call.sent)
                assert shop.log == ["dependency"] and valkey.keys() == []


# ---- a transaction of within=


@pytest.mark.parametrize("scope", ["request", "function"])
@pytest.mark.parametrize("place", ["app", "router"])
async def test_a_dependency_that_cannot_end_after_the_commit_is_a_warning_at_start(
    valkey: Server, caplog: pytest.LogCaptureFixture, scope: Any, place: str
) -> None:
    """FastAPI ends those of an endpoint before its response, also if that has a transaction."""
    if "scope" not in inspect.signature(Depends).parameters:
        pytest.skip("this version of FastAPI has no scopes")
    engine = create_engine("sqlite://")

    def lock() -> Iterator[None]:
        yield

    app, router = FastAPI(), APIRouter()

    @(app if place == "app" else router).post("/orders")
    @once(**REPLAY, within=sessionmaker(engine).begin)
    def order(session: Session, lock: Annotated[None, Depends(lock, scope=scope)]) -> None: ...

    app.include_router(router)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        install(app, dibs, secret="s")
        await Call(app, "POST /orders").run()
    warnings = [each.message for each in caplog.records if 'scope="function"' in each.message]
    assert len(warnings) == (scope == "function") and all("lock" in each for each in warnings)
    engine.dispose()


async def test_what_is_called_after_a_commit_is_not_cancelled_with_its_request(
    valkey: Server, tmp_path: Any
) -> None:
    """The work was committed, so all of it is done; the client is waited for at its end."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    called: list[str] = []
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def publish() -> None:
        has_begun.set()
        await may_end.wait()
        called.append("published")

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app = FastAPI()

        @app.post("/orders")
        @once(**REPLAY, within=async_sessionmaker(engine).begin)
        async def order(session: AsyncSession) -> int:
            await dibs.after_commit(publish)
            await dibs.after_commit(lambda: called.append("last"))
            return 7

        install(app, dibs, secret="s")
        keyed = {"idempotency-key": "k-1"}
        request = asyncio.create_task(Call(app, "POST /orders", headers=keyed).run())
        await has_begun.wait()
        request.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await request
        assert called == []
        may_end.set()
    assert called == ["published", "last"]
    await engine.dispose()


async def test_a_lease_of_its_dead_first_copy_does_not_refuse_a_committed_response(
    valkey: Server, tmp_path: Any
) -> None:
    """Killed after its commit: the key of the request is free before the lease, and the table is
    asked. Of another request the table knows nothing.
    """
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app = FastAPI()

        @app.post("/orders", dependencies=[Depends(held("stock", ttl=30))])
        @once(**REPLAY, within=sessionmaker(engine).begin)
        def order(session: Session) -> int:
            return 7

        install(app, dibs, secret="s")
        keyed = {"idempotency-key": "k-1"}
        await Call(app, "POST /orders", headers=keyed).run()
        valkey.flush()
        valkey.client().set("stock", b"5a1f-2c@web-1:4711", px=30_000)
        for _ in range(2):
            again = await Call(app, "POST /orders", headers=keyed).run()
            assert (again.status, again.json, again.is_replay) == (200, 7, True)
        other = await Call(app, "POST /orders", headers={"idempotency-key": "k-2"}).run()
        assert (other.status, other.json["type"]) == (409, "urn:dibs:busy")
        assert "stock" in valkey.keys() and len(valkey.keys()) == 2
    engine.dispose()


@pytest.mark.parametrize("kind", ["session", "http middleware"])
async def test_a_transaction_commits_before_the_dependencies_around_it_end(
    valkey: Server, kind: str, tmp_path: Any
) -> None:
    """Last opened, first closed: a lease, or a lock of the application, is around the COMMIT."""
    if routing.request_response.__module__ != "fastapi.routing":
        pytest.skip("before 0.118 FastAPI ends dependencies before it sends the response")
    log: list[str] = []
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    sessions = sessionmaker(engine)

    async def lock() -> AsyncIterator[None]:
        yield
        log.append("dependency")

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        inner = FastAPI()

        @inner.post("/{seed}", dependencies=[Depends(held("stock", ttl=30))])
        @once(**REPLAY, within=sessions.begin)
        def order(session: Session, seed: int, lock: Annotated[None, Depends(lock)]) -> int:
            return seed

        app = inner
        if kind == "http middleware":  # between the guard and the endpoint

            async def between(request: Request, call_next: Any) -> Any:
                return await call_next(request)

            inner.add_middleware(BaseHTTPMiddleware, dispatch=between)
            app = FastAPI()
            app.mount("/inner", inner)
        install(app, dibs, secret="s")
        target = "POST /inner/7" if kind == "http middleware" else "POST /7"
        await Call(app, target, headers={"idempotency-key": "k-0"}).run()  # makes the table
        event.listen(engine, "commit", lambda _: log.append(f"COMMIT {valkey.keys()[-1]}"))
        log.clear()
        call = await Call(app, target, headers={"idempotency-key": "k-1"}).run()
        assert (call.status, call.json) == (200, 7)
        assert log == ["COMMIT stock", "dependency"] and "stock" not in valkey.keys()
        assert (await Call(app, target, headers={"idempotency-key": "k-1"}).run()).is_replay
    engine.dispose()
