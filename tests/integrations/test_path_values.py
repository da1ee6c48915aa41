"""The guard of an endpoint sees what its router matched: the route, and converted values."""

import datetime
import uuid
from collections.abc import Callable
from typing import Annotated, Any

import httpx2 as httpx
import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, Form, Header, Path, Query
from flask import Flask, g
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from dibs import AsyncDibs, Dibs
from dibs.integrations import fastapi, flask, starlette
from dibs.testing import Server

from .two_readers import starlette_names_routes

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


class Cart(BaseModel):
    id: int = Field(alias="cartId")
    lines: list[int] = []


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    user: uuid.UUID | int = Field(validation_alias=AliasChoices("userId", "user_id"))
    cart: Cart | None = None


class Headers(BaseModel):
    x_user: int


async def test_fastapi_selects_the_values_that_the_endpoint_gets(valkey: Server) -> None:
    """Of parameters, models, aliases, forms and dependencies: one user is one in any spelling."""
    app, runs = FastAPI(), list[object]()

    def guarded(path: str, *by: str) -> Callable[[Callable[..., Any]], Any]:
        once = fastapi.once(window=60, after="hold", by=by)
        return lambda function: app.post(path)(once(function))

    @guarded("/query", "query.userId")
    async def of_query(user: int = Query(alias="userId")) -> None:
        runs.append(("query", user))

    @guarded("/tags", "query.tag.*")
    async def of_tags(tag: Annotated[list[int], Query()]) -> None:
        runs.append(("tags", *tag))

    @guarded("/header", "header.X-User")
    async def of_header(headers: Annotated[Headers, Header()]) -> None:
        runs.append(("header", headers.x_user))

    @guarded("/body", "body.userId")
    async def of_body(order: Order) -> None:
        runs.append(("body", order.user))

    @guarded("/cart", "body.cart.cartId", "body.cart.lines.0")
    async def of_cart(order: Order) -> None:
        runs.append(("cart", order.cart and (order.cart.id, *order.cart.lines[:1])))

    @guarded("/embedded", "body.order.userId")
    async def of_embedded(order: Annotated[Order, Body(embed=True)]) -> None:
        runs.append(("embedded", order.user))

    @guarded("/dict", "body.userId")
    async def of_dict(order: dict[str, float]) -> None:
        runs.append(("dict", order["userId"]))

    @guarded("/form", "body.userId")
    async def of_form(user: Annotated[int, Form(alias="userId")]) -> None:
        runs.append(("form", user))

    def user_of(userId: int) -> str:  # noqa: N803 – as it is sent
        return f"user {userId}"

    @guarded("/dependency", "query.userId")
    async def of_dependency(user: str = Depends(user_of)) -> None:
        runs.append(("dependency", user))

    json = {"content-type": "application/json"}
    form = {"content-type": "application/x-www-form-urlencoded"}
    cases: list[tuple[str, dict[str, str], list[str], list[str]]] = [
        ("/query?{}", {}, ["userId=7", "userId=07", "userId=8&userId=7"], []),
        ("/tags?{}", {}, ["tag=7&tag=8", "tag=07&tag=8.0"], []),
        ("/dependency?{}", {}, ["userId=7", "userId=007"], []),
        ("/body", json, [], ['{"userId":7}', '{"userId":"07"}', '{"user_id":7.0}', '{"user":7}']),
        ("/dict", json, [], ['{"userId":7}', '{"userId":"7"}', '{"userId":8,"userId":7e0}']),
        ("/embedded", json, [], ['{"order":{"userId":7}}', '{"order":{"user":" 7"}}']),
        ("/form", form, [], ["userId=7", "userId=07", "userId=8&userId=7"]),
        ("/cart", json, [], [
            '{"user":1,"cart":{"cartId":7,"lines":["08",1]}}',
            '{"user":2,"cart":{"cartId":"7","lines":[8,2]}}',
        ]),
    ]  # fmt: skip
    async with AsyncDibs(valkey.url) as dibs:
        fastapi.install(app, dibs, user=lambda request: "u")
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            for path, headers, queries, bodies in cases:
                found = [await client.post(path.format(query)) for query in queries]
                found += [await client.post(path, content=each, headers=headers) for each in bodies]
                statuses = [reply.status_code for reply in found]
                assert statuses == [200, *[429] * (len(found) - 1)], path
            for user in ("7", "07"):
                await client.post("/header", headers={"x-user": user})
    assert sorted({name for name, *_ in runs}) == sorted(name for name, *_ in runs)


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


@pytest.mark.skipif(not starlette_names_routes(), reason="this Starlette does not name its routes")
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
