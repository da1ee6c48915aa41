"""The menu's services, each in its own process: a slow store-service, and its clients.

Two BFFs on dibs, and two on the seed's algorithm, all on the page's server.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from .child import Child
from .engine import Engine

DELAY = 0.4
"""How long the store-service takes for a menu, in seconds."""


class MenuServices:
    """All of them. The two on the seed's algorithm may open a moment later."""

    def __init__(self) -> None:
        self.store = Child("apps.menu.store:app")
        self.dibs = [Child("apps.menu.bff:app") for _ in range(2)]
        self._seed = [Child("apps.playground.seed_algorithm:app") for _ in range(2)]
        self._opening: asyncio.Task[None] | None = None

    async def open(self, engine: Engine) -> None:
        """Start the store-service and the BFFs. OSError: one does not start."""
        database = {"DATABASE_URL": "sqlite://", "STORE_DELAY_SECONDS": str(DELAY)}
        ours, theirs = self._settings(engine.target), self._settings(f"unix://{engine.socket()}")
        await asyncio.gather(self.store.start(database), _start(self.dibs, ours))
        self._opening = asyncio.create_task(_start(self._seed, theirs))

    def _settings(self, target: str) -> dict[str, str]:
        """The settings of a BFF."""
        store = {"STORE_SERVICE_URL": self.store.url, "MENU_ADMIN_TOKEN": ""}
        return store | {"REDIS_URL": target}

    async def replace(self, number: int, engine: Engine) -> None:
        """Replace a BFF on dibs that is dead. OSError: as `open`."""
        await self.dibs[number].aclose()
        self.dibs[number] = Child("apps.menu.bff:app")
        await self.dibs[number].start(self._settings(engine.target))

    async def seed(self) -> list[Child]:
        """Wait for those on the seed's algorithm, and return them. OSError: they do not start."""
        if self._opening is None or (await _ended(self._opening)).cancelled():
            raise OSError("it is closed")
        self._opening.result()
        return self._seed

    async def aclose(self) -> None:
        """Return when all of them have ended."""
        if self._opening is not None:
            self._opening.cancel()
            await _ended(self._opening)
        await asyncio.gather(*(child.aclose() for child in (self.store, *self.dibs, *self._seed)))


async def _start(children: Sequence[Child], environment: Mapping[str, str]) -> None:
    await asyncio.gather(*(child.start(environment) for child in children))


async def _ended(task: "asyncio.Task[None]") -> "asyncio.Task[None]":
    await asyncio.wait([task])
    return task


async def open_services(engine: Engine, open_until: AsyncExitStack) -> MenuServices:
    """Services that run until *open_until* is closed. OSError: one does not start."""
    services = MenuServices()
    open_until.push_async_callback(services.aclose)
    await services.open(engine)
    return services
