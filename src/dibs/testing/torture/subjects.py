"""The middlewares that the suite knows by name, each in front of a real Valkey."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ...errors import UsageError
from ..servers import Server
from .adapter import Adapter
from .asgi import App, Wrap


@dataclass(frozen=True)
class Subject:
    """A middleware under test: what it is called, how it is put on, how it is read."""

    name: str
    wrap: Wrap
    adapter: Adapter


@contextmanager
def known_subject(name: str) -> Generator[Subject]:
    """Hand out the middleware of this name, with a server of its own behind it.

    Raises UsageError if its package is not installed or the name is not in KNOWN.
    """
    if name not in KNOWN:
        raise UsageError(f"unknown middleware {name!r}; known: {', '.join(KNOWN)}")
    with Server.start("valkey") as store:
        yield KNOWN[name](store)


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        wanted = f"{package} needs {missing.name}" if missing.name != module else package
        raise UsageError(f"{wanted}: not installed (pip install {package})") from missing


def _idemkit(store: Server) -> Subject:
    kit = _import("idemkit", "idemkit")
    # A duplicate waits for the one that runs: 10 s by default, which is longer than we do.
    config = kit.HttpConfig(scope_mode="single_tenant", wait_timeout_seconds=1.0)

    def wrap(app: App) -> App:
        return kit.IdempotencyMiddleware(
            app, backend=kit.RedisBackend.from_url(store.url), config=config
        )

    adapter = Adapter(required=False, waits=True, store=store)
    return Subject(f"idemkit {version('idemkit')}", wrap, adapter)


def _asgi_idempotency_header(store: Server) -> Subject:
    package = "asgi-idempotency-header"
    middleware = _import("idempotency_header_middleware", package).IdempotencyHeaderMiddleware
    backends = _import("idempotency_header_middleware.backends.redis", package)
    redis = _import("redis.asyncio", "redis")
    clients: list[Any] = []

    def wrap(app: App) -> App:
        clients.append(redis.Redis.from_url(store.url))
        return middleware(app, backend=backends.RedisBackend(clients[-1]))

    async def shutdown() -> None:
        while clients:
            await clients.pop().aclose()

    adapter = Adapter(required=False, shutdown=shutdown, store=store)
    return Subject(f"{package} {version(package)}", wrap, adapter)


def _dibs(store: Server) -> Subject:
    dibs = _import("dibs", "dibs")
    asgi = _import("dibs.integrations.asgi", "dibs")
    opened: list[Any] = []

    def wrap(app: App) -> App:
        opened.append(dibs.AsyncDibs(store.url))
        policy = asgi.Policy(GUARDED, after="replay", key="required", window=60)
        return asgi.DibsMiddleware(app, dibs=opened[-1], policies=[policy])

    async def shutdown() -> None:
        while opened:
            await opened.pop().aclose()

    adapter = Adapter(guarded=GUARDED, shutdown=shutdown, store=store)
    return Subject(f"dibs {version('dibs')}", wrap, adapter)


GUARDED = "POST /guarded"
KNOWN: dict[str, Callable[[Server], Subject]] = {
    "dibs": _dibs,
    "idemkit": _idemkit,
    "asgi-idempotency-header": _asgi_idempotency_header,
}
