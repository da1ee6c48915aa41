"""The orders service, as customers meet it: real processes, real HTTP, real stores.

Two processes share one database and one Valkey, as behind a load balancer; once with SQLite, once
with PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from apps.databases import Patience
from apps.orders.life_cycle import log_life_cycle
from apps.orders.main import create_app
from apps.orders.orders import submission_of
from apps.orders.service import LEASE, WINDOW
from apps.orders.settings import Settings
from dibs import Event
from dibs.testing import Child, Server, ServerMissing
from dibs.testing import eventually as eventually_now
from dibs.testing.servers import free_port
from tests.apps.postgres import Postgres

pytestmark = pytest.mark.only_on("linux", "darwin")

ROOT = Path(__file__).parents[2]
KINDS = ("sqlite", "postgresql")
TEA = {"items": [{"sku": "oolong-tea", "quantity": 2}, {"sku": "rice.roll", "quantity": 1}]}
SOUP = {"items": [{"sku": "oolong-tea", "quantity": 3}]}
SECRET = "a secret of the tests"
Eventually = Callable[..., Awaitable[Any]]


# ------------------------------------------------------------------------------- processes


def serve(port: int, environment: dict[str, str]) -> None:
    """What `uvicorn apps.orders.main:app --port …` does; says when it is ready."""
    import os

    import uvicorn

    os.environ.update(environment)

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)
            print("ready", flush=True)

    config = uvicorn.Config("apps.orders.main:app", port=port, log_level="warning")
    Announcing(config).run()


class Shop:
    """The service in a process of its own."""

    def __init__(self, redis_url: str, database_url: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {"REDIS_URL": redis_url, "DATABASE_URL": database_url, "ORDERS_SECRET": SECRET}
        self.child = Child(serve, self.port, settings)

    def wait(self) -> None:
        assert self.child.line(within=30) == "ready"


class Chain(NamedTuple):
    """Two shops on one database."""

    database: str
    first: Shop
    second: Shop

    @property
    def shops(self) -> tuple[Shop, Shop]:
        return self.first, self.second


@pytest.fixture(scope="module")
def street(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, dict[str, Chain]]]:
    """A Valkey, and two shops on each database, started at once; for all tests of this file."""
    file = tmp_path_factory.mktemp("orders") / "orders.db"
    databases = (f"sqlite:///{file}", postgres.new_database())
    with ExitStack() as stack:
        try:
            valkey = stack.enter_context(Server.start("valkey"))
        except ServerMissing as missing:
            pytest.skip(f"NOT TESTED: {missing}")
        chains = [Chain(each, Shop(valkey.url, each), Shop(valkey.url, each)) for each in databases]
        for shop in [shop for chain in chains for shop in chain.shops]:
            stack.callback(shop.child.close)
        for shop in [shop for chain in chains for shop in chain.shops]:
            shop.wait()
        yield valkey, dict(zip(KINDS, chains, strict=True))


@pytest.fixture
def store(street: tuple[Server, dict[str, Chain]]) -> Server:
    """The Valkey of the shops, empty. It may be killed."""
    store, _ = street
    if not store.alive:
        store.restart()
    store.flush()
    return store


@pytest.fixture
def chains(street: tuple[Server, dict[str, Chain]], store: Server) -> dict[str, Chain]:
    """Shops on SQLite and on PostgreSQL."""
    return street[1]


@contextmanager
def blocked(database: str) -> Iterator[None]:
    """Whoever writes an order now is in the middle of it until this block ends."""
    if database.startswith("sqlite"):
        connection = sqlite3.connect(database.removeprefix("sqlite:///"), isolation_level=None)
        lock = "BEGIN IMMEDIATE"
    else:
        connection = psycopg.connect(database)
        lock = "LOCK TABLE shop_orders IN SHARE MODE"
    try:
        connection.execute(lock)
        yield
        connection.rollback()
    finally:
        connection.close()


# ------------------------------------------------------------------------------- customers


class Customer:
    """Somebody who talks to shops."""

    def __init__(self, name: str, http: httpx.AsyncClient) -> None:
        self.name = name
        self._http = http

    async def submit(
        self, shop: Shop, order: object = TEA, *, key: str | None = None, path: str = "/orders"
    ) -> httpx.Response:
        headers = {"X-User-Id": self.name} | ({} if key is None else {"Idempotency-Key": key})
        return await self._http.post(f"{shop.url}{path}", json=order, headers=headers)

    async def get(self, shop: Shop, path: str) -> httpx.Response:
        return await self._http.get(f"{shop.url}{path}", headers={"X-User-Id": self.name})

    async def orders(self, shop: Shop) -> list[dict[str, Any]]:
        answer = await self.get(shop, "/orders")
        assert answer.status_code == 200, answer.text
        return answer.json()["orders"]


@asynccontextmanager
async def customers(*names: str) -> AsyncIterator[list[Customer]]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=30, limits=limits, trust_env=False) as http:
        yield [Customer(name, http) for name in names]


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status and problem["detail"] and problem["title"]
    return problem


def is_refused(answer: httpx.Response, status: int, message: str | None = None) -> int:
    """A duplicate is told so politely; for how long."""
    problem = is_problem(answer, status)
    seconds = int(answer.headers["Retry-After"])
    assert problem["retryAfter"] == seconds >= 1
    if message is not None:
        assert problem["message"] == problem["detail"] == message
    return seconds


def is_placed(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    order = answer.json()
    assert answer.headers["Location"] == f"/orders/{order['orderId']}"
    return order


def metric(text: str, metric: str, /, **labels: str) -> float:
    """The sum of the series with these labels; 0: there are none yet."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric and labels.items() <= sample.labels.items()
    )


# ------------------------------------------------------------------------------- two hundred clicks


class Told(NamedTuple):
    """What somebody was told, and when: by our clock, before asking and after the answer."""

    asked: float
    answered: float
    answer: httpx.Response


def submission(customer: str, key: str | None = None) -> bytes:
    """A whole request, as it is on the wire."""
    body = json.dumps(TEA)
    head = [
        "POST /orders HTTP/1.1", "Host: shop", "Connection: close", f"X-User-Id: {customer}",
        "Content-Type: application/json", f"Content-Length: {len(body)}",
    ]  # fmt: skip
    if key is not None:
        head.append(f"Idempotency-Key: {key}")
    return "\r\n".join([*head, "", body]).encode()


async def click(shop: Shop, request: bytes, ready: asyncio.Barrier, told: list[Told]) -> None:
    """Connect, wait for all others, submit."""
    reader, writer = await asyncio.open_connection("127.0.0.1", shop.port)
    await ready.wait()
    asked = time.monotonic()
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    answered = time.monotonic()
    writer.close()
    await writer.wait_closed()
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    answer = httpx.Response(int(status.split()[1]), headers=headers, content=body)
    told.append(Told(asked, answered, answer))


async def rush(customer: str, chain: Chain) -> list[Told]:
    """Two hundred clicks in one moment. Not by httpx: that alone would take seconds for so many."""
    request, ready = submission(customer), asyncio.Barrier(200)
    told: list[Told] = []
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(click(chain.shops[number % 2], request, ready, told))
    return told


def key_ends(store: Server, key: str) -> tuple[float, float]:
    """Between which moments of our clock the server will forget that key."""
    before = time.monotonic()
    left = store.client().pttl(key) / 1000
    assert left > 0
    return before + left, time.monotonic() + left


async def test_two_hundred_clicks_are_one_order(chains: dict[str, Chain], store: Server) -> None:
    """One order; 199 clear answers, each with a Retry-After that is true.

    True is: whoever comes back when it is over is not too early, and loses less than a second.
    While the first is still at work it is the earliest moment: nobody knows when it will end.
    """
    async with customers(*KINDS) as everybody:
        back = 0.0
        for customer, chain in zip(everybody, chains.values(), strict=True):
            before = set(store.keys())
            told = await rush(customer.name, chain)
            [key] = set(store.keys()) - before
            back = max(back, check_the_rush(told, key_ends(store, key)))
            assert len(await customer.orders(chain.second)) == 1
            assert customer.name not in key and "oolong" not in key
        await asyncio.sleep(back - time.monotonic())
        for customer, chain in zip(everybody, chains.values(), strict=True):
            is_placed(await customer.submit(chain.first))
            assert len(await customer.orders(chain.second)) == 2


def check_the_rush(told: list[Told], ends: tuple[float, float]) -> float:
    """When the last of them may come back."""
    assert Counter(each.answer.status_code for each in told) == {201: 1, 429: 199}
    refused = [each for each in told if each.answer.status_code == 429]
    back = 0.0
    for asked, answered, answer in refused:
        wait = is_refused(answer, 429, "This order was placed a moment ago.")
        at_work = answer.json()["state"] == "running"
        assert answered + wait >= ends[0] - at_work
        assert asked + wait < ends[1] + 1
        back = max(back, answered + wait)
    return back


async def test_what_two_processes_counted(chains: dict[str, Chain], store: Server) -> None:
    """The seed's figures add up over the processes: set, refused, deleted, held."""
    chain = chains["sqlite"]
    async with customers("counted") as [customer]:
        before = [(await customer.get(shop, "/metrics")).text for shop in chain.shops]
        told = await asyncio.gather(*(customer.submit(shop) for shop in chain.shops * 5))
        after = [(await customer.get(shop, "/metrics")).text for shop in chain.shops]
    assert Counter(answer.status_code for answer in told) == {201: 1, 429: 9}

    def grown(series: str, /, **labels: str) -> float:
        totals = [sum(metric(text, series, **labels) for text in page) for page in (before, after)]
        return totals[1] - totals[0]

    name = "POST /orders"
    assert grown("dibs_claims_set_total", name=name, outcome="ok") == 1
    assert grown("dibs_claims_set_total", name=name, outcome="duplicate") == 9
    assert grown("dibs_claims_deleted_total", name=name, outcome="ok") == 1
    assert grown("dibs_claims_deleted_total", name=name) == 1
    assert grown("dibs_hold_seconds_count", name=name) == 1
    assert grown("orders_placed_total", outcome="created") == 1
    assert sum(metric(text, "dibs_open_claims") for text in after) == 0
    assert "counted" not in "".join(after) and "oolong" not in "".join(after)


# ------------------------------------------------------------------------------- the seed's cases

FAST, SLOW, TIMEOUT = "/lock-release-fast", "/lock-release-slow", "/lock-timeout-test"


class Case(NamedTuple):
    """Somebody who submits to one of the seed's endpoints."""

    customer: Customer
    chain: Chain
    path: str
    message: str

    async def submit(self, shop: Shop) -> httpx.Response:
        return await self.customer.submit(shop, {"form": 7}, path=self.path)

    async def begun(self, store: Server, shop: Shop) -> tuple[asyncio.Task[httpx.Response], str]:
        """A submission that is at work, and its key."""
        before = set(store.keys())
        task = asyncio.create_task(self.submit(shop))
        while not (new := set(store.keys()) - before):
            assert not task.done(), task.result().text
            await asyncio.sleep(0.01)
        [key] = new
        return task, key

    def is_done(self, answer: httpx.Response, msg: str) -> None:
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"code": 200, "msg": msg, "data": None}

    def is_refused(self, answer: httpx.Response) -> int:
        return is_refused(answer, 429, self.message)


async def check_fast(case: Case, first: asyncio.Task[httpx.Response]) -> None:
    """Refused while the first works; passes right after it ends, nine seconds before the ten."""
    assert case.is_refused(await case.submit(case.chain.second)) <= 10
    case.is_done(await first, "处理完成，锁已释放")
    case.is_done(await case.submit(case.chain.second), "处理完成，锁已释放")


async def check_slow(case: Case, first: asyncio.Task[httpx.Response]) -> None:
    """Refused while the first works, passes afterwards."""
    for shop in case.chain.shops:
        assert case.is_refused(await case.submit(shop)) <= 5
    case.is_done(await first, "长时间处理完成")
    case.is_done(await case.submit(case.chain.second), "长时间处理完成")


async def check_timeout(case: Case, first: asyncio.Task[httpx.Response]) -> None:
    """Refused to the end of the work, also when the interval of 2 s is over."""
    since = time.monotonic()
    refused_after: list[float] = []
    while not first.done():
        asked = time.monotonic() - since
        answer = await case.submit(case.chain.second)
        if answer.status_code == 200:  # it came just when the first had ended
            assert first.done()
            break
        assert case.is_refused(answer) <= 2
        refused_after.append(asked)
        await asyncio.sleep(0.05)
    assert max(refused_after) >= 2.5
    case.is_done(await first, "超时处理完成")


async def check_late(
    case: Case, first: asyncio.Task[httpx.Response], key: str, store: Server
) -> None:
    """A claim that was lost ends without touching the claim of whoever came after it."""
    redis = store.client()
    assert redis.delete(key) == 1
    await asyncio.sleep(1.5)  # so that the second is in the middle when the first ends
    second = asyncio.create_task(case.submit(case.chain.second))
    while (taken := redis.get(key)) is None:
        assert not second.done(), second.result().text
        await asyncio.sleep(0.01)
    case.is_done(await first, "超时处理完成")
    holder = taken.partition(b" ")[0]  # the token: it is renewed, and stays the same
    assert not second.done() and redis.get(key).startswith(holder)
    case.is_refused(await case.submit(case.chain.first))
    case.is_done(await second, "超时处理完成")
    assert redis.get(key) is None


async def test_the_three_cases_of_the_seed(chains: dict[str, Chain], store: Server) -> None:
    """On the real clock, at once: fast, slow, and slower than the interval."""
    chain = chains["sqlite"]
    async with customers("fast", "slow", "timeout", "late") as [fast, slow, patient, late]:
        cases = [
            Case(late, chain, TIMEOUT, "2秒防重复，处理时间超时"),
            Case(fast, chain, FAST, "10秒防重复，但会主动释放"),
            Case(slow, chain, SLOW, "5秒防重复，处理时间较长"),
            Case(patient, chain, TIMEOUT, "2秒防重复，处理时间超时"),
        ]
        begun = [await case.begun(store, chain.first) for case in cases]
        (lost, key), *others = begun
        checks = [
            check(case, task)
            for check, case, (task, _) in zip(
                (check_fast, check_slow, check_timeout), cases[1:], others, strict=True
            )
        ]
        await asyncio.gather(check_late(cases[0], lost, key, store), *checks)
        text = (await late.get(chain.first, "/metrics")).text
    name = f"POST {TIMEOUT}"
    assert metric(text, "dibs_claims_deleted_total", name=name, outcome="late") == 1
    assert store.keys() == []


# ------------------------------------------------------------------------------- lost answers


@contextmanager
def hanging(shop: Shop, customer: str, key: str | None = None) -> Iterator[None]:
    """A client that has sent its order, and hangs up without having heard."""
    with socket.create_connection(("127.0.0.1", shop.port)) as line:
        line.sendall(submission(customer, key))
        yield


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_answer_is_given_again(
    kind: str, chains: dict[str, Chain], store: Server, eventually: Eventually
) -> None:
    """The client leaves in the middle and asks again with the same key: one order, this one."""
    chain = chains[kind]
    async with customers(f"leaver-{kind}") as [leaver]:
        with blocked(chain.database):
            with hanging(chain.first, leaver.name, "cart-1"):
                await eventually(lambda: len(store.keys()) == 1)
            problem = is_problem(await leaver.submit(chain.second, key="cart-1"), 409)
            assert problem["state"] == "running"
        again = await eventually(lambda: replayed(leaver, chain.second), within=10)
        [order] = await leaver.orders(chain.first)
        assert is_placed(again) == order
        assert order["items"] == TEA["items"]
        shown = await leaver.get(chain.second, again.headers["Location"])
        assert shown.json() == order


async def replayed(customer: Customer, shop: Shop) -> httpx.Response | None:
    """The answer of the first, once it is known."""
    answer = await customer.submit(shop, key="cart-1")
    if answer.status_code == 409:
        return None
    assert answer.headers["Idempotent-Replayed"] == "true"
    return answer


async def test_a_key_is_one_order(chains: dict[str, Chain], store: Server) -> None:
    """The same answer to the byte, at any process; another order under the key is a mistake."""
    chain = chains["postgresql"]
    async with customers("keyed", "another") as [keyed, another]:
        first = await keyed.submit(chain.first, key="cart-1")
        again = await keyed.submit(chain.second, key='"cart-1"')
        assert is_placed(first) == is_placed(again)
        assert first.content == again.content
        assert "Idempotent-Replayed" not in first.headers
        assert again.headers["Idempotent-Replayed"] == "true"
        problem = is_problem(await keyed.submit(chain.second, SOUP, key="cart-1"), 422)
        assert problem["type"] == "urn:dibs:payload-mismatch"
        is_problem(await keyed.submit(chain.second, key="no,commas"), 400)
        assert len(await keyed.orders(chain.second)) == 1
        assert is_placed(await keyed.submit(chain.second, key="cart-2")) != first.json()
        assert is_placed(await another.submit(chain.second, key="cart-1")) != first.json()


# ------------------------------------------------------------------------------- outages


@pytest.mark.parametrize("kind", KINDS)
async def test_without_redis(
    kind: str, chains: dict[str, Chain], store: Server, eventually: Eventually
) -> None:
    """Orders are taken, and with a key still placed once; when it is back, all is as before."""
    chain = chains[kind]
    async with customers(f"stoic-{kind}") as [stoic]:
        known = is_placed(await stoic.submit(chain.first, key="before"))
        store.kill()
        await check_the_outage(stoic, chain, known)
        store.restart()
        for each in chains.values():
            for shop in each.shops:
                await eventually(lambda shop=shop: is_ready(stoic, shop, "ok"), within=20)
        await check_the_recovery(stoic, chain)


async def check_the_outage(stoic: Customer, chain: Chain, known: dict[str, Any]) -> None:
    """With a key: one row, whoever asks where. Without: nobody is kept out."""
    assert is_placed(await stoic.submit(chain.second, key="before")) == known
    answers = await asyncio.gather(
        *(stoic.submit(shop, SOUP, key=key) for shop in chain.shops * 5 for key in ("k", '"k"'))
    )
    assert len({is_placed(answer)["orderId"] for answer in answers}) == 1
    assert len({answer.content for answer in answers}) == 1
    problem = is_problem(await stoic.submit(chain.first, TEA, key="k"), 422)
    assert problem["type"] == "urn:dibs:payload-mismatch"
    is_problem(await stoic.submit(chain.first, TEA, key="no,commas"), 400)
    assert len(await stoic.orders(chain.first)) == 2
    doubled = [is_placed(await stoic.submit(shop)) for shop in chain.shops]
    assert doubled[0]["orderId"] != doubled[1]["orderId"]
    for shop in chain.shops:
        assert await is_ready(stoic, shop, "degraded")
        text = (await stoic.get(shop, "/metrics")).text
        assert metric(text, "dibs_outage") == 1
        assert metric(text, "dibs_unguarded_total", name="POST /orders") >= 6


async def check_the_recovery(stoic: Customer, chain: Chain) -> None:
    """A double click is refused; a key from the outage is known to the database, then to both."""
    is_placed(await stoic.submit(chain.first))
    assert is_refused(await stoic.submit(chain.second), 429) <= WINDOW
    found = await stoic.submit(chain.first, SOUP, key="k")
    again = await stoic.submit(chain.second, SOUP, key="k")
    assert is_placed(found) == is_placed(again)
    assert "Idempotent-Replayed" not in found.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert len(await stoic.orders(chain.second)) == 5
    text = (await stoic.get(chain.first, "/metrics")).text
    assert metric(text, "dibs_outage") == 0
    assert metric(text, "orders_placed_total", outcome="found") >= 1


async def is_ready(customer: Customer, shop: Shop, status: str) -> bool:
    answer = await customer.get(shop, "/ready")
    assert answer.status_code == 200, answer.text
    return answer.json()["status"] == status


async def test_without_the_database(postgres: Postgres, valkey: Server) -> None:
    """503 and when to come again; nothing is left behind, so the next try is welcome."""
    async with served(valkey.url, postgres.new_database()) as client:
        assert (await client.get("/ready")).json()["status"] == "ok"
        postgres.stop()
        try:
            for headers in ({}, {"Idempotency-Key": "cart-1"}):
                answer = await client.post("/orders", json=TEA, headers=headers)
                is_problem(answer, 503)
                assert answer.headers["Retry-After"] == "1"
            is_problem(await client.get("/orders"), 503)
            report = is_problem(await client.get("/ready"), 503)
            assert (report["redis"], report["database"]) == ("ok", "out")
            assert (await client.get("/health")).json() == {"status": "ok"}
            assert valkey.keys() == []
        finally:
            postgres.start()
        for headers in ({}, {"Idempotency-Key": "cart-1"}):
            is_placed(await client.post("/orders", json=TEA, headers=headers))


async def test_a_database_that_hangs_is_out(postgres: Postgres, valkey: Server) -> None:
    """503 for everybody, also for more than there are threads; afterwards orders are placed."""
    patience = Patience(statement=1, pool=1, connect=2)
    async with served(valkey.url, postgres.new_database(), patience=patience) as client:
        is_placed(await client.post("/orders", json=TEA))
        with postgres.frozen():
            async with asyncio.timeout(20):  # hung for ever, before
                answers = await asyncio.gather(*(ask_in_vain(client, n) for n in range(1, 31)))
                for answer in answers:
                    is_problem(answer, 503)
                    assert answer.headers["Retry-After"] == "1"
                assert is_problem(await client.get("/ready"), 503)["database"] == "out"
        await eventually_placed(client, SOUP)


async def ask_in_vain(client: httpx.AsyncClient, quantity: int) -> httpx.Response:
    order = {"items": [{"sku": "tea", "quantity": quantity}]}
    return await client.post("/orders", json=order)


async def eventually_placed(client: httpx.AsyncClient, order: object) -> None:
    async with asyncio.timeout(20):
        while (await client.post("/orders", json=order)).status_code == 503:
            await asyncio.sleep(0.05)


# ------------------------------------------------------------------------------- sudden death


class Doom(NamedTuple):
    """An order that a process is in the middle of, and where to try it again."""

    customer: Customer
    chain: Chain
    key: str | None
    claim: str

    async def again(self) -> httpx.Response:
        return await self.customer.submit(self.chain.second, key=self.key)

    async def placed(self) -> httpx.Response | None:
        answer = await self.again()
        return answer if answer.status_code == 201 else None


async def test_an_order_outlives_its_process(
    chains: dict[str, Chain], store: Server, eventually: Eventually
) -> None:
    """Killed in the middle of an order: refused until the lease is over, then placed, once."""
    async with customers(*(f"unlucky-{kind}" for kind in KINDS)) as unlucky:
        with ExitStack() as stack:
            doomed = [Shop(store.url, chain.database) for chain in chains.values()]
            for shop in doomed:
                stack.callback(shop.child.close)
            for shop in doomed:
                shop.wait()
            dooms: list[Doom] = []
            for shop, customer, chain in zip(doomed, unlucky, chains.values(), strict=True):
                stack.enter_context(blocked(chain.database))
                for key in (None, "cart-1"):
                    claim = await in_the_middle(stack, shop, customer, key, store, eventually)
                    dooms.append(Doom(customer, chain, key, claim))
            for shop in doomed:
                shop.child.kill()
            ends = [key_ends(store, doom.claim)[0] for doom in dooms]
            for doom in dooms:
                is_refused(await doom.again(), 409 if doom.key else 429)
        for doom, end in zip(dooms, ends, strict=True):
            is_placed(await eventually(doom.placed, within=LEASE + 15))
            assert time.monotonic() >= end
        for customer, chain in zip(unlucky, chains.values(), strict=True):
            assert len(await customer.orders(chain.first)) == 2


async def in_the_middle(
    stack: ExitStack,
    shop: Shop,
    customer: Customer,
    key: str | None,
    store: Server,
    eventually: Eventually,
) -> str:
    """An order is submitted, and its claim is there; what the claim is called."""
    before = set(store.keys())
    stack.enter_context(hanging(shop, customer.name, key))
    [claim] = await eventually(lambda: set(store.keys()) - before, within=20)
    return claim


# ------------------------------------------------------------------------------- the endpoints


@asynccontextmanager
async def served(
    redis_url: str, database_url: str, customer: str = "alone", **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who talks to the service, without a network in between."""
    app = create_app(Settings(redis_url, database_url, **({"secret": SECRET} | settings)))
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://shop",
            headers={"X-User-Id": customer},
        ) as client:
            yield client


async def place_many(client: httpx.AsyncClient, number: int) -> list[str]:
    placed = []
    for quantity in range(1, number + 1):
        order = {"items": [{"sku": "tea", "quantity": quantity}]}
        placed.append(is_placed(await client.post("/orders", json=order))["orderId"])
    return placed


async def test_orders_are_listed_page_by_page(url: str, valkey: Server) -> None:
    """The newest first; `next` leads to the older ones, also while new ones come in."""
    async with served(valkey.url, url) as client:
        assert (await client.get("/orders")).json() == {"orders": [], "next": None}
        placed = await place_many(client, 5)
        page = (await client.get("/orders?limit=2")).json()
        seen = [order["orderId"] for order in page["orders"]]
        newest = {"items": [{"sku": "tea", "quantity": 9}]}
        is_placed(await client.post("/orders", json=newest))
        while page["next"]:
            page = (await client.get(page["next"])).json()
            seen += [order["orderId"] for order in page["orders"]]
        assert seen == placed[::-1]
        everything = (await client.get("/orders")).json()
        assert everything["next"] is None
        assert [each["items"][0]["quantity"] for each in everything["orders"]] == [9, 5, 4, 3, 2, 1]
        exact = (await client.get("/orders?limit=6")).json()
        assert exact["next"] is None


async def test_an_order_is_shown_as_it_was_placed(url: str, valkey: Server) -> None:
    """The same document when it is placed, listed and shown; nobody else gets to see it."""
    async with served(valkey.url, url) as client:
        order = is_placed(await client.post("/orders", json=TEA))
        assert list(order) == ["orderId", "placedAt", "items"]
        assert order["items"] == TEA["items"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", order["placedAt"])
        assert (await client.get(f"/orders/{order['orderId']}")).json() == order
        assert (await client.get("/orders")).json()["orders"] == [order]
        stranger = {"X-User-Id": "stranger"}
        is_problem(await client.get(f"/orders/{order['orderId']}", headers=stranger), 404)
        assert (await client.get("/orders", headers=stranger)).json()["orders"] == []
        cursor = f"/orders?before={order['orderId']}"
        is_problem(await client.get(cursor, headers=stranger), 400)


BAD_ORDERS: list[tuple[bytes, str | None]] = [
    (b"", None),
    (b"{", None),
    (b"\xff\xfe", None),
    (b"[]", None),
    (b"7", None),
    (b"[" * 60_000, None),
    (b"{}", "items"),
    (b'{"items": []}', "items"),
    (b'{"items": null}', "items"),
    (b'{"items": {"sku": "tea", "quantity": 1}}', "items"),
    (b'{"items": [{"sku": "tea"}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "tea", "quantity": 0}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "tea", "quantity": -1}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "tea", "quantity": 1000}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "tea", "quantity": "1"}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "tea", "quantity": true}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "tea", "quantity": 1.5}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "tea", "quantity": NaN}]}', "items.0.quantity"),
    (b'{"items": [{"sku": "", "quantity": 1}]}', "items.0.sku"),
    (b'{"items": [{"sku": "a b", "quantity": 1}]}', "items.0.sku"),
    (b'{"items": [{"sku": "tea\\u0000", "quantity": 1}]}', "items.0.sku"),
    (b'{"items": [{"sku": "tea\\n", "quantity": 1}]}', "items.0.sku"),
    (b'{"items": [{"sku": "\\ud800", "quantity": 1}]}', "items.0.sku"),
    (b'{"items": [{"sku": "' + b"x" * 65 + b'", "quantity": 1}]}', "items.0.sku"),
    (b'{"items": [{"sku": "tea", "quantity": 1, "price": 0}]}', "items.0.price"),
    (b'{"items": [{"sku": "tea", "quantity": 1}], "total": 0}', "total"),
    (b'{"items": [{"sku": "a", "quantity": 1}, {"sku": "a", "quantity": 1}]}', "items"),
    (b'{"items": [' + b",".join([b'{"sku": "a", "quantity": 1}'] * 51) + b"]}", "items"),
]


async def test_what_is_no_order(sqlite: str, valkey: Server) -> None:
    """400 with the field that is wrong; neither Redis nor the database hears of it."""
    json_type = {"Content-Type": "application/json"}
    async with served(valkey.url, sqlite) as client:
        for body, field in BAD_ORDERS:
            for key in ({}, {"Idempotency-Key": "cart-1"}):
                answer = await client.post("/orders", content=body, headers=json_type | key)
                problem = is_problem(answer, 400)
                assert problem.get("field") == field, body[:60]
        form = await client.post("/orders", content=json.dumps(TEA), headers={})
        is_problem(form, 400)
        assert valkey.keys() == []
        assert (await client.get("/orders")).json()["orders"] == []


async def test_what_is_refused_otherwise(sqlite: str, valkey: Server) -> None:
    """401 without a name, 413 for too long a body, 404 and 405: all of them problems."""
    async with served(valkey.url, sqlite) as client:
        for name in ("", "a b", "x" * 65, "\u00e9"):
            nobody = {"X-User-Id": name.encode("latin-1")}
            for answer in (
                await client.post("/orders", json=TEA, headers=nobody),
                await client.get("/orders", headers=nobody),
            ):
                is_problem(answer, 401)
        del client.headers["X-User-Id"]
        is_problem(await client.post("/orders", json=TEA), 401)
        both = [("X-User-Id", "forged"), ("X-User-Id", "alone")]  # a gateway that adds its own
        is_problem(await client.post("/orders", json=TEA, headers=both), 401)
        client.headers["X-User-Id"] = "alone"
        long = {"items": [], "padding": "x" * 70_000}
        is_problem(await client.post("/orders", json=long), 413)
        is_problem(await client.post(FAST, json=long), 413)
        for path in ("/nothing", "/orders/7", f"/orders/{'0' * 32}", f"/orders/{'f' * 33}"):
            is_problem(await client.get(path), 404)
        is_problem(await client.delete("/orders"), 405)
        for query in ("limit=0", "limit=101", "limit=x", f"before={'0' * 33}", "before=7"):
            problem = is_problem(await client.get(f"/orders?{query}"), 400)
            assert problem["field"] == query.partition("=")[0]
        is_problem(await client.get(f"/orders?before={'0' * 32}"), 400)


async def test_the_document_says_what_is_answered(sqlite: str, valkey: Server) -> None:
    """OpenAPI has the guard's answers, and no 422 for what is a 400."""
    async with served(valkey.url, sqlite) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    placing = paths["/orders"]["post"]
    assert {"201", "400", "401", "409", "422", "429", "503"} <= set(placing["responses"])
    names = [parameter["name"].lower() for parameter in placing["parameters"]]
    assert sorted(names) == ["idempotency-key", "x-user-id"]
    for path in (FAST, SLOW, TIMEOUT):
        assert "429" in paths[path]["post"]["responses"]
        assert "422" not in paths[path]["post"]["responses"]


async def test_other_orders_are_no_duplicates(sqlite: str, valkey: Server) -> None:
    """The layout of the body does not matter; the customer, the order and the keys do."""
    async with served(valkey.url, sqlite) as client:
        is_placed(await client.post("/orders", json=TEA))
        pretty = json.dumps(TEA, indent=4, sort_keys=True)
        headers = {"Content-Type": "application/json"}
        is_refused(await client.post("/orders", content=pretty, headers=headers), 429)
        is_placed(await client.post("/orders", json=SOUP))
        is_placed(await client.post("/orders", json=TEA, headers={"X-User-Id": "another"}))
        is_placed(await client.post("/orders", json=TEA, headers={"Idempotency-Key": "a"}))
        is_placed(await client.post("/orders", json=TEA, headers={"Idempotency-Key": "b"}))


def test_the_database_knows_a_key_as_the_guard_does() -> None:
    """Quoted or not it is the same; of another customer it is another."""
    assert submission_of("a", "k") == submission_of("a", ' "k" ') == submission_of("a", '"k";v=1')
    assert (
        submission_of("a", '"x\\"y"') == submission_of("a", '"x\\"y"') != submission_of("a", "xy")
    )
    assert len({submission_of("a", "k"), submission_of("b", "k"), submission_of("a", "l")}) == 3
    assert submission_of("ab", "c") != submission_of("a", "bc")


# ------------------------------------------------------------------------------- as it is served


def test_it_runs_in_uvicorn(tmp_path: Path, valkey: Server) -> None:
    """With settings from `.env`, and a database in the working folder; ends without a word."""
    (tmp_path / ".env").write_text(f"REDIS_URL={valkey.url}\n")
    port = free_port()
    program = [sys.executable, "-m", "uvicorn", "apps.orders.main:app", "--port", str(port)]
    names = ("DATABASE_URL", "REDIS_URL")
    process = subprocess.Popen(
        [*program, "--app-dir", str(ROOT)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in names},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
    try:
        eventually_now(lambda: is_answering(http), within=30)
        is_placed(http.post("/orders", json=TEA, headers={"X-User-Id": "alone"}))
        assert (tmp_path / "orders.db").stat().st_size > 0
        assert len(valkey.keys()) == 1
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
        assert "Application startup complete" in said and "Traceback" not in said, said
        assert "alone" not in said
    finally:
        http.close()
        process.kill()
        process.communicate()


def is_answering(http: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get("/ready").json()["status"] == "ok"
    return False


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings("nonsense://", "sqlite://"), "nonsense"),
        (Settings("embedded://", "mysql://localhost/shop"), "DATABASE_URL"),
        (Settings("embedded://", "orders.db"), "DATABASE_URL"),
        (Settings("redis://cache.shop.test:6379", "sqlite://"), "ORDERS_SECRET must be set"),
        (Settings("embedded://", "postgresql://me@db.shop.test/x"), "ORDERS_SECRET must be set"),
        (Settings("redis+sentinel://a:1,b:2/main", "sqlite://"), "ORDERS_SECRET must be set"),
        (Settings("embedded://", "sqlite://", "short"), "ORDERS_SECRET must have 16"),
    ],
)
def test_a_setting_that_cannot_be_used(settings: Settings, said: str) -> None:
    """Told when the app is made, before anything connects."""
    with pytest.raises(ValueError, match=said):
        create_app(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("ORDERS_REFUSALS", "xml"), ("DATABASE_STATEMENT_SECONDS", "long"),
     ("DATABASE_POOL_SECONDS", "0"), ("DATABASE_CONNECT_SECONDS", "inf")],
)  # fmt: skip
def test_a_setting_of_the_environment_is_checked(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A sentence says which one cannot be used."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        Settings.from_environment()


# ------------------------------------------------------------------------------- secrets and names


async def test_a_key_depends_on_the_secret(sqlite: str, valkey: Server) -> None:
    """The same order of the same customer has another key under another secret: none can guess."""
    keys: list[str] = []
    for secret in (SECRET, "another secret of the tests"):
        valkey.flush()
        async with served(valkey.url, sqlite, secret=secret) as client:
            is_placed(await client.post("/orders", json=TEA))
            keys += valkey.keys()
    assert len(set(keys)) == 2


def test_without_a_secret_one_machine_has_one(caplog: pytest.LogCaptureFixture) -> None:
    """All its processes make the same one, and say so; elsewhere it must be set."""
    local = Settings("redis://127.0.0.1:1", "postgresql://me@/shop?host=/run/pg")
    assert local.usable_secret() == Settings("embedded://").usable_secret() != ""
    assert "ORDERS_SECRET is not set" in caplog.text


async def test_a_name_that_looks_like_an_address_is_a_name(sqlite: str, valkey: Server) -> None:
    """Somebody called 127.0.0.1 is not the nameless one who comes from there."""
    async with served(valkey.url, sqlite) as client:
        nameless = httpx.Request("POST", "http://shop/lock-release-fast", json=TEA)
        named = client.post("/lock-release-fast", json=TEA, headers={"X-User-Id": "127.0.0.1"})
        answers = await asyncio.gather(client.send(nameless), named)
        assert [answer.status_code for answer in answers] == [200, 200]


# ------------------------------------------------------------------------------- the lock's log


async def test_the_life_of_a_lock_is_in_the_log(
    sqlite: str, valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Claimed, refused, done, and a lock value that does not match; it names nobody."""
    caplog.set_level("INFO", "apps.orders.lock")
    async with served(valkey.url, sqlite) as client:
        is_placed(await client.post("/orders", json=TEA))
        is_refused(await client.post("/orders", json=TEA), 429)
        valkey.flush()
        working = asyncio.create_task(client.post("/lock-release-fast", json=SOUP))
        while not valkey.keys():
            await asyncio.sleep(0.01)
        valkey.client().set(valkey.keys()[0], "somebody else's")
        assert (await working).status_code == 200
    ours = [record for record in caplog.records if record.name == "apps.orders.lock"]
    said = [(record.levelname, record.getMessage()) for record in ours]
    levels = [level for level, _ in said]
    assert levels == ["INFO", "INFO", "INFO", "INFO", "WARNING"], said
    for word, (_, line) in zip(("claimed", "done", "refused", "claimed"), said, strict=False):
        assert word in line
    assert "lock value does not match" in said[-1][1]
    assert not re.search(r"alone|oolong|[0-9a-f]{16}|else's", str(said))


@pytest.mark.parametrize(
    ("kind", "level", "words"),
    [
        ("claimed", "INFO", "claimed"),
        ("duplicate", "INFO", "refused"),
        ("released", "INFO", "released, after 1.500 s"),
        ("late", "WARNING", "value_mismatch"),
        ("leaked", "ERROR", "release failed"),
    ],
)
def test_each_step_has_the_level_of_the_seed(
    kind: Any, level: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """INFO for what is meant to happen, WARNING for another's lock, ERROR for a failed release."""
    caplog.set_level("INFO", "apps.orders.lock")
    held = None if kind in ("claimed", "duplicate") else 1.5
    log_life_cycle(Event(kind=kind, name="POST /orders", at=0.0, held=held))
    [record] = caplog.records
    assert record.levelname == level
    assert "POST /orders" in record.getMessage() and words in record.getMessage()


# ------------------------------------------------------------------------------- the seed's Result


async def test_refusals_in_the_seeds_envelope(sqlite: str, valkey: Server) -> None:
    """ORDERS_REFUSALS=result: `Result.error` with retryAfter and lockManagement, status and all."""
    async with served(valkey.url, sqlite, refusals="result") as client:
        is_placed(await client.post("/orders", json=TEA))
        done = is_result(await client.post("/orders", json=TEA), 429)
        assert done["lockManagement"] == "到期释放机制"
        first, second = await asyncio.gather(
            *(client.post("/lock-release-fast", json=TEA) for _ in range(2))
        )
        refused = first if first.status_code == 429 else second
        result = is_result(refused, 429)
        assert result["lockManagement"] == "自动释放机制"
        assert result["msg"] == "10秒防重复，但会主动释放"
        assert result["retryAfter"] == int(refused.headers["Retry-After"]) >= 1
        assert "lockManagement" not in is_result(await client.post("/orders", content=b"{"), 400)
        is_result(await client.get("/nowhere"), 404)
        is_result(await client.post("/orders", headers={"X-User-Id": ""}, json=TEA), 401)


def is_result(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    result = answer.json()
    assert (result["code"], result["data"]) == (status, None) and result["msg"]
    return result
