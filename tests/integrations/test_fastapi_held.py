"""`Depends(held("order:{id}", ttl=5))`: the lease of a request, and when it begins and ends."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import httpx2 as httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, WebSocket
from fastapi.responses import StreamingResponse
from starlette.requests import Request

from dibs import AsyncDibs, AsyncLease, Event, UsageError
from dibs.integrations.fastapi import held, install, once
from dibs.testing import Server, aeventually

from . import Call, is_problem

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

paying = held("order:{id}", ttl=30)
Paying = Annotated[AsyncLease, Depends(paying)]


@asynccontextmanager
async def calling(
    server: Server, app: FastAPI, *, listeners: Any = (), **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client in front of *app*; an exception of the app is a 500 for it."""
    options = {"budget": 5, **options}
    async with AsyncDibs(server.url, listeners=listeners, **options) as dibs:
        install(app, dibs)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield client


def refuses(response: httpx.Response, status: int, kind: str) -> bool:
    """The response is a refusal of this status and kind."""
    document = response.json()
    assert response.status_code == status and document["type"] == f"urn:dibs:{kind}"
    return is_problem(document, response.headers, status)


async def never_called(*_: object) -> Any:
    raise AssertionError("nothing is received or sent")


# ---- one at a time


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_one_request_at_a_time_for_each_key(valkey: Server, kind: str) -> None:
    """The second gets a 409 with a true Retry-After; another key is not concerned."""
    runs: list[str] = []
    gate, thread_gate = asyncio.Event(), threading.Event()
    app = FastAPI()

    if kind == "async":

        @app.post("/orders/{id}/pay")
        async def pay(id: str, lease: Paying) -> bool:
            runs.append(id)
            await gate.wait()
            return lease.guarded
    else:

        @app.post("/orders/{id}/pay")
        def plain_pay(id: str, lease: Paying) -> bool:
            runs.append(id)
            assert thread_gate.wait(20)
            return lease.guarded and not lease.lost

    async with calling(valkey, app) as client:
        first = asyncio.create_task(client.post("/orders/7/pay"))
        await aeventually(lambda: runs == ["7"])
        assert valkey.keys() == ["order:7"]
        refused = await client.post("/orders/7/pay")
        left = valkey.client().pttl("order:7") / 1000
        gate.set()
        thread_gate.set()
        assert (await first).json() is True and valkey.keys() == []
        assert (await client.post("/orders/8/pay")).json() is True
        assert (await client.post("/orders/7/pay")).json() is True
    assert refuses(refused, 409, "busy") and runs == ["7", "8", "7"]
    assert left <= refused.json()["retryAfter"] <= 30
    assert refused.headers["retry-after"] == str(refused.json()["retryAfter"])


async def test_a_request_waits_for_the_one_before(valkey: Server) -> None:
    """With `wait=` it comes after it; when the wait is over it is a 409, with a message."""
    app, running, most = FastAPI(), 0, 0
    patient = held("order:{id}", ttl=30, wait=10, message="請稍候…")
    hasty = held("order:{id}", ttl=30, wait=0.05, message="請稍候…")

    @app.post("/orders/{id}")
    async def pay(lease: Annotated[AsyncLease, Depends(patient)]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    @app.post("/orders/{id}/now", dependencies=[Depends(hasty)])
    async def pay_now() -> None: ...

    async with calling(valkey, app) as client:
        answers = await asyncio.gather(*[client.post("/orders/7") for _ in range(5)])
        assert [each.status_code for each in answers] == [200] * 5 and most == 1
        valkey.client().set("order:7", "somebody", px=20_000)
        refused = await client.post("/orders/7/now")
        valkey.client().set("order:7", "of another program, for ever")
        endless = await client.post("/orders/7/now")
    assert refuses(endless, 409, "busy") and "retry-after" not in endless.headers
    assert refuses(refused, 409, "busy")
    assert refused.json()["message"] == refused.json()["detail"] == "請稍候…"


async def test_several_leases_of_one_request(valkey: Server) -> None:
    """All or none: where the second is refused, the first is released; equal ones are one."""
    app = FastAPI()
    both = [Depends(held("shop:{shop}", ttl=30)), Depends(held("order:{id}", ttl=30))]

    @app.post("/shops/{shop}/{id}", dependencies=both)
    async def pay(lease: Annotated[AsyncLease, Depends(held("order:{id}", ttl=30))]) -> list[str]:
        return valkey.keys()

    async with calling(valkey, app) as client:
        assert (await client.post("/shops/a/7")).json() == ["order:7", "shop:a"]
        valkey.client().set("order:7", "somebody", px=20_000)
        assert (await client.post("/shops/a/7")).status_code == 409
        assert valkey.keys() == ["order:7"]


# ---- the fields of the key


async def test_a_field_is_what_the_endpoint_gets(valkey: Server) -> None:
    """The path goes first, then the query; the value is converted, so one order has one key."""
    app = FastAPI()

    @app.get("/whole/{id}", dependencies=[Depends(held("key:{id}:{q}", ttl=5))])
    async def whole(id: int, q: UUID) -> list[str]:
        return valkey.keys()

    @app.get("/path/{id}", dependencies=[Depends(held("key:{id}", ttl=5))])
    async def undeclared() -> list[str]:
        return valkey.keys()

    low, high = "6f1e8e0c-1111-4222-8333-00000000000a", "6F1E8E0C-1111-4222-8333-00000000000A"
    async with calling(valkey, app) as client:
        for id, query in (("7", low), ("07", high), ("+7", low)):
            answer = await client.get(f"/whole/{id}", params={"q": query, "id": "no"})
            assert answer.json() == [f"key:7:{low}"]
        assert (await client.get("/path/07", params={"id": "no"})).json() == ["key:07"]
        assert (await client.get("/path/a:%7Bb%7D")).json() == ["key:a:%7Bb%7D"]


async def test_a_field_that_is_not_valid_takes_no_lease(valkey: Server) -> None:
    """The client gets FastAPI's own 422 for every mistake: a number, a missing query, a length."""
    app = FastAPI()

    @app.get("/{id}", dependencies=[Depends(held("key:{id}:{q}", ttl=5))])
    async def endpoint(id: int, q: str) -> None: ...

    long, before = "x" * 2000, valkey.commands("set")
    async with calling(valkey, app) as client:
        for target, where in (("/a?q=1", ["path", "id"]), ("/1", ["query", "q"]),
                              ("/1?q=", ["request"]), (f"/1?q={long}", ["request"])):  # fmt: skip
            answer = await client.get(target)
            assert answer.status_code == 422, target
            assert answer.json()["detail"][0]["loc"] == where and long not in answer.text
    assert valkey.commands("set") == before and valkey.keys() == []


async def test_a_field_that_nobody_has_is_a_mistake_in_the_program(valkey: Server) -> None:
    """It is named, before anything is asked; so are options that make no sense, even earlier."""
    app = FastAPI()

    @app.get("/{id}", dependencies=[Depends(held("key:{idd}", ttl=5))])
    async def endpoint() -> None: ...

    async with AsyncDibs(valkey.url) as dibs:
        install(app, dibs)
        with pytest.raises(UsageError, match=r"'key:\{idd\}'.* 'idd'"):
            await Call(app, "GET /7").run()
    for wrong in ({"ttl": 0}, {"ttl": 5, "wait": -1}, {"ttl": 5, "max_hold": 9}):
        with pytest.raises(UsageError):
            held("key", **wrong)
    for unknown in ({}, {"ttl": 5, "timeout": 3}):
        with pytest.raises(TypeError):
            held("key", **unknown)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        held("key:{", ttl=5)


async def test_the_routers_prefix_has_fields_too(valkey: Server) -> None:
    """In included routers, with their dependencies, and in a mounted application."""
    app, inner = FastAPI(), FastAPI()
    router = APIRouter(dependencies=[Depends(held("shop:{shop}", ttl=5))])

    @router.get("/orders/{id}", dependencies=[Depends(held("order:{id}", ttl=5))])
    async def order(shop: int, id: int) -> list[str]:
        return valkey.keys()

    @inner.get("/{id}", dependencies=[Depends(held("inner:{id}", ttl=5))])
    async def mounted(id: int) -> list[str]:
        return valkey.keys()

    app.include_router(router, prefix="/shops/{shop}")
    app.mount("/inner", inner)
    async with calling(valkey, app) as client:
        assert (await client.get("/shops/01/orders/07")).json() == ["order:7", "shop:1"]
        assert (await client.get("/inner/07")).json() == ["inner:7"]
        valkey.client().set("inner:7", "somebody", px=20_000)
        assert refuses(await client.get("/inner/7"), 409, "busy")


# ---- when it ends


class Frames:
    """What leaves the application, each with the keys that were on the server just then."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.seen: list[tuple[bytes, list[str]]] = []

    async def __call__(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            self.seen.append((message.get("body", b""), self._server.keys()))


async def test_the_lease_ends_before_the_last_piece_is_sent(valkey: Server) -> None:
    """A client that has the whole response can ask again at once.

    A stream is held to its end; background work is not.
    """
    app, afterwards = FastAPI(), list[list[str]]()

    def look() -> None:
        afterwards.append(valkey.keys())

    @app.get("/plain/{id}")
    async def plain(lease: Paying, background: BackgroundTasks) -> str:
        background.add_task(look)
        return "whole"

    @app.get("/stream/{id}")
    async def stream(lease: Paying) -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            for piece in ("one", "two"):
                lease.check()
                yield piece

        return StreamingResponse(pieces())

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        install(app, dibs)
        plainly, streamed = Frames(valkey), Frames(valkey)
        await Call(app, "GET /plain/7", sending=plainly).run()
        await Call(app, "GET /stream/7", sending=streamed).run()
    assert plainly.seen == [(b'"whole"', [])] and afterwards == [[]]
    assert streamed.seen == [(b"one", ["order:7"]), (b"two", ["order:7"]), (b"", [])]


async def test_a_lease_that_the_endpoint_releases_is_not_late(valkey: Server) -> None:
    """With on_late="raise" too: it was released, not lost, and the answer is sent."""
    app, frames = FastAPI(), Frames(valkey)

    @app.get("/{id}")
    async def endpoint(
        lease: Annotated[AsyncLease, Depends(held("order:{id}", ttl=5, on_late="raise"))],
    ) -> bool:
        return await lease.release()

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        install(app, dibs)
        await Call(app, "GET /7", sending=frames).run()
    assert frames.seen == [(b"true", [])]


@pytest.mark.parametrize("how", ["raises", "answers", "leaves", "cancelled"])
async def test_no_lease_is_left_behind(valkey: Server, how: str) -> None:
    """The endpoint raises, refuses, the client leaves, or it is stopped."""
    app, inside = FastAPI(), asyncio.Event()

    @app.get("/{id}")
    async def endpoint(lease: Paying) -> Any:
        inside.set()
        if how == "raises":
            raise RuntimeError("the endpoint failed")
        if how == "answers":
            raise HTTPException(418)
        if how == "cancelled":
            await asyncio.Event().wait()

        async def pieces() -> AsyncIterator[str]:
            yield "one"
            raise OSError("the client has left")

        return StreamingResponse(pieces())

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        install(app, dibs)
        call = asyncio.create_task(Call(app, "GET /7").run())
        await inside.wait()
        if how == "cancelled":
            call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert valkey.keys() == []


async def test_a_renewed_lease_that_is_lost_stops_the_endpoint(valkey: Server) -> None:
    """It is cancelled, and its client gets a 500; the successor's key is not touched."""
    app, ended = FastAPI(), list[str]()

    @app.get("/{id}", dependencies=[Depends(held("order:{id}", ttl=0.3, renew=True))])
    async def endpoint() -> None:
        valkey.client().set("order:7", "successor", px=20_000)
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    kinds: list[str] = []
    async with calling(valkey, app, listeners=[lambda event: kinds.append(event.kind)]) as client:
        assert (await client.get("/7")).status_code == 500
        assert ended == ["cancelled"] and "lost" in kinds
        assert valkey.client().get("order:7") == b"successor"


async def test_renewing_ends_with_the_response(valkey: Server) -> None:
    """Work in the background may take longer than the ttl: its task is not cancelled."""
    app, done = FastAPI(), list[str]()

    async def linger() -> None:
        await asyncio.sleep(1.2)
        done.append("done")

    @app.get("/{id}", dependencies=[Depends(held("order:{id}", ttl=1, renew=True))])
    async def endpoint(background: BackgroundTasks) -> None:
        background.add_task(linger)

    async with calling(valkey, app) as client:
        assert (await client.get("/7")).status_code == 200
    assert done == ["done"]


async def test_a_response_that_is_late_is_not_sent(valkey: Server) -> None:
    """With `on_late="raise"` the client gets a 500 in place of what was made without the lease."""
    app, inside = FastAPI(), list[AsyncLease]()

    @app.get("/{id}")
    async def endpoint(
        lease: Annotated[AsyncLease, Depends(held("order:{id}", ttl=0.05, on_late="raise"))],
    ) -> str:
        inside.append(lease)
        await aeventually(lambda: lease.lost)
        return "made too late"

    async with calling(valkey, app) as client:
        answer = await client.get("/7")
    assert answer.status_code == 500 and "too late" not in answer.text


# ---- beside other things


async def test_in_an_outage_the_policy_decides_about_a_dependency(own_server: Server) -> None:
    """Open: it runs unguarded, and can see it. Closed: a 503 with Retry-After, and nothing runs."""
    app, runs = FastAPI(), list[bool]()
    own_server.kill()

    @app.get("/open/{id}")
    async def unguarded(lease: Paying) -> None:
        runs.append(lease.guarded)

    closed = held("order:{id}", ttl=5, on_outage="closed")

    @app.get("/closed/{id}", dependencies=[Depends(closed)])
    async def never() -> None:
        runs.append(True)

    async with calling(own_server, app, budget=0.2) as client:
        assert (await client.get("/open/7")).status_code == 200
        refused = await client.get("/closed/7")
    assert runs == [False]
    assert refuses(refused, 503, "unavailable") and refused.headers["retry-after"] == "1"


async def test_a_lease_and_a_claim_on_one_endpoint(valkey: Server) -> None:
    """The lease is taken first, because dependencies are; both have ended with the response."""
    app = FastAPI()

    @app.post("/orders/{id}")
    @once(window=60, after="replay", key="required")
    async def order(id: str, lease: Paying) -> int:
        return len(valkey.keys())

    keyed = {"idempotency-key": "k-1"}
    async with calling(valkey, app) as client:
        assert (await client.post("/orders/7", headers=keyed)).json() == 2
        replayed = await client.post("/orders/7", headers=keyed)
        assert replayed.json() == 2 and replayed.headers["idempotent-replayed"] == "true"
        valkey.client().set("order:8", "somebody", px=20_000)
        assert (
            await client.post("/orders/8", headers={"idempotency-key": "k-2"})
        ).status_code == 409
        assert [key for key in valkey.keys() if key.startswith("order")] == ["order:8"]


async def test_a_retry_is_answered_although_the_lease_is_taken(valkey: Server) -> None:
    """By its key: the stored response, that it runs, that its body differs; a new one is busy."""
    app, gate, begun = FastAPI(), asyncio.Event(), asyncio.Event()

    @app.post("/orders/{id}")
    @once(window=60, after="replay", key="required")
    async def order(id: str, lease: Paying, cart: dict[str, int]) -> int:
        begun.set()
        await gate.wait()
        return len(cart)

    async with calling(valkey, app) as client:

        async def post(key: str, cart: dict[str, int]) -> httpx.Response:
            return await client.post("/orders/7", headers={"idempotency-key": key}, json=cart)

        first = asyncio.create_task(post("k-1", {"tea": 1}))
        await begun.wait()
        assert refuses(await post("k-1", {"tea": 1}), 409, "in-progress")
        assert refuses(await post("k-1", {"tea": 2}), 422, "payload-mismatch")
        assert refuses(await post("k-2", {"tea": 1}), 409, "busy")
        gate.set()
        assert (await first).json() == 1
        valkey.client().set("order:7", "somebody", px=20_000)
        replayed = await post("k-1", {"tea": 1})
        assert replayed.json() == 1 and replayed.headers["idempotent-replayed"] == "true"
        assert refuses(await post("k-2", {"tea": 1}), 409, "busy")
        valkey.client().delete("order:7")
        assert (await post("k-2", {"tea": 1})).json() == 1


async def test_tests_can_replace_the_lease() -> None:
    """By `app.dependency_overrides`, with the dependency or one that is written the same way."""
    app = FastAPI()

    @app.get("/{id}")
    def endpoint(lease: Annotated[Any, Depends(held("order:{id}", ttl=5))]) -> str:
        return lease

    app.dependency_overrides[held("order:{id}", ttl=5)] = lambda: "none needed"
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        assert (await client.get("/7")).json() == "none needed"
    assert held("order:{id}", ttl=5) != held("order:{id}", ttl=6) != object()
    assert repr(held("order:{id}", ttl=5)) == "held('order:{id}', ttl=5)"


async def test_without_install_it_says_what_is_missing() -> None:
    """And on a WebSocket, that it is for HTTP."""
    app = FastAPI()

    @app.get("/{id}", dependencies=[Depends(paying)])
    async def endpoint() -> None: ...

    with pytest.raises(UsageError, match="install"):
        await Call(app, "GET /7").run()

    @app.websocket("/socket/{id}", dependencies=[Depends(paying)])
    async def socket(websocket: WebSocket) -> None: ...

    scope = {**Call(app, "GET /socket/7").scope, "type": "websocket"}
    with pytest.raises(UsageError, match="HTTP"):
        await app(scope, never_called, never_called)


async def test_the_schema_lists_the_refusals_of_leases(valkey: Server) -> None:
    """409 with its header, 503 where an outage closes; what the endpoint declares stays its own."""
    app = FastAPI()
    closed = held("order:{id}", ttl=5, on_outage="closed")

    @app.post("/orders/{id}", dependencies=[Depends(closed)])
    async def order(id: int) -> None: ...

    @app.get("/orders/{id}")
    async def look(id: int) -> None: ...

    async with calling(valkey, app) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]["/orders/{id}"]
    assert {"409", "503"} <= paths["post"]["responses"].keys()
    assert "Retry-After" in paths["post"]["responses"]["409"]["headers"]
    assert "409" not in paths["get"]["responses"]
    [parameter] = paths["post"]["parameters"]
    assert parameter["schema"]["type"] == "integer"


async def test_events_hold_the_template_and_no_value_of_the_request(valkey: Server) -> None:
    """Metrics and logs get `order:{id}`."""
    app, events = FastAPI(), list[Event]()

    @app.get("/{id}", dependencies=[Depends(paying)])
    async def endpoint() -> None: ...

    async with calling(valkey, app, listeners=[events.append]) as client:
        await client.get("/4711")
    assert {event.name for event in events} == {"order:{id}"}


async def test_the_key_may_be_a_function_of_the_request(valkey: Server) -> None:
    """For what is neither in the path nor in the query: a header, a session, a user."""
    app = FastAPI()

    async def by_user(request: Request) -> str:
        return f"user:{request.headers['x-user']}"

    @app.get("/", dependencies=[Depends(held(by_user, ttl=5, name="user:{user}"))])
    async def endpoint() -> list[str]:
        return valkey.keys()

    events: list[Event] = []
    async with calling(valkey, app, listeners=[events.append]) as client:
        assert (await client.get("/", headers={"x-user": "ann"})).json() == ["user:ann"]
    assert {event.name for event in events} == {"user:{user}"}
