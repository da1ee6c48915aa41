"""Programs with `once` and `claim` that every checker must accept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, assert_type

import psycopg
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from dibs import AsyncClaim, AsyncDibs, Claim, Dibs, Duplicate, Mismatch
from dibs.integrations.django import atomic

shop = Dibs("redis://localhost")
kitchen = AsyncDibs("redis://localhost")


@dataclass
class Receipt:
    number: int


# ---- functions that run once
@shop.once("order:{key}", window=86400, after="replay", payload=["cart"], message="twice")
def order(key: str, cart: list[int]) -> Receipt:
    return Receipt(sum(cart))


@kitchen.once("mail:{user}", window=60, on_error="hold", on_cancel="continue")
async def mail(user: str, *, text: str = "") -> None:
    print(user, text)


async def use_once() -> int:
    await mail("ann", text="hello")
    try:
        return order("c7", cart=[1]).number
    except Mismatch as mismatch:
        return len(mismatch.name)
    except Duplicate as duplicate:
        return round(duplicate.retry_after) if duplicate.state == "running" else 0


# ---- what a duplicate gets instead
def in_place(error: Duplicate, key: str) -> Receipt:
    return Receipt(len(key) if error.note is None else 0)


@shop.once("pay:{key}", window=60, duplicate=in_place, wait=3, ignore=["trace"])
def pay(key: str, trace: object = None) -> Receipt:
    return Receipt(1)


assert_type(pay("c7"), Receipt)


# ---- methods
class Till:
    name = "a"

    @shop.once("till:{self.name}:{key}", window=60)
    def pay(self, key: str) -> Receipt:
        return Receipt(1)


# ---- a claim with a type, and without
def place(key: str) -> Receipt:
    with shop.claim(key, window=60, after="replay", type=Receipt, payload={"a": 1}) as claim:
        assert_type(claim, Claim[Receipt])
        if claim.replayed:
            return claim.result
        claim.set_note("job-17")
        return claim.complete(Receipt(3))


async def place_anything(key: str) -> Any:
    async with kitchen.claim(key, window=60, after="hold", note="job", lease=5) as claim:
        return claim.complete({"a": 1})


# ---- claims in signatures
def note(claim: Claim[Any]) -> str | None:
    return claim.note


async def hand_over(claim: AsyncClaim[Any]) -> str:
    await claim.set_note("elsewhere")
    return await claim.detach(ttl=60)


# ---- transactions of every kind
def with_sessions(sessions: sessionmaker[Session]) -> int:
    @shop.once("order:{key}", window=60, after="replay", within=sessions.begin)
    def write(session: Session, key: str) -> int:
        session.flush()
        return len(key)

    return write("c7")


async def with_async_sessions(sessions: async_sessionmaker[AsyncSession]) -> int:
    @kitchen.once("order:{key}", window=60, after="replay", within=sessions.begin)
    async def write(session: AsyncSession, key: str) -> int:
        await session.flush()
        return len(key)

    return await write(key="c7")


async def with_psycopg(pool: AsyncConnectionPool) -> None:
    @kitchen.once("order:{key}", window=60, after="hold", within=pool.connection)
    async def write(connection: psycopg.AsyncConnection, key: str) -> None:
        await connection.execute("select 1")

    await write("c7")


def with_django() -> int:
    @shop.once("order:{key}", window=60, after="replay", within=atomic(using="orders"))
    def write(key: str) -> int:
        return len(key)

    return write("c7")


# ---- a transaction of one's own
class Ledger:
    def add(self, amount: int) -> int:
        return amount


@contextmanager
def ledger() -> Iterator[Ledger]:
    yield Ledger()


@shop.once("entry:{key}", window=60, after="replay", within=ledger, retry=2)
def enter(book: Ledger, key: str, amount: int = 1) -> int:
    return book.add(amount)


assert_type(enter("c7", amount=3), int)


# ---- a claim within a transaction
def within_claim(session: Session, key: str) -> Receipt:
    with shop.claim(key, window=60, after="replay", type=Receipt) as claim:
        with claim.within(session) as done:
            if not done.replayed:
                claim.complete(Receipt(1))
        return claim.result
