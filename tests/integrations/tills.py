"""A till behind each framework that has `once(…, within=…)`: one endpoint, which adds an order.

    async with opened("flask", server, database) as till:
        answer = await till.post(headers={"idempotency-key": "k-1"})

The database is SQLite; its drivers are those that such applications use.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dibs import AsyncDibs, Dibs
from dibs.testing import Server
from tests.databases.worlds import (
    AsyncEngineWorld,
    AsyncSessionWorld,
    Database,
    DjangoWorld,
    SessionWorld,
    World,
)

from . import edges, edges_django

TILLS = ("starlette", "fastapi", "fastapi plain", "flask", "django", "drf")
POLICY: dict[str, Any] = {"window": 60, "after": "replay", "key": "required"}
KEYED = {"idempotency-key": "k-1"}
SENT = {"x-order": "yes", "set-cookie": "seen=1"}


class Till(edges.Shop):
    """The endpoint adds a row, then answers, raises or streams."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, None)
        self.world = world
        self.headers = SENT
        self.error: Exception | None = None
        self.is_streaming = False

    def answer(self) -> tuple[int, dict[str, str], dict[str, Any]]:
        found = self.order(b"")
        if self.error is not None:
            raise self.error
        return found

    def insert(self, session: Any) -> Any:
        return self.world.insert(session, "ann", 1)

    @property
    def rows(self) -> tuple[int, int]:
        """How many orders, and how many records."""
        return len(self.world.orders()), self.world.records()


@asynccontextmanager
async def opened(
    name: str, target: Server | str, database: Database, **policy: Any
) -> AsyncIterator[Till]:
    """*policy*: what differs from `POLICY`; `opener`: a function around what `within` gets."""
    build, kind = _BUILT[name]
    world = kind(database)
    wrapped: Callable[[Any], Any] = policy.pop("opener", lambda begin: begin)
    options = {**POLICY, **policy, "within": wrapped(world.begin)}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.close)
        till = Till(name, world)
        url = target if isinstance(target, str) else target.url
        till.app = await build(stack, url, till, options)
        yield till


async def _starlette(stack: AsyncExitStack, url: str, till: Till, policy: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.routing import Route

    from dibs.integrations.starlette import install, once

    @once(**policy)
    async def order(session: Any, request: Request) -> Any:
        await till.insert(session)
        status, headers, answer = till.answer()
        if till.is_streaming:
            return StreamingResponse(iter([b"a", b"b"]))
        return JSONResponse(answer, status, headers)

    app = Starlette(routes=[Route("/orders", order, methods=["POST"])])
    install(app, await stack.enter_async_context(AsyncDibs(url, budget=5)))
    return app


async def _fastapi(stack: AsyncExitStack, url: str, till: Till, policy: Any) -> Any:
    from fastapi import FastAPI, Response
    from fastapi.responses import StreamingResponse
    from pydantic import BaseModel

    from dibs.integrations.fastapi import install, once

    class Receipt(BaseModel):
        order: int

    def answered(response: Response) -> Any:
        status, headers, answer = till.answer()
        if till.is_streaming:
            return StreamingResponse(iter([b"a", b"b"]))
        response.status_code = status
        response.headers.update(headers)
        return answer | {"hidden": "not in the model"}

    async def order(session: Any, response: Response) -> Any:
        await till.insert(session)
        return answered(response)

    def plain(session: Any, response: Response) -> Any:
        till.insert(session)
        return answered(response)

    app = FastAPI()
    view: Any = plain if till.name == "fastapi plain" else order
    view.__annotations__["response"] = Response
    app.post("/orders", response_model=Receipt)(once(**policy)(view))
    install(app, await stack.enter_async_context(AsyncDibs(url, budget=5)))
    return app


async def _flask(stack: AsyncExitStack, url: str, till: Till, policy: Any) -> Any:
    from flask import Flask

    from dibs.integrations.flask import install, once

    app = Flask("till")

    @app.post("/orders")
    @once(**policy)
    def order(session: Any) -> Any:
        till.insert(session)
        status, headers, answer = till.answer()
        return iter([b"a", b"b"]) if till.is_streaming else (answer, status, headers)

    install(app, stack.enter_context(Dibs(url, budget=5)))
    return app


async def _django(stack: AsyncExitStack, url: str, till: Till, policy: Any) -> Any:
    server: Any = type("Target", (), {"url": url})
    handler = await edges_django.build("django", stack, server, till, {}, dict(POLICY))
    from django.http import HttpResponse, StreamingHttpResponse
    from django.template import engines
    from django.template.response import SimpleTemplateResponse

    from dibs.integrations.django import once

    class Page(SimpleTemplateResponse):
        def resolve_template(self, template: Any) -> Any:
            return engines["django"].from_string('{"order": {{ order }}}')

    @once(**policy)
    def order(request: Any) -> Any:
        till.insert(None)
        status, headers, answer = till.answer()
        if till.is_streaming:
            return StreamingHttpResponse(iter([b"a", b"b"]))
        made: HttpResponse = Page("", answer, "application/json", status)
        return _with_headers(made, headers)

    edges_django.current = order
    return handler


async def _drf(stack: AsyncExitStack, url: str, till: Till, policy: Any) -> Any:
    server: Any = type("Target", (), {"url": url})
    handler = await edges_django.build("django", stack, server, till, {}, dict(POLICY))
    from django.http import StreamingHttpResponse
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from dibs.integrations.drf import once

    class Orders(APIView):
        @once(**policy)
        def post(self, request: Any) -> Any:
            till.insert(None)
            status, headers, answer = till.answer()
            if till.is_streaming:
                return StreamingHttpResponse(iter([b"a", b"b"]))
            return _with_headers(Response(answer, status=status), headers)

    edges_django.current = Orders.as_view()
    return handler


def _with_headers(response: Any, headers: dict[str, str]) -> Any:
    for name, value in headers.items():
        response[name] = value
    return response


_BUILT: dict[str, tuple[Any, type[World]]] = {
    "starlette": (_starlette, AsyncEngineWorld),
    "fastapi": (_fastapi, AsyncSessionWorld),
    "fastapi plain": (_fastapi, SessionWorld),
    "flask": (_flask, SessionWorld),
    "django": (_django, DjangoWorld),
    "drf": (_drf, DjangoWorld),
}


async def ask(till: Till, **request: Any) -> edges.Reply | None:
    """The answer; None: it raised, as a framework does after it has sent a 500."""
    with contextlib.suppress(Exception):
        return await till.post(**request)
    return None
