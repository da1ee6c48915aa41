"""Worlds: each test that asks for one runs in every world, on its own database."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.testing import Server
from tests.databases.mariadb import MariaDB
from tests.databases.worlds import EVERY_WORLD, WORLDS, Database, World, sqlite_database


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    if not MariaDB.is_installed():
        pytest.skip("NOT TESTED: MariaDB, there is no mariadbd (apt install mariadb-server)")
    server = MariaDB()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def new_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[str], Database]]:
    """An empty database of a kind, with a table of orders."""
    given: list[str] = []

    def make(kind: str) -> Database:
        if kind == "sqlite":
            return sqlite_database(str(tmp_path / "app.db"))
        if kind == "mariadb":
            server: MariaDB = request.getfixturevalue("mariadb")
            name = server.new_database()
            return Database(kind, (server, name), lambda sql: server.ask(sql, name))
        url = request.getfixturevalue("postgres").new_database()
        given.append(url)
        name = url.partition("@/")[2].partition("?")[0]
        return Database(kind, url, lambda sql: request.getfixturevalue("postgres").ask(sql, name))

    yield make
    for url in given:
        request.getfixturevalue("postgres").take_back(url)


@pytest.fixture(params=EVERY_WORLD)
def world(request: pytest.FixtureRequest, new_database: Any) -> World:
    """Every driver on every database."""
    return new_world(request.param, new_database)


def new_world(name: str, new_database: Callable[[str], Database]) -> World:
    driver, _, kind = name.partition("/")
    return WORLDS[driver][0](new_database(kind))


@pytest.fixture
def opened(world: World, valkey: Server) -> Callable[..., Any]:
    """`async with opened() as dibs:`; the world is closed at its end."""

    @contextlib.asynccontextmanager
    async def open_it(target: Any = None, **options: Any) -> AsyncIterator[Any]:
        dibs = world.dibs(target or valkey.url, **options)
        try:
            yield dibs
        finally:
            await world.closed(dibs)
            await world.close()

    return open_it
