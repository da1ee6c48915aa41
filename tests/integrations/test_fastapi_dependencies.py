"""Dependencies of FastAPI with `yield`: they end before a lease is released or an answer stored.

And guards on a dependency, which refuse as those on an endpoint do.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import anyio
import httpx2 as httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import Request

from dibs import AsyncDibs, AsyncLease, UsageError
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.integrations.fastapi import Refused, held, install, once
from dibs.testing import Server

from . import Call, is_problem

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

KEYED = {"idempotency-key": "k-1"}
REPLAY: dict[str, Any] = {"window": 60, "after": "replay", "key": "required"}
selling = held("stock:{sku}", ttl=30)
Held = Annotated[AsyncLease, Depends(selling)]


@asynccontextmanager
async def installed(server: Server, app: FastAPI, **options: Any) -> AsyncIterator[FastAPI]:
    async with AsyncDibs(server.url, budget=5) as dibs:
        install(app, dibs, **options)
        yield app


@asynccontextmanager
async def calling(server: Server, app: FastAPI, **options: Any) -> AsyncIterator[Any]:
    async with installed(server, app, **options):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield client


class Database:
    """What is committed when a dependency ends; what was held and stored at that moment."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.error: Exception | None = None
        self.commits: list[list[str]] = []
        """The keys on the server at each commit."""

    def commit(self) -> None:
        self.commits.append(self._server.keys())
        if self.error is not None:
            raise self.error

    async def session(self) -> AsyncIterator[str]:
        yield "session"
        self.commit()

    def plain_session(self) -> Iterator[str]:
        yield "session"
        self.commit()


@pytest.fixture
def database(valkey: Server) -> Database:
    return Database(valkey)


# ---- leases


@pytest.mark.parametrize("order", ["before", "after", "below", "on the route", "plain"])
async def test_a_lease_is_held_until_the_commit(
    valkey: Server, database: Database, order: str
) -> None:
    """However the two dependencies are declared; and it is free when the client has its answer."""
    app = FastAPI()
    make = database.plain_session if order == "plain" else database.session

    async def lock_below(lease: Held, session: Annotated[str, Depends(make)]) -> None: ...

    Session = Annotated[str, Depends(make)]  # noqa: N806 – a type
    if order == "after":

        @app.post("/sell/{sku}")
        async def sell_after(sku: str, session: Session, lease: Held) -> bool:
            return lease.guarded
    elif order == "below":

        @app.post("/sell/{sku}", dependencies=[Depends(lock_below)])
        async def sell_below(sku: str, session: Session) -> bool:
            return True
    elif order == "on the route":

        @app.post("/sell/{sku}", dependencies=[Depends(make), Depends(selling)])
        async def sell_routed(sku: str) -> bool:
            return True
    else:

        @app.post("/sell/{sku}")
        async def sell_before(sku: str, lease: Held, session: Session) -> bool:
            return lease.guarded

    async with calling(valkey, app) as client:
        for number in (1, 2, 3):
            assert (await client.post("/sell/tea")).json() is True
            assert database.commits == [["stock:tea"]] * number and valkey.keys() == []


async def test_nothing_is_oversold(valkey: Server) -> None:
    """Read, sell and commit at the end of the request, twenty at once: each sees the one before."""
    stock = 50

    async def session() -> AsyncIterator[list[int]]:
        nonlocal stock
        read = [stock]
        yield read
        await asyncio.sleep(0.001)  # a commit takes time
        stock = read[0]

    app = FastAPI()
    waiting = held("stock", ttl=30, wait=20)

    @app.post("/sell", dependencies=[Depends(waiting)])
    async def sell(read: Annotated[list[int], Depends(session)]) -> None:
        await asyncio.sleep(0.001)
        read[0] -= 1

    async with calling(valkey, app) as client:
        answers = await asyncio.gather(*[client.post("/sell") for _ in range(20)])
    assert [each.status_code for each in answers] == [200] * 20 and stock == 30


async def test_a_lease_of_a_stream_is_held_until_the_commit(
    valkey: Server, database: Database
) -> None:
    """The pieces are passed on as they come, the end after the commit; the sender is another task
    than the one that entered the dependency.
    """
    app = FastAPI()
    entered: ContextVar[str] = ContextVar("entered")

    async def session() -> AsyncIterator[None]:
        async with anyio.create_task_group():  # can be left only where it was entered
            token = entered.set("here")
            yield
            entered.reset(token)
            database.commit()

    @app.post("/sell/{sku}", dependencies=[Depends(selling), Depends(session)])
    async def sell(sku: str) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            yield b"two"

        return StreamingResponse(pieces())

    async with installed(valkey, app):
        for version in ("2.3", "2.4"):  # of ASGI, by which Starlette chooses who sends
            asgi = {"version": "3.0", "spec_version": version}
            call = await Call(app, "POST /sell/tea", asgi=asgi).run()
            assert call.body == b"onetwo" and not call.sent[-1].get("more_body", False)
            assert valkey.keys() == []
    assert database.commits == [["stock:tea"]] * 2


# ---- answers


@pytest.mark.parametrize("kind", ["decorator", "middleware"])
async def test_an_answer_is_stored_after_its_commit(
    valkey: Server, database: Database, kind: str
) -> None:
    """If that fails, the client gets a 500, nothing is stored, and the retry runs."""
    runs: list[str] = []
    app = FastAPI()

    async def order(session: Annotated[str, Depends(database.session)]) -> int:
        runs.append(session)
        return len(runs)

    guarded: Any = once(**REPLAY)(order) if kind == "decorator" else order
    app.post("/orders", status_code=201)(guarded)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        if kind == "decorator":
            install(app, dibs)
        else:
            policies = [Policy("POST /orders", **REPLAY)]
            app.add_middleware(DibsMiddleware, dibs=dibs, policies=policies)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            database.error = OSError("the commit failed")
            assert (await client.post("/orders", headers=KEYED)).status_code == 500
            assert valkey.keys() == []
            database.error = None
            done, again = [await client.post("/orders", headers=KEYED) for _ in range(2)]
    assert (done.status_code, done.json(), again.json()) == (201, 2, 2)
    assert again.headers["idempotent-replayed"] == "true" and len(runs) == 2
    assert [len(keys) for keys in database.commits[:2]] == [1, 1], "it is claimed while they end"


async def test_a_dependency_may_refuse_at_its_end(valkey: Server, database: Database) -> None:
    """Any exception of it is a failure, for the client and for the key."""
    app = FastAPI()
    database.error = HTTPException(503, "the database is away")

    @app.post("/orders")
    @once(**REPLAY)
    async def order(session: Annotated[str, Depends(database.session)]) -> str:
        return "done"

    async with calling(valkey, app) as client:
        assert (await client.post("/orders", headers=KEYED)).status_code in (503, 500)
        database.error = None
        assert (await client.post("/orders", headers=KEYED)).json() == "done"


async def test_background_tasks_are_no_part_of_a_claim_or_a_lease(
    valkey: Server, database: Database
) -> None:
    """The client has its whole answer, and may come again, while they run."""
    app, gate = FastAPI(), asyncio.Event()

    async def later() -> None:
        await gate.wait()

    @app.post("/sell/{sku}")
    @once(**REPLAY)
    async def sell(
        sku: str,
        lease: Held,
        session: Annotated[str, Depends(database.session)],
        tasks: BackgroundTasks,
    ) -> str:
        tasks.add_task(later)
        return "sold"

    async with installed(valkey, app):
        first = Call(app, "POST /sell/tea", headers=KEYED)
        running = first.start()
        while len(first.sent) < 2:
            await asyncio.sleep(0.01)
        assert first.json == "sold" and len(database.commits) == 1
        again = await Call(app, "POST /sell/tea", headers=KEYED).run()
        assert again.is_replay and not running.done()
        gate.set()
        await running


@pytest.mark.parametrize("media", ["plain", "stream"])
async def test_a_middleware_in_between_does_not_matter(
    valkey: Server, database: Database, media: str
) -> None:
    """Starlette runs the application in another task there; what a dependency entered in that task
    is left in it.
    """
    app = FastAPI()

    async def session() -> AsyncIterator[None]:
        async with anyio.create_task_group():
            yield
            database.commit()

    @app.post("/orders", dependencies=[Depends(session)])
    async def order(cart: dict[str, int]) -> Any:
        async def pieces() -> AsyncIterator[bytes]:
            yield b'"done"'

        return "done" if media == "plain" else StreamingResponse(pieces())

    @app.middleware("http")
    async def between(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        guarded = DibsMiddleware(app, dibs=dibs, policies=[Policy("POST /orders", **REPLAY)])
        for is_replay in (False, True):
            call = await Call(guarded, headers={**KEYED, "content-type": "application/json"}).run()
            assert (call.json, call.is_replay) == ("done", is_replay)
    assert [len(keys) for keys in database.commits] == [1]


# Starlette 0.37 does not close the streams of an http middleware whose application raises.
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
@pytest.mark.parametrize("kind", ["decorator", "middleware"])
async def test_a_commit_that_fails_behind_a_middleware_is_not_stored(
    valkey: Server, database: Database, kind: str
) -> None:
    """Such a middleware sends the body before the dependencies end. What completes the response
    waits for them also in a guard outside of it: the client has a 500, and the retry runs.
    """
    app, runs = FastAPI(), list[int]()

    async def order(session: Annotated[str, Depends(database.session)]) -> int:
        runs.append(1)
        return len(runs)

    @app.middleware("http")
    async def between(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app.post("/orders")(once(**REPLAY)(order) if kind == "decorator" else order)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        if kind == "decorator":
            install(app, dibs)
        else:
            policies = [Policy("POST /orders", **REPLAY)]
            app.add_middleware(DibsMiddleware, dibs=dibs, policies=policies)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            database.error = OSError("the commit failed")
            failed = await client.post("/orders", headers=KEYED)
            assert failed.status_code == 500
            assert valkey.keys() == []
            database.error = None
            done, again = [await client.post("/orders", headers=KEYED) for _ in range(2)]
    assert (done.json(), again.json(), len(runs)) == (2, 2, 2)
    assert again.headers["idempotent-replayed"] == "true"


# ---- a guard on a dependency


def guarding(**options: Any) -> Any:
    @once(**options)
    async def only_once() -> str:
        return "guarded"

    return only_once


@pytest.mark.parametrize("place", ["route", "router", "parameter", "plain", "wrapped"])
async def test_a_guard_on_a_dependency_refuses(valkey: Server, place: str) -> None:
    """By raising: a dependency that returned the refusal would let the endpoint run."""
    app, router, runs = FastAPI(), APIRouter(), list[int]()
    guard = guarding(window=60, after="hold")

    @once(window=60, after="hold")
    def plain_guard() -> None: ...

    class Wrapped:
        @once(window=60, after="hold")
        async def __call__(self, request: Request) -> None: ...

    depends = {"plain": Depends(plain_guard), "wrapped": Depends(Wrapped())}.get(
        place, Depends(guard)
    )
    if place == "router":
        router = APIRouter(dependencies=[depends])

    async def order() -> int:
        runs.append(1)
        return len(runs)

    async def order_with(found: Annotated[str, depends]) -> str:
        runs.append(1)
        return found

    options: Any = {"dependencies": [depends]} if place in ("route", "plain", "wrapped") else {}
    router.post("/orders", **options)(order_with if place == "parameter" else order)
    app.include_router(router)
    async with calling(valkey, app) as client:
        answers = [await client.post("/orders", json={"tea": 1}) for _ in range(2)]
        other = await client.post("/orders", json={"tea": 2})
        document = (await client.get("/openapi.json")).json()
    assert [each.status_code for each in (*answers, other)] == [200, 429, 200] and len(runs) == 2
    assert is_problem(answers[1].json(), answers[1].headers, 429)
    if place != "wrapped":
        assert "429" in document["paths"]["/orders"]["post"]["responses"]


async def test_a_guard_on_a_dependency_replays(valkey: Server) -> None:
    """The response of the endpoint is what is stored; a handler of refusals is not asked."""
    app, runs = FastAPI(), list[int]()

    @app.exception_handler(Refused)
    async def page(request: Request, error: Refused) -> JSONResponse:
        return JSONResponse("a page", error.status_code)

    app.add_exception_handler(201, page)

    @app.post("/orders", dependencies=[Depends(guarding(**REPLAY))], status_code=201)
    async def order(cart: dict[str, int]) -> int:
        runs.append(1)
        return len(runs)

    async with calling(valkey, app) as client:
        assert (await client.post("/orders", json=[], headers=KEYED)).status_code == 422
        done, again = [await client.post("/orders", json={}, headers=KEYED) for _ in range(2)]
        missing = await client.post("/orders", json={})
    assert (done.status_code, again.status_code, done.json(), again.json()) == (201, 201, 1, 1)
    assert again.headers["idempotent-replayed"] == "true"
    assert (missing.status_code, missing.json()) == (400, "a page")
    assert missing.headers["cache-control"] == "no-store"


async def test_a_guard_on_a_dependency_and_one_on_its_endpoint(valkey: Server) -> None:
    """UsageError, and nothing is left behind."""
    app = FastAPI()

    @app.post("/orders", dependencies=[Depends(guarding(window=60))])
    @once(window=60)
    async def order() -> None: ...

    async with installed(valkey, app):
        with pytest.raises(UsageError, match="guarded already"):
            await Call(app).run()
    assert valkey.keys() == []
