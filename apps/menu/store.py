"""The store-service: knows every branch's menus, and which one is active.

POST /resolveActive             200 {responseCode, msg, data} · 400; takes {branchId, tableId?, at?}
GET  /branches                  200
GET  /branches/{id}/versions    200 · 404
GET  /branches/{id}/menus/{no}  200: a document that can be published again · 404
POST /branches/{id}/menus       201: published · 400 · 404
GET  /health                    200 · 503
GET  /stats                     200 {"resolveActive": how many calls have arrived}

Refusals are problem+json, except a plain 413 for a body of more than 1 MB. 503 is the answer while
the database does not answer.
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.applications import Starlette
from starlette.config import Config
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from apps.databases import Threads, Timeouts

from .database import Active, MenuDatabase
from .documents import (
    ID,
    Document,
    moment,
    parse_edition,
    parse_json,
    print_active,
    print_menu,
    print_version,
    text,
)
from .menus import Invalid
from .problems import on_http_error, problem
from .seed import sample_chain

SUCCESS = "00000"
UNKNOWN_BRANCH = "40401"
NO_ACTIVE_MENU = "40402"
_LONGEST_BODY = 1024 * 1024
_log = logging.getLogger(__name__)


class Settings(NamedTuple):
    """The settings of the store-service."""

    database_url: str = "sqlite:///menu.db"
    delay: float = 0.0
    """How much slower /resolveActive is made, in seconds."""
    timeouts: Timeouts = Timeouts()

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment, then `.env`. ValueError: which setting cannot be used."""
        config = Config(".env" if Path(".env").is_file() else None)
        delay = config("STORE_DELAY_SECONDS", cast=float, default=0.0)
        if not (math.isfinite(delay) and delay >= 0):
            raise ValueError(f"STORE_DELAY_SECONDS must be 0 or more, not {delay}.")
        url = config("DATABASE_URL", default="") or cls().database_url
        return cls(url, delay, Timeouts.read(lambda name: config(name, default="")))


class StoreService:
    """The database and the answers from it: ready on entry, closed on exit."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Without *settings*, those of the environment, read on entry."""
        self._settings = settings
        self._delay = 0.0
        self._arrived = 0
        self._database: MenuDatabase
        self._threads: Threads

    @property
    def routes(self) -> list[Route]:
        """The routes of the service."""
        return [
            Route("/resolveActive", self.resolve_active, methods=["POST"]),
            Route("/branches", self.list_branches),
            Route("/branches/{branch_id}/versions", self.list_versions),
            Route("/branches/{branch_id}/menus/{number}", self.show_menu),
            Route("/branches/{branch_id}/menus", self.publish, methods=["POST"]),
            Route("/health", self.health),
            Route("/stats", self.stats),
        ]

    async def __aenter__(self) -> "StoreService":
        """ValueError: a setting cannot be used. OperationalError: there is no such database."""
        settings = self._settings or Settings.from_environment()
        self._delay = settings.delay
        self._database = MenuDatabase(settings.database_url, settings.timeouts)
        self._threads = await Threads.open(
            "store", self._database, settings.timeouts, sample_chain()
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._threads.aclose()

    # ---- answers

    async def resolve_active(self, request: Request) -> Response:
        """Return the menu that the branch serves now, or at `at`."""
        self._arrived += 1
        question = _question(parse_json(await request.body()))
        await asyncio.sleep(self._delay)
        active = await self._threads.ask(self._database.active, question.branch_id)
        code, msg, data = _resolved(active, question)
        _log.info("branch %s, table %s: %s", question.branch_id, question.table_id, code)
        return JSONResponse({"responseCode": code, "msg": msg, "data": data})

    async def list_branches(self, request: Request) -> Response:
        """List every branch, with its active version."""
        found = await self._threads.ask(self._database.branches)
        return JSONResponse(
            {
                "branches": [
                    {
                        "branchId": branch.branch_id,
                        "name": branch.name,
                        "city": branch.city,
                        "timezone": branch.timezone,
                        "activeVersionNo": number,
                    }
                    for branch, number in found
                ]
            }
        )

    async def list_versions(self, request: Request) -> Response:
        """List every version of the branch, the newest first."""
        branch_id = _branch_id(request)
        found = await self._threads.ask(self._database.versions, branch_id)
        if found is None:
            raise _no_branch(branch_id)
        active = max((each.number for each in found if each.status == "published"), default=None)
        listed = [print_version(version) for version in found]
        return JSONResponse({"branchId": branch_id, "activeVersionNo": active, "versions": listed})

    async def show_menu(self, request: Request) -> Response:
        """Return one version, in the form in which it can be published again."""
        branch_id, number = _branch_id(request), _number(request)
        menu = await self._threads.ask(self._database.menu, branch_id, number)
        if menu is None:
            raise HTTPException(404, f"There is no version {number} of branch {branch_id}.")
        return JSONResponse(print_menu(menu))

    async def publish(self, request: Request) -> Response:
        """Publish a new version of the branch's menu, active at once unless it is a draft."""
        branch_id = _branch_id(request)
        edition = parse_edition(parse_json(await request.body()))
        now = datetime.now(UTC)
        version = await self._threads.ask(self._database.publish, branch_id, edition, now)
        if version is None:
            raise _no_branch(branch_id)
        _log.info("branch %s has a version %d, %s", branch_id, version.number, version.status)
        return JSONResponse(print_version(version), 201)

    async def health(self, request: Request) -> Response:
        """200 if the database answers."""
        await self._threads.ask(self._database.ping)
        return JSONResponse({"status": "ok"})

    async def stats(self, request: Request) -> Response:
        """How many calls have arrived at this process, bad ones included."""
        return JSONResponse({"resolveActive": self._arrived})


def create_app(settings: Settings | None = None) -> Starlette:
    """The app; without *settings*, with those that the environment has when it starts."""
    service = StoreService(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service:
            yield

    handlers: dict[Any, Any] = {
        HTTPException: on_http_error,
        Invalid: _on_invalid,
        OperationalError: _on_outage,
        InterfaceError: _on_outage,
        PoolTimeout: _on_outage,
    }
    return Starlette(
        routes=service.routes,
        lifespan=lifespan,
        exception_handlers=handlers,
        max_body_size=_LONGEST_BODY,
    )


# ---- in


class Question(NamedTuple):
    """The seed's StoreResolveMenuRq, checked; `at` is ours."""

    branch_id: str
    table_id: str | None
    at: datetime | None


def _question(body: Document) -> Question:
    if body.get("branchId") is None:
        raise Invalid("branchId", "is required.")
    table_id, at = body.get("tableId"), body.get("at")
    return Question(
        branch_id=text(body["branchId"], "branchId", 64),
        table_id=None if table_id is None else text(table_id, "tableId", 64, least=0),
        at=None if at is None else moment(at, "at"),
    )


def _branch_id(request: Request) -> str:
    branch_id = request.path_params["branch_id"]
    if not ID.fullmatch(branch_id):
        raise HTTPException(404, "There is no such branch.")
    return branch_id


def _number(request: Request) -> int:
    number = request.path_params["number"]
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise HTTPException(404, "There is no such version.")
    return int(number)


# ---- out


def _resolved(active: Active | None, question: Question) -> tuple[str, str, Document | None]:
    """The response code, the message and the data."""
    if active is None:
        return UNKNOWN_BRANCH, f"查無此分店：{question.branch_id}", None
    local = active.branch.local(question.at or datetime.now(UTC))
    serving = active.menu and active.menu.serving(local)
    if active.version is None or active.menu is None or serving is None:
        return NO_ACTIVE_MENU, f"{active.branch.name}目前沒有供應中的菜單", None
    return SUCCESS, "成功", print_active(active.version, active.menu, serving)


def _no_branch(branch_id: str) -> HTTPException:
    return HTTPException(404, f"There is no branch {branch_id}.")


async def _on_invalid(request: Request, error: Invalid) -> Response:
    facts = {"field": error.field} if error.field else {}
    return problem(400, str(error), facts=facts)


async def _on_outage(request: Request, error: Exception) -> Response:
    _log.error("The database does not answer: %s", type(error).__name__)
    return problem(503, "The database does not answer.", headers={"Retry-After": "1"})


app = create_app()
