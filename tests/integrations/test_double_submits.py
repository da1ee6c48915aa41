"""Of many double submits, on two processes that are killed at work, none is executed twice.

The long run: `python -m tests.integrations.double_submits --intents 200`.
"""

import pytest

from .double_submits import FRAMEWORKS, PATIENCE, place, submit


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_intent_is_executed_once(framework: str) -> None:
    """Random cookies, cuts, clients that leave, uploads that break off, processes that die."""
    with place() as (url, database):
        await submit(framework, url, database, intents=20, seed=7)
