"""The guard of an endpoint sees what its router matched: the route, and converted values."""

import datetime
import uuid
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Path
from flask import Flask, g
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from dibs import AsyncDibs, Dibs
from dibs.integrations import fastapi, flask, starlette
from dibs.testing import Server

UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
SPELLINGS = {
    "int": ["7", "07", "007", "+7", "%207", "7%20", "7.0", "7%0A", "%EF%BC%97"],
    "uuid": [UUID, UUID.upper(), UUID.replace("-", ""), "{" + UUID + "}", f"urn:uuid:{UUID}"],
    "date": ["2026-11-18", "2026-11-18T00:00:00", "1794960000"],
    "flag": ["true", "1", "yes", "on", "True", "t", "y"],
}


async def posted(app: Any, install: Callable[..., None], url: str, *paths: str) -> list[int]:
    """What each of *paths* is answered, by *app* with guards."""
    async with (
        AsyncDibs(url) as dibs,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop") as client,
    ):
        install(app, dibs)
        return [(await client.post(path)).status_code for path in paths]


@pytest.mark.parametrize("kind", SPELLINGS)
@pytest.mark.parametrize("by", [(), ("path.value",), ("path",)])
async def test_fastapi_compares_the_values_that_the_endpoint_gets(
    valkey: Server, kind: str, by: tuple[str, ...]
) -> None:
    """Ten spellings of one user are one effect; another value is another one."""
    app, runs = FastAPI(), list[object]()
    others = {"int": 8, "uuid": uuid.UUID(int=1), "date": "2026-11-19", "flag": "false"}
    other = f"/{kind}/{others[kind]}"

    @app.post("/int/{value}")
    @fastapi.once(window=60, after="hold", by=by)
    async def of_int(value: int) -> None:
        runs.append(value)

    @app.post("/uuid/{value}")
    @fastapi.once(window=60, after="hold", by=by)
    async def of_uuid(value: uuid.UUID) -> None:
        runs.append(value)

    @app.post("/date/{value}")
    @fastapi.once(window=60, after="hold", by=by)
    async def of_date(value: datetime.date) -> None:
        runs.append(value)

    @app.post("/flag/{value}")
    @fastapi.once(window=60, after="hold", by=by)
    async def of_flag(value: bool) -> None:
        runs.append(value)

    statuses = await posted(
        app, fastapi.install, valkey.url, *[f"/{kind}/{text}" for text in SPELLINGS[kind]], other
    )
    assert statuses[0] == statuses.pop() == 200 and 429 in statuses
    assert set(statuses[1:]) <= {429, 422} and len(runs) == 2


async def test_a_field_may_have_an_alias_or_be_of_a_dependency(valkey: Server) -> None:
    """The path names it; also in an included router."""
    app, router = FastAPI(), APIRouter(prefix="/shops/{shop}")

    def shop_of(shop: int) -> int:
        return shop

    @router.post("/{userId}")
    @fastapi.once(window=60, after="hold", by=["path.userId", "path.shop"])
    async def order(user: int = Path(alias="userId"), shop: int = Depends(shop_of)) -> None: ...

    app.include_router(router, prefix="/v1")
    paths = ("/v1/shops/1/2", "/v1/shops/01/02", "/v1/shops/2/2", "/v1/shops/1/3")
    assert await posted(app, fastapi.install, valkey.url, *paths) == [200, 429, 200, 200]


async def test_starlette_compares_what_its_converters_make(valkey: Server) -> None:
    """And a line feed that its router ignores makes no other place."""
    runs = list[object]()

    @starlette.once(window=60, after="hold")
    async def order(request: Request) -> JSONResponse:
        runs.append(dict(request.path_params))
        return JSONResponse({}, 201)

    inner = [Route("/{number:int}", order, methods=["POST"])]
    routes = [
        Route("/orders", order, methods=["POST"]),
        Route("/again", order, methods=["POST"]),
        Mount("/of/{shop}", routes=inner),
    ]
    app = Starlette(routes=routes)
    paths = ("/orders", "/orders%0A", "/again", "/again%0A", "/of/a/7", "/of/a/007", "/of/b/7")
    statuses = await posted(app, starlette.install, valkey.url, *paths, "/of/a/8")
    assert statuses == [201, 429, 201, 429, 201, 429, 201, 201] and len(runs) == 5


def test_flask_compares_the_path_and_not_what_is_left_of_it(valkey: Server) -> None:
    """A preprocessor may take the tenant out of the arguments of the view."""
    app = Flask("shop")

    @app.url_value_preprocessor
    def take_tenant(endpoint: str | None, values: dict[str, Any] | None) -> None:
        g.tenant = (values or {}).pop("tenant")

    @app.post("/<tenant>/<int:number>")
    @flask.once(window=60, after="hold")
    def order(number: int) -> str:
        return f"{g.tenant} {number}"

    with Dibs(valkey.url) as dibs:
        flask.install(app, dibs)
        client = app.test_client()
        paths = ("/a/7", "/a/07", "//a/7", "/b/7", "/a/8")
        found = [client.post("/", environ_overrides={"PATH_INFO": path}) for path in paths]
        assert [reply.status_code for reply in found] == [200, 429, 429, 200, 200]
