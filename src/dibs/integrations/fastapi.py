"""Duplicate submissions and idempotency keys for FastAPI: a decorator on the endpoint.

    install(app, AsyncDibs("redis://…"), user=lambda request: request.headers.get("x-user"))

    @app.post("/orders")
    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    async def order(order: Order) -> Receipt: ...

Sync and async endpoints alike; none needs a `request` parameter. Dependencies and validation run
first, so a client that is not authorized gets no replay. The OpenAPI document lists the refusals.
"""

from collections.abc import Iterable
from typing import Any, Unpack

from fastapi import FastAPI, routing

from .. import AsyncDibs
from .._http.options import GuardKeywords, with_service
from .._http.policy import Policy
from .._http.problems import document
from . import starlette
from .starlette import User, once, policy_of, prevent_duplicate_submit

__all__ = ["Policy", "install", "once", "prevent_duplicate_submit"]


def install(app: FastAPI, dibs: AsyncDibs | str, **options: Unpack[GuardKeywords[User]]) -> None:
    """Guard the decorated endpoints of *app* with *dibs*, which you close, or a URL.

    *user*: called with the request; may be async. *service*: default: the title of the app. All
    other options: `dibs._http.options.GuardOptions`. UsageError: *app* is running already.
    """
    starlette.install(app, dibs, **with_service(options, app.title))
    make_schema = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _documented(app, make_schema())
        return app.openapi_schema

    app.openapi = openapi


def _documented(app: FastAPI, schema: dict[str, Any]) -> dict[str, Any]:
    """*schema* with the refusals of guarded endpoints."""
    for route in _routes(app):
        policy = policy_of(getattr(route, "endpoint", None))
        operations = schema.get("paths", {}).get(getattr(route, "path_format", None), {})
        for method in getattr(route, "methods", None) or ():
            document(operations.get(method.lower()), policy)
    return schema


def _routes(app: FastAPI) -> Iterable[Any]:
    """All routes; recent versions keep those of included routers apart."""
    listed: Any = getattr(routing, "iter_route_contexts", iter)
    return listed(app.routes)
