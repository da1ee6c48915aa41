"""The store-service: real databases, and the menus that a branch serves at a given time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from datetime import time as clock
from pathlib import Path
from typing import Any, TypeVar

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.databases import USUAL, Patience
from apps.menu.database import MenuDatabase
from apps.menu.documents import hash_of, parse_menu, print_menu
from apps.menu.menus import Invalid, TimeWindow
from apps.menu.seed import sample_chain
from apps.menu.store import Settings, create_app
from dibs.testing import Child, eventually
from dibs.testing.servers import free_port
from tests.apps.postgres import Postgres

pytestmark = pytest.mark.only_on("linux", "darwin")

ROOT = Path(__file__).parents[2]
NOON = "2026-11-16T12:00:00+08:00"  # a Monday
Spawn = Callable[..., Child]
T = TypeVar("T")


# ------------------------------------------------------------------------------------ the service


@asynccontextmanager
async def served(
    url: str, *, delay: float = 0.0, patience: Patience = USUAL
) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who talks to the service on that database."""
    app = create_app(Settings(url, delay, patience))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://store") as client:
            yield client


async def resolve(client: httpx.AsyncClient, branch_id: str, **more: Any) -> dict[str, Any]:
    answer = await client.post("/resolveActive", json={"branchId": branch_id, **more})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body.keys() == {"responseCode", "msg", "data"}
    return body


async def active(client: httpx.AsyncClient, branch_id: str, at: str = NOON) -> dict[str, Any]:
    body = await resolve(client, branch_id, at=at)
    assert body["responseCode"] == "00000", body
    return body["data"]


async def publish(client: httpx.AsyncClient, branch_id: str, edition: Any) -> dict[str, Any]:
    answer = await client.post(f"/branches/{branch_id}/menus", json=edition)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def at_once(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """What all of them return. Not gather, which lets the others go on when one has failed."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["detail"]
    return body


def price(menu: dict[str, Any], item_id: str) -> int:
    return next(item["price"] for item in menu["items"] if item["itemId"] == item_id)


def document() -> dict[str, Any]:
    """A small menu, as an admin would write it."""
    return {
        "timeWindows": [
            {"code": "ALL", "name": "全日", "weekdays": list(range(1, 8)), "start": "00:00",
             "end": "00:00"}
        ],
        "categories": [{"categoryId": "tea", "name": "茶"}, {"categoryId": "rice", "name": "飯"}],
        "items": [
            {"itemId": "lu-rou-fan", "categoryId": "rice", "name": "滷肉飯", "price": 50},
            {"itemId": "oolong", "categoryId": "tea", "name": "烏龍茶", "price": 35,
             "description": "高山冷泡", "tags": ["新品"], "allergens": [], "available": False,
             "timeWindows": ["ALL"], "imageName": "oolong.webp"},
        ],
    }  # fmt: skip


# ------------------------------------------------------------------------------------------ seeds


async def test_an_empty_database_is_filled_with_a_chain(url: str) -> None:
    """Six branches or more, in several cities, each with windows, categories and dishes."""
    async with served(url) as client:
        branches = (await client.get("/branches")).json()["branches"]
        assert len(branches) >= 6
        assert {branch["city"] for branch in branches} >= {"台北市", "台中市", "台南市", "高雄市"}
        for branch in branches:
            assert branch["timezone"] == "Asia/Taipei"
            number = branch["activeVersionNo"]
            menu = (await client.get(f"/branches/{branch['branchId']}/menus/{number}")).json()
            codes = {window["code"] for window in menu["timeWindows"]}
            assert codes == {"BREAKFAST", "LUNCH", "DINNER"}
            assert len(menu["categories"]) == 5
            assert len(menu["items"]) >= 25
            assert all(10 <= item["price"] <= 300 for item in menu["items"])


async def test_what_is_there_is_not_seeded_again(url: str) -> None:
    """A second start finds what the first has left, and what was published since."""
    async with served(url) as client:
        before = (await client.get("/branches")).json()
        await publish(client, "tpe-main", {"priceChangePercent": 10})
        menu = await active(client, "tpe-main")
    async with served(url) as client:
        after = (await client.get("/branches")).json()
        assert len(after["branches"]) == len(before["branches"])
        assert await active(client, "tpe-main") == menu
        assert menu["versionNo"] == 2


def test_the_sample_menus_obey_the_rules_for_menus() -> None:
    """What is seeded could have been published: it survives its own way out and in."""
    for _, history in sample_chain():
        for version in history:
            printed = json.loads(json.dumps(print_menu(version.menu)))
            assert parse_menu(printed) == version.menu


# -------------------------------------------------------------------------------------- what time

SERVED = [
    # A Monday at a usual branch: begins are included, ends are not, and there are pauses.
    ("tpe-xinyi", "2026-11-16T06:29:59.999999", None),
    ("tpe-xinyi", "2026-11-16T06:30:00", ("BREAKFAST", "2026-11-16")),
    ("tpe-xinyi", "2026-11-16T10:29:59.999999", ("BREAKFAST", "2026-11-16")),
    ("tpe-xinyi", "2026-11-16T10:30:00", None),
    ("tpe-xinyi", "2026-11-16T11:00:00", ("LUNCH", "2026-11-16")),
    ("tpe-xinyi", "2026-11-16T14:30:00", None),
    ("tpe-xinyi", "2026-11-16T21:29:00", ("DINNER", "2026-11-16")),
    ("tpe-xinyi", "2026-11-16T21:30:00", None),
    # Breakfast is later on Sundays.
    ("tpe-xinyi", "2026-11-15T06:45:00", None),
    ("tpe-xinyi", "2026-11-15T10:59:00", ("BREAKFAST", "2026-11-15")),
    # Past midnight it is still the evening before; on Fridays and Saturdays only.
    ("tpe-gongguan", "2026-11-20T23:59:59", ("DINNER", "2026-11-20")),
    ("tpe-gongguan", "2026-11-21T00:00:00", ("DINNER", "2026-11-20")),
    ("tpe-gongguan", "2026-11-21T00:59:59", ("DINNER", "2026-11-20")),
    ("tpe-gongguan", "2026-11-21T01:00:00", None),
    ("tpe-gongguan", "2026-11-22T00:30:00", ("DINNER", "2026-11-21")),
    ("tpe-gongguan", "2026-11-23T00:30:00", None),
    # From Sunday into Monday, and from one month into the next.
    ("khh-yancheng", "2026-11-16T01:59:59", ("DINNER", "2026-11-15")),
    ("khh-yancheng", "2026-11-16T02:00:00", None),
    ("khh-yancheng", "2026-12-01T01:00:00", ("DINNER", "2026-11-30")),
    # Open all day and night: one window ends where the next begins.
    ("tpe-main", "2026-11-18T04:59:59", ("DINNER", "2026-11-17")),
    ("tpe-main", "2026-11-18T05:00:00", ("BREAKFAST", "2026-11-18")),
    ("tpe-main", "2026-11-18T17:00:00", ("DINNER", "2026-11-18")),
    # Closed on Mondays.
    ("hsz-east", "2026-11-16T12:00:00", None),
    ("hsz-east", "2026-11-17T12:00:00", ("LUNCH", "2026-11-17")),
    # With an offset it is that moment; without one, the clock on the branch's wall.
    ("tpe-xinyi", "2026-11-16T04:00:00Z", ("LUNCH", "2026-11-16")),
    ("tpe-xinyi", "2026-11-15T23:30:00+00:00", ("BREAKFAST", "2026-11-16")),
    ("khh-yancheng", "2026-11-15T12:30:00-05:00", ("DINNER", "2026-11-15")),
]


async def test_the_time_decides_what_is_served(url: str) -> None:
    """Begins are included, ends are not; past midnight, the business day is the one before."""
    async with served(url) as client:
        for branch_id, at, expected in SERVED:
            body = await resolve(client, branch_id, at=at)
            data = body["data"]
            found = data and (data["timeWindow"]["code"], data["bizDate"])
            assert found == expected, (branch_id, at)
            assert body["responseCode"] == ("40402" if expected is None else "00000")
            assert body["msg"]


async def test_without_a_time_it_is_now(url: str) -> None:
    """The branch that never closes always has a menu, and its window is open."""
    async with served(url) as client:
        data = (await resolve(client, "tpe-main", tableId="A12"))["data"]
        begin, end = (
            datetime.fromisoformat(data["timeWindow"][edge]) for edge in ("startsAt", "endsAt")
        )
        assert begin <= datetime.now(UTC) + timedelta(seconds=1)
        assert end > datetime.now(UTC) - timedelta(minutes=1)
        assert data["bizDate"] == begin.date().isoformat()


THIRDS = st.integers(0, 7).map(lambda number: clock(number * 3))
WINDOWS = st.builds(
    TimeWindow,
    code=st.just("ANY"),
    name=st.just("時段"),
    weekdays=st.sets(st.integers(1, 7), min_size=1, max_size=3).map(lambda days: tuple(days)),
    start=THIRDS,
    end=THIRDS,
)


@given(st.lists(WINDOWS, min_size=1, max_size=4))
def test_at_most_one_window_is_open(windows: list[TimeWindow]) -> None:
    """Windows are refused if, and only if, two of them are open at some time of the week."""
    menu = replace(sample_chain()[0][1][0].menu, windows=tuple(windows), items=())
    hours = [datetime(2026, 11, 16, tzinfo=UTC) + timedelta(hours=3 * n) for n in range(56)]
    openings = [
        (window, hour, day)
        for hour in hours
        for window in windows
        for day in (hour.date(), hour.date() - timedelta(days=1))
        if day.isoweekday() in window.weekdays
        and window.on(day, hour).starts_at <= hour < window.on(day, hour).ends_at
    ]
    most = max(sum(each[1] == hour for each in openings) for hour in hours)
    try:
        menu.check()
    except Invalid:
        assert most > 1
    else:
        assert most == 1
        for hour in hours:
            assert (menu.serving(hour) is not None) == any(each[1] == hour for each in openings)


# ------------------------------------------------------------------------------------ resolveActive


async def test_the_answer_has_the_fields_of_the_seed(url: str) -> None:
    """Seven fields; categories in order, each with a dish; dishes of this window only."""
    async with served(url) as client:
        lunch = await active(client, "txg-xitun")
        morning = await active(client, "txg-xitun", "2026-11-16T07:00:00+08:00")
    assert list(lunch) == [
        "menuVersionId", "versionNo", "bizDate", "timeWindow", "versionHash", "categories", "items",
    ]  # fmt: skip
    assert (lunch["menuVersionId"], lunch["versionNo"]) == ("txg-xitun-v1", 1)
    assert lunch["timeWindow"] == {
        "code": "LUNCH",
        "name": "午餐",
        "startsAt": "2026-11-16T11:00:00+08:00",
        "endsAt": "2026-11-16T14:30:00+08:00",
    }
    assert [each["sortOrder"] for each in lunch["categories"]] == [1, 2, 3, 4]
    assert {each["categoryId"] for each in morning["categories"]} == {"morning", "drinks"}
    for menu in (lunch, morning):
        shown = [each["categoryId"] for each in menu["categories"]]
        assert list(dict.fromkeys(item["categoryId"] for item in menu["items"])) == shown
    assert lunch["versionHash"] == morning["versionHash"]
    omelette = next(item for item in lunch["items"] if item["itemId"] == "oyster-omelette")
    assert omelette == {
        "itemId": "oyster-omelette",
        "categoryId": "sides",
        "name": "蚵仔煎",
        "description": "東石鮮蚵，甜辣醬自己熬。",
        "price": 85,
        "tags": ["人氣"],
        "allergens": ["軟體類", "蛋"],
        "available": False,
        "imageName": "oyster-omelette.webp",
    }


@pytest.mark.parametrize("branch_id", ["nowhere", "不存在的店", "' OR 1=1 --", "TPE-MAIN"])
async def test_an_unknown_branch_is_an_answer(url: str, branch_id: str) -> None:
    """HTTP 200 with a code of its own and no data: the seed's caller looks at the code."""
    async with served(url) as client:
        body = await resolve(client, branch_id)
        assert (body["responseCode"], body["data"]) == ("40401", None)
        assert branch_id in body["msg"]


BAD_QUESTIONS = [
    (b"", None),
    (b"{", None),
    (b"\xff\xfe", None),
    (b"[" * 100_000, None),
    (b"[]", None),
    (b'"tpe-main"', None),
    (b"{}", "branchId"),
    (b'{"branchId": null}', "branchId"),
    (b'{"branchId": ""}', "branchId"),
    (b'{"branchId": "   "}', "branchId"),
    (b'{"branchId": 7}', "branchId"),
    (b'{"branchId": ["tpe-main"]}', "branchId"),
    (b'{"branchId": "tpe\\u0000main"}', "branchId"),
    (b'{"branchId": "\\ud800"}', "branchId"),
    (b'{"branchId": "' + b"x" * 65 + b'"}', "branchId"),
    (b'{"branchId": "tpe-main", "tableId": 3}', "tableId"),
    (b'{"branchId": "tpe-main", "tableId": "a\\nb"}', "tableId"),
    (b'{"branchId": "tpe-main", "at": "noon"}', "at"),
    (b'{"branchId": "tpe-main", "at": 1731600000}', "at"),
    (b'{"branchId": "tpe-main", "at": "0001-01-01T00:00:00+14:00"}', "at"),
    (b'{"branchId": "tpe-main", "at": "9999-12-31T23:59:59"}', "at"),
    (b'{"branchId": "tpe-main", "at": NaN}', None),
]


async def test_a_malformed_question_is_a_400(url: str) -> None:
    """problem+json, with the field that is wrong; it never reaches the database."""
    async with served(url) as client:
        for body, field in BAD_QUESTIONS:
            problem = assert_problem(await client.post("/resolveActive", content=body), 400)
            assert problem.get("field") == field, body[:60]


async def test_calls_are_counted_and_can_be_slowed_down(sqlite: str) -> None:
    """Twenty at once take one delay and are counted, as is a bad one."""
    async with served(sqlite, delay=0.3) as client:
        began = time.monotonic()
        await at_once(*(resolve(client, "tpe-main") for _ in range(20)))
        assert 0.3 <= time.monotonic() - began < 3
        await client.post("/resolveActive", content=b"{")
        await client.get("/branches")
        assert (await client.get("/stats")).json() == {"resolveActive": 21}


async def test_a_database_in_memory_serves_all_threads(sqlite: str) -> None:
    """It belongs to one connection, and every call gets to it."""
    async with served("sqlite://") as client:
        menus = await at_once(*(active(client, "tpe-main") for _ in range(30)))
        assert all(menu == menus[0] for menu in menus)
        assert (await publish(client, "tpe-main", {"copyOf": 1}))["versionNo"] == 2


# ----------------------------------------------------------------------------------------- publish


async def test_what_is_published_is_served_at_once(url: str) -> None:
    """A price change is a new version: next number, new hash, prices to the nearest dollar."""
    async with served(url) as client, served(url) as other:
        before = await active(client, "txg-xitun")
        version = await publish(client, "txg-xitun", {"priceChangePercent": 5})
        assert version["versionNo"] == before["versionNo"] + 1
        assert version["status"] == "published"
        for reader in (client, other):
            after = await active(reader, "txg-xitun")
            assert after["versionNo"] == version["versionNo"]
            assert after["menuVersionId"] == version["menuVersionId"] == "txg-xitun-v2"
            assert after["versionHash"] == version["versionHash"] != before["versionHash"]
        assert (price(before, "beef-noodles"), price(after, "beef-noodles")) == (190, 200)  # 199.5
        assert (price(before, "braised-egg"), price(after, "braised-egg")) == (15, 16)  # 15.75
        assert (await active(client, "tpe-main"))["versionNo"] == 1


async def test_a_whole_menu_can_be_published(url: str) -> None:
    """It is served as it was written, and comes back as a document that can be published again."""
    async with served(url) as client:
        version = await publish(client, "hsz-east", document())
        menu = await active(client, "hsz-east", "2026-11-16T00:00:00+08:00")
        assert menu["versionNo"] == version["versionNo"] == 2
        assert [each["name"] for each in menu["categories"]] == ["茶", "飯"]
        assert [item["itemId"] for item in menu["items"]] == ["lu-rou-fan", "oolong"]
        assert menu["items"][0]["available"] is True
        assert menu["items"][1]["available"] is False
        again = (await client.get("/branches/hsz-east/menus/2")).json()
        copy = await publish(client, "hsz-east", again)
        assert (copy["versionNo"], copy["versionHash"]) == (3, version["versionHash"])


async def test_a_draft_is_kept_and_not_served(url: str) -> None:
    """Until a copy of it is published; numbers are never used twice."""
    async with served(url) as client:
        seeded = (await client.get("/branches/tpe-xinyi/versions")).json()
        states = [(each["versionNo"], each["status"]) for each in seeded["versions"]]
        assert states == [(3, "draft"), (2, "published"), (1, "published")]
        assert seeded["activeVersionNo"] == 2
        draft = await publish(client, "tpe-xinyi", {"priceChangePercent": -10, "draft": True})
        assert (draft["versionNo"], draft["status"], draft["publishedAt"]) == (4, "draft", None)
        assert (await active(client, "tpe-xinyi"))["versionNo"] == 2
        await publish(client, "tpe-xinyi", {"copyOf": 3})
        menu = await active(client, "tpe-xinyi")
        assert menu["versionNo"] == 5
        assert price(menu, "sesame-tangyuan") == 65


async def test_an_old_version_can_be_brought_back(url: str) -> None:
    """As a new version with the old content, and its hash."""
    async with served(url) as client:
        first = await active(client, "tpe-main")
        await publish(client, "tpe-main", {"priceChangePercent": 20})
        await publish(client, "tpe-main", {"copyOf": 1})
        third = await active(client, "tpe-main")
        assert third["versionNo"] == 3
        assert third["versionHash"] == first["versionHash"]
        assert third["items"] == first["items"]


def _changed(path: str, value: Any) -> dict[str, Any]:
    """The document with one thing changed; `...` takes it away."""
    changed = place = document()
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return changed


BAD_EDITIONS = [
    ({}, None),
    ([], None),
    ({"draft": True}, None),
    ({"draft": "yes", "copyOf": 1}, "draft"),
    ({"priceChangePercent": "5"}, "priceChangePercent"),
    ({"priceChangePercent": True}, "priceChangePercent"),
    ({"priceChangePercent": 1e9}, "priceChangePercent"),
    ({"priceChangePercent": -100}, "priceChangePercent"),
    ({"copyOf": 99}, "copyOf"),
    ({"copyOf": 0}, "copyOf"),
    ({"copyOf": 10**30}, "copyOf"),
    ({"copyOf": 1, "pricechangepercent": 5}, "pricechangepercent"),
    (document() | {"copyOf": 1}, "copyOf"),
    (_changed("items", ...), "items"),
    (_changed("items", []), "items"),
    (_changed("items", {}), "items"),
    (_changed("items.0", "rice"), "items[0]"),
    (_changed("items.0.price", ...), "items[0].price"),
    (_changed("items.0.price", 49.5), "items[0].price"),
    (_changed("items.0.price", -1), "items[0].price"),
    (_changed("items.0.price", 10**12), "items[0].price"),
    (_changed("items.0.name", " "), "items[0].name"),
    (_changed("items.0.name", "滷肉\0飯"), "items[0].name"),
    (_changed("items.0.prize", 5), "items[0].prize"),
    (_changed("items.1.itemId", "lu-rou-fan"), "items[1].itemId"),
    (_changed("items.1.itemId", "oolong tea"), "items[1].itemId"),
    (_changed("items.1.categoryId", "soup"), "items[1].categoryId"),
    (_changed("items.1.timeWindows", ["NIGHT"]), "items[1].timeWindows"),
    (_changed("items.1.tags", "新品"), "items[1].tags"),
    (_changed("items.1.tags", [1]), "items[1].tags[0]"),
    (_changed("items.1.available", 1), "items[1].available"),
    (_changed("categories.1.categoryId", "tea"), "categories[1].categoryId"),
    (_changed("timeWindows.0.start", "24:00"), "timeWindows[0].start"),
    (_changed("timeWindows.0.start", "9:00"), "timeWindows[0].start"),
    (_changed("timeWindows.0.weekdays", []), "timeWindows[0].weekdays"),
    (_changed("timeWindows.0.weekdays", [0]), "timeWindows[0].weekdays[0]"),
    (_changed("timeWindows", document()["timeWindows"] * 2), "timeWindows"),
]


async def test_a_bad_menu_is_a_400_and_changes_nothing(url: str) -> None:
    """problem+json, with the field that is wrong; the active version stays."""
    async with served(url) as client:
        for edition, field in BAD_EDITIONS:
            answer = await client.post("/branches/tpe-main/menus", json=edition)
            assert assert_problem(answer, 400).get("field") == field, edition
        versions = (await client.get("/branches/tpe-main/versions")).json()["versions"]
        assert [each["versionNo"] for each in versions] == [1]


async def test_prices_cannot_rise_for_ever(sqlite: str) -> None:
    """A change that would make a dish too dear is refused as a whole."""
    async with served(sqlite) as client:
        answer = None
        for _ in range(8):
            answer = await client.post("/branches/tpe-main/menus", json={"priceChangePercent": 300})
            if answer.status_code != 201:
                break
        assert answer is not None
        assert assert_problem(answer, 400)["field"] == "priceChangePercent"


async def test_what_is_not_there_is_a_404(url: str) -> None:
    """problem+json for unknown branches, versions, paths and methods."""
    async with served(url) as client:
        for path in (
            "/branches/nowhere/versions",
            "/branches/%00/versions",
            "/branches/nowhere/menus/1",
            "/branches/tpe-main/menus/99",
            "/branches/tpe-main/menus/0",
            f"/branches/tpe-main/menus/{'9' * 5000}",
            "/nothing",
        ):
            assert_problem(await client.get(path), 404)
        edition = {"priceChangePercent": 5}
        assert_problem(await client.post("/branches/nowhere/menus", json=edition), 404)
        assert_problem(await client.get("/resolveActive"), 405)


# ----------------------------------------------------------------------------------------- at once


async def test_publishing_at_once_gives_distinct_versions(url: str) -> None:
    """Thirty publishers at two services: thirty numbers without a gap, each change on the last."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served(url)) for _ in range(2)]
        made = await at_once(
            *(
                publish(client, "tpe-main", {"copyOf": 1, "priceChangePercent": number})
                for number in range(15)
                for client in clients
            )
        )
        assert sorted(each["versionNo"] for each in made) == list(range(2, 32))
        assert (await active(clients[0], "tpe-main"))["versionNo"] == 31


async def test_no_change_is_lost(url: str) -> None:
    """Each of several changes at once starts from the version that the one before has made."""
    async with served(url) as client, served(url) as other:
        before = await active(client, "tpe-main")
        both = (publish(each, "tpe-main", {"priceChangePercent": 100}) for each in (client, other))
        await at_once(*both)
        after = await active(client, "tpe-main")
        assert price(after, "beef-noodles") == 4 * price(before, "beef-noodles")


async def test_a_reader_sees_whole_versions(url: str) -> None:
    """While versions are published, every answer is one of them, from its number to its prices."""
    async with served(url) as client, served(url) as other:
        read: list[dict[str, Any]] = []

        async def read_on() -> None:
            while not read or read[-1]["versionNo"] < 9:
                read.append(await active(other, "tpe-main"))

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(read_on())
            for percent in range(1, 9):
                await publish(client, "tpe-main", {"copyOf": 1, "priceChangePercent": percent})
        numbers = [menu["versionNo"] for menu in read]
        assert numbers == sorted(numbers)
        base = sample_chain()[0][1][0].menu
        for menu in read:
            expected = base.repriced(_percent(menu["versionNo"])).during("LUNCH")
            assert [item["price"] for item in menu["items"]] == [
                each.price for each in expected.items
            ]
            assert menu["versionHash"] == hash_of(base.repriced(_percent(menu["versionNo"])))


def _percent(number: int) -> Any:
    from decimal import Decimal

    return Decimal(number - 1)


async def test_an_abandoned_call_leaves_nothing_behind(url: str) -> None:
    """Who goes away in the middle of a publication leaves a whole version or none, and no open
    connection when the service ends."""
    async with served(url) as client:
        calls = [publish(client, "tpe-main", {"priceChangePercent": 5}) for _ in range(8)]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    async with served(url) as client:
        versions = (await client.get("/branches/tpe-main/versions")).json()["versions"]
        assert [each["versionNo"] for each in versions] == list(range(len(versions), 0, -1))
        for version in versions:
            menu = (await client.get(f"/branches/tpe-main/menus/{version['versionNo']}")).json()
            assert hash_of(parse_menu(menu)) == version["versionHash"]


def _start_at_once(url: str) -> int:
    """In a process of its own: says that it is ready, waits for the word, prepares the database."""
    from apps.menu.database import MenuDatabase
    from apps.menu.seed import sample_chain

    chain = sample_chain()
    database = MenuDatabase(url)
    print("ready", flush=True)
    input()
    database.prepare(chain)
    found = len(database.branches())
    database.close()
    return found


def test_many_may_start_at_once_on_an_empty_database(url: str, spawn: Spawn) -> None:
    """Six processes create and fill one database: none fails, and it is filled once."""
    children = [spawn(_start_at_once, url) for _ in range(6)]
    for child in children:
        assert child.line() == "ready"
    for child in children:
        child.tell()
    assert [child.result() for child in children] == [len(sample_chain())] * 6
    database = MenuDatabase(url)
    try:
        for branch, history in sample_chain():
            assert len(database.versions(branch.branch_id) or []) == len(history)
    finally:
        database.close()


# --------------------------------------------------------------------------------- as it is served


@contextmanager
def uvicorn(folder: Path, **settings: str) -> Iterator[str]:
    """`uvicorn apps.menu.store:app` in that folder; its address, before it answers."""
    port = free_port()
    program = [sys.executable, "-m", "uvicorn", "apps.menu.store:app", "--port", str(port)]
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    process = subprocess.Popen(
        [*program, "--app-dir", str(ROOT)],
        cwd=folder,
        env=inherited | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = ""
    try:
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=15)
        assert "Application startup complete" in said, said
        assert "Traceback" not in said, said
    finally:
        process.kill()
        process.communicate()


def is_healthy(address: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        answer = httpx.get(f"{address}/health", trust_env=False)
        return answer.json() == {"status": "ok"}
    return False


def test_it_runs_in_uvicorn(tmp_path: Path) -> None:
    """With a database in the working folder, and settings from `.env`."""
    (tmp_path / ".env").write_text("STORE_DELAY_SECONDS=0.4\n")
    with uvicorn(tmp_path) as address:
        eventually(lambda: is_healthy(address), within=20)
        assert (tmp_path / "menu.db").stat().st_size > 0
        with httpx.Client(base_url=address, trust_env=False) as client:
            began = time.monotonic()
            answer = client.post("/resolveActive", json={"branchId": "tpe-main", "tableId": "A1"})
            assert time.monotonic() - began >= 0.4
            assert answer.json()["responseCode"] == "00000"
            assert client.get("/stats").json() == {"resolveActive": 1}
            made = client.post("/branches/tpe-main/menus", json={"priceChangePercent": 5})
            assert made.json()["versionNo"] == 2
            assert client.post("/resolveActive", content=b" " * 2_000_000).status_code == 413


def test_two_services_may_start_at_once(url: str, tmp_path: Path) -> None:
    """Two uvicorns on one empty database both serve, and what one publishes the other serves."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(uvicorn(tmp_path, DATABASE_URL=url)) for _ in range(2)]
        for address in addresses:
            eventually(lambda address=address: is_healthy(address), within=20)
        with httpx.Client(trust_env=False) as client:
            lists = [client.get(f"{address}/branches").json() for address in addresses]
            assert lists[0] == lists[1]
            assert len(lists[0]["branches"]) == len(sample_chain())
            edition = {"priceChangePercent": 5}
            made = client.post(f"{addresses[0]}/branches/tpe-main/menus", json=edition).json()
            question = {"branchId": "tpe-main"}
            found = client.post(f"{addresses[1]}/resolveActive", json=question).json()
            assert found["data"]["versionHash"] == made["versionHash"]


async def test_a_database_that_is_down_is_a_503(postgres: Postgres) -> None:
    """problem+json while it is down; when it is back, so is the service."""
    async with served(postgres.new_database()) as client:
        before = await active(client, "tpe-main")
        postgres.stop()
        try:
            question = {"branchId": "tpe-main"}
            down = await client.post("/resolveActive", json=question)
            assert_problem(down, 503)
            assert down.headers["retry-after"] == "1"
            assert_problem(await client.get("/health"), 503)
        finally:
            postgres.start()
        assert await active(client, "tpe-main") == before


async def test_a_database_that_hangs_is_a_503(postgres: Postgres) -> None:
    """Also for more callers than there are threads; afterwards menus are served again."""
    patience = Patience(statement=1, pool=1, connect=2)
    async with served(postgres.new_database(), patience=patience) as client:
        await active(client, "tpe-main")
        with postgres.frozen():
            async with asyncio.timeout(20):  # hung for ever, before
                question = {"branchId": "tpe-main"}
                calls = [client.post("/resolveActive", json=question) for _ in range(30)]
                for answer in await asyncio.gather(*calls):
                    assert_problem(answer, 503)
        async with asyncio.timeout(20):
            while (await client.get("/health")).status_code == 503:
                await asyncio.sleep(0.05)
        await active(client, "tpe-main")


async def test_a_database_may_be_restarted(postgres: Postgres) -> None:
    """Nobody who asks afterwards meets one of the connections that it has dropped."""
    async with served(postgres.new_database()) as client:
        menus = await at_once(*(active(client, "tpe-main") for _ in range(5)))
        postgres.stop()
        postgres.start()
        assert await at_once(*(active(client, "tpe-main") for _ in range(5))) == menus


# ---------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("url", ["mysql://root:secret@db/menu", "menu.db", "redis://x"])
def test_another_kind_of_database_is_refused(url: str) -> None:
    """With a sentence that names the setting and keeps the password."""
    with pytest.raises(ValueError, match="DATABASE_URL must") as refused:
        MenuDatabase(url)
    assert "secret" not in str(refused.value)


def test_a_database_does_not_show_its_password() -> None:
    """Neither in its repr, nor by connecting before it is used."""
    database = MenuDatabase("postgres://chef:secret@nowhere.invalid/menu")
    assert "nowhere.invalid" in repr(database)
    assert "secret" not in repr(database)


@pytest.mark.parametrize("delay", ["-1", "nan", "inf", "soon"])
def test_a_delay_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, delay: str) -> None:
    """With a sentence that names the setting."""
    monkeypatch.setenv("STORE_DELAY_SECONDS", delay)
    with pytest.raises(ValueError, match="STORE_DELAY_SECONDS"):
        Settings.from_environment()


def test_the_environment_is_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then `.env`, then the defaults; an empty setting is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "")
    monkeypatch.delenv("STORE_DELAY_SECONDS", raising=False)
    assert Settings.from_environment() == Settings("sqlite:///menu.db", 0.0)
    (tmp_path / ".env").write_text("DATABASE_URL=sqlite:///a.db\nSTORE_DELAY_SECONDS=2\n")
    assert Settings.from_environment() == Settings("sqlite:///menu.db", 2.0)
    monkeypatch.delenv("DATABASE_URL")
    assert Settings.from_environment() == Settings("sqlite:///a.db", 2.0)
