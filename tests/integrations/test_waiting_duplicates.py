"""Duplicates that wait for the answer of the first, at every edge."""

import asyncio

import pytest

from dibs.testing import Server

from .edges import Gate, opened
from .every_edge import KEYED, REPLAY, every_edge

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


# ---- waiting


@every_edge
async def test_a_duplicate_waits_for_the_answer_of_the_first(valkey: Server, edge: str) -> None:
    """It is woken by its end, and gets its answer; its own work is not done."""
    async with opened(edge, valkey, wait=20, **REPLAY) as shop:
        gate = Gate()
        shop.gate = gate
        tasks = [asyncio.create_task(shop.post(headers=KEYED)) for _ in range(2)]
        await gate.begun()
        gate.open()
        replies = await asyncio.gather(*tasks)
        assert [reply.status for reply in replies] == [201, 201] and len(shop.runs) == 1
        assert sorted(reply.is_replay for reply in replies) == [False, True]


@every_edge
async def test_a_duplicate_takes_over_when_the_first_fails(valkey: Server, edge: str) -> None:
    """A 5xx frees the key: who waits has its turn."""
    async with opened(edge, valkey, wait=20, **REPLAY) as shop:
        gate = Gate()
        shop.gate = gate
        shop.statuses = [503, 201]
        tasks = [asyncio.create_task(shop.post(headers=KEYED)) for _ in range(2)]
        await gate.begun()
        gate.open()
        replies = await asyncio.gather(*tasks)
        assert sorted(reply.status for reply in replies) == [201, 503] and len(shop.runs) == 2


@every_edge
async def test_a_duplicate_is_refused_when_its_wait_is_over(valkey: Server, edge: str) -> None:
    """Then it learns that the first is still at work."""
    async with opened(edge, valkey, wait=0.2, **REPLAY) as shop:
        gate = Gate()
        shop.gate = gate
        first = asyncio.create_task(shop.post(headers=KEYED))
        await gate.begun()
        refused = await shop.post(headers=KEYED)
        assert refused.status == 409 and refused.json["state"] == "running"
        gate.open()
        assert (await first).status == 201
