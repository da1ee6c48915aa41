"""The settings and the log of the menu BFF."""

from __future__ import annotations

import pytest

from apps.menu.active_menus import ActiveMenus
from apps.menu.bff_settings import Settings
from apps.menu.downstream import Refused, StoreClient
from dibs.testing import Server

from .service import (
    BRANCH,
    good_answer,
    refusal,
    saying,
)

pytestmark = pytest.mark.only_on("linux", "darwin")


@pytest.mark.parametrize(
    ("name", "value"),
    [("STORE_SERVICE_URL", "localhost:8001"), ("MENU_STALE_SECONDS", "long"),
     ("MENU_STALE_SECONDS", "-1"), ("MENU_STALE_SECONDS", "inf")],
)  # fmt: skip
def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A sentence says which one cannot be used."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        Settings.from_environment()


# ------------------------------------------------------------------------------- the log


async def test_the_life_of_a_menu_is_in_the_log(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Miss, call and rebuild, then hits, at the seed's levels; a failure with what was wrong."""
    caplog.set_level("DEBUG", "apps.menu")
    with saying(200, good_answer()) as say:
        store = StoreClient(say.url)
        menus = ActiveMenus(valkey.url, store, stale=0)
        for _ in range(2):
            await menus.find(BRANCH)
        for code in ("99999", "40401"):
            say.body = refusal(code)
            with pytest.raises(Refused):
                await menus.find(f"branch-{code}")
        await menus.aclose()
        await store.aclose()
    ours = [record for record in caplog.records if record.name.startswith("apps.menu")]
    said = [(record.levelname, record.getMessage()) for record in ours]
    assert said == [
        ("DEBUG", f"menu of branch {BRANCH}: miss"),
        ("INFO", f"menu of branch {BRANCH}: the store-service is called"),
        ("DEBUG", f"menu of branch {BRANCH}: rebuilt"),
        ("DEBUG", f"menu of branch {BRANCH}: hit"),
        ("DEBUG", "menu of branch branch-99999: miss"),
        ("INFO", "menu of branch branch-99999: the store-service is called"),
        ("ERROR", "menu of branch branch-99999: the store-service answered 99999"),
        ("DEBUG", "menu of branch branch-40401: miss"),
        ("INFO", "menu of branch branch-40401: the store-service is called"),
        ("INFO", "menu of branch branch-40401: the store-service answered 40401"),
    ]
