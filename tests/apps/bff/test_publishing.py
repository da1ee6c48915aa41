"""Publishing a menu through the BFF, and who may."""

from __future__ import annotations

import asyncio

import pytest

from dibs.testing import Server, eventually

from .service import (
    LOCK,
    RAISE,
    Bff,
    Run,
    Store,
    Street,
    is_problem,
)

pytestmark = pytest.mark.only_on("linux", "darwin")


def test_a_new_version_is_read_at_once(street: Street, valkey: Server) -> None:
    """Published through one process: the next reader of either gets it."""
    for publisher, reader in [(street.first, street.second), (street.second, street.first)]:
        before = reader.read().json()
        published = publisher.publish(RAISE)
        assert published.status_code == 201
        assert published.headers["X-Cache-Invalidated"] == "done"
        for bff in (reader, publisher):
            after = bff.read().json()
            assert after["versionNo"] == published.json()["versionNo"] > before["versionNo"]


async def test_a_load_under_way_is_not_kept(street: Street, valkey: Server) -> None:
    """Published while the other process loads the old version: later readers do not get the old
    one."""
    for _ in range(5):
        valkey.flush()
        loading = asyncio.create_task(asyncio.to_thread(street.first.read))
        await asyncio.to_thread(eventually, lambda: LOCK in valkey.keys())
        published = await asyncio.to_thread(street.second.publish, RAISE)
        for bff in (street.first, street.second):
            menu = (await asyncio.to_thread(bff.read)).json()
            assert menu["versionNo"] == published.json()["versionNo"]
        await loading
        for bff in (street.first, street.second):
            menu = (await asyncio.to_thread(bff.read)).json()
            assert menu["versionNo"] == published.json()["versionNo"]


def test_a_bad_edition_changes_nothing(street: Street, valkey: Server) -> None:
    """The store-service's own words are passed on, and the menu stays cached."""
    street.first.read()
    is_problem(street.first.publish({"priceChangePercent": "much"}), 400)
    assert is_problem(street.first.publish(RAISE, "nowhere"), 404)
    assert street.second.read().headers["X-Cache"] == "hit"


def test_publishing_without_redis(run: Run, own_server: Server) -> None:
    """It is published; the old menu is deleted as soon as Redis is back."""
    store = Store()
    _, bff = run(store, Bff(own_server.url, store.url))
    before = bff.read().json()["versionNo"]
    own_server.freeze()
    published = bff.publish(RAISE)
    assert published.status_code == 201 and published.headers["X-Cache-Invalidated"] == "later"
    own_server.thaw()
    eventually(lambda: bff.read().json()["versionNo"] == before + 1, within=90)


def test_admins_have_a_token(run: Run, valkey: Server) -> None:
    """If a token is set, publishing requires it."""
    store = Store()
    _, bff = run(store, Bff(valkey.url, store.url, MENU_ADMIN_TOKEN="s3cret"))
    assert is_problem(bff.publish(RAISE), 401) and is_problem(
        bff.publish(RAISE, Authorization="Bearer wrong"), 401
    )
    assert bff.publish(RAISE, Authorization="Bearer s3cret").status_code == 201
    assert bff.read().status_code == 200
