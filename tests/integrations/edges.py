"""One shop behind every edge: the same request, sent to each framework, without a server between.

    async with opened("flask", server, key="required", after="replay") as shop:
        answer = await shop.post(headers={"idempotency-key": "k-1"})

`runs` are the bodies that the endpoint has worked on.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import io
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from dibs import AsyncDibs, Dibs
from dibs.testing import Server

from . import Call
from . import read as read_body

MIDDLEWARES = ("asgi", "wsgi", "django middleware", "django middleware async")
DECORATORS = ("starlette", "fastapi", "flask", "django", "django async", "drf", "drf mixin")
EDGES = (*MIDDLEWARES, *DECORATORS)
OF_WSGI = ("wsgi", "flask", "django", "django middleware", "drf", "drf mixin")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_replay(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"


class Gate:
    """Work that lasts until it is opened, in an event loop or in a thread."""

    def __init__(self) -> None:
        self._begun = threading.Event()
        self._open = threading.Event()

    async def begun(self) -> None:
        while not self._begun.is_set():
            await asyncio.sleep(0.01)

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        self._begun.set()
        assert self._open.wait(20)

    async def apass_through(self) -> None:
        self._begun.set()
        while not self._open.is_set():
            await asyncio.sleep(0.01)


class Shop:
    """What the endpoint does: it counts, and answers with how often it has run."""

    def __init__(self, name: str, app: Any) -> None:
        self.name = name
        self.app = app
        self.runs: list[str] = []
        self.status = 201
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.facts: dict[str, Any] = {}
        """What the answer says beside the number of the order."""
        self.gate: Gate | None = None
        self.during: Callable[[], object] = lambda: None
        """What happens while the endpoint runs; it may block."""

    async def aorder(self, body: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
        if self.gate is not None:
            await self.gate.apass_through()
        return self.order(body, is_through=True)

    def order(
        self, body: bytes, *, is_through: bool = False
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        if self.gate is not None and not is_through:
            self.gate.pass_through()
        self.during()
        self.runs.append(hashlib.sha256(body).hexdigest())
        if self.statuses:
            self.status = self.statuses.pop(0)
        return self.status, self.headers, {**self.facts, "order": len(self.runs)}

    async def post(self, path: str = "/orders", body: bytes = b"{}", **how: Any) -> Reply:
        """See `send`."""
        return await self.send("POST", path, body, **how)

    async def send(
        self,
        method: str,
        path: str = "/orders",
        body: bytes = b"{}",
        *,
        headers: dict[str, str] | None = None,
        again: dict[str, str] | None = None,
        client: str = "10.0.0.1",
        cuts: int = 0,
        root: str = "",
        length: int | None = None,
    ) -> Reply:
        """*again*: second lines of headers. *cuts*: into pieces of that size. *root*: where the
        server has put the application. *length*: what Content-Length says, if it is not true.
        """
        named = {"content-type": "application/json", "host": "shop", **(headers or {})}
        named["content-length"] = str(len(body) if length is None else length)
        if self.name in OF_WSGI:
            for name, value in (again or {}).items():  # as servers do
                named[name] = f"{named[name]},{value}" if name in named else value
            call = functools.partial(_called_by_wsgi, self.app, path, body, named, client, root)
            return await asyncio.to_thread(call, method)
        pieces = [body[n : n + cuts] for n in range(0, len(body), cuts)] if cuts else [body]
        if length is not None:
            pieces.append(b"")
        lines = [*named.items(), *(again or {}).items()]
        call = Call(self.app, f"{method} {root}{path}", headers=lines, body=pieces, client=client,
                    root_path=root)  # fmt: skip
        if length is not None:
            call._inbox.pop()  # the rest never comes
            call.leave_after_body()
        await call.run()
        return Reply(call.status, call.headers, call.body) if call.sent else Reply(0, {}, b"")


def _called_by_wsgi(
    app: Any,
    path: str,
    body: bytes,
    headers: dict[str, str],
    client: str,
    root: str,
    method: str,
) -> Reply:
    path, _, query = path.partition("?")
    from urllib.parse import unquote_to_bytes

    environ: dict[str, Any] = {
        "REQUEST_METHOD": method, "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "SCRIPT_NAME": root, "QUERY_STRING": query, "REMOTE_ADDR": client, "SERVER_NAME": "shop",
        "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body), "wsgi.errors": io.StringIO(), "wsgi.version": (1, 0),
        "wsgi.multithread": True, "wsgi.multiprocess": True, "wsgi.run_once": False,
        # As gunicorn does: readers are told of the end, whether it was the end or not.
        "wsgi.input_terminated": True,
    }  # fmt: skip
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
    started: list[Any] = []

    def start_response(status: str, lines: list[tuple[str, str]], error: Any = None) -> Any:
        started[:] = [int(status.split()[0]), {n.lower(): v for n, v in lines}]
        return lambda data: None

    pieces = app(environ, start_response)
    try:
        data = b"".join(pieces)
    finally:
        if hasattr(pieces, "close"):
            pieces.close()
    return Reply(started[0], started[1], data)


@asynccontextmanager
async def opened(
    edge: str, server: Server, *, site: dict[str, Any] | None = None, **policy: Any
) -> AsyncIterator[Shop]:
    """The shop behind *edge*. *site*: `user` (a header that names them), `session_cookie` …"""
    options = {"window": 60, **policy}
    async with AsyncExitStack() as stack:
        shop = Shop(edge, None)
        shop.app = await _BUILT[edge](stack, server, shop, dict(site or {}), options)
        yield shop


def _reader_of(site: dict[str, Any], read: Callable[[Any, str], Any]) -> dict[str, Any]:
    """The options of an edge, with a function for `user`."""
    name = site.pop("user", None)
    return {**site, **({"user": lambda *seen: read((*seen, None)[0], name)} if name else {})}


# ---- how each is built


async def _asgi(stack: Any, server: Server, shop: Shop, site: Any, policy: Any) -> Any:
    from dibs.integrations.asgi import DibsMiddleware, Policy

    async def app(scope: Any, receive: Any, send: Any) -> None:
        status, headers, answer = await shop.aorder(await read_body(receive))
        body = json.dumps(answer).encode()
        named = {"content-type": "application/json", **headers}
        lines = [(n.encode(), v.encode()) for n, v in named.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": body})

    def named(scope: Any, name: str) -> str | None:
        return dict(scope["headers"]).get(name.encode(), b"").decode() or None

    dibs = await stack.enter_async_context(AsyncDibs(server.url, budget=5))
    policies = [Policy(policy.pop("route", "POST /*"), **policy)]
    return DibsMiddleware(app, dibs=dibs, policies=policies, **_reader_of(site, named))


async def _wsgi(stack: Any, server: Server, shop: Shop, site: Any, policy: Any) -> Any:
    from dibs.integrations.wsgi import DibsMiddleware, Policy

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        status, headers, answer = shop.order(environ["wsgi.input"].read())
        lines = {"content-type": "application/json", **headers}
        start_response(f"{status} Done", list(lines.items()))
        return [json.dumps(answer).encode()]

    def named(environ: Any, name: str) -> str | None:
        return environ.get("HTTP_" + name.upper().replace("-", "_"))

    dibs = stack.enter_context(Dibs(server.url, budget=5))
    policies = [Policy(policy.pop("route", "POST /*"), **policy)]
    return DibsMiddleware(app, dibs=dibs, policies=policies, **_reader_of(site, named))


async def _starlette(stack: Any, server: Server, shop: Shop, site: Any, policy: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from dibs.integrations.starlette import install, once

    @once(**policy)
    async def order(request: Request) -> JSONResponse:
        status, headers, answer = await shop.aorder(await _body_of(request))
        return JSONResponse(answer, status, headers)

    app = Starlette(routes=[Route("/{path:path}", order, methods=["POST"])])
    dibs = await stack.enter_async_context(AsyncDibs(server.url, budget=5))
    install(app, dibs, **_reader_of(site, lambda request, name: request.headers.get(name)))
    return app


async def _fastapi(stack: Any, server: Server, shop: Shop, site: Any, policy: Any) -> Any:
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    from dibs.integrations.fastapi import install, once

    async def order(request: Request) -> JSONResponse:
        status, headers, answer = await shop.aorder(await _body_of(request))
        return JSONResponse(answer, status, headers)

    order.__annotations__["request"] = Request
    app = FastAPI()
    app.post("/{path:path}", response_model=None)(once(**policy)(order))
    dibs = await stack.enter_async_context(AsyncDibs(server.url, budget=5))
    install(app, dibs, **_reader_of(site, lambda request, name: request.headers.get(name)))
    return app


async def _body_of(request: Any) -> bytes:
    """What the endpoint sees: of a form, what its first file holds."""
    if not request.headers["content-type"].startswith("multipart/"):
        return await request.body()
    form = await request.form()
    return b"".join([await each.read() for each in form.values() if hasattr(each, "read")])


async def _flask(stack: Any, server: Server, shop: Shop, site: Any, policy: Any) -> Any:
    from flask import Flask, request

    from dibs.integrations.flask import install, once

    app = Flask("shop")
    app.secret_key = "of the tests"

    @app.post("/<path:path>")
    @once(**policy)
    def order(path: str) -> Any:
        files = [file.read() for file in request.files.values()]
        status, headers, answer = shop.order(b"".join(files) or request.get_data())
        return answer, status, headers

    dibs = stack.enter_context(Dibs(server.url, budget=5))
    install(app, dibs, **_reader_of(site, lambda _, name: request.headers.get(name)))
    return app


async def _django(stack: Any, server: Server, shop: Shop, site: Any, policy: Any) -> Any:
    from . import edges_django

    return await edges_django.build(shop.name, stack, server, shop, site, policy)


_BUILT: dict[str, Callable[..., Any]] = {
    "asgi": _asgi, "wsgi": _wsgi, "starlette": _starlette, "fastapi": _fastapi, "flask": _flask,
    **dict.fromkeys([edge for edge in EDGES if edge.startswith(("django", "drf"))], _django),
}  # fmt: skip
