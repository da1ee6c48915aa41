"""Publishing menus: new versions, drafts, mistakes, and many at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from apps.menu.documents import hash_of
from apps.menu.seed import sample_chain

from .store_service import active, assert_problem, at_once, price, publish, served

pytestmark = pytest.mark.only_on("linux", "darwin")


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
