"""Requests whose ends meet: frameworks, guards, responses, transactions, and how it all ends.

    python -m tests.integrations.end_matrix           every cell, a line each; those that fail last

A cell is a request and two retries with its key. Whatever happened to the first one: its work
counts once, a client that had a whole success gets that again, and no retry is told that it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import event

from dibs import AsyncDibs, Dibs
from dibs.testing import Server
from tests.databases.worlds import (
    AsyncSessionWorld,
    DjangoWorld,
    SessionWorld,
    World,
    sqlite_database,
)

from . import Call, edges_django

GUARDS: dict[str, tuple[str, ...]] = {
    "fastapi": ("decorator", "middleware", "middleware, http inside"),
    "starlette": ("decorator", "middleware", "middleware, http inside"),
    "flask": ("decorator", "middleware"),
    "django": ("decorator", "middleware"),
    "drf": ("decorator", "middleware"),
}
KINDS = ("json", "empty", "redirect", "sized stream", "stream", "file", "template")
TRANSACTIONS = ("none", "session", "within")
ENDS = ("returns", "raises", "commit fails", "replaced", "replaced by an error", "client leaves")
POLICY: dict[str, Any] = {"window": 60, "after": "replay", "key": "required", "lease": 10}
STREAMS = ("sized stream", "stream")
PIECES = (b"one ", b"two ", b"three")
SIZE = 65_536
"""Of the file: a whole number of the pieces in which Starlette sends it."""


class Cell(NamedTuple):
    framework: str
    guard: str
    kind: str
    transaction: str
    end: str

    def __str__(self) -> str:
        return " | ".join(self)

    @property
    def is_possible(self) -> bool:
        framework, guard, kind, transaction, end = self
        if transaction == "within" and (guard != "decorator" or kind in (*STREAMS, "file")):
            return False  # a UsageError
        if transaction == "session" and framework == "starlette":
            return False  # it has no dependencies
        if transaction == "session" and framework in ("django", "drf") and guard != "decorator":
            return False  # the transaction is the view's own
        if kind == "template" and framework != "django":
            return False
        if end == "commit fails" and transaction == "none":
            return False
        if end == "replaced by an error" and guard != "decorator":
            return False  # a 5xx releases the key
        return end != "client leaves" or kind in STREAMS


CELLS = [
    cell
    for framework, guards in GUARDS.items()
    for cell in itertools.starmap(
        Cell, itertools.product((framework,), guards, KINDS, TRANSACTIONS, ENDS)
    )
    if cell.is_possible
]


class Reply(NamedTuple):
    status: int
    is_whole: bool
    is_replay: bool
    body: bytes

    @property
    def is_success(self) -> bool:
        return self.is_whole and self.status < 400


class Shop:
    """What the endpoint does, in its transaction, and what becomes of it."""

    def __init__(self, cell: Cell, world: World) -> None:
        self.cell = cell
        self.world = world
        self.runs = 0
        self.requests = 0
        self.app: Any = None

    @property
    def is_first(self) -> bool:
        return self.requests == 1

    def begin(self) -> None:
        """The endpoint begins."""
        self.runs += 1
        if self.cell.end == "raises" and self.is_first:
            raise OSError("the endpoint fails")

    def work(self, session: Any) -> Any:
        """Add a row; to be awaited in the half for asyncio."""
        self.begin()
        if self.cell.transaction == "none":
            self.world.ask("INSERT INTO orders VALUES ('ann', 1)")
            return None
        return self.world.insert(session, "ann", 1)

    async def awork(self, session: Any) -> None:
        if (made := self.work(session)) is not None:
            await made

    @property
    def replacement(self) -> tuple[bytes, int] | None:
        """What a middleware answers in place of the first response; None: nothing else."""
        if not self.is_first or not self.cell.end.startswith("replaced"):
            return None
        return (b"other", 200) if self.cell.end == "replaced" else (b"failed", 500)

    @property
    def length(self) -> dict[str, str]:
        sized = self.cell.kind == "sized stream"
        return {"content-length": str(len(b"".join(PIECES)))} if sized else {}

    def pieces(self) -> Iterator[bytes]:
        yield from PIECES

    async def apieces(self) -> AsyncIterator[bytes]:
        for piece in PIECES:
            await asyncio.sleep(0)
            yield piece

    async def post(self) -> Reply:
        self.requests += 1
        leaves = self.is_first and self.cell.end == "client leaves"
        if self.cell.framework in ("fastapi", "starlette"):
            return await _sent_by_asgi(self.app, leaves=leaves)
        return await asyncio.to_thread(_sent_by_wsgi, self.app, leaves=leaves)


async def check(cell: Cell, server: Server, folder: Path) -> None:
    """AssertionError: the promise does not hold in this cell."""
    server.flush()
    async with opened(cell, server, folder) as shop:
        if cell.end == "commit fails":
            shop.world.refuse_commits()
        first = await shop.post()
        if cell.end == "commit fails":
            shop.world.allow_commits()
            assert not first.is_success, "a success, and the commit has failed"
        again, once_more = await shop.post(), await shop.post()
        seen = f"{first.status} {again.status} {once_more.status}, {shop.runs} runs"
        assert b"in-progress" not in again.body + once_more.body, f"it still runs: {seen}"
        assert shop.world.paid() == 1, f"{shop.world.paid()} rows: {seen}"
        assert once_more.is_replay or b"already-done" in once_more.body, seen
        if first.is_success or cell.end == "client leaves":
            assert shop.runs == 1 and again == once_more, seen
            if cell.end != "replaced" and cell.kind != "file":
                assert again.is_replay, seen
        if again.is_replay and cell.end != "replaced" and cell.kind in STREAMS:
            assert again.body == b"".join(PIECES), seen


# ---- clients


async def _sent_by_asgi(app: Any, *, leaves: bool) -> Reply:
    call: Call

    async def sending(message: Any) -> None:
        if leaves and message.get("body"):
            call.leave()

    call = Call(app, headers={"idempotency-key": "k-1"}, sending=sending)
    is_whole = True
    try:
        await call.run()
    except Exception:
        is_whole = False
    if not call.sent:
        return Reply(500, is_whole=False, is_replay=False, body=b"")
    length, body, last = call.headers.get("content-length"), call.body, call.sent[-1]
    if call.status == 204 or (length is not None and len(body) >= int(length)):
        whole = True  # the client has all of it, whatever was raised then
    else:
        whole = is_whole and last["type"] == "http.response.body" and not last.get("more_body")
    return Reply(call.status, whole, call.is_replay, body)


def _sent_by_wsgi(app: Any, *, leaves: bool) -> Reply:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "SCRIPT_NAME": "", "QUERY_STRING": "",
        "REMOTE_ADDR": "10.0.0.1", "SERVER_NAME": "shop", "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(b"{}"),
        "wsgi.errors": sys.stderr, "CONTENT_LENGTH": "2", "CONTENT_TYPE": "application/json",
        "HTTP_IDEMPOTENCY_KEY": "k-1", "wsgi.version": (1, 0), "wsgi.multithread": True,
        "wsgi.multiprocess": True, "wsgi.run_once": False,
    }  # fmt: skip
    begun: dict[str, Any] = {"status": 500, "headers": {}}
    body, pieces, is_whole = b"", None, True

    def start_response(status: str, headers: Any, error: Any = None) -> Any:
        begun["status"] = int(status.split()[0])
        begun["headers"] = {name.lower(): value for name, value in headers}
        return lambda data: None

    try:
        pieces = app(environ, start_response)
        for piece in pieces:
            body += piece
            length = begun["headers"].get("content-length")
            if leaves and piece:
                break
            if length is not None and len(body) >= int(length):
                is_whole = True
    except Exception:
        length = begun["headers"].get("content-length")
        is_whole = length is not None and 0 < int(length) <= len(body)
    finally:
        if (close := getattr(pieces, "close", None)) is not None:
            with contextlib.suppress(Exception):
                close()
    is_replay = begun["headers"].get("idempotent-replayed") == "true"
    return Reply(begun["status"], is_whole, is_replay, body)


# ---- applications


@asynccontextmanager
async def opened(cell: Cell, server: Server, folder: Path) -> AsyncIterator[Shop]:
    build, kind = _BUILT[cell.framework]
    world = kind(sqlite_database(str(folder / f"{next(_numbers)}.db")))
    if (engine := getattr(world, "engine", None)) is not None:  # as Django does
        engine = getattr(engine, "sync_engine", engine)
        event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA foreign_keys=ON"))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.close)
        shop = Shop(cell, world)
        shop.app = await build(stack, server, shop, folder)
        yield shop


_numbers = itertools.count()


def _file(folder: Path) -> str:
    path = folder / "file"
    if not path.exists():
        path.write_bytes(b"x" * SIZE)
    return str(path)


async def _asgi(stack: AsyncExitStack, server: Server, shop: Shop, folder: Path) -> Any:
    from fastapi import Depends, FastAPI
    from starlette.applications import Starlette
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.requests import Request
    from starlette.responses import (
        FileResponse,
        JSONResponse,
        RedirectResponse,
        Response,
        StreamingResponse,
    )
    from starlette.routing import Route

    from dibs.integrations.asgi import DibsMiddleware, Policy
    from dibs.integrations.starlette import install, once

    _, guard, kind, transaction, end = shop.cell
    made: dict[str, Callable[[], Response]] = {
        "json": lambda: JSONResponse({"order": 1}, 201),
        "empty": lambda: Response(status_code=204),
        "redirect": lambda: RedirectResponse("/", 303),
        "sized stream": lambda: StreamingResponse(shop.apieces(), headers=shop.length),
        "stream": lambda: StreamingResponse(shop.apieces()),
        "file": lambda: FileResponse(_file(folder)),
    }

    async def session() -> AsyncIterator[Any]:
        async with shop.world.begin() as opened:
            yield opened

    async def order(request: Request) -> Response:
        await shop.awork(None)
        return made[kind]()

    async def order_with(session: Any = Depends(session)) -> Response:  # noqa: B008
        await shop.awork(session)
        return made[kind]()

    async def order_within(session: Any, request: Request) -> Response:
        await shop.awork(session)
        return made[kind]()

    endpoint: Any = {"none": order, "session": order_with, "within": order_within}[transaction]
    for each in (order, order_within):  # they are strings, of names that are local here
        each.__annotations__ = {"request": Request, "session": Any, "return": Any}
    order.__annotations__.pop("session")
    order_with.__annotations__ = {"session": Any, "return": Any}
    if guard == "decorator":
        options = {"within": shop.world.begin} if transaction == "within" else {}
        endpoint = once(**POLICY, **options)(endpoint)
    dibs = await stack.enter_async_context(AsyncDibs(server.url, budget=5))
    app: Any
    if shop.cell.framework == "fastapi":
        app = FastAPI()
        app.post("/orders", response_model=None)(endpoint)
    else:
        app = Starlette(routes=[Route("/orders", endpoint, methods=["POST"])])

    async def between(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        return response if shop.replacement is None else Response(*shop.replacement)

    if "http" in guard or end.startswith("replaced"):
        app.add_middleware(BaseHTTPMiddleware, dispatch=between)
    if guard == "decorator":
        install(app, dibs, secret="s")
        return app
    return DibsMiddleware(app, dibs=dibs, policies=[Policy("POST /orders", **POLICY)], secret="s")


async def _flask(stack: AsyncExitStack, server: Server, shop: Shop, folder: Path) -> Any:
    from flask import Flask, Response, g, jsonify, redirect, send_file

    from dibs.integrations.flask import install, once
    from dibs.integrations.wsgi import DibsMiddleware, Policy

    _, guard, kind, transaction, _ = shop.cell
    made: dict[str, Callable[[], Any]] = {
        "json": lambda: (jsonify(order=1), 201),
        "empty": lambda: ("", 204),
        "redirect": lambda: redirect("/", 303),
        "sized stream": lambda: Response(shop.pieces(), headers=shop.length),
        "stream": lambda: Response(shop.pieces()),
        "file": lambda: send_file(io.BytesIO(b"x" * SIZE), "text/plain"),
    }
    app = Flask("shop")

    def order() -> Any:
        session = None
        if transaction == "session":
            g.opening = shop.world.begin()
            session = g.opening.__enter__()
        shop.work(session)
        return made[kind]()

    def order_within(session: Any) -> Any:
        shop.work(session)
        return made[kind]()

    @app.after_request
    def commit(response: Any) -> Any:
        if (opening := g.pop("opening", None)) is not None:
            opening.__exit__(None, None, None)
        return response if shop.replacement is None else app.make_response(shop.replacement)

    @app.teardown_request
    def roll_back(error: BaseException | None) -> None:
        if (opening := g.pop("opening", None)) is not None:
            opening.__exit__(OSError, OSError("rolled back"), None)

    endpoint: Any = order_within if transaction == "within" else order
    if guard == "decorator":
        options = {"within": shop.world.begin} if transaction == "within" else {}
        endpoint = once(**POLICY, **options)(endpoint)
    app.post("/orders")(endpoint)
    dibs = stack.enter_context(Dibs(server.url, budget=5))
    if guard == "decorator":
        install(app, dibs, secret="s")
        return app
    return DibsMiddleware(app, dibs=dibs, policies=[Policy("POST /orders", **POLICY)], secret="s")


_replacing: Callable[[Any], Any]


def replacing(get_response: Any) -> Any:
    """A middleware that answers something else, in place of the first response."""
    return lambda request: _replacing(get_response(request))


async def _django(stack: AsyncExitStack, server: Server, shop: Shop, folder: Path) -> Any:
    global _replacing
    framework, guard, kind, transaction, _ = shop.cell
    policy = {**POLICY, "route": "POST /orders"} if guard == "middleware" else dict(POLICY)
    name = "django middleware" if guard == "middleware" else framework
    handler = await edges_django.build(name, stack, server, shop, {}, policy)
    from django.conf import settings
    from django.http import FileResponse, HttpResponse, HttpResponseRedirect, JsonResponse
    from django.http import StreamingHttpResponse as Stream
    from django.template import engines
    from django.template.response import SimpleTemplateResponse
    from rest_framework.response import Response
    from rest_framework.views import APIView

    class Page(SimpleTemplateResponse):
        def resolve_template(self, template: Any) -> Any:
            return engines["django"].from_string('{"order": {{ order }}}')

    is_rest = framework == "drf"
    made: dict[str, Callable[[], Any]] = {
        "json": lambda: Response({"order": 1}) if is_rest else JsonResponse({"order": 1}),
        "empty": lambda: Response(status=204) if is_rest else HttpResponse(status=204),
        "redirect": lambda: HttpResponseRedirect("/"),
        "sized stream": lambda: Stream(shop.pieces(), headers=shop.length),
        "stream": lambda: Stream(shop.pieces()),
        "file": lambda: FileResponse(io.BytesIO(b"x" * SIZE)),
        "template": lambda: Page("", {"order": 1}),
    }

    def replaced(response: Any) -> Any:
        if shop.replacement is None:
            return response
        body, status = shop.replacement
        return HttpResponse(body, status=status)

    _replacing = replaced
    settings.MIDDLEWARE = [f"{__name__}.replacing", *settings.MIDDLEWARE]
    if guard == "middleware":  # inside of the guard it is another one
        settings.MIDDLEWARE = settings.MIDDLEWARE[::-1]
    from dibs.integrations.django import once

    def work(*_: Any) -> Any:
        shop.work(None)
        return made[kind]()

    options = {"within": shop.world.begin} if transaction == "within" else {}
    is_guarded = guard == "decorator"

    class Orders(APIView):
        post = once(**POLICY, **options)(work) if is_guarded else work

    view: Any = Orders.as_view() if is_rest else work
    if is_guarded and not is_rest:
        view = once(**POLICY, **options)(work)
    edges_django.current = _in_transaction(shop, view) if transaction == "session" else view
    return handler


def _in_transaction(shop: Shop, view: Any) -> Any:
    def atomic(request: Any) -> Any:
        with shop.world.begin():
            return view(request)

    return atomic


_BUILT: dict[str, tuple[Any, type[World]]] = {
    "fastapi": (_asgi, AsyncSessionWorld),
    "starlette": (_asgi, AsyncSessionWorld),
    "flask": (_flask, SessionWorld),
    "django": (_django, DjangoWorld),
    "drf": (_django, DjangoWorld),
}


# ---- the command


def main() -> int:
    """Print every cell. Returns how many do not hold."""
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder, Server.start("valkey") as server:
        for cell in CELLS:
            try:
                asyncio.run(check(cell, server, Path(folder)))
            except Exception as error:
                failed.append(f"{cell}: {type(error).__name__}: {error}")
                print(failed[-1], flush=True)
            else:
                print(f"{cell}: holds", flush=True)
    print(f"{len(CELLS)} cells, {len(failed)} fail", *failed, sep=os.linesep)
    return len(failed)


if __name__ == "__main__":
    sys.exit(bool(main()))
