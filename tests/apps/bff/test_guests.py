"""The menu BFF, as guests and other services use it: real processes, real HTTP, a real Valkey.

Two BFF processes share one store-service, as behind a load balancer.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.menu.downstream import LONGEST
from dibs.testing import Server, eventually

from .service import (
    BRANCH,
    KEY,
    LOCK,
    STALE,
    Bff,
    Nonsense,
    Run,
    Store,
    Street,
    good_answer,
    has_menu,
    is_problem,
    redis_of,
    rush,
    saying,
)

pytestmark = pytest.mark.only_on("linux", "darwin")
FIELDS = [
    "menuVersionId", "versionNo", "bizDate", "timeWindow", "versionHash", "categories", "items",
]  # fmt: skip
NEVER_STALE = {"MENU_STALE_SECONDS": "0"}


def ended(menu: dict[str, Any]) -> bool:
    return datetime.now(UTC) > datetime.fromisoformat(menu["timeWindow"]["endsAt"])


# ------------------------------------------------------------------------------- reading


async def test_two_hundred_guests_are_one_call(street: Street, valkey: Server) -> None:
    """200 requests at once, against two processes: one reaches the store-service."""
    before = street.store.calls
    answers, _ = await rush(street.first, street.second, guests=200)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert street.store.calls - before == 1
    how = Counter(answer.headers["X-Cache"] for answer in answers)
    assert how["miss"] == 1 and how["shared"] + how["hit"] == 199


def test_what_a_guest_gets(street: Street, valkey: Server) -> None:
    """The seed's seven fields, in the seed's order; loaded once, then read."""
    first, second = street.first.read(), street.second.read()
    assert (first.headers["X-Cache"], second.headers["X-Cache"]) == ("miss", "hit")
    assert list(first.json()) == FIELDS and first.json() == second.json()
    assert first.json()["menuVersionId"].startswith(BRANCH)
    assert any(item["name"] == "珍珠鮮奶茶" for item in first.json()["items"])


async def test_the_keys_are_the_seeds(street: Street, valkey: Server) -> None:
    """Two keys while it is loaded, one afterwards; 180 s ± 20 %, then the time to be stale."""
    reading = asyncio.create_task(asyncio.to_thread(street.first.read))
    await asyncio.to_thread(eventually, lambda: valkey.keys() == [KEY, LOCK])
    assert 0 < redis_of(valkey).pttl(LOCK) <= 3050
    assert (await reading).status_code == 200
    assert valkey.keys() == [KEY]
    fresh = redis_of(valkey).pttl(KEY) / 1000 - STALE
    assert 144 - 2 < fresh <= 216
    stored = redis_of(valkey).get(KEY)
    assert json.loads(stored.partition(b"\n")[2]) == (await reading).json()


def test_a_table_is_in_no_key(street: Street, valkey: Server) -> None:
    """All tables of a branch share the menu; a request needs no table at all."""
    street.first.read()
    answer = street.second.http.get("/menus/active", params={"branchId": BRANCH})
    assert answer.status_code == 200 and answer.headers["X-Cache"] == "hit"
    assert valkey.keys() == [KEY]


@pytest.mark.parametrize(
    "query",
    ["", "?branchId=", "?branchId=%20%09", "?tableId=A7", "?branchId=a%2Fb",
     "?branchId=" + "x" * 65, "?branchId=%00", "?branchId=.."],
)  # fmt: skip
def test_no_branch_no_menu(street: Street, valkey: Server, query: str) -> None:
    """400, without a request to the store-service."""
    before = street.store.calls
    problem = is_problem(street.first.http.get(f"/menus/active{query}"), 400)
    assert "branchId" in problem["detail"]
    assert street.store.calls == before and valkey.keys() == []


def test_what_is_not_there(street: Street) -> None:
    """No such path, no such method, too long a body: all of them problems."""
    http = street.first.http
    is_problem(http.get("/"), 404)
    is_problem(http.post("/menus/active"), 405)
    is_problem(http.post(f"/admin/branches/{BRANCH}/menus", content=b" " * 2_000_000), 413)


# ------------------------------------------------------------------------------- a no, and silence


def test_a_no_has_a_code(street: Street, valkey: Server) -> None:
    """404 with the store-service's code, and nothing is cached: every guest gets a new answer."""
    before = street.store.calls
    for _ in range(2):
        problem = is_problem(street.first.read("nowhere"), 404)
        assert problem["responseCode"] == "40401" and "nowhere" in problem["msg"]
    assert street.store.calls == before + 2
    eventually(lambda: valkey.keys() == [])


def test_a_menu_ends_with_its_time_window(run: Run, valkey: Server) -> None:
    """At its `endsAt` a menu is no longer fresh, even if its ttl has not ended."""
    with saying(200, b"") as say:
        run(first := Bff(valkey.url, say.url), second := Bff(valkey.url, say.url))
        say.body = good_answer(ends_in=2.0)
        lunch = first.read().json()
        say.body = good_answer(version=2, ends_in=3600)
        eventually(lambda: ended(lunch))
        for bff in (first, second):
            answer = bff.read()
            assert (answer.status_code, answer.json()["versionNo"]) == (200, 2)
        assert say.calls == 2 and first.read().headers["X-Cache"] == "hit"


def test_an_ended_menu_is_shown_as_stale_while_nobody_has_another(run: Run, valkey: Server) -> None:
    """The store-service fails after the end: the old menu is better than none, and marked."""
    with saying(200, b"") as say:
        run(bff := Bff(valkey.url, say.url), strict := Bff(valkey.url, say.url, **NEVER_STALE))
        say.body = good_answer(ends_in=2.0)
        lunch = bff.read().json()
        say.status = 500
        eventually(lambda: ended(lunch))
        for _ in range(3):
            assert bff.read().headers["X-Cache"] == "stale"
        assert say.calls == 2  # it is not asked for every guest
        is_problem(strict.read(), 503)


def test_a_store_whose_clock_is_behind_is_not_asked_for_every_guest(
    run: Run, valkey: Server
) -> None:
    """It says that the ended menu is the one: then it is shown, and cached for a while."""
    with saying(200, good_answer(ends_in=-60)) as say:
        [bff] = run(Bff(valkey.url, say.url))
        for _ in range(20):
            assert bff.read().status_code == 200
        assert say.calls <= 3


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"[]"), (200, b"{}"), (200, b'{"responseCode": 0}'), (200, b"\xff"),
     (200, b'{"responseCode": "00000"}'), (200, b'{"responseCode": "00000", "data": {}}'),
     (500, b"oops"), (404, b"{}"), (302, b""), (200, b"[" * 100_000)],
)  # fmt: skip
def test_garbage_of_the_store_service_is_not_cached(
    nonsense: Nonsense, valkey: Server, status: int, body: bytes
) -> None:
    """Every answer that breaks the store-service's format: 503, nothing cached."""
    nonsense.say.status, nonsense.say.body = status, body
    is_problem(nonsense.bff.read(), 503)
    assert not has_menu(valkey)


def test_a_store_service_that_hangs(run: Run, valkey: Server) -> None:
    """It is given some seconds, for all guests together; then 503, and nothing is left."""
    store = Store()
    _, bff = run(store, Bff(valkey.url, store.url))
    store.child.freeze()
    answers, took = asyncio.run(rush(bff, guests=10))
    assert {answer.status_code for answer in answers} == {503}
    assert LONGEST - 0.5 < took < 3 * LONGEST  # one after the other: ten times as long
    assert not has_menu(valkey)
    store.child.thaw()
    eventually(lambda: bff.read().status_code == 200)
