"""The orders service, as customers meet it: real processes, real HTTP, real stores.

Two processes share one database and one Valkey, as behind a load balancer; once with SQLite, once
with PostgreSQL.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import httpx2 as httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from apps.databases import Timeouts
from apps.orders.service import LEASE, WINDOW
from dibs.testing import Child, Server, ServerMissing
from dibs.testing.servers import free_port
from tests.apps.postgres import Postgres

from .orders_service import (
    FAST,
    SECRET,
    SLOW,
    SOUP,
    TEA,
    TIMEOUT,
    Answered,
    is_placed,
    is_problem,
    is_refused,
    served,
)

pytestmark = pytest.mark.only_on("linux", "darwin")
KINDS = ("sqlite", "postgresql")
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
    """The service in its own process."""

    def __init__(self, redis_url: str, database_url: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {"REDIS_URL": redis_url, "DATABASE_URL": database_url, "ORDERS_SECRET": SECRET}
        self.child = Child(serve, self.port, settings)

    def wait(self) -> None:
        assert self.child.line(within=120) == "ready"


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
    """Block every write of an order until this block ends."""
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
    """A client of shops."""

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


def metric(text: str, metric: str, /, **labels: str) -> float:
    """The sum of the series with these labels; 0: there are none yet."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric and labels.items() <= sample.labels.items()
    )


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


async def click(
    shop: Shop, request: bytes, ready: asyncio.Barrier, answers: list[Answered]
) -> None:
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
    answers.append(Answered(asked, answered, answer))


async def rush(customer: str, chain: Chain) -> list[Answered]:
    """Two hundred clicks in one moment. Not by httpx: that alone would take seconds for so many."""
    request, ready = submission(customer), asyncio.Barrier(200)
    answers: list[Answered] = []
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(click(chain.shops[number % 2], request, ready, answers))
    return answers


def key_ends(store: Server, key: str) -> tuple[float, float]:
    """Between which moments of our clock the server will forget that key."""
    before = time.monotonic()
    left = store.client().pttl(key) / 1000
    assert left > 0
    return before + left, time.monotonic() + left


async def test_two_hundred_clicks_are_one_order(chains: dict[str, Chain], store: Server) -> None:
    """One order; 199 clear answers, each with a correct Retry-After.

    Correct means: a client that comes back then is not too early, and loses less than a second.
    While the first is still running it is the earliest moment: its end is not known.
    """
    async with customers(*KINDS) as everybody:
        back = 0.0
        for customer, chain in zip(everybody, chains.values(), strict=True):
            before = set(store.keys())
            answers = await rush(customer.name, chain)
            [key] = set(store.keys()) - before
            back = max(back, check_the_rush(answers, key_ends(store, key)))
            assert len(await customer.orders(chain.second)) == 1
            assert customer.name not in key and "oolong" not in key
        await asyncio.sleep(back - time.monotonic())
        for customer, chain in zip(everybody, chains.values(), strict=True):
            is_placed(await customer.submit(chain.first))
            assert len(await customer.orders(chain.second)) == 2


def check_the_rush(answers: list[Answered], ends: tuple[float, float]) -> float:
    """When the last of them may come back."""
    assert Counter(each.answer.status_code for each in answers) == {201: 1, 429: 199}
    refused = [each for each in answers if each.answer.status_code == 429]
    back = 0.0
    for asked, answered, answer in refused:
        wait = is_refused(answer, 429, "This order was submitted a moment ago.")
        at_work = answer.json()["state"] == "running"
        assert answered + wait >= ends[0] - at_work
        assert asked + wait < ends[1] + 1
        back = max(back, answered + wait)
    return back


async def test_what_two_processes_counted(
    chains: dict[str, Chain], store: Server, eventually: Eventually
) -> None:
    """The seed's figures add up over the processes: set, refused, deleted, held."""
    chain = chains["sqlite"]

    async def pages() -> list[str]:
        return [(await customer.get(shop, "/metrics")).text for shop in chain.shops]

    def grown(series: str, /, **labels: str) -> float:
        totals = [sum(metric(text, series, **labels) for text in page) for page in (before, after)]
        return totals[1] - totals[0]

    async def is_placed() -> bool:  # counted when its answer has left
        nonlocal after
        after = await pages()
        return grown("orders_placed_total") >= 1

    async with customers("counted") as [customer]:
        before = after = await pages()
        answers = await asyncio.gather(*(customer.submit(shop) for shop in chain.shops * 5))
        await eventually(is_placed)
    assert Counter(answer.status_code for answer in answers) == {201: 1, 429: 9}
    name = "POST /orders"
    assert grown("dibs_claims_set_total", name=name, outcome="ok") == 1
    assert grown("dibs_claims_set_total", name=name, outcome="duplicate") == 9
    assert grown("dibs_claims_deleted_total", name=name, outcome="ok") == 1
    assert grown("dibs_claims_deleted_total", name=name) == 1
    assert grown("dibs_hold_seconds_count", name=name) == 1
    assert grown("orders_placed_total") == 1
    assert sum(metric(text, "dibs_open_claims") for text in after) == 0
    assert "counted" not in "".join(after) and "oolong" not in "".join(after)


class Case(NamedTuple):
    """A client that submits to one of the seed's endpoints."""

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
    """A claim that was lost ends without touching its successor's claim."""
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
    """A client that has sent its order, and hangs up without having read the response."""
    with socket.create_connection(("127.0.0.1", shop.port)) as line:
        line.sendall(submission(customer, key))
        yield


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_answer_is_given_again_by_the_service(
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
        again = await eventually(lambda: replayed(leaver, chain.second), within=90)
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
async def test_orders_without_redis(
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
                await eventually(lambda shop=shop: is_ready(stoic, shop, "ok"), within=90)
        await check_the_recovery(stoic, chain)


async def check_the_outage(stoic: Customer, chain: Chain, known: dict[str, Any]) -> None:
    """The table answers, in each process: with a key, and for a double click without one."""
    assert is_placed(await stoic.submit(chain.second, key="before")) == known
    answers = await asyncio.gather(
        *(patient(stoic, shop, key) for shop in chain.shops * 5 for key in ("k", '"k"'))
    )
    assert len({is_placed(answer)["orderId"] for answer in answers}) == 1
    assert len({answer.content for answer in answers}) == 1
    problem = is_problem(await stoic.submit(chain.first, TEA, key="k"), 422)
    assert problem["type"] == "urn:dibs:payload-mismatch"
    is_problem(await stoic.submit(chain.first, TEA, key="no,commas"), 400)
    assert len(await stoic.orders(chain.first)) == 2
    is_placed(await stoic.submit(chain.first))
    assert is_refused(await stoic.submit(chain.second), 429) <= WINDOW
    for shop in chain.shops:
        assert await is_ready(stoic, shop, "degraded")
        text = (await stoic.get(shop, "/metrics")).text
        assert metric(text, "dibs_outage") == 1
        assert metric(text, "dibs_unguarded_total", name="POST /orders") >= 6


async def patient(customer: Customer, shop: Shop, key: str) -> httpx.Response:
    """A client that comes back while the first is at work."""
    while True:
        answer = await customer.submit(shop, SOUP, key=key)
        if answer.status_code != 409:
            return answer
        assert answer.json()["state"] == "running"
        await asyncio.sleep(0.1)


async def check_the_recovery(stoic: Customer, chain: Chain) -> None:
    """A double click is refused; a key from the outage is known to the database, then to both."""
    found = await stoic.submit(chain.first, SOUP, key="k")
    again = await stoic.submit(chain.second, SOUP, key="k")
    assert is_placed(found) == is_placed(again)
    assert found.headers["Idempotent-Replayed"] == again.headers["Idempotent-Replayed"] == "true"
    other = {"items": [{"sku": "rice", "quantity": 1}]}
    is_placed(await stoic.submit(chain.first, other))
    assert is_refused(await stoic.submit(chain.second, other), 429) <= WINDOW
    assert len(await stoic.orders(chain.second)) == 4
    assert metric((await stoic.get(chain.first, "/metrics")).text, "dibs_outage") == 0


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
    """503 for all requests, also for more than there are threads; afterwards orders are placed."""
    timeouts = Timeouts(statement=1, pool=1, connect=2)
    async with served(valkey.url, postgres.new_database(), timeouts=timeouts) as client:
        is_placed(await client.post("/orders", json=TEA))
        with postgres.frozen():
            async with asyncio.timeout(20):  # hung for ever before
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


# ------------------------------------------------------------------------------- killed processes


class InterruptedOrder(NamedTuple):
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
    async with customers(*(f"affected-{kind}" for kind in KINDS)) as affected:
        with ExitStack() as stack:
            killed = [Shop(store.url, chain.database) for chain in chains.values()]
            for shop in killed:
                stack.callback(shop.child.close)
            for shop in killed:
                shop.wait()
            interrupted: list[InterruptedOrder] = []
            for shop, customer, chain in zip(killed, affected, chains.values(), strict=True):
                stack.enter_context(blocked(chain.database))
                for key in (None, "cart-1"):
                    claim = await in_the_middle(stack, shop, customer, key, store, eventually)
                    interrupted.append(InterruptedOrder(customer, chain, key, claim))
            for shop in killed:
                shop.child.kill()
            ends = [key_ends(store, order.claim)[0] for order in interrupted]
            for order in interrupted:
                is_refused(await order.again(), 409 if order.key else 429)
        for order, end in zip(interrupted, ends, strict=True):
            is_placed(await eventually(order.placed, within=LEASE + 15))
            assert time.monotonic() >= end
        for customer, chain in zip(affected, chains.values(), strict=True):
            assert len(await customer.orders(chain.first)) == 2


async def in_the_middle(
    stack: ExitStack,
    shop: Shop,
    customer: Customer,
    key: str | None,
    store: Server,
    eventually: Eventually,
) -> str:
    """An order is submitted and claimed. Returns the key of the claim."""
    before = set(store.keys())
    stack.enter_context(hanging(shop, customer.name, key))
    [claim] = await eventually(lambda: set(store.keys()) - before, within=90)
    return claim
