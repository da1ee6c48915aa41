"""Guards around an endpoint that does nothing: what they add is all there is to see.

Each is put around the same bare ASGI application, as its README says, with answers kept for a day
under the client's key; dibs also without a key, as a guard against double clicks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]

DAY = 86_400
STATUS = 201
BODY = b'{"order":17}'


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Reads the request, answers."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"12")]
    await send({"type": "http.response.start", "status": STATUS, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


class Tasks:
    """No guard at all."""

    def __init__(self, app: App, aclose: Callable[[], Awaitable[object]] | None = None) -> None:
        self.app = app
        self._aclose = aclose

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        return cls(bare)

    async def aclose(self) -> None:
        if self._aclose is not None:
            await self._aclose()


class ReplayTasks(Tasks):
    """dibs, by the client's key."""

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        from dibs.integrations.asgi import Policy

        return _ours(port, Policy("POST /orders", window=DAY, after="replay", key="required"))


class ReleaseTasks(Tasks):
    """dibs, without a key: who is at work on the same request is not disturbed."""

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        from dibs.integrations.asgi import Policy

        return _ours(port, Policy("POST /orders", window=10))


def _ours(port: int, policy: Any) -> Tasks:
    from dibs import AsyncDibs
    from dibs.integrations.asgi import DibsMiddleware

    dibs = AsyncDibs(f"redis://127.0.0.1:{port}", on_outage="closed")
    return Tasks(DibsMiddleware(bare, dibs=dibs, policies=[policy], secret="bench"), dibs.aclose)


class IdemkitTasks(Tasks):
    """idemkit, by the client's key."""

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        from idemkit import HttpConfig, IdempotencyMiddleware
        from idemkit.backends.redis import RedisBackend
        from redis.asyncio import Redis

        client = Redis(port=port)
        backend = RedisBackend(client)
        config = HttpConfig(scope_mode="single_tenant", expires_after_seconds=DAY)
        app = IdempotencyMiddleware(bare, backend=backend, config=config)

        async def aclose() -> None:
            await backend.aclose()
            await client.aclose()

        return cls(app, aclose)


class HeaderTasks(Tasks):
    """asgi-idempotency-header, by the client's key."""

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        from idempotency_header_middleware import IdempotencyHeaderMiddleware
        from idempotency_header_middleware.backends.redis import RedisBackend
        from redis.asyncio import Redis

        client: Any = Redis(port=port)
        app: Any = IdempotencyHeaderMiddleware(bare, backend=RedisBackend(client))
        return cls(app, client.aclose)
