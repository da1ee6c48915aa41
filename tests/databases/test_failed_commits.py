"""A COMMIT that fails, in each framework with `once(…, within=…)`: caller, key and table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dibs.testing import Server
from tests.databases.worlds import Database
from tests.integrations.conftest import nothing_stays_open as nothing_stays_open
from tests.integrations.tills import KEYED, TILLS, ask, opened

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


@pytest.mark.parametrize("name", TILLS)
async def test_a_deferred_constraint_is_a_500_and_leaves_nothing(
    valkey: Server, new_database: Callable[[str], Database], name: str
) -> None:
    """The next attempt under the same key runs, and its answer is the one that is replayed."""
    async with opened(name, valkey, new_database("postgresql")) as till:
        till.world.refuse_commits()
        failed = await ask(till, headers=KEYED)
        assert failed is None or failed.status == 500
        assert (till.world.paid(), till.world.records(), valkey.keys()) == (0, 0, [])
        till.world.allow_commits()
        done = await till.post(headers=KEYED)
        assert (done.status, done.json, done.is_replay) == (201, {"order": 2}, False)
        valkey.flush()
        again = await till.post(headers=KEYED)
        assert (again.body, again.is_replay) == (done.body, True)
        assert (till.world.paid(), till.world.records()) == (1, 1)
