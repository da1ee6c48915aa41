"""`once(within=…)`: what every situation is answered with, on every driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dibs import Duplicate, Event, Mismatch, UsageError
from dibs.testing import Server
from tests.databases.worlds import World

Opened = Callable[..., Any]


async def test_the_first_call_runs_and_a_duplicate_gets_its_result(
    world: World, opened: Opened
) -> None:
    """The table is created on the way; one order, one record."""
    events: list[Event] = []
    async with opened(listeners=[events.append]) as dibs:
        place = world.placing(dibs)
        assert await place("c7") == {"order": 1}
        assert await place("c7") == {"order": 1}
        assert await place("c8") == {"order": 2}
    assert world.orders() == ["c7", "c8"]
    assert world.records() == 2
    once = ["claimed", "completed"]
    assert [event.kind for event in events] == [*once, "replayed", *once]


async def test_where_redis_forgets_the_table_answers_and_fills_it_again(
    world: World, opened: Opened, valkey: Server
) -> None:
    """After a flush the function does not run; then Redis answers without the database."""
    async with opened() as dibs:
        place = world.placing(dibs)
        await place("c7")
        valkey.flush()
        assert await place("c7") == {"order": 1}
        world.ask("DROP TABLE dibs_done")
        assert await place("c7") == {"order": 1}
    assert world.orders() == ["c7"]


async def test_without_redis_the_table_answers_alone(world: World, opened: Opened) -> None:
    """`on_outage="open"` is safe."""
    async with opened("redis://127.0.0.1:1") as dibs:
        place = world.placing(dibs)
        assert [await place("c7") for _ in range(3)] == [{"order": 1}] * 3
    assert world.orders() == ["c7"]


async def test_what_fails_leaves_neither_work_nor_record(world: World, opened: Opened) -> None:
    """Nothing is burnt: the next submission runs."""
    failures = [RuntimeError("no stock")]

    def fail(session: Any) -> None:
        if failures:
            raise failures.pop()

    async with opened() as dibs:
        place = world.placing(dibs, fail)
        with pytest.raises(RuntimeError, match="no stock"):
            await place("c7")
        assert (world.orders(), world.records()) == ([], 0)
        assert await place("c7") == {"order": 2}
    assert world.orders() == ["c7"]


async def test_another_payload_is_a_mismatch_from_redis_and_from_the_table(
    world: World, opened: Opened, valkey: Server
) -> None:
    """And Redis is not filled with the payload that came second."""
    async with opened() as dibs:
        place = world.placing(dibs, payload=["amount"])
        await place("c7", 1)
        for _ in range(2):
            with pytest.raises(Mismatch):
                await place("c7", 2)
            valkey.flush()
        assert await place("c7", 1) == {"order": 1}


async def test_with_hold_a_duplicate_is_refused_from_the_table(
    world: World, opened: Opened, valkey: Server
) -> None:
    """`source` says who has answered."""
    async with opened() as dibs:
        place = world.placing(dibs, after="hold")
        await place("c7")
        for source in ("redis", "table", "redis"):
            with pytest.raises(Duplicate) as caught:
                await place("c7")
            assert (caught.value.state, caught.value.source) == ("done", source)
            assert 55 < caught.value.retry_after <= 60
            if source == "redis":
                valkey.flush()
    assert world.ask("SELECT count(*) FROM dibs_done WHERE result IS NULL")[0][0] == 1


async def test_two_at_once_without_redis_are_one(world: World, opened: Opened) -> None:
    """The second one waits for the first transaction and gets its result."""
    both: list[Any] = [world.dibs("redis://127.0.0.1:1") for _ in range(2)]
    async with opened() as dibs:
        await world.placing(dibs)("c0")  # creates the table
        places = [world.placing(each, wait=30) for each in both]
        results = await asyncio.gather(*[place("c7") for place in places for _ in range(3)])
        assert results == [results[0]] * 6
        for each in both:
            await world.closed(each)
    assert world.orders() == ["c0", "c7"]
    assert world.called == 2


async def test_a_result_that_cannot_be_stored_rolls_everything_back(
    world: World, opened: Opened
) -> None:
    """A UsageError before the commit: an order without its answer would be worse."""

    def wrong(session: Any, customer: str) -> Any: ...

    async with opened() as dibs:
        if world.is_async:

            async def aplace(session: Any, customer: str) -> Any:
                await world.insert(session, customer, 1)
                return object()

            place = world.decorated(dibs, aplace)
        elif world.hands_over:

            def place_it(session: Any, customer: str) -> Any:
                world.insert(session, customer, 1)
                return object()

            place = world.decorated(dibs, place_it)
        else:

            def place_bare(customer: str) -> Any:
                world.insert(None, customer, 1)
                return object()

            place = world.decorated(dibs, place_bare)
        with pytest.raises(UsageError):
            await place("c7")
    assert world.orders() == []
    assert world.records() == 0
