"""A unit of work: what waits for its end, in which order it is carried out, and what it refuses."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from dibs._core.unit_of_work import NO_TRANSACTION, Unit, around, current, enter, leave
from dibs.errors import LeaseLost, UsageError


class Waiting:
    def __init__(self, key: str, since: float = 0.0, *, lost: bool = False) -> None:
        self.owner: object = None
        self.key = key.encode()
        self.since = since
        self.lost = lost

    def check(self) -> None:
        if self.lost:
            raise LeaseLost(self.key.decode(), None, "x")


def names(unit: Unit) -> list[str]:
    return [each.key.decode() for each in unit.effects()]


def test_values_come_first_then_functions_then_leases_the_last_begun_first() -> None:
    """Who is told by a function reads no old value; and the leases still guard what it does."""
    unit = Unit()
    assert unit.add(Waiting("inner", since=2))
    assert unit.add(Waiting("outer", since=1))
    assert unit.call(Waiting("f")) and unit.call(Waiting("g"))
    assert unit.add(Waiting("last", since=3)) and unit.put(Waiting("value"))
    unit.decide("committed")
    assert names(unit) == ["value", "f", "g", "last", "inner", "outer"]
    assert names(unit) == []


def test_the_last_change_of_a_value_counts() -> None:
    """Else a value that was invalidated would be stored after that."""
    unit = Unit()
    first, second = Waiting("menu"), Waiting("menu")
    unit.put(first)
    unit.put(second)
    assert unit.effects() == [second]


def test_a_unit_that_is_over_takes_no_effects() -> None:
    """The caller carries them out at once."""
    unit = Unit()
    unit.decide("rolled_back")
    unit.decide("committed")
    assert unit.outcome == "rolled_back"
    assert not unit.add(Waiting("a")) and not unit.put(Waiting("b")) and not unit.call(Waiting("c"))
    assert unit.effects() == []


def test_a_transaction_that_ends_without_a_word_is_over_when_that_is_seen() -> None:
    """It may be that of a driver without events."""
    ends: list[bool] = []
    unit = Unit()
    unit.is_over = lambda: bool(ends)
    assert unit.is_open
    ends.append(True)
    assert not unit.is_open and unit.outcome == "unknown"


def test_no_function_waits_for_a_commit_that_will_not_be_seen() -> None:
    """It would never be called, and nobody would know."""
    unit = Unit()
    unit.says_when = False
    with pytest.raises(UsageError) as caught:
        unit.call(Waiting("f"))
    assert str(caught.value) == NO_TRANSACTION


def test_a_lost_lease_is_told_before_the_commit() -> None:
    """To prevent such a commit is what a lease is for."""
    unit = Unit()
    unit.add(Waiting("a"))
    unit.check()
    unit.add(Waiting("b", lost=True))
    with pytest.raises(LeaseLost):
        unit.check()


def test_what_waits_can_be_taken_back_once() -> None:
    """A key that is taken again inside; or what a savepoint undoes."""
    unit = Unit()
    lease, value, function = Waiting("a"), Waiting("b"), Waiting("c")
    unit.add(lease)
    unit.put(value)
    unit.call(function)
    assert unit.pending(None, b"a") is lease is unit._leases[0]
    assert unit.pending(None, b"b") is None
    for each in (lease, value, function):
        assert unit.take_back(each) and not unit.take_back(each)
    assert unit.waiting == []


def test_what_waits_for_a_savepoint_waits_for_what_is_around_it() -> None:
    """The release of a savepoint is no commit; its rollback may follow."""
    outer = Unit(None, 1)
    inner = Unit(outer, 1)
    other = Unit(outer, 2)
    seen: list[object] = []
    outer.watch_savepoint = seen.append
    assert around(inner) is outer and around(other) is None
    waiting = [Waiting("value"), Waiting("function"), Waiting("lease")]
    inner.put(waiting[0])
    inner.call(waiting[1])
    inner.add(waiting[2])
    inner.loaded[None, b"x"] = 1
    inner.invalidated.add((None, b"y"))
    inner.hand_to(outer)
    assert outer.has_changed(None, b"y", ()) and not outer.has_changed(1, b"y", ())
    assert inner.waiting == [] and outer.loaded == {(None, b"x"): 1}
    assert seen == waiting == outer.effects()
    outer.decide("committed")
    assert around(inner) is None


def test_the_current_unit_is_the_innermost_that_is_open() -> None:
    """One that is decided counts no more, also in a context that was copied before."""
    outer, inner = Unit(), Unit()
    inner.outer = outer
    assert current() is None
    enter(outer)
    enter(inner)
    assert current() is inner
    inner.decide("committed")
    assert current() is outer  # also before it was left
    leave(inner)
    leave(inner)
    assert current() is outer
    leave(outer)
    assert current() is None


def test_a_task_that_was_started_inside_belongs_to_the_unit_until_that_is_over() -> None:
    """It may outlive it."""

    async def main() -> None:
        unit = Unit()
        enter(unit)
        is_over = asyncio.Event()

        async def child() -> list[bool]:
            inside = current() is unit
            await is_over.wait()
            return [inside, current() is None]

        task = asyncio.create_task(child())
        await asyncio.sleep(0)
        unit.decide("committed")
        leave(unit)
        is_over.set()
        assert await task == [True, True]

    contextvars.copy_context().run(asyncio.run, main())
