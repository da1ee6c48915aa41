"""Redis hears *done* only of an outermost commit: said before that, it replays what is not there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from dibs import AsyncDibs, Dibs, Duplicate, Event
from dibs.testing import Server, aeventually, eventually
from tests.databases.conftest import new_world
from tests.databases.worlds import AsyncSessionWorld, Database, DjangoWorld, SQLAlchemyWorld

NewDatabase = Callable[[str], Database]
DONE: dict[str, Any] = {"window": 60, "after": "replay"}
INSERT = text("INSERT INTO orders VALUES ('c7', 1)")


@pytest.fixture
def dibs(valkey: Server) -> Iterator[Dibs]:
    with Dibs(valkey.url) as dibs:
        yield dibs


@pytest.fixture
def database(new_database: NewDatabase) -> Database:
    return new_database("postgresql")


@pytest.fixture
def engine(database: Database, dibs: Dibs) -> Iterator[Any]:
    engine = create_engine(database.url())
    dibs.once("first", within=engine.begin, **DONE, ignore=()) if False else None
    _with_table(dibs, engine)
    yield engine
    engine.dispose()


def _with_table(dibs: Dibs, engine: Any) -> None:
    @dibs.once("first:{key}", within=engine.begin, **DONE)
    def first(connection: Any, key: str) -> None: ...

    first("x")


def state(valkey: Server, key: str = "order:c7") -> str:
    """What Redis has: free, running or done."""
    value = valkey.client().get(key) if hasattr(valkey, "client") else None
    if value is None:
        return "free"
    return "done" if value.startswith(b"dibs1 done") else "running"


def orders(database: Database) -> int:
    return database.ask("SELECT count(*) FROM orders")[0][0]


def records(database: Database) -> int:
    return database.ask("SELECT count(*) FROM dibs_done WHERE key = 'order:c7'")[0][0]
