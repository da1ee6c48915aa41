"""The store-service: the menus that a branch serves at a given time."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from datetime import time as clock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.menu.documents import parse_menu, print_menu
from apps.menu.menus import Invalid, TimeWindow
from apps.menu.seed import sample_chain

from .store_service import active, assert_problem, at_once, publish, resolve, served

pytestmark = pytest.mark.only_on("linux", "darwin")


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
    """HTTP 200 with its own code and no data: the seed's caller looks at the code."""
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
    async with served(sqlite, delay=1.0) as client:
        began = time.monotonic()
        await at_once(*(resolve(client, "tpe-main") for _ in range(20)))
        assert 1.0 <= time.monotonic() - began < 20
        await client.post("/resolveActive", content=b"{")
        await client.get("/branches")
        assert (await client.get("/stats")).json() == {"resolveActive": 21}


async def test_a_database_in_memory_serves_all_threads(sqlite: str) -> None:
    """It belongs to one connection, and every call gets to it."""
    async with served("sqlite://") as client:
        menus = await at_once(*(active(client, "tpe-main") for _ in range(30)))
        assert all(menu == menus[0] for menu in menus)
        assert (await publish(client, "tpe-main", {"copyOf": 1}))["versionNo"] == 2
