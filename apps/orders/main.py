"""The orders service: `uvicorn apps.orders.main:app`.

POST /orders             201 · 400 · 401 · 409 · 413 · 422 · 429 · 503; {items: [{sku, quantity}]}
GET  /orders             200: the newest first, ?limit=…&before=… · 400 · 401
GET  /orders/{orderId}   200 · 401 · 404
POST /lock-release-fast  200 · 429, as do /lock-release-slow, /lock-timeout-test: the seed's cases
GET  /health             200: this process answers
GET  /ready              200 ok, or degraded: Redis is out · 503: the database is
GET  /metrics            Prometheus

Every response that is not 2xx is problem+json, or the seed's `Result` where the settings say so.
`X-User-Id` says who submits; a gateway must make sure that it is true.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from dibs import AsyncDibs, Unavailable
from dibs.integrations.fastapi import install, once
from dibs.integrations.prometheus import PrometheusListener

from .life_cycle import log_life_cycle
from .orders import PlacedOrder
from .problems import DATABASE_IS_OUT, HANDLERS, REFUSED, ShortBodies, problem
from .results import ResultEnvelope
from .seed_cases import router
from .service import KEY, PLACED_ONCE, OrderService
from .settings import Settings

BUDGET = 2.0
"""Seconds that Redis may take. An order that is placed twice costs more than a moment's wait, and a
server that is refused or known to be out costs none."""


class Probes:
    """The probes for monitoring."""

    def __init__(self, dibs: AsyncDibs, service: OrderService, registry: CollectorRegistry) -> None:
        self._dibs = dibs
        self._service = service
        self._registry = registry

    async def health(self) -> Response:
        """200 as long as this process answers at all."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """Without Redis orders are still accepted, without the database none."""
        parts = {"redis": await self.is_redis_there(), "database": await self.is_database_there()}
        report = {name: "ok" if answers else "out" for name, answers in parts.items()}
        if not parts["database"]:
            return problem(503, "The database does not answer.", facts=report)
        return JSONResponse({"status": "ok" if parts["redis"] else "degraded"} | report)

    async def metrics(self) -> Response:
        """The metrics of this process; of all processes, where PROMETHEUS_MULTIPROC_DIR is set."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def is_redis_there(self) -> bool:
        """True: Redis answers."""
        try:
            await self._dibs.peek("ready:probe")
        except Unavailable:
            return False
        return True

    async def is_database_there(self) -> bool:
        """True: the database answers."""
        try:
            await self._service.check()
        except DATABASE_IS_OUT:
            return False
        return True


def who(request: Request) -> str | None:
    """Who submits, for the guard: the seed's endpoints do without a name.

    Each says what it is, or a name that looks like an address would be taken for that address.
    """
    name = request.headers.get("x-user-id")
    if name:
        return f"user {name}"
    return f"address {request.client.host}" if request.client else None


def create_app(settings: Settings | None = None) -> FastAPI:
    """The app; without *settings*, with those of the environment.

    Nothing connects before it starts. ValueError: a setting cannot be used.
    """
    settings = settings or Settings.from_environment()
    registry = CollectorRegistry()
    listeners = [PrometheusListener(registry), log_life_cycle]
    dibs = AsyncDibs(settings.redis_url, namespace="orders:", budget=BUDGET, listeners=listeners)
    service = OrderService(settings.database_url, registry, settings.timeouts)
    probes = Probes(dibs, service, registry)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with dibs, service:
            await probes.is_redis_there()  # the first customer need not wait for the connection
            yield

    app = FastAPI(title="Orders", lifespan=lifespan, exception_handlers=HANDLERS, responses=REFUSED)
    app.add_middleware(ShortBodies)
    install(app, dibs, user=who, secret=settings.usable_secret())
    if settings.refusals == "result":
        app.add_middleware(ResultEnvelope)  # outermost: what the guard refuses is one of them
    _add_routes(app, service, probes)
    return app


def _add_routes(app: FastAPI, service: OrderService, probes: Probes) -> None:
    # The order, its key and the answer are one commit.
    place = once(PLACED_ONCE, within=service.begin)(service.place)
    app.add_api_route("/orders", place, methods=["POST"], **_PLACING)
    app.add_api_route("/orders", service.recent)
    app.add_api_route("/orders/{order_id}", service.show, response_model=PlacedOrder)
    app.include_router(router)
    for probe in (probes.health, probes.ready, probes.metrics):
        app.add_api_route(f"/{probe.__name__}", probe)


_PLACING: dict[str, Any] = {
    "status_code": 201,
    "response_model": PlacedOrder,
    "responses": {
        400: {"description": f"The order or the {KEY} cannot be one."},
        401: {"description": "X-User-Id does not say who submits."},
        409: {"description": f"The first request with this {KEY} is still at work. Retry-After."},
        422: {"description": f"This {KEY} was used for another order."},
        429: {"description": "The same order was submitted a moment ago. Retry-After."},
        503: {"description": "The database does not answer. Retry-After."},
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": KEY,
                "in": "header",
                "description": "Names this order: sent again with the same key, it is placed once.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            }
        ]
    },
}

app = create_app()
