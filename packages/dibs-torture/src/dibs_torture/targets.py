"""The middlewares that the suite knows by name, each with its own Valkey server."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from .adapter import Adapter, Stored
from .asgi import App, Wrap
from .errors import UsageError

if TYPE_CHECKING:
    from dibs.testing import Server


@dataclass(frozen=True)
class Target:
    """A middleware under test: its name, how it wraps an app, and its adapter."""

    name: str
    wrap: Wrap
    adapter: Adapter


@contextmanager
def known_target(name: str) -> Generator[Target]:
    """Provide the middleware of this name, with its own server behind it.

    Raises UsageError if its package is not installed or the name is not in KNOWN.
    """
    if name not in KNOWN:
        raise UsageError(f"unknown middleware {name!r}; known: {', '.join(KNOWN)}")
    make_target = KNOWN[name]
    with _server() as store:
        yield make_target(store)


@contextmanager
def _server() -> Generator[Server]:
    testing = _import("dibs.testing", "pydibs[embedded]")
    try:
        server = testing.Server.start("valkey")
    except testing.ServerMissing as missing:
        raise UsageError(str(missing)) from missing
    with server:
        yield server


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        wanted = f"{package} needs {missing.name}" if missing.name != module else package
        raise UsageError(f"{wanted}: not installed (pip install {package})") from missing


def _idemkit(store: Server) -> Target:
    kit = _import("idemkit", "idemkit")
    # A duplicate waits for the running request, 10 s by default, which is longer than a step may
    # take here. A key is not required by default.
    config = kit.HttpConfig(
        scope=_who,
        require_key_for_mutations=True,
        wait_timeout_seconds=1.0,
        lease_ttl_seconds=LEASE,
        expires_after_seconds=WINDOW,
    )

    def wrap(app: App) -> App:
        return kit.IdempotencyMiddleware(
            app, backend=kit.RedisBackend.from_url(store.url), config=config
        )

    exempt = {"lease_ends_by_itself": "the end of a lease stands in its record"}
    adapter = Adapter(waits=True, unguarded=None, exempt=exempt, **_options_for(store))
    return Target(f"idemkit {version('idemkit')}", wrap, adapter)


def _who(request: Any) -> str:
    return str(dict(request.headers).get("authorization", "nobody"))


def _asgi_idempotency_header(store: Server) -> Target:
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

    seen = _options_for(store) | {"lease": None, "window": None}  # it has one time for both
    adapter = Adapter(required=False, shutdown=shutdown, **cast("dict[str, Any]", seen))
    return Target(f"{package} {version(package)}", wrap, adapter)


def _dibs(store: Server) -> Target:
    dibs = _import("dibs", "pydibs")
    asgi = _import("dibs.integrations.asgi", "pydibs")
    opened: list[Any] = []

    policy = asgi.Policy(
        f"POST,PUT {PATH}*", after="replay", key="required", window=WINDOW, lease=LEASE
    )

    def wrap(app: App, service: str = "") -> App:
        opened.append(dibs.AsyncDibs(store.url))
        options = {"dibs": opened[-1], "policies": [policy], "service": service}
        return asgi.DibsMiddleware(app, **options)

    async def shutdown() -> None:
        while opened:
            await opened.pop().aclose()

    adapter = Adapter(
        shutdown=shutdown,
        also_method=f"PUT {PATH}",
        compares="content",
        exempt=dict.fromkeys(DISCONNECT_CASES, FINISHED),
        other_service=functools.partial(wrap, service="another"),
        **_options_for(store),
    )
    return Target(f"dibs {version('pydibs')}", wrap, adapter)


def _options_for(store: Server) -> dict[str, Any]:
    """The options of an adapter that are the same for all targets on this server."""
    return {
        "guarded": GUARDED,
        "also_guarded": f"{GUARDED}/also",
        "lease": LEASE,
        "window": WINDOW,
        "store": store,
        "contents": functools.partial(stored_in, store),
        "full": functools.partial(fill, store),
    }


def stored_in(server: Server) -> list[Stored]:
    """All that is on a server; an Adapter's `contents`."""
    client: Any = server.client()
    found: list[bytes] = list(client.scan_iter(count=1000))
    return [Stored(key, _value(client, key), _seconds(client.pttl(key))) for key in found]


def fill(server: Server, is_full: bool) -> None:  # noqa: FBT001 – the only argument of `full`
    """Take a server's memory away, or give it back; an Adapter's `full`."""
    client: Any = server.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1 if is_full else 0)


def _value(client: Any, key: bytes) -> bytes:
    reading = {b"string": client.get, b"hash": client.hgetall, b"set": client.smembers}
    value: object = reading.get(client.type(key), client.dump)(key)
    return value if isinstance(value, bytes) else repr(value).encode()


def _seconds(pttl: int) -> float | None:
    return None if pttl == -1 else pttl / 1000


DISCONNECT_CASES = ("disconnect_is_true", "receive_is_cancelled")
"""Cases in which the client of a guarded request leaves, and the application learns of it."""
FINISHED = "it goes on without its client: what it answers is stored for the retry"
PATH = "/guarded"
GUARDED = f"POST {PATH}"
LEASE = 2.0
WINDOW = 60.0
KNOWN: dict[str, Callable[[Server], Target]] = {
    "dibs": _dibs,
    "idemkit": _idemkit,
    "asgi-idempotency-header": _asgi_idempotency_header,
}
