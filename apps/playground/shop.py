"""The shop behind the `once` panel: the orders service, which can be killed while it works."""

import asyncio
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

from .child import Child
from .engine import Engine


class Shop:
    """The orders service in its own process, with a database that outlives the process."""

    def __init__(self, engine: Engine) -> None:
        self._folder = tempfile.mkdtemp(prefix="dibs-orders-")
        self._database = f"{self._folder}/orders.db"
        self._settings = {
            "REDIS_URL": engine.target,
            "DATABASE_URL": f"sqlite:///{self._database}",
            "ORDERS_SECRET": secrets.token_hex(),
        }
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Its address; after `dying`, another one."""
        return self._child.url if self._child is not None else ""

    async def start(self) -> None:
        """Start it, and wait until it answers. OSError: it does not start."""
        self._child = await self._new_child()

    @asynccontextmanager
    async def replaced(self) -> AsyncIterator[None]:
        """Replace the process, which dies in the block or at its end.

        OSError: its successor does not start.
        """
        successor = await self._new_child()
        try:
            yield
        finally:
            await self._kill()
            self._child = successor

    @asynccontextmanager
    async def dying(self) -> AsyncIterator[None]:
        """Orders that are begun in the block never finish; then the process is `replaced`."""
        async with self.replaced():
            with closing(sqlite3.connect(self._database, isolation_level=None)) as writer:
                writer.execute("BEGIN IMMEDIATE")  # the order waits for the database
                try:
                    yield
                finally:
                    await self._kill()

    async def _kill(self) -> None:
        if self._child is not None:
            await self._child.kill()
            await self._child.aclose()

    async def _new_child(self) -> Child:
        child = Child("apps.playground.mortal_orders:app", folder=self._folder)
        try:
            await child.start(self._settings)
        except BaseException:
            await child.aclose()
            raise
        return child

    async def aclose(self) -> None:
        """End it, and remove its files."""
        if self._child is not None:
            await self._child.aclose()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


async def open_shop(engine: Engine, open_until: AsyncExitStack) -> Shop:
    """A shop that is open until *open_until* is closed. OSError: it does not start."""
    shop = Shop(engine)
    open_until.push_async_callback(shop.aclose)
    await shop.start()
    return shop
