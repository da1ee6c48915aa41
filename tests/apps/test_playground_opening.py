"""What a panel opens when it is first needed: once for all requests that arrive meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from starlette.exceptions import HTTPException

from apps.playground.opening import Opening


async def test_a_second_try_is_for_all_who_come_after_it() -> None:
    """Two requests wait for a start that fails.

    The first tries again at once, the second sees the failure after that: later requests join the
    second try and do not begin a third.
    """
    tries, goes_on = 0, asyncio.Event()

    async def work() -> int:
        nonlocal tries
        tries += 1
        mine = tries
        if mine == 1:
            raise OSError("no luck")
        await goes_on.wait()
        return mine

    opening = Opening("shop", work)

    async def try_twice() -> int:
        with pytest.raises(HTTPException):
            await opening.result()
        return await opening.result()

    async def try_once() -> None:
        with pytest.raises(HTTPException):
            await opening.result()

    first, second = asyncio.create_task(try_twice()), asyncio.create_task(try_once())
    await asyncio.wait([second])
    third = asyncio.create_task(opening.result())
    await asyncio.sleep(0)
    goes_on.set()
    assert (await first, await third, tries) == (2, 2, 2)
