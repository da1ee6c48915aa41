"""The menu BFF: what a guest gets who scans the QR code on the table.

GET  /menus/active?branchId=…&tableId=…   200 · 400 · 404: no menu · 502 with the code · 503
POST /admin/branches/{branchId}/menus     what the store-service says; readers get it at once
GET  /health                              200: this process answers
GET  /ready                               200 ok, or degraded: one of two is out · 503: both are
GET  /stats                               200: what the cache did in this process, by event

Every response that is not 2xx is problem+json. `X-Cache` tells where a menu came from: hit · stale
(one refreshes it behind) · miss (this request loaded it) · shared (another one did, and this one
waited for it) · bypass (loaded without the cache).
"""

import hmac
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dibs import Unavailable

from .active_menus import ActiveMenus
from .bff_settings import Settings
from .downstream import NoMenu, Published, Refused, StoreClient, Unreachable
from .problems import on_http_error, problem

_LONGEST_BODY = 1024 * 1024
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_BRANCH = re.compile(rf"(?!\.{{1,2}}\Z)[^{_CONTROL}/?#{{}}]{{1,64}}")
_TABLE = re.compile(rf"[^{_CONTROL}]{{0,64}}")


class MenuBff:
    """The cache in front of the store-service: connected to both on entry, to none on exit."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Without *settings*, those of the environment, read on entry."""
        self._settings = settings
        self._admin_token = ""
        self._menus: ActiveMenus
        self._store: StoreClient

    @property
    def routes(self) -> list[Route]:
        """The routes of the service."""
        return [
            Route("/menus/active", self.find_active),
            Route("/admin/branches/{branch_id}/menus", self.publish, methods=["POST"]),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/stats", self.stats),
        ]

    async def __aenter__(self) -> "MenuBff":
        """ValueError: a setting cannot be used. Connections are opened when needed."""
        settings = self._settings or Settings.from_environment()
        self._admin_token = settings.admin_token
        self._store = StoreClient(settings.store_service_url)
        self._menus = ActiveMenus(settings.redis_url, self._store, stale=settings.stale)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._menus.aclose()
        await self._store.aclose()

    # ---- answers

    async def find_active(self, request: Request) -> Response:
        """The menu that the branch serves now: cached, stale or just loaded."""
        branch_id = _checked(request.query_params.get("branchId"))
        _check_table(request.query_params.get("tableId", ""))
        menu, how = await self._menus.find(branch_id)
        return JSONResponse(menu.printed(), headers={"X-Cache": how, "Cache-Control": "no-cache"})

    async def publish(self, request: Request) -> Response:
        """Hand a new version to the store-service; readers get it at once."""
        self._only_admins(request)
        branch_id = _checked(request.path_params["branch_id"])
        edition = await _body(request)
        try:
            published = await self._store.publish(branch_id, edition)
        except Unreachable:
            await self._menus.invalidate(branch_id)  # in doubt it was published
            raise
        invalidated = await self._menus.invalidate(branch_id) if published.is_done else False
        return _forwarded(
            published, "done" if invalidated else "later" if published.is_done else "none"
        )

    async def health(self, request: Request) -> Response:
        """200 as long as this process answers at all."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Without Redis menus are still loaded, without the store-service they are still read."""
        redis_answers, store_answers = (
            await self._menus.is_redis_there(),
            await self._is_store_there(),
        )
        parts = {"redis": redis_answers, "storeService": store_answers}
        report = {name: "ok" if answers else "out" for name, answers in parts.items()}
        if not any(parts.values()):
            return problem(503, "Neither Redis nor the store-service answers.", facts=report)
        return JSONResponse({"status": "ok" if all(parts.values()) else "degraded"} | report)

    async def stats(self, request: Request) -> Response:
        """How often each event of the cache happened."""
        return JSONResponse(dict(self._menus.happened))

    def _only_admins(self, request: Request) -> None:
        given = request.headers.get("Authorization", "").encode()
        if self._admin_token and not hmac.compare_digest(
            given, f"Bearer {self._admin_token}".encode()
        ):
            raise HTTPException(401, "This needs a token.", {"WWW-Authenticate": "Bearer"})

    async def _is_store_there(self) -> bool:
        try:
            await self._store.check()
        except Unreachable:
            return False
        return True


def create_app(settings: Settings | None = None) -> Starlette:
    """The app; without *settings*, with those that the environment has when it starts."""
    bff = MenuBff(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with bff:
            yield

    handlers: dict[Any, Any] = {
        HTTPException: on_http_error,
        NoMenu: _on_no_menu,
        Refused: _on_refusal,
        Unreachable: _on_outage,
        Unavailable: _on_outage,
        TimeoutError: _on_outage,
    }
    return Starlette(routes=bff.routes, lifespan=lifespan, exception_handlers=handlers)


# ---- in


def _checked(branch_id: str | None) -> str:
    """The branch. 400: it is missing, blank, or not valid."""
    if branch_id is None or not branch_id.strip():
        raise HTTPException(400, "branchId is required")
    if not _BRANCH.fullmatch(branch_id):
        detail = "branchId must have 1 to 64 characters, none of them / ? # { } or a control one"
        raise HTTPException(400, detail)
    return branch_id


def _check_table(table_id: str) -> None:
    """400: it is not a valid table. It goes no further: all tables share the menu."""
    if not _TABLE.fullmatch(table_id):
        detail = "tableId must have at most 64 characters, none of them a control character"
        raise HTTPException(400, detail)


async def _body(request: Request) -> bytes:
    """The whole body. 413, as problem+json: it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_BODY:
            raise HTTPException(413, f"The body must not have more than {_LONGEST_BODY} bytes.")
    return bytes(body)


# ---- out


def _forwarded(published: Published, invalidated: str) -> Response:
    headers = {"X-Cache-Invalidated": invalidated}
    return Response(published.body, published.status, headers, published.media_type)


async def _on_no_menu(request: Request, error: NoMenu) -> Response:
    facts = {"responseCode": error.code, "msg": error.msg}
    return problem(404, error.reason, facts=facts, headers={"Cache-Control": "no-cache"})


async def _on_refusal(request: Request, error: Refused) -> Response:
    facts = {"responseCode": error.code, "msg": error.msg}
    return problem(502, f"The store-service answered {error.code}.", facts=facts)


async def _on_outage(request: Request, error: Exception) -> Response:
    detail = "The store-service does not answer, and there is no older menu to show."
    return problem(503, detail, headers={"Retry-After": "1"})


app = create_app()
