"""The decorator for Starlette: endpoints of every shape, and what else is in the application."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest
from dibs_torture.cancellation import Cancellation
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from dibs import AsyncDibs, Event, UsageError
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.integrations.starlette import install, once, prevent_duplicate_submit
from dibs.testing import Server

from . import Call, is_problem, lifespan

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

KEYED = {"idempotency-key": "k-1"}
replaying = once(window=60, after="replay", key="required")


@asynccontextmanager
async def visiting(
    server: Server, *routes: BaseRoute, user: Any = None, listeners: Any = (), **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser in front of an application with these routes."""
    app = Starlette(routes=list(routes), **options)
    async with AsyncDibs(server.url, budget=5, listeners=listeners) as dibs:
        install(app, dibs, user=user, secret="of the tests")
        async with browser(app) as client:
            yield client


def browser(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=20)


def post(endpoint: Any, path: str = "/orders") -> Route:
    return Route(path, endpoint, methods=["POST"])


def is_replay(response: httpx.Response) -> bool:
    return response.headers.get("idempotent-replayed") == "true"


class Till:
    """Endpoints that count, and wait to be released."""

    def __init__(self) -> None:
        self.runs = 0
        self.gate = asyncio.Event()
        self._lock = threading.Lock()
        self.threads_gate = threading.Event()

    def count(self) -> JSONResponse:
        with self._lock:
            self.runs += 1
        return JSONResponse({"order": self.runs}, 201)

    async def asynchronous(self, request: Request) -> Response:
        answer = self.count()
        await self.gate.wait()
        return answer

    def synchronous(self, request: Request) -> Response:
        answer = self.count()
        assert self.threads_gate.wait(20)
        return answer

    def open(self) -> None:
        self.gate.set()
        self.threads_gate.set()


# ---- a double click


@pytest.mark.parametrize("kind", ["asynchronous", "synchronous"])
async def test_of_many_at_once_one_runs_in_starlette(valkey: Server, kind: str) -> None:
    """The seed's own decorator: 429, its message, and Retry-After; afterwards it is free."""
    till = Till()
    guard = prevent_duplicate_submit(interval=10, message="請稍候…")
    async with visiting(valkey, post(guard(getattr(till, kind)))) as client:
        tasks = [asyncio.create_task(client.post("/orders", json={"tea": 1})) for _ in range(6)]
        while sum(task.done() for task in tasks) < 5:
            await asyncio.sleep(0.01)
        [key] = valkey.keys()
        left = valkey.client().pttl(key) / 1000
        till.open()
        answers = [await task for task in tasks]
        refused = [each for each in answers if each.status_code == 429]
        assert len(refused) == 5 and till.runs == 1
        for each in refused:
            assert is_problem(each.json(), each.headers, 429)
            assert each.json()["message"] == "請稍候…"
            assert left <= each.json()["retryAfter"] <= 10
        assert (await client.post("/orders", json={"tea": 1})).json() == {"order": 2}


async def test_retry_after_is_true_in_starlette(valkey: Server) -> None:
    """Who waits as long as told gets through."""
    till = Till()
    till.open()
    async with visiting(valkey, post(once(window=2, after="hold")(till.asynchronous))) as client:
        await client.post("/orders")
        refused = await client.post("/orders")
        assert refused.status_code == 429 and refused.headers["retry-after"] in ("1", "2")
        await asyncio.sleep(int(refused.headers["retry-after"]))
        assert (await client.post("/orders")).status_code == 201


# ---- endpoints of every shape


class Orders(HTTPEndpoint):
    @replaying
    async def post(self, request: Request) -> Response:
        return JSONResponse({"by": "a class"}, 201)

    @replaying
    def put(self, request: Request) -> Response:
        return JSONResponse({"by": "a plain method"}, 201)

    async def get(self, request: Request) -> Response:
        return JSONResponse({"by": "nobody"})


class Teller:
    async def __call__(self, request: Request) -> Response:
        return JSONResponse({"by": "an object"}, 201)


async def plain(request: Request, by: str = "a function") -> Response:
    return JSONResponse({"by": by}, 201)


async def unannotated(request):  # type: ignore[no-untyped-def]
    return JSONResponse({"by": "no annotation"}, 201)


@pytest.mark.parametrize(
    ("endpoint", "by"),
    [
        (Orders, "a class"),
        (replaying(plain), "a function"),
        (replaying(functools.partial(plain, by="a partial")), "a partial"),
        (functools.partial(replaying(plain), by="a partial around"), "a partial around"),
        (replaying(Teller()), "an object"),
        (replaying(unannotated), "no annotation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_endpoints_of_every_shape(valkey: Server, endpoint: Any, by: str) -> None:
    """What Starlette takes for an endpoint can be guarded."""
    route = Route("/orders", endpoint) if endpoint is Orders else post(endpoint)
    async with visiting(valkey, route) as client:
        first = await client.post("/orders", headers=KEYED)
        again = await client.post("/orders", headers=KEYED)
        assert first.json() == again.json() == {"by": by}
        assert not is_replay(first) and is_replay(again)


async def test_each_method_of_a_class_is_guarded_by_itself(valkey: Server) -> None:
    """Those that are decorated; a key is of one method."""
    async with visiting(valkey, Route("/orders", Orders)) as client:
        for number in range(2):
            post_, put = [
                await client.request(method, "/orders", headers=KEYED) for method in ("POST", "PUT")
            ]
            assert is_replay(post_) is is_replay(put) is (number == 1)
            assert post_.json() != put.json()
            assert not is_replay(await client.get("/orders", headers=KEYED))


async def _generating() -> AsyncIterator[bytes]:
    yield b""


@pytest.mark.parametrize(
    "wrong", [Orders, _generating, lambda: (yield)], ids=["class", "async", ""]
)
def test_what_cannot_be_guarded_is_refused_when_it_is_decorated(wrong: Any) -> None:
    """UsageError, in words: a class, a generator."""
    with pytest.raises(UsageError):
        replaying(wrong)


async def test_two_guards_on_one_endpoint_are_one_too_many(valkey: Server) -> None:
    """UsageError when the second is applied; where it cannot be seen, at the first request, and the
    first claim is not left behind.
    """
    guarded = once(window=60, by=["path"])(plain)
    with pytest.raises(UsageError, match="guarded already"):
        once(window=60)(guarded)

    async def hiding(request: Request) -> Any:
        return await guarded(request)

    async with visiting(valkey, post(once(window=60)(hiding))) as client:
        with pytest.raises(UsageError, match="guarded already"):
            await client.post("/orders")
        assert valkey.keys() == []


# ---- install


async def test_without_install_the_sentence_says_so_in_starlette() -> None:
    """UsageError: what to call, and where."""
    async with browser(Starlette(routes=[post(replaying(plain))])) as client:
        with pytest.raises(UsageError, match=r"call install\(app, dibs\)"):
            await client.post("/orders", headers=KEYED)


async def test_install_comes_before_the_first_request(valkey: Server) -> None:
    """UsageError afterwards: it would have no effect."""
    app = Starlette()
    async with browser(app) as client:
        await client.get("/")
    with pytest.raises(UsageError, match="before"):
        install(app, valkey.url)


def test_a_url_lives_as_long_as_the_application_and_again(valkey: Server) -> None:
    """Closed at its end; a second life in another event loop, as tests have it, is guarded too."""
    app = Starlette(routes=[post(replaying(plain))])
    install(app, valkey.url)

    async def live() -> None:
        tell = lifespan(app)
        assert await tell("lifespan.startup") == "lifespan.startup.complete"
        async with browser(app) as client:
            # Within a while: the budget of a URL is short, and the machine may be busy.
            async with asyncio.timeout(20):
                while not is_replay(await client.post("/orders", headers=KEYED)):
                    pass
        assert await tell("lifespan.shutdown") == "lifespan.shutdown.complete"

    for _ in range(2):
        asyncio.run(live())


# ---- the body stays readable


async def test_the_endpoint_reads_what_was_sent(valkey: Server) -> None:
    """As bytes, as a stream, as JSON or as a form: the guard has taken nothing away."""

    async def reading(request: Request) -> Response:
        how = request.path_params["how"]
        if how == "stream":
            return Response(b"".join([piece async for piece in request.stream()]))
        if how == "form":
            async with request.form() as form:
                return JSONResponse(sorted(form.multi_items()))
        return Response(await request.body())

    async with visiting(valkey, post(once(window=60)(reading), "/{how}")) as client:
        for how in ("body", "stream", "form"):
            sent = b"token=a%20b&token=c&text=%E7%8E%8B"
            kind = {"content-type": "application/x-www-form-urlencoded"}
            found = await client.post(f"/{how}", content=sent, headers=kind)
            if how == "form":
                assert found.json() == [["text", "王"], ["token", "a b"], ["token", "c"]]
            else:
                assert found.content == sent
        assert (await client.post("/stream", json={"a": 1})).json() == {"a": 1}


async def test_a_form_with_a_file_in_starlette(valkey: Server) -> None:
    """The file reaches the endpoint; its fields count, and so does the file."""
    runs: list[bytes] = []

    async def upload(request: Request) -> Response:
        async with request.form() as form:
            file: Any = form["file"]
            runs.append(await file.read())
        return Response(status_code=201)

    async with visiting(valkey, post(once(window=60, after="hold")(upload))) as client:
        for title, content in (("cat", b"0"), ("cat", b"0"), ("dog", b"0"), ("cat", b"1")):
            files = {"file": ("a.png", content)}
            await client.post("/orders", data={"title": title}, files=files)
        assert runs == [b"0", b"0", b"1"]


# ---- names, mounts and values


# Old versions of Starlette leave the file of a form open whose end is missing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_form_of_unknown_length_is_limited_as_well(valkey: Server) -> None:
    """Sent in chunks, it says nothing about its length."""
    runs: list[int] = []

    @once(window=60, after="replay", key="required", body_limit=1000)
    async def upload(request: Request) -> Response:
        runs.append(1)
        return Response()

    head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n'
    kind = {**KEYED, "content-type": "multipart/form-data; boundary=b"}
    app = Starlette(routes=[post(upload)])
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        install(app, dibs, secret="of the tests")
        call = await Call(app, headers=kind, body=[head, b"0" * 5000, b"\r\n--b--\r\n"]).run()
    assert is_problem(call.json, call.headers, 413) and not runs and valkey.keys() == []


async def test_names_hold_no_value_of_the_request_in_starlette(valkey: Server) -> None:
    """Events name the template of the route; where it hangs may hold a value."""
    events: list[Event] = []
    inner = Starlette(routes=[post(replaying(plain), "/orders/{id}")])
    mounted = Mount("/tenants/{tenant}", inner)
    async with visiting(valkey, mounted, listeners=[events.append]) as client:
        for tenant in ("acme", "umbrella"):
            path = f"/tenants/{tenant}/orders/9001"
            first = await client.post(path, headers=KEYED)
            assert first.status_code == 201 and not is_replay(first)
            assert is_replay(await client.post(path, headers=KEYED))
    # Before 1.0 Starlette tells which endpoint it is, and not which route.
    assert {event.name for event in events} <= {"POST /orders/{id}", "POST plain"}


async def test_two_mounts_of_one_application_are_two_places(valkey: Server) -> None:
    """Also by a field of the body alone: an order here is none there."""
    by_cart = once(window=60, after="hold", by=["body.cart"])
    inner = Starlette(routes=[post(by_cart(plain))])
    async with visiting(valkey, Mount("/v1", inner), Mount("/v2", inner)) as client:
        for path in ("/v1/orders", "/v2/orders"):
            assert (await client.post(path, json={"cart": 1})).status_code == 201
            assert (await client.post(path, json={"cart": 1})).status_code == 429


async def test_who_it_is_may_be_told_by_the_request_in_starlette(valkey: Server) -> None:
    """Plain or async; the same key of another user is another submission."""

    async def user(request: Request) -> str | None:
        return request.headers.get("x-user")

    async with visiting(valkey, post(replaying(plain)), user=user) as client:
        for name in ("a", "b"):
            headers = {**KEYED, "x-user": name}
            assert not is_replay(await client.post("/orders", headers=headers))
            assert is_replay(await client.post("/orders", headers=headers))


# ---- answers


async def test_errors_are_answers_in_starlette(valkey: Server) -> None:
    """What a handler makes of an exception counts as what it is: 4xx is kept, 5xx is not."""

    class OutOfStock(Exception): ...

    async def sold_out(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "sold out"}, 409)

    runs: list[str] = []

    async def failing(request: Request) -> Response:
        how = request.path_params["how"]
        runs.append(how)
        if how == "handled":
            raise OutOfStock
        if how == "http":
            raise HTTPException(404, "no such cart")
        if how == "login":
            raise HTTPException(401)
        raise HTTPException(502)

    handlers: Any = {OutOfStock: sold_out}
    route = post(replaying(failing), "/{how}")
    async with visiting(valkey, route, exception_handlers=handlers) as client:
        for how, status, times in (
            ("handled", 409, 1), ("http", 404, 1), ("login", 401, 2), ("broken", 502, 2),
        ):  # fmt: skip
            for number in range(2):
                answer = await client.post(f"/{how}", headers=KEYED)
                assert answer.status_code == status
                assert is_replay(answer) is (number == 1 and times == 1)
            assert runs.count(how) == times


async def test_an_exception_nobody_handles_is_raised_and_frees_the_key(valkey: Server) -> None:
    """The very same one; the next request runs."""
    error = LookupError("of the endpoint")
    outcomes: list[Any] = [error, JSONResponse({}, 201)]

    async def failing(request: Request) -> Response:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with visiting(valkey, post(replaying(failing))) as client:
        with pytest.raises(LookupError) as caught:
            await client.post("/orders", headers=KEYED)
        assert caught.value is error
        assert (await client.post("/orders", headers=KEYED)).status_code == 201


async def test_background_tasks_run_outside_the_claim_in_starlette(valkey: Server) -> None:
    """While one lasts a retry is replayed; that it fails changes nothing."""
    gate, begun = asyncio.Event(), asyncio.Event()

    async def later() -> None:
        begun.set()
        await gate.wait()
        raise LookupError("in the background")

    async def order(request: Request) -> Response:
        return JSONResponse({}, 201, background=BackgroundTask(later))

    async with visiting(valkey, post(replaying(order))) as client:
        first = asyncio.create_task(client.post("/orders", headers=KEYED))
        await begun.wait()
        assert is_replay(await client.post("/orders", headers=KEYED))
        gate.set()
        with pytest.raises(LookupError):
            await first
        assert is_replay(await client.post("/orders", headers=KEYED))


async def test_streams_and_files_in_starlette(valkey: Server, tmp_path: Path) -> None:
    """Short ones are replayed; long ones pass, and are not done again."""
    file = tmp_path / "receipt.txt"
    file.write_bytes(b"a receipt")
    runs: list[str] = []

    async def answer(request: Request) -> Response:
        how = request.path_params["how"]
        runs.append(how)
        if how == "file":
            return FileResponse(file)
        size = 10 if how == "short" else 300_000
        return StreamingResponse(iter([b"x" * size, b"y" * size]))

    async with visiting(valkey, post(replaying(answer), "/{how}")) as client:
        for how, length, is_kept in (
            ("short", 20, True), ("file", 9, True), ("long", 600_000, False)
        ):  # fmt: skip
            first = await client.post(f"/{how}", headers=KEYED)
            again = await client.post(f"/{how}", headers=KEYED)
            assert len(first.content) == length and runs.count(how) == 1
            if is_kept:
                assert is_replay(again) and again.content == first.content
            else:
                assert again.status_code == 409 and is_problem(again.json(), again.headers, 409)


# ---- beside other middlewares


class Envelope(BaseHTTPMiddleware):
    """Changes every answer, once."""

    async def dispatch(self, request: Request, call_next: Any) -> Response:
        inner = await call_next(request)
        body = b"".join([piece async for piece in inner.body_iterator])
        headers = [(n, v) for n, v in inner.headers.items() if n != "content-length"]
        return Response(b"<" + body + b">", inner.status_code, dict(headers))


@pytest.mark.parametrize("when", ["with the app", "before", "after"])
async def test_other_middlewares_see_a_replay_like_any_answer(valkey: Server, when: str) -> None:
    """Compression, CORS and what changes answers are outside, in any order of addition."""

    async def order(request: Request) -> Response:
        return Response(b"o" * 2000, 201)

    others: list[Middleware] = [
        Middleware(GZipMiddleware, minimum_size=100),
        Middleware(CORSMiddleware, allow_origins=["https://shop"]),
        Middleware(Envelope),
    ]
    app = Starlette(routes=[post(replaying(order))], middleware=others * (when == "with the app"))

    def add_others() -> None:
        for each in reversed(others):
            app.add_middleware(each.cls, *each.args, **each.kwargs)

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        if when == "before":
            add_others()
        install(app, dibs)
        if when == "after":
            add_others()
        async with browser(app) as client:
            for number, encoding in enumerate(("gzip", "gzip", "identity")):
                headers = {**KEYED, "origin": "https://shop", "accept-encoding": encoding}
                answer = await client.post("/orders", headers=headers)
                assert answer.content == b"<" + b"o" * 2000 + b">"
                assert answer.headers.get("content-encoding", "identity") == encoding
                assert answer.headers.get_list("access-control-allow-origin") == ["https://shop"]
                assert is_replay(answer) is (number > 0)


async def test_the_middleware_between_others(valkey: Server) -> None:
    """What is inside of it has made the answer; what is outside sees a replay like any other."""
    policies = [Policy("POST /orders", window=60, after="replay", key="required")]
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app = Starlette(routes=[post(plain)])
        app.add_middleware(Envelope)
        app.add_middleware(DibsMiddleware, dibs=dibs, policies=policies)
        app.add_middleware(Envelope)
        async with browser(app) as client:
            for number in range(2):
                answer = await client.post("/orders", headers=KEYED)
                assert answer.content == b'<<{"by":"a function"}>>'
                assert is_replay(answer) is (number == 1)


async def test_cancelled_by_a_scope_it_leaves_nothing_behind(valkey: Server) -> None:
    """Where every await is cancelled again, as in a task group: the next one runs at once."""
    begun, runs = anyio.Event(), 0

    async def order(request: Request) -> Response:
        nonlocal runs
        runs += 1
        if runs == 1:
            begun.set()
            await anyio.sleep_forever()
        return JSONResponse({}, 201)

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app = Starlette(routes=[post(replaying(order))])
        install(app, dibs)
        async with anyio.create_task_group() as group:
            group.start_soon(Call(app, headers=KEYED).run)
            await begun.wait()
            group.cancel_scope.cancel()
        assert (await Call(app, headers=KEYED).run()).status == 201 and runs == 2


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
async def test_cancelled_at_any_moment_it_leaves_no_claim(valkey: Server, late: bool) -> None:
    """At each of its pauses: a retry is answered at once; what was answered is not done again."""
    runs: list[str] = []

    async def order(request: Request) -> Response:
        runs.append(request.headers["idempotency-key"])
        await asyncio.sleep(0)
        return JSONResponse({}, 201)

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        app = Starlette(routes=[post(replaying(order))])
        install(app, dibs)
        await Call(app, headers={"idempotency-key": "connected"}).run()
        for pause in range(1, 100):
            key = {"idempotency-key": f"k-{pause}"}
            cancellation = Cancellation(pause, late=late)
            call = Call(cancellation(app), headers=key)
            await asyncio.wait([call.start()])
            retry = await Call(app, headers=key).run()
            assert retry.status == 201, f"{cancellation}: {retry.body!r}"
            assert len(call.sent) < 2 or retry.is_replay, f"{cancellation}: done twice"
            if not cancellation.done:
                break
        assert pause > 2, "it had some pauses"


# ---- outages


async def test_in_an_outage_the_policy_decides_in_starlette(own_server: Server) -> None:
    """Open: it runs, unguarded. Closed: 503, and nothing is done."""
    till = Till()
    till.open()
    routes = [
        post(once(window=60, after="replay", on_outage="open")(till.asynchronous), "/open"),
        post(once(window=60, after="replay", on_outage="closed")(till.asynchronous), "/closed"),
    ]
    app = Starlette(routes=routes)
    async with AsyncDibs(own_server.url, budget=0.3) as dibs:
        install(app, dibs)
        async with browser(app) as client:
            await client.post("/open", json={"warm": "up"})
            own_server.freeze()
            async with asyncio.timeout(10):
                assert (await client.post("/open")).status_code == 201
                refused = await client.post("/closed")
            assert is_problem(refused.json(), refused.headers, 503)
            assert refused.headers["retry-after"] == "1" and till.runs == 2
            own_server.thaw()
