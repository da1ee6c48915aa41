"""What the orders service answers: lists, single orders, mistakes, and its own description."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import httpx2 as httpx
import pytest
from sqlalchemy import Column, MetaData, String, create_engine

from apps.orders.schema import lines, orders
from dibs.testing import Server

from .orders_service import (
    FAST,
    SLOW,
    SOUP,
    TEA,
    TIMEOUT,
    is_placed,
    is_problem,
    is_refused,
    served,
)

pytestmark = pytest.mark.only_on("linux", "darwin")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


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
    """The same document when it is placed, listed and shown; other customers do not see it."""
    async with served(valkey.url, url) as client:
        order = is_placed(await client.post("/orders", json=TEA))
        assert list(order) == ["orderId", "placedAt", "items"]
        assert order["items"] == TEA["items"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", order["placedAt"])
        assert (await client.get(f"/orders/{order['orderId']}")).json() == order
        assert (await client.get("/orders")).json()["orders"] == [order]
        other = {"X-User-Id": "other"}
        is_problem(await client.get(f"/orders/{order['orderId']}", headers=other), 404)
        assert (await client.get("/orders", headers=other)).json()["orders"] == []
        cursor = f"/orders?before={order['orderId']}"
        is_problem(await client.get(cursor, headers=other), 400)


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
    """400 with the field that is wrong; nothing is sent to Redis or the database."""
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


async def test_a_wrong_order_under_an_old_key_does_not_spoil_it(
    sqlite: str, valkey: Server
) -> None:
    """Redis has forgotten the key, the database has not: the right order is found again."""
    keyed = {"Idempotency-Key": "cart-17"}
    async with served(valkey.url, sqlite) as client:
        placed = is_placed(await client.post("/orders", json=TEA, headers=keyed))
        valkey.client().flushall()
        is_problem(await client.post("/orders", json=SOUP, headers=keyed), 422)
        assert is_placed(await client.post("/orders", json=TEA, headers=keyed)) == placed
        is_problem(await client.post("/orders", json=SOUP, headers=keyed), 422)


async def test_a_database_of_an_earlier_version(url: str, valkey: Server) -> None:
    """Its orders are still there, and new ones are placed."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    earlier = MetaData()
    for table in (orders, lines):
        table.to_metadata(earlier)
    known = earlier.tables["shop_orders"]
    known.append_column(Column("submission", String(64), nullable=False, unique=True))
    row = {"order_id": "0" * 32, "customer": "alone", "submission": "s", "placed_at": NOW}
    with engine.begin() as connection:
        earlier.create_all(connection)
        connection.execute(known.insert().values(row))
        line = {"order": 1, "position": 0, "sku": "tea", "quantity": 2}
        connection.execute(earlier.tables["shop_order_lines"].insert().values(line))
    engine.dispose()
    for _ in range(2):  # it is started again
        async with served(valkey.url, url) as client:
            valkey.flush()
            keyed = {"Idempotency-Key": "cart-17"}
            placed = is_placed(await client.post("/orders", json=TEA, headers=keyed))
            listed = (await client.get("/orders")).json()["orders"]
            assert [each["orderId"] for each in listed] == [placed["orderId"], "0" * 32]
            assert listed[1]["items"] == [{"sku": "tea", "quantity": 2}]


async def test_another_spelling_of_the_path_sells_nothing_twice(
    sqlite: str, valkey: Server
) -> None:
    """The router accepts a line feed after the path: with a key, and within ten seconds."""
    async with served(valkey.url, sqlite) as client:
        for headers in ({}, {"idempotency-key": "k-1"}):
            first = await client.post("/orders", json=SOUP, headers=headers)
            again = await client.post("/orders%0A", json=SOUP, headers=headers)
            assert first.status_code == 201 and again.status_code == (201 if headers else 429)
            assert not headers or again.json() == first.json()
        assert len((await client.get("/orders")).json()["orders"]) == 2
