"""The LINE weather bot: `uvicorn apps.weamind.main:app`.

POST /line/webhook   what LINE calls: 200 · 400 · 413 · 503
GET  /health         200: this process answers
GET  /ready          200 ok, or degraded: Redis is out · 503: the database is
GET  /metrics        Prometheus
     /liff /users    the settings as a page, where there is a LIFF_ID: see liff/page.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dibs import AsyncDibs, Unavailable

from .core.config import Settings, SettingsError, read_settings
from .core.logs import log_if_nobody_does
from .core.metrics import Metrics, metrics
from .core.turns import ProcessingLock
from .liff.memory import TokenMemory
from .liff.page import SettingsPage
from .liff.tokens import Tokens
from .line.bot import Bot
from .line.conversations import Conversations
from .line.deduplication import Deduplication
from .line.processor import EventProcessor
from .line.sender import Sender
from .line.unanswered import Unanswered
from .line.webhook import WebhookEndpoint
from .line.workers import WorkerPool
from .places.search import search
from .user.users import Users, UsersUnavailable
from .weather.forecasts import Forecasts
from .weather.hazards import Hazards
from .weather.sources import open_provider

_nothing = PlainTextResponse("Not Found", 404)
_BUDGET = 1.0
"""Seconds that Redis may take. LINE has had its 200 by then, so there is time: to go on unguarded
because this process was slow would be worse."""


class Weamind:
    """The bot and all its parts: ready on entry; on exit, after its last event, closed."""

    def __init__(self, settings: Settings | None, counted_in: Metrics) -> None:
        """Without *settings*, those of the environment, read on entry."""
        self._settings = settings
        self._metrics = counted_in
        self._stack = AsyncExitStack()
        self._dibs: AsyncDibs
        self._users: Users
        self._webhook: WebhookEndpoint
        self._page: SettingsPage | None = None

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes."""
        return [
            Route("/line/webhook", self.webhook, methods=["POST"]),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.show_metrics),
            Mount("/liff", self.liff),
            Mount("/users", self.people),
        ]

    async def __aenter__(self) -> "Weamind":
        """Open the bot, with its database migrated. SettingsError: settings that cannot be used."""
        settings = self._settings or read_settings()
        log_if_nobody_does(settings.log_level, is_chosen="log_level" in settings.model_fields_set)
        async with AsyncExitStack() as stack:
            await self._open(settings, stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def _open(self, settings: Settings, stack: AsyncExitStack) -> None:
        """All that is opened here is closed in reverse order: the worker pool first."""
        await asyncio.to_thread(search, "臺北市")  # read the map now, and not for the first event
        self._users = await _opened_users(settings, stack)
        listeners = [self._metrics.dibs]
        dibs = AsyncDibs(settings.redis_url, budget=_BUDGET, listeners=listeners)
        self._dibs = await stack.enter_async_context(dibs)
        self._page = _page(settings, self._users, stack)
        bot = _bot(settings, self._dibs, self._users, self._metrics, stack)
        await bot.lock.connect()
        deduplication = Deduplication(self._dibs, counted_in=self._metrics)
        workers = WorkerPool(
            EventProcessor(bot, deduplication, counted_in=self._metrics).work,
            concurrency=settings.event_concurrency,
            limit=settings.event_queue_limit,
            counted_in=self._metrics,
        )
        unanswered = Unanswered(self._users, bot.sender, counted_in=self._metrics)
        stack.push_async_callback(workers.drain, settings.shutdown_seconds, unanswered.keep)
        await unanswered.resume(workers)
        watching = asyncio.create_task(unanswered.watch(workers), name="unanswered events")
        stack.push_async_callback(_ended, watching)
        secret = settings.line_channel_secret.get_secret_value()
        self._webhook = WebhookEndpoint(workers, secret=secret, counted_in=self._metrics)

    # ---- answers

    async def webhook(self, request: Request) -> Response:
        """Receive events from LINE."""
        return await self._webhook.answer(request)

    async def health(self, request: Request) -> Response:
        """200 as long as this process answers at all."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Without Redis people are still served, without the database not as they should be."""
        database, redis = await self._database_answers(), await self._redis_answers()
        status = "out" if not database else "ok" if redis else "degraded"
        parts = {"database": database, "redis": redis}
        report = {name: "ok" if answers else "out" for name, answers in parts.items()}
        return JSONResponse({"status": status, **report}, 200 if database else 503)

    async def show_metrics(self, request: Request) -> Response:
        """Return the metrics of this process."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def liff(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The settings as a page; 404 without a LIFF_ID."""
        await (self._page.pages if self._page else _nothing)(scope, receive, send)

    async def people(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What that page asks about a person; 404 without a LIFF_ID."""
        await (self._page.people if self._page else _nothing)(scope, receive, send)

    async def _database_answers(self) -> bool:
        try:
            await self._users.ping()
        except UsersUnavailable:
            return False
        return True

    async def _redis_answers(self) -> bool:
        try:
            await self._dibs.peek("processing:ready")
        except Unavailable:
            return False
        return True


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _opened_users(settings: Settings, stack: AsyncExitStack) -> Users:
    try:
        return await stack.enter_async_context(Users(settings.database_url))
    except SQLAlchemyError as error:
        reason = type(error).__name__  # its words may quote the URL, with a password in it
        raise SettingsError([f"DATABASE_URL: the database cannot be used ({reason})"]) from error


def _page(settings: Settings, users: Users, stack: AsyncExitStack) -> SettingsPage | None:
    if settings.liff_id is None or settings.line_login_channel_id is None:
        return None
    tokens = Tokens(
        settings.line_api_base, channel_id=settings.line_login_channel_id, memory=TokenMemory()
    )
    stack.push_async_callback(tokens.aclose)
    return SettingsPage(settings.liff_id, tokens=tokens, users=users, sdk=settings.liff_sdk_url)


def _bot(
    settings: Settings, dibs: AsyncDibs, users: Users, counted_in: Metrics, stack: AsyncExitStack
) -> Bot:
    provider = open_provider(
        settings.weather_provider,
        cwa_key=settings.cwa_api_key.get_secret_value() if settings.cwa_api_key else "",
        sample_delay=settings.sample_delay_seconds,
    )
    stack.push_async_callback(provider.aclose)
    sender = Sender(
        settings.line_api_base,
        settings.line_channel_access_token.get_secret_value(),
        dibs=dibs,
        push=settings.push_fallback,
        counted_in=counted_in,
    )
    stack.push_async_callback(sender.aclose)
    lock = ProcessingLock(
        dibs,
        ttl=settings.processing_lock_timeout_seconds,
        at_least=settings.processing_lock_min_seconds,
        enabled=settings.processing_lock_enabled,
        busy_reply=settings.processing_lock_busy_reply,
        counted_in=counted_in,
    )
    everything = settings.processing_lock_scope == "all"
    forecasts = Forecasts(dibs, provider, hazards=_hazards(settings, dibs, stack))
    conversations = Conversations(dibs)
    return Bot(users, forecasts, sender, lock, everything, settings.liff_id, conversations)


def _hazards(settings: Settings, dibs: AsyncDibs, stack: AsyncExitStack) -> Hazards | None:
    """Official warnings, if there is a key; none beside weather that is made up."""
    if settings.cwa_api_key is None or settings.weather_provider == "sample":
        return None
    hazards = Hazards(dibs, settings.cwa_api_key.get_secret_value())
    stack.push_async_callback(hazards.aclose)
    return hazards


class SaidPlainly:
    """Settings that cannot be used end the start with one line each, not with a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        held_back: list[Message] = []

        async def say(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                held_back.append(message)  # it has the traceback
            else:
                await send(message)

        try:
            await self._app(scope, receive, say)
        except SettingsError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
        except BaseException:
            for message in held_back:
                await send(message)
            raise


def create_app(settings: Settings | None = None, *, counted_in: Metrics = metrics) -> Starlette:
    """The app; without *settings*, with those that the environment has when it starts."""
    weamind = Weamind(settings, counted_in)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with weamind:
            yield

    return Starlette(routes=weamind.routes, lifespan=lifespan, middleware=[Middleware(SaidPlainly)])


app = create_app()
