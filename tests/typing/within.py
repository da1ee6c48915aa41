"""Read by pyright and mypy, never run: `within` binds the first argument of a function."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnusedFunction=false

from dataclasses import dataclass
from typing import assert_type

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from dibs import AsyncDibs, Dibs
from dibs.integrations.django import atomic


@dataclass
class Order:
    number: int


def threads(
    dibs: Dibs, engine: Engine, sessions: sessionmaker[Session], pool: ConnectionPool
) -> None:
    @dibs.once("order:{key}", window=60, after="replay", within=sessions.begin)
    def in_session(session: Session, key: str, cart: list[int]) -> Order:
        return Order(1)

    assert_type(in_session("c7", [1]), Order)
    assert_type(in_session("c7", cart=[1]), Order)
    in_session(sessions(), "c7", [1])  # type: ignore[arg-type, call-arg]

    @dibs.once("order:{key}", window=60, after="replay", within=engine.begin, retry=2)
    def in_connection(connection: Connection, key: str) -> Order:
        return Order(1)

    assert_type(in_connection("c7"), Order)

    @dibs.once("order:{key}", window=60, after="hold", within=pool.connection)
    def in_pool(connection: psycopg.Connection, key: str) -> Order:
        return Order(1)

    assert_type(in_pool("c7"), Order)

    @dibs.once("order:{key}", window=60, after="replay", within=atomic(using="orders"))
    def in_django(key: str) -> Order:
        return Order(1)

    assert_type(in_django("c7"), Order)

    @dibs.once("order:{key}", window=60, after="replay", within=engine.begin)  # type: ignore[arg-type]
    def wrong(session: Session, key: str) -> Order:
        return Order(1)

    @dibs.once("order:{key}", window=60)
    def without(key: str) -> Order:
        return Order(1)

    assert_type(without("c7"), Order)
    with dibs.claim("order:c7", window=60, after="replay") as claim:
        with claim.within(sessions()) as done:
            assert_type(done.replayed, bool)
        with claim.within(using="orders") as done:
            pass


async def tasks(
    dibs: AsyncDibs,
    engine: AsyncEngine,
    sessions: async_sessionmaker[AsyncSession],
    pool: AsyncConnectionPool,
) -> None:
    @dibs.once("order:{key}", window=60, after="replay", within=sessions.begin)
    async def in_session(session: AsyncSession, key: str, cart: list[int]) -> Order:
        return Order(1)

    assert_type(await in_session("c7", [1]), Order)

    @dibs.once("order:{key}", window=60, after="replay", within=engine.begin)
    async def in_connection(connection: AsyncConnection, key: str) -> Order:
        return Order(1)

    assert_type(await in_connection("c7"), Order)

    @dibs.once("order:{key}", window=60, after="replay", within=pool.connection)
    async def in_pool(connection: psycopg.AsyncConnection, key: str) -> Order:
        return Order(1)

    assert_type(await in_pool("c7"), Order)
    async with dibs.claim("order:c7", window=60, after="replay") as claim:
        async with claim.within(sessions()) as done:
            assert_type(done.replayed, bool)
