"""The playground's `once` panel: a shop of one process, opened by the first visitor."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import redis.asyncio
from starlette.requests import ClientDisconnect

from apps.playground.engine import Engine, plain_client
from apps.playground.faults import Faults
from apps.playground.hold import Stream
from apps.playground.listener import adopt, listen
from apps.playground.orders import OrdersPanel
from dibs.testing import eventually

from .playground_process import Playground, running
from .test_playground_menu import alive, children

pytestmark = pytest.mark.only_on("linux", "darwin")

TIMEOUT = 60.0
"""Seconds: a process may take its time to start on a busy machine."""
ADDRESS = ("127.0.0.1", 0)
SLIP = {"soy-milk": 2, "egg-pancake": 1}
Json = dict[str, Any]


@pytest.fixture
def visitor(playground: Playground) -> Iterator[httpx.Client]:
    with playground.visitor() as client:
        client.timeout = httpx.Timeout(TIMEOUT)
        yield client


def order(visitor: httpx.Client, way: str, items: Json = SLIP) -> Json:
    answer = visitor.post(f"/orders/{way}", json={"items": items})
    assert answer.status_code == 200, answer.text
    return answer.json()


def happened(report: Json) -> dict[str, int]:
    assert {event["name"] for event in report["events"]} == {"POST /orders"}
    return {event["kind"]: event["count"] for event in report["events"]}


# ------------------------------------------------------------------------------- its keys


async def test_a_look_does_not_forget_the_keys_of_an_order_that_is_placed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server is asked for the keys that are known; the answer comes when there is another."""
    me, kept = "0123abcd", {"orders:once:over": "double"}
    async with Engine() as engine, OrdersPanel(engine, Faults(engine)) as panel:
        panel._kept = {me: dict(kept)}
        execute = redis.asyncio.client.Pipeline.execute

        async def order_meanwhile(self: Any, *args: Any, **kwargs: Any) -> Any:
            panel._kept[me] = {"orders:once:new": "retry"} | panel._kept[me]
            return await execute(self, *args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(redis.asyncio.client.Pipeline, "execute", order_meanwhile)
            assert await panel._keys(me) == []
        async with plain_client(engine.socket()) as server:
            await server.set("orders:once:new", "1", px=60_000)
        shown = await panel._keys(me)
    assert shown is not None and [each["key"] for each in shown] == ["orders:once:new"]


# ------------------------------------------------------------------------------- the shop


def test_a_double_click_is_one_order(visitor: httpx.Client) -> None:
    """One 201, one 429 with a message and Retry-After, one order, one key for the window."""
    assert visitor.get("/orders/all").json() == {"orders": [], "keys": []}
    report = order(visitor, "double")
    refused, placed = sorted(report["exchanges"], key=lambda each: each["status"], reverse=True)
    assert (placed["status"], refused["status"], report["placed"]) == (201, 429, 1)
    assert refused["headers"] == {"Retry-After": "10"} and refused["key"] is None
    assert refused["body"]["message"] == "This order was submitted a moment ago."
    assert [each["orderId"] for each in report["orders"]] == [placed["body"]["orderId"]]
    assert {line["sku"]: line["quantity"] for line in report["orders"][0]["items"]} == SLIP
    assert happened(report) == {"claimed": 1, "duplicate": 1, "completed": 1}
    (key,) = report["keys"]
    assert key["key"].startswith("orders:once:") and 0 < key["left"] <= 10
    assert visitor.get("/orders/all").json()["orders"] == report["orders"]


def test_the_same_is_refused_and_another_is_not(visitor: httpx.Client) -> None:
    """Within the window: the same slip twice more, no order; another slip, another order."""
    order(visitor, "double")
    again = order(visitor, "double")
    assert [each["status"] for each in again["exchanges"]] == [429, 429]
    assert again["placed"] == 0 and len(again["orders"]) == 1
    assert all(1 <= int(each["headers"]["Retry-After"]) <= 10 for each in again["exchanges"])
    assert order(visitor, "double", {"soy-milk": 3})["placed"] == 1


def test_a_lost_answer_is_given_again_on_the_page(visitor: httpx.Client) -> None:
    """The first line breaks; under the same key the same order comes back, marked, to the byte."""
    report = order(visitor, "retry")
    lost, found = report["exchanges"]
    assert "status" not in lost and "body" not in lost
    assert lost["key"] and lost["key"] == found["key"]
    assert found["status"] == 201 and found["headers"]["Idempotent-Replayed"] == "true"
    assert report["placed"] == 1 and found["body"] == report["orders"][0]
    assert happened(report) == {"claimed": 1, "completed": 1, "replayed": 1}
    (key,) = report["keys"]
    assert key["way"] == "retry" and 86_000 < key["left"] <= 86_400
    second = order(visitor, "retry")
    assert second["placed"] == 1 and second["exchanges"][0]["key"] != lost["key"]


def test_a_crash_and_a_server_that_forgets_leave_one_order(visitor: httpx.Client) -> None:
    """Killed between commit and answer, then Redis is emptied: the database has the answer."""
    report = order(visitor, "forget")
    lost, found = report["exchanges"]
    assert "status" not in lost and lost["key"] == found["key"]
    assert (found["status"], found["refused"]) == (201, 0)
    assert found["headers"]["Idempotent-Replayed"] == "true"
    assert report["placed"] == 1 and found["body"] == report["orders"][0]
    assert happened(report)["replayed"] == 1
    (key,) = report["keys"]
    assert key["way"] == "forget" and key["left"] > 86_000
    assert order(visitor, "double")["placed"] == 1


def test_customers_do_not_meet(playground: Playground, visitor: httpx.Client) -> None:
    """The same order of another customer is a different one, and customers see only their own."""
    mine = order(visitor, "double")
    with playground.visitor() as other:
        other.timeout = httpx.Timeout(TIMEOUT)
        theirs = order(other, "double")
    assert theirs["placed"] == 1 and len(theirs["orders"]) == 1
    assert theirs["orders"] != mine["orders"]
    assert not {each["key"] for each in mine["keys"]} & {each["key"] for each in theirs["keys"]}


def test_what_the_orders_panel_refuses(playground: Playground, visitor: httpx.Client) -> None:
    """Nonsense gets a sentence, the shop's own refusals come through, others get nothing."""
    for body in (b"{", b"[]", b"{}", b'{"items": []}', b'{"items": {}}', b"[" * 900, b"\xff"):
        answer = visitor.post("/orders/double", content=body)
        assert answer.status_code == 400
        assert re.fullmatch(r"[A-Za-z][^.]* must be [^.]*\.", answer.json()["error"])
    assert visitor.post("/orders/thrice", json={"items": SLIP}).status_code == 404
    assert visitor.post("/orders/double", content=b"x" * 5000).status_code == 413
    for items in ({"soy-milk": 0}, {"soy-milk": "2"}, {"../x": 1}):
        report = order(visitor, "double", items)
        assert [each["status"] for each in report["exchanges"]] == [400, 400]
        assert not report["orders"] and not report["events"]
    for method, path in (("GET", "/orders/all"), ("POST", "/orders/double")):
        other = httpx.request(method, playground.url + path, trust_env=False)
        assert other.status_code == 400 and "Open the page first" in other.json()["error"]


def test_an_outage_is_shown_as_it_is(visitor: httpx.Client) -> None:
    """The server is stopped: with a key there is still one order; what is kept is not known."""
    assert visitor.get("/orders/all").status_code == 200
    assert visitor.post("/faults/stop").status_code == 202
    during = order(visitor, "retry")
    assert during["placed"] == 1 and during["exchanges"][1]["status"] == 201
    eventually(lambda: visitor.get("/orders/all").json()["keys"] is not None, within=TIMEOUT)
    eventually(lambda: "duplicate" in happened(order(visitor, "double")), within=TIMEOUT)


# ------------------------------------------------------------------------------- begin and end


def test_a_killed_page_leaves_nothing_behind() -> None:
    """Not even a database: who is left alone removes its own files."""

    def files() -> list[Path]:
        return [path for path in Path(playground.folder).rglob("*") if path.is_file()]

    with running() as playground, playground.visitor() as visitor:
        assert not children(playground)
        visitor.timeout = httpx.Timeout(TIMEOUT)
        order(visitor, "double")
        pids = children(playground)
        assert len(pids) == 1 and "orders.db" in {path.name for path in files()}
        playground.process.kill()
        eventually(lambda: not alive(pids) and not playground.servers() and not files(), within=90)


# ------------------------------------------------------------------------------- the line


async def test_small_answers_leave_at_once() -> None:
    """The sockets of the page and of its services have TCP_NODELAY set."""
    held_back: asyncio.Future[int]

    def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = writer.get_extra_info("socket")
        held_back.set_result(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    for at_home in (lambda: listen(ADDRESS), lambda: adopt(listen(ADDRESS).detach())):
        held_back = asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(welcome, sock=at_home()) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await held_back
            writer.close()
            await writer.wait_closed()


async def test_a_stream_ends_with_its_page() -> None:
    """When the browser has left, its source is closed: now, and not when it is collected."""
    steps: list[str] = []

    async def source() -> AsyncGenerator[str, None]:
        try:
            yield "something"
        finally:
            steps.append("closed")

    async def send(message: Any) -> None:
        steps.append(message["type"])
        if message["type"] == "http.response.body":
            raise OSError("the browser has left")

    async def receive() -> Any:
        return await asyncio.Event().wait()

    made = source()
    with pytest.raises(ClientDisconnect):
        await Stream(made)({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
    assert steps == ["http.response.start", "http.response.body", "closed"]


# ------------------------------------------------------------------------------- in a browser


def test_a_person_sees_one_order(page: Any) -> None:
    """From the navigation to the slip; two clicks: 201 and 429, a clock that runs, one ticket."""
    from playwright.sync_api import expect

    page.clock.install()
    page.get_by_role("link", name="once").click()
    expect(page.locator("#hold")).to_be_hidden()
    expect(page.locator("#no-tickets")).to_be_visible()
    page.get_by_role("button", name="Double-click “Order”").click()
    expect(page.locator("#sum")).to_have_text("2 requests, 1 new order.")
    expect(page.locator(".ticket")).to_have_count(1)
    expect(page.locator(".ticket li")).to_have_text(["1×蛋餅", "2×冰豆漿"])
    expect(page.locator(".try[data-is=placed] .talk")).to_contain_text("201 Created")
    refused = page.locator(".try[data-is=refused]")
    expect(refused.locator(".says")).to_have_text("This order was submitted a moment ago.")
    expect(refused.locator(".talk")).to_contain_text("429 Too Many Requests")
    expect(refused.locator(".talk")).to_contain_text("Retry-After: 10")
    expect(refused.locator(".talk")).to_be_in_viewport()
    expect(page.locator("#orders-events .kind")).to_have_text(["completed", "duplicate", "claimed"])
    expect(page.locator("#kept li")).to_contain_text(["remembers that it was done for"])

    seen = float(refused.locator(".clock").inner_text().removesuffix("s"))
    assert 0 < seen <= 10
    page.clock.fast_forward(1000)
    assert 0 <= float(refused.locator(".clock").inner_text().removesuffix("s") or 0) < seen
    page.clock.fast_forward(10_000)
    expect(refused.locator(".clock")).to_be_empty()
    expect(refused.locator(".says")).to_have_text(re.compile("the same order would be a new one"))
    expect(page.locator("#kept li")).to_be_hidden()


def test_a_person_loses_an_answer(page: Any) -> None:
    """By keyboard: a longer slip, an answer that is lost, and the same order again, marked."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="once").click()
    page.get_by_role("button", name="One rice roll more").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Order, lose the answer, retry").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#sum")).to_have_text("2 requests, 1 new order.")
    first, second = page.locator(".try.first"), page.locator(".try.second")
    expect(first.locator("h3")).to_have_text("First try")
    expect(first.locator(".talk")).to_contain_text("✗ hung up")
    expect(second.locator(".tag")).to_have_text("replayed")
    expect(second.locator(".talk")).to_contain_text("Idempotent-Replayed: true")
    keys = [re.search(r"slip-\w+", each.locator(".talk").inner_text()) for each in (first, second)]
    assert keys[0] and keys[1] and keys[0][0] == keys[1][0]
    expect(page.locator(".ticket")).to_have_count(1)
    expect(page.locator(".ticket li")).to_have_text(["1×蛋餅", "1×飯糰", "2×冰豆漿"])
    expect(page.locator("#kept li")).to_contain_text(["remembers the answer for 24 h"])
    expect(page.locator("#orders-code .line.now").first).to_contain_text('after="replay"')

    page.reload()
    expect(page.locator(".ticket")).to_have_count(1)
    expect(page.locator("#kept li")).to_have_count(1)


def test_a_person_sees_that_a_crash_leaves_one_order(page: Any) -> None:
    """The process dies after its commit, Redis forgets, and the next click gets the answer."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="once").click()
    expect(page.locator("#no-tickets")).to_be_visible()
    page.get_by_role("button", name="Order, crash, empty Redis, retry").click()
    expect(page.locator("#sum")).to_have_text("2 requests, 1 new order.")
    first, second = page.locator(".try.first"), page.locator(".try.second")
    expect(first.locator(".says")).to_contain_text("Committed; then the service was killed")
    expect(first.locator(".talk")).to_contain_text("✗ connection lost")
    expect(second.locator(".says")).to_contain_text("from the database")
    expect(second.locator(".tag")).to_have_text("replayed")
    expect(page.locator(".ticket")).to_have_count(1)
    expect(page.locator("#orders-code .line.now").first).to_contain_text("within=engine.begin")


def test_an_empty_slip_is_not_sent(page: Any) -> None:
    """A sentence, and no request."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="once").click()
    expect(page.locator("#no-tickets")).to_be_visible()
    for each in page.locator("#lines input").all():
        each.fill("0")
    sent: list[str] = []
    page.on("request", lambda asked: sent.append(asked.url))
    page.get_by_role("button", name="Double-click “Order”").click()
    expect(page.locator("#orders-note")).to_have_text("Put something on the slip first.")
    assert not sent
