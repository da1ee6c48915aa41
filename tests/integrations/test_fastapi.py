"""The decorator for FastAPI: what comes before the endpoint, what comes after it, and OpenAPI.

This module has `from __future__ import annotations`: the annotations of its endpoints are text.
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx2 as httpx
import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Request,
    Response,
    UploadFile,
    routing,
)
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel

from dibs import AsyncDibs, Event, UsageError
from dibs.integrations.fastapi import install, once, prevent_duplicate_submit
from dibs.testing import Server

from . import Call, is_problem

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

if TYPE_CHECKING:
    from nowhere import Mystery  # type: ignore[import-not-found]

KEYED = {"idempotency-key": "k-1"}
replaying = once(window=60, after="replay", key="required")


class Order(BaseModel):
    tea: int
    note: str = ""


class Receipt(BaseModel):
    number: int


class Till(BaseModel):
    number: int
    secret: str


@asynccontextmanager
async def visiting(
    server: Server, app: FastAPI, *, listeners: Any = (), budget: float = 5, user: Any = None
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser in front of *app*."""
    async with AsyncDibs(server.url, budget=budget, listeners=listeners) as dibs:
        install(app, dibs, secret="of the tests", user=user)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield client


def is_replay(response: httpx.Response) -> bool:
    return response.headers.get("idempotent-replayed") == "true"


# ---- a double click


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_of_many_at_once_one_runs_in_fastapi(valkey: Server, kind: str) -> None:
    """The seed's own decorator, on an endpoint without a request: one order, the others 429."""
    runs: list[int] = []
    gate, thread_gate = asyncio.Event(), threading.Event()
    app = FastAPI()
    guard = prevent_duplicate_submit(interval=10, message="請稍候…")

    if kind == "async":

        @app.post("/orders", status_code=201)
        @guard
        async def order(order: Order) -> Receipt:
            runs.append(order.tea)
            await gate.wait()
            return Receipt(number=len(runs))
    else:

        @app.post("/orders", status_code=201)
        @guard
        def plain_order(order: Order) -> Receipt:
            runs.append(order.tea)
            assert thread_gate.wait(20)
            return Receipt(number=len(runs))

    async with visiting(valkey, app) as client:
        tasks = [asyncio.create_task(client.post("/orders", json={"tea": 1})) for _ in range(6)]
        while sum(task.done() for task in tasks) < 5:
            await asyncio.sleep(0.01)
        [key] = valkey.keys()
        left = valkey.client().pttl(key) / 1000
        gate.set()
        thread_gate.set()
        answers = [await task for task in tasks]
        refused = [each for each in answers if each.status_code == 429]
        assert len(refused) == 5 and runs == [1]
        for each in refused:
            assert is_problem(each.json(), each.headers, 429)
            assert each.json()["message"] == "請稍候…" and left <= each.json()["retryAfter"] <= 10
        again = await client.post("/orders", json={"tea": 1})
        assert (again.status_code, again.json()) == (201, {"number": 2})


async def test_retry_after_is_true_in_fastapi(valkey: Server) -> None:
    """Who waits as long as told gets through."""
    app = FastAPI()

    @app.post("/orders")
    @once(window=2, after="hold")
    async def order() -> None: ...

    async with visiting(valkey, app) as client:
        await client.post("/orders")
        refused = await client.post("/orders")
        assert refused.status_code == 429 and refused.headers["retry-after"] in ("1", "2")
        await asyncio.sleep(int(refused.headers["retry-after"]))
        assert (await client.post("/orders")).status_code == 200


# ---- parameters


async def tenant(x_tenant: Annotated[str, Header()]) -> str:
    return x_tenant


async def test_every_kind_of_parameter_reaches_the_endpoint(valkey: Server) -> None:
    """Path, query, header, body, dependency, request and response, as they are declared."""
    app = FastAPI()

    @app.put("/orders/{number}")
    @replaying
    async def order(
        number: int,
        body: Order,
        who: Annotated[str, Depends(tenant)],
        asked: Annotated[Request, "with a note"],
        response: Response,
        page: int = 7,
        *,
        more: bool = False,
    ) -> dict[str, Any]:
        response.headers["x-seen"] = asked.url.path
        return {"number": number, "tea": body.tea, "who": who, "page": page, "more": more}

    async with visiting(valkey, app) as client:
        for number in range(2):
            answer = await client.put(
                "/orders/3?more=1", json={"tea": 2}, headers={**KEYED, "x-tenant": "acme"}
            )
            expected = {"number": 3, "tea": 2, "who": "acme", "page": 7, "more": True}
            assert answer.json() == expected and answer.headers["x-seen"] == "/orders/3"
            assert is_replay(answer) is (number == 1)


async def test_a_body_may_be_called_request(valkey: Server) -> None:
    """Only a Request is a request; what else is called that is the endpoint's own."""
    app = FastAPI()

    @app.post("/orders")
    @replaying
    async def order(request: Order) -> int:
        return request.tea

    @app.post("/both")
    @replaying
    def both(request: Order, http: Request) -> str:
        return f"{request.tea} {http.method}"

    async with visiting(valkey, app) as client:
        for path, expected in (("/orders", 5), ("/both", "5 POST")):
            for number in range(2):
                answer = await client.post(path, json={"tea": 5}, headers=KEYED)
                assert answer.json() == expected and is_replay(answer) is (number == 1)


async def test_annotations_for_type_checkers_only(valkey: Server) -> None:
    """A name that exists only for type checkers does not keep the request from being found."""
    app = FastAPI()

    @app.post("/orders", response_model=None)
    @replaying
    async def order(request: Request) -> Mystery:
        return JSONResponse({"path": request.url.path})

    async with visiting(valkey, app) as client:
        for number in range(2):
            answer = await client.post("/orders", headers=KEYED)
            assert answer.json() == {"path": "/orders"} and is_replay(answer) is (number == 1)


def test_a_generator_is_refused_when_it_is_decorated() -> None:
    """UsageError: its answer would begin before it is claimed."""
    with pytest.raises(UsageError, match="StreamingResponse"):

        @replaying
        async def stream() -> AsyncIterator[str]:
            yield ""


# ---- what comes before the endpoint


async def test_nobody_is_replayed_who_is_not_let_in(valkey: Server) -> None:
    """Dependencies come first: the same request is refused once its owner is locked out."""
    app = FastAPI()
    welcome = [True]

    def login() -> None:
        if not welcome[0]:
            raise HTTPException(401, "no longer")

    @app.post("/orders", dependencies=[Depends(login)])
    @replaying
    async def order() -> str:
        return "a secret"

    async with visiting(valkey, app) as client:
        assert (await client.post("/orders", headers=KEYED)).status_code == 200
        welcome[0] = False
        refused = await client.post("/orders", headers=KEYED)
        assert refused.status_code == 401 and "secret" not in refused.text
        assert (await client.post("/orders")).status_code == 401, "not even what the key must be"
        welcome[0] = True
        assert is_replay(await client.post("/orders", headers=KEYED))


async def test_a_failed_login_leaves_nothing_behind(valkey: Server) -> None:
    """Neither in a dependency nor in the endpoint: after it, the request is done."""
    app = FastAPI()
    logged_in = [False]

    @app.post("/orders")
    @replaying
    async def order() -> str:
        if not logged_in[0]:
            raise HTTPException(401)
        return "done"

    async with visiting(valkey, app) as client:
        assert (await client.post("/orders", headers=KEYED)).status_code == 401
        logged_in[0] = True
        assert (await client.post("/orders", headers=KEYED)).json() == "done"


async def test_what_is_not_valid_is_not_claimed(valkey: Server) -> None:
    """422 as ever, nothing stored; the same key serves for the one that is right."""
    app = FastAPI()

    @app.post("/orders")
    @replaying
    async def order(order: Order) -> int:
        return order.tea

    async with visiting(valkey, app) as client:
        for wrong in ({}, {"tea": "many"}):
            refused = await client.post("/orders", json=wrong, headers=KEYED)
            assert refused.status_code == 422 and valkey.keys() == []
        assert (await client.post("/orders", content=b"{", headers=KEYED)).status_code == 422
        assert (await client.post("/orders", json={"tea": 1}, headers=KEYED)).json() == 1
        mismatch = await client.post("/orders", json={"tea": 2}, headers=KEYED)
        assert is_problem(mismatch.json(), mismatch.headers, 422)


async def test_dependencies_with_an_end(valkey: Server) -> None:
    """They are begun and ended for replays and refusals, too, and see what the endpoint raises."""
    app = FastAPI()
    seen: list[str] = []

    async def session() -> AsyncIterator[str]:
        seen.append("begun")
        try:
            yield "a session"
        except LookupError:
            seen.append("rolled back")
            raise
        else:
            seen.append("ended")

    @app.post("/orders")
    @replaying
    async def order(order: Order, found: str = Depends(session)) -> str:
        if not order.tea:
            raise LookupError("of the endpoint")
        return found

    async with visiting(valkey, app) as client:
        for _ in range(2):
            answer = await client.post("/orders", json={"tea": 1}, headers=KEYED)
            assert answer.json() == "a session"
        assert (await client.post("/orders", json={"tea": 2}, headers=KEYED)).status_code == 422
        assert seen == ["begun", "ended"] * 3
        with pytest.raises(LookupError):
            await client.post("/orders", json={"tea": 0}, headers={"idempotency-key": "k-2"})
        assert seen[-1] == "rolled back" and len(valkey.keys()) == 1


async def test_dependencies_can_be_overridden(valkey: Server) -> None:
    """As tests do it."""
    app = FastAPI()

    def real() -> str:
        raise AssertionError("overridden")

    @app.post("/orders")
    @replaying
    def order(who: str = Depends(real)) -> str:
        return who

    app.dependency_overrides[real] = lambda: "somebody"
    async with visiting(valkey, app) as client:
        assert (await client.post("/orders", headers=KEYED)).json() == "somebody"


# ---- what comes after the endpoint


async def test_a_replay_is_what_the_client_got(valkey: Server) -> None:
    """Filtered by the response model, with the status and headers that were set on the way."""
    app = FastAPI()

    @app.post("/tills", response_model=Receipt)
    @replaying
    async def till(response: Response) -> Till:
        response.status_code = 202
        response.headers["x-till"] = "7"
        response.set_cookie("session", "of one person")
        return Till(number=7, secret="of the house")

    async with visiting(valkey, app) as client:
        first = await client.post("/tills", headers=KEYED)
        client.cookies.clear()
        again = await client.post("/tills", headers=KEYED)
        assert first.json() == again.json() == {"number": 7}
        assert first.status_code == again.status_code == 202
        assert "set-cookie" in first.headers and "set-cookie" not in again.headers
        assert again.headers["x-till"] == "7" and is_replay(again)
    stored = str([valkey.client().get(key) for key in valkey.keys()])
    assert "of the house" not in stored and "of one person" not in stored


async def test_errors_are_answers_in_fastapi(valkey: Server) -> None:
    """An HTTPException or what a handler makes of another one: kept below 500, else done again."""

    class OutOfStock(Exception): ...

    app = FastAPI()
    runs: list[str] = []

    @app.exception_handler(OutOfStock)
    async def sold_out(request: Request, error: OutOfStock) -> JSONResponse:
        return JSONResponse({"detail": "sold out"}, 409)

    @app.post("/{how}")
    @replaying
    async def failing(how: str) -> None:
        runs.append(how)
        if how == "handled":
            raise OutOfStock
        raise HTTPException(int(how), headers={"x-why": "because"})

    async with visiting(valkey, app) as client:
        for how, status, times in (
            ("handled", 409, 1), ("404", 404, 1), ("403", 403, 2), ("503", 503, 2),
        ):  # fmt: skip
            first = await client.post(f"/{how}", headers=KEYED)
            again = await client.post(f"/{how}", headers=KEYED)
            assert first.status_code == again.status_code == status
            assert first.json() == again.json() and runs.count(how) == times
            assert is_replay(again) is (times == 1)
            assert first.headers.get("x-why") == again.headers.get("x-why")


async def test_an_answer_that_does_not_fit_its_model_is_an_error(valkey: Server) -> None:
    """It is raised as ever, and frees the key."""
    app = FastAPI()
    outcomes: list[Any] = [{"wrong": 1}, {"number": 1}]

    @app.post("/orders", response_model=Receipt)
    @replaying
    async def order() -> Any:
        return outcomes.pop(0)

    async with visiting(valkey, app) as client:
        with pytest.raises(Exception, match="validation error"):
            await client.post("/orders", headers=KEYED)
        assert (await client.post("/orders", headers=KEYED)).json() == {"number": 1}


async def test_background_tasks_run_outside_the_claim_in_fastapi(valkey: Server) -> None:
    """While they last a retry is replayed; they run once."""
    app = FastAPI()
    gate, mails = asyncio.Event(), [0]

    async def mail() -> None:
        mails[0] += 1
        await gate.wait()

    @app.post("/orders")
    @replaying
    async def order(later: BackgroundTasks) -> str:
        later.add_task(mail)
        return "ordered"

    async with visiting(valkey, app) as client:
        first = asyncio.create_task(client.post("/orders", headers=KEYED))
        while not mails[0]:
            await asyncio.sleep(0.01)
        assert is_replay(await client.post("/orders", headers=KEYED))
        gate.set()
        assert (await first).json() == "ordered" and mails == [1]


async def test_streams_and_files_in_fastapi(valkey: Server, tmp_path: Path) -> None:
    """Short ones are replayed; long ones pass, and are not done again."""
    file = tmp_path / "receipt.txt"
    file.write_bytes(b"a receipt")
    app = FastAPI()
    runs: list[str] = []

    @app.post("/{how}")
    @replaying
    def answer(how: str) -> Any:
        runs.append(how)
        if how == "file":
            return FileResponse(file)
        size = 10 if how == "short" else 300_000
        return StreamingResponse(iter([b"x" * size, b"y" * size]))

    async with visiting(valkey, app) as client:
        for how, length, is_kept in (
            ("short", 20, True), ("file", 9, True), ("long", 600_000, False)
        ):  # fmt: skip
            first = await client.post(f"/{how}", headers=KEYED)
            again = await client.post(f"/{how}", headers=KEYED)
            assert len(first.content) == length and runs.count(how) == 1
            assert is_replay(again) is is_kept
            assert again.status_code == (200 if is_kept else 409)


# ---- forms


async def test_a_form_with_a_file_in_fastapi(valkey: Server) -> None:
    """The file reaches the endpoint; its fields count, and so does the file."""
    app = FastAPI()
    runs: list[tuple[str, bytes]] = []

    @app.post("/pictures")
    @once(window=60, after="hold")
    async def picture(title: Annotated[str, Form()], file: Annotated[UploadFile, File()]) -> None:
        runs.append((title, await file.read()))

    async with visiting(valkey, app) as client:
        sent = [("cat", b"0"), ("cat", b"0"), ("dog", b"0"), ("cat", b"1")]
        for title, content in sent:
            files = {"file": ("a.png", content)}
            await client.post("/pictures", data={"title": title}, files=files)
        assert runs == sent[1:]


async def test_a_form_that_fastapi_has_read_counts(valkey: Server) -> None:
    """FastAPI has read it before the guard comes; it counts all the same."""
    app = FastAPI()

    @app.post("/orders")
    @once(window=60, after="hold")
    def order(tea: Annotated[int, Form()], to: Annotated[list[str], Form()]) -> str:
        return f"{tea} {to}"

    async with visiting(valkey, app) as client:
        first = await client.post("/orders", data={"tea": 1, "to": ["a", "b"]})
        assert first.json() == "1 ['a', 'b']"
        assert (await client.post("/orders", data={"to": ["a", "b"], "tea": 1})).status_code == 429
        assert (await client.post("/orders", data={"tea": 1, "to": ["b", "a"]})).status_code == 200


async def test_the_raw_body_can_still_be_read(valkey: Server) -> None:
    """As those do who check a signature over it."""
    app = FastAPI()

    @app.post("/hooks")
    @once(window=60)
    async def hook(request: Request) -> str:
        return (await request.body()).decode()

    async with visiting(valkey, app) as client:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        answer = await client.post("/hooks", content=b"a=1&b=%20", headers=kind)
        assert answer.json() == "a=1&b=%20"


# ---- routers


def shop() -> FastAPI:
    """Two routers with the same paths inside, one in another; a mounted application."""
    by_cart = once(window=60, after="hold", by=["body.cart"])

    def router() -> APIRouter:
        router = APIRouter()

        @router.post("/{number}")
        @by_cart
        async def place(number: int, cart: Annotated[int, Body(embed=True)]) -> int:
            return cart

        return router

    app, api, inner = FastAPI(), APIRouter(), FastAPI()
    api.include_router(router(), prefix="/orders")
    app.include_router(api, prefix="/api/{tenant}")
    app.include_router(router(), prefix="/refunds")
    inner.include_router(router(), prefix="/orders")
    app.mount("/inner", inner)
    return app


async def test_two_routers_with_the_same_paths_are_two_places(valkey: Server) -> None:
    """By a field of the body: a refund is no duplicate of an order; names are whole templates."""
    events: list[Event] = []
    async with visiting(valkey, shop(), listeners=[events.append]) as client:
        for path in ("/api/acme/orders/1", "/refunds/1", "/inner/orders/1"):
            assert (await client.post(path, json={"cart": 1})).status_code == 200, path
            assert (await client.post(path, json={"cart": 1})).status_code == 429, path
    assert {event.name for event in events} == {
        "POST /api/{tenant}/orders/{number}", "POST /refunds/{number}", "POST /orders/{number}",
    }  # fmt: skip


async def test_an_application_mounted_in_a_router(valkey: Server) -> None:
    """Each of its endpoints is a separate route."""
    by_cart = once(window=60, after="hold", by=["body.cart"])
    app, api, inner = FastAPI(), APIRouter(), FastAPI()
    for path in ("/orders", "/refunds"):

        @inner.post(path)
        @by_cart
        async def place(cart: Annotated[int, Body(embed=True)]) -> int:
            return cart

    api.mount("/inner", inner)
    app.include_router(api, prefix="/api")
    if not hasattr(routing, "iter_route_contexts"):  # earlier versions leave mounts out
        app.mount("/api/inner", inner)
    async with visiting(valkey, app) as client:
        for path in ("/api/inner/orders", "/api/inner/refunds"):
            assert (await client.post(path, json={"cart": 1})).status_code == 200, path
            assert (await client.post(path, json={"cart": 1})).status_code == 429, path


# ---- install


async def test_without_install_the_sentence_says_so_in_fastapi() -> None:
    """UsageError: what to call, and where."""
    app = FastAPI()

    @app.post("/orders")
    @replaying
    async def order() -> None: ...

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        with pytest.raises(UsageError, match=r"call install\(app, dibs\)"):
            await client.post("/orders", headers=KEYED)


async def test_who_it_is_may_be_told_by_the_request_in_fastapi(valkey: Server) -> None:
    """The same key of another user is another submission."""
    app = FastAPI()

    @app.post("/orders")
    @replaying
    async def order() -> None: ...

    def user(request: Request) -> str | None:
        return request.headers.get("x-user")

    async with visiting(valkey, app, user=user) as client:
        for name in ("a", "b"):
            headers = {**KEYED, "x-user": name}
            assert not is_replay(await client.post("/orders", headers=headers))
            assert is_replay(await client.post("/orders", headers=headers))


# ---- outages


async def test_in_an_outage_the_policy_decides_in_fastapi(own_server: Server) -> None:
    """Open: it runs, unguarded. Closed: 503, and nothing is done."""
    app = FastAPI()
    runs: list[str] = []

    def ordering(how: str) -> Callable[[], None]:
        return lambda: runs.append(how)

    app.post("/open")(once(window=60, after="replay", on_outage="open")(ordering("open")))
    app.post("/closed")(once(window=60, after="replay", on_outage="closed")(ordering("closed")))
    async with visiting(own_server, app, budget=0.3) as client:
        await client.post("/open", json={"warm": "up"})
        own_server.freeze()
        async with asyncio.timeout(10):
            assert (await client.post("/open")).status_code == 200
            refused = await client.post("/closed")
        assert is_problem(refused.json(), refused.headers, 503)
        assert refused.headers["retry-after"] == "1" and runs == ["open", "open"]
        own_server.thaw()


# ---- OpenAPI


def documented_shop() -> FastAPI:
    app = shop()

    @app.post("/keyed", responses={409: {"description": "ours"}})
    @once(window=60, after="replay", key="required")
    async def keyed(order: Order) -> Receipt: ...

    @app.put("/polite")
    @prevent_duplicate_submit(interval=10, message="One moment, please.")
    def polite() -> Receipt: ...

    @app.get("/hidden", include_in_schema=False)
    @once(window=1)
    def hidden() -> None: ...

    @app.get("/free")
    def free() -> None: ...

    return app


async def test_the_document_tells_what_a_guard_may_answer(valkey: Server) -> None:
    """Of every guarded operation, also in routers; the others, and what was written, stay."""
    app = documented_shop()
    async with visiting(valkey, app) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert (await client.get("/openapi.json")).json()["paths"] == paths
    keyed = paths["/keyed"]["post"]
    assert set(keyed["responses"]) == {"200", "400", "409", "422", "503"}
    assert keyed["responses"]["409"]["description"] == "ours"
    [header] = [each for each in keyed["parameters"] if each["in"] == "header"]
    assert header["name"] == "Idempotency-Key" and header["required"] is True
    polite = paths["/polite"]["put"]
    assert set(polite["responses"]) == {"200", "429", "503"} and "parameters" not in polite
    assert polite["responses"]["429"]["description"] == "One moment, please."
    for path in ("/api/{tenant}/orders/{number}", "/refunds/{number}"):
        assert "429" in paths[path]["post"]["responses"]
    assert set(paths["/free"]["get"]["responses"]) == {"200"} and "/hidden" not in paths


async def test_the_document_is_valid(valkey: Server) -> None:
    """Every operation, answer, parameter and reference has what OpenAPI 3.1 demands of it."""
    app = documented_shop()
    async with visiting(valkey, app):
        document = json.loads(json.dumps(app.openapi()))
    assert document["openapi"].startswith("3.1") and document["info"]["title"]
    operations = [
        (path, operation) for path, item in document["paths"].items() for operation in item.values()
    ]
    assert len(operations) == 5
    for path, operation in operations:
        _check_parameters(path, operation.get("parameters", []))
        for status, answer in operation["responses"].items():
            assert status == "default" or 100 <= int(status) <= 599
            assert isinstance(answer["description"], str)
            _check_contents(answer.get("content", {}))
            for name, header in answer.get("headers", {}).items():
                assert name and header["schema"]["type"] == "integer"
    for reference in _references(document):
        place: Any = document
        for word in reference.removeprefix("#/").split("/"):
            place = place[word]


def _check_parameters(path: str, parameters: list[Any]) -> None:
    names = [(each["name"], each["in"]) for each in parameters]
    assert len(names) == len(set(names)), "each once"
    for each in parameters:
        assert each["in"] in ("path", "query", "header", "cookie") and "schema" in each
        assert each["in"] != "path" or (each["required"] and f"{{{each['name']}}}" in path)


def _check_contents(content: dict[str, Any]) -> None:
    for kind, media in content.items():
        assert "/" in kind and isinstance(media["schema"], dict)
        if kind == "application/problem+json":
            assert set(media["schema"]["required"]) <= set(media["schema"]["properties"])


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for each in node.values():
            yield from _references(each)
    elif isinstance(node, list):
        for each in node:
            yield from _references(each)


async def test_a_plain_function_around_an_async_endpoint_is_guarded(valkey: Server) -> None:
    """FastAPI awaits what such a function returns, and so does the guard."""
    app, runs = FastAPI(), list[int]()

    def timed(endpoint: Any) -> Any:
        @functools.wraps(endpoint)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return endpoint(*args, **kwargs)

        return inner

    @app.post("/orders")
    @once(window=60, after="hold")
    @timed
    async def order() -> int:
        runs.append(1)
        return len(runs)

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        install(app, dibs)
        calls = [await Call(app).run() for _ in range(2)]
    assert [call.status for call in calls] == [200, 429] and runs == [1]
