"""`dibs.testing`: waiting for a condition, and functions in their own processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dibs.testing import (
    aeventually,
    eventually,
)

from .clients import SHORT, Spawn


def test_eventually_returns_the_first_true_value_and_forgives_assertions() -> None:
    """Polling ends with the value, or with an error that shows the last one."""
    values = iter([0, "", AssertionError("not yet"), 7])

    def check() -> object:
        value = next(values)
        if isinstance(value, AssertionError):
            raise value
        return value

    assert eventually(check) == 7
    with pytest.raises(AssertionError, match=r"within 0.05 s; the last value was \[\]"):
        eventually(list, within=0.05)


async def test_aeventually_takes_plain_and_coroutine_checks(eventually: Any) -> None:
    """The fixture hands an async test the awaitable version."""
    assert eventually is aeventually
    values = iter([0, 7, 0, 8])

    async def check() -> int:
        await asyncio.sleep(0)
        return next(values)

    assert await eventually(check) == 7
    assert await eventually(lambda: next(values)) == 8
    with pytest.raises(AssertionError, match="the last value was None"):
        await eventually(lambda: asyncio.sleep(0), within=0.05)


def test_a_child_runs_a_function_and_returns_its_result(spawn: Spawn) -> None:
    """Arguments go in and results come out as JSON; the library is importable there."""

    async def work(number: int, words: list[str]) -> dict[str, object]:
        import os

        import dibs.testing

        return {"pid": os.getpid(), "sum": number + len(words), "name": dibs.testing.__name__}

    child = spawn(work, 40, ["a", "b"])
    assert child.result() == {"pid": child.pid, "sum": 42, "name": "dibs.testing"}


def test_a_child_can_be_told_frozen_and_killed(spawn: Spawn) -> None:
    """A start signal for races, a pause longer than a ttl, and a sudden death."""
    child = spawn("while True: print(input(), flush=True)")
    child.tell("one")
    assert child.line() == "one"
    child.freeze()
    child.tell("two")
    with pytest.raises(AssertionError, match="printed nothing"):
        child.line(within=SHORT)
    child.thaw()
    assert child.line() == "two"
    child.kill()
    assert child.lines() == []
    assert "ended with -9" in repr(child)


def test_a_failing_child_fails_the_test_with_its_traceback(spawn: Spawn) -> None:
    """What went wrong in the child is raised in the parent."""
    child = spawn("raise ValueError('over there')")
    with pytest.raises(AssertionError, match="ValueError: over there"):
        child.result()
    with pytest.raises(AssertionError, match="ValueError: over there"):
        child.line()
