"""Redis: whether it answers, how it is set up, and whether the lock works there.

The bot serves people without it, unguarded: nothing here is worse than degraded.
"""

import secrets
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from dibs import AsyncDibs, Busy, DibsError

from ...core.processing_lock import NAME
from ..findings import Finding, degraded, ok, skipped

SERVER, LOCK = "Redis", "lock"
START = "Start Redis, or correct REDIS_URL; until then people are served without the lock."
_LOG_IN = "Correct the user and the password in REDIS_URL."
_KEEP = "redis-cli CONFIG SET maxmemory-policy noeviction; else locks go when memory is short."
_WRITE = "Point REDIS_URL at a server that takes writes: a primary, with room, and a user who may."
_BUDGET = 2.0
_PLAIN = {"redis": "redis", "rediss": "rediss", "unix": "unix"}
_PLAIN |= {"valkey": "redis", "valkeys": "rediss"}
"""Schemes behind which there is one server, which can be asked about itself."""


@dataclass(frozen=True, slots=True)
class Server:
    """What it says about itself."""

    version: str
    milliseconds: float
    policy: str
    is_bounded: bool
    """True: it may become full."""


async def check_server(url: str) -> Finding:
    """It answers, and keeps what it is given."""
    scheme, _, rest = url.partition("://")
    if scheme not in _PLAIN:
        return ok(SERVER, f"{scheme}, which is not asked about itself")
    try:
        return judge_server(await _ask(f"{_PLAIN[scheme]}://{rest}"))
    except AuthenticationError:
        return degraded(SERVER, "it does not let us in", _LOG_IN, answers=False)
    except NoPermissionError:
        return ok(SERVER, "it answers, and may not be asked about itself")
    except (RedisError, OSError) as error:
        return degraded(SERVER, f"no answer ({type(error).__name__})", START, answers=False)


async def _ask(url: str) -> Server:
    client = Redis.from_url(
        url, socket_timeout=_BUDGET, socket_connect_timeout=_BUDGET, decode_responses=True
    )
    async with client:
        await client.ping()  # with the connection made, the next one measures the round trip
        since = perf_counter()
        await client.ping()
        took = perf_counter() - since
        return _server(await client.info(), took)


def _server(info: dict[str, Any], took: float) -> Server:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "?")
    policy, most = info.get("maxmemory_policy", "noeviction"), int(info.get("maxmemory", 0))
    return Server(f"{name} {version}", took * 1000, policy, most > 0)


def judge_server(server: Server) -> Finding:
    """A server that forgets keys when it is full forgets locks."""
    detail = f"{server.version}, {server.milliseconds:.1f} ms away, {server.policy}"
    if server.is_bounded and server.policy != "noeviction":
        return degraded(SERVER, detail, _KEEP)
    return ok(SERVER, detail)


async def check_lock(url: str, enabled: bool) -> Finding:  # noqa: FBT001 – a fact
    """Held once, refused to the next, free after the release."""
    if not enabled:
        return skipped(LOCK, "it is switched off by PROCESSING_LOCK_ENABLED")
    key = f"processing:user:doctor-{secrets.token_hex(8)}"
    try:
        if await _works(url, key):
            return ok(LOCK, "held, refused to a second, released")
    except DibsError as error:
        # Of one server it is known already that it answers, so that only writing can be wrong.
        fix = _WRITE if url.partition("://")[0] in _PLAIN else START
        return degraded(LOCK, f"it cannot be taken ({type(error).__name__})", fix)
    return degraded(LOCK, "a second was let in beside the first", _WRITE)


async def _works(url: str, key: str) -> bool:
    async with _client(url) as first, _client(url) as other:
        # Over another connection: the first would answer without asking the server. A private
        # server, however, is known to the first alone.
        second = first if url == "embedded://" else other
        async with first.hold(key, ttl=10, name=NAME):
            refused = await _is_refused(second, key)
        return refused and not await _is_refused(second, key)


async def _is_refused(dibs: AsyncDibs, key: str) -> bool:
    try:
        async with dibs.hold(key, ttl=10, name=NAME):
            return False
    except Busy:
        return True


def _client(url: str) -> AsyncDibs:
    return AsyncDibs(url, budget=_BUDGET, on_outage="closed")
