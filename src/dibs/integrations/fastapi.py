"""Duplicate submissions and idempotency keys for FastAPI: a decorator on the endpoint.

    install(app, AsyncDibs("redis://…"), user=lambda request: request.headers.get("x-user"))

    @app.post("/orders")
    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    async def order(order: Order) -> Receipt: ...

Sync and async endpoints alike; none needs a `request`. Dependencies and validation come first, so
nobody is replayed who is not allowed in. What a second request is told is in the OpenAPI document.
"""

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, routing

from .._async.client import AsyncDibs
from .._http.openapi import documented
from . import starlette
from .starlette import User, once, policy_of, prevent_duplicate_submit

__all__ = ["install", "once", "prevent_duplicate_submit"]


def install(
    app: FastAPI,
    dibs: AsyncDibs | str,
    *,
    user: User | None = None,
    session_cookie: str | None = None,
    secret: str | bytes | None = None,
    service: str | None = None,
    per_host: bool = False,
) -> None:
    """Let the decorated endpoints of *app* be guarded by *dibs* (yours to close, or a URL).

    *user*: tells from the request who submits (a string, or None: not known; may be async).
    *session_cookie*: the name of the cookie that says so. Without either, it is the Authorization
    header. *secret*: keys the hashes under which submissions are stored; the same in all
    processes. *service*: the name of this application, where several use one store (default: its
    title). *per_host*: the Host header counts, too.
    """
    starlette.install(
        app,
        dibs,
        user=user,
        session_cookie=session_cookie,
        secret=secret,
        service=app.title if service is None else service,
        per_host=per_host,
    )
    described = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _documented(app, described())
        return app.openapi_schema

    app.openapi = openapi


def _documented(app: FastAPI, schema: dict[str, Any]) -> dict[str, Any]:
    """The same, with what guarded endpoints may answer."""
    for route in _routes(app):
        policy = policy_of(getattr(route, "endpoint", None))
        operations = schema.get("paths", {}).get(getattr(route, "path_format", None), {})
        for method in getattr(route, "methods", None) or ():
            documented(operations.get(method.lower()), policy)
    return schema


def _routes(app: FastAPI) -> Iterable[Any]:
    """Those of included routers as well, which recent versions keep apart."""
    listed: Any = getattr(routing, "iter_route_contexts", iter)
    return listed(app.routes)
