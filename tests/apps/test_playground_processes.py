"""The processes of the playground: how each of them ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

import pytest

from apps.playground import child, people
from apps.playground.child import Child
from apps.playground.people import Person

pytestmark = pytest.mark.only_on("linux", "darwin")


@pytest.fixture
def too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process ends in the moment in which the wait for it is given up."""

    async def ends_first(work: Awaitable[Any], within: float) -> Any:
        await work
        await asyncio.sleep(0.05)  # asyncio forgets a process a few steps after its end
        raise TimeoutError

    monkeypatch.setattr(people.asyncio, "wait_for", ends_first)


@pytest.mark.parametrize("kind", [Person, Child])
@pytest.mark.usefixtures("too_late")
async def test_a_process_that_ends_as_it_is_to_be_killed_is_gone(kind: type[Any]) -> None:
    """The page ends without an error."""
    assert people.asyncio is child.asyncio
    process = kind("ann", _hear) if kind is Person else kind("app")
    process._process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "input()"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.aclose()
    assert process._process.returncode is not None


def _hear(name: str, facts: dict[str, Any]) -> None: ...
