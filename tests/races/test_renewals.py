"""Leases that come and go beside the one task that renews them all."""

import asyncio
from typing import Any

import pytest

from dibs import AsyncDibs, Event, LeaseLost
from dibs.testing import Server, aeventually

from ..behaviour.events import kinds


def renewers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "dibs renewer"]


async def test_renewed_holds_that_end_at_once_share_one_task(valkey: Server) -> None:
    """The first begins it; the others end before they are due, and cost nothing more."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for number in range(50):
            async with dibs.hold(f"user:{number}", ttl=600, renew=True):
                pass
        assert dibs._leases.renewer._run_number == 1


async def test_a_body_is_stopped_in_time_while_others_are_renewed(own_server: Server) -> None:
    """The renewal of another lease gets no reply: this one is not even asked for, and ends."""
    events: list[Event] = []
    seen: list[str] = []
    async with AsyncDibs(own_server.url, budget=5, listeners=[events.append]) as dibs:
        with pytest.raises(LeaseLost):
            async with dibs.hold("user:1", ttl=1.5, renew=True):
                other = asyncio.create_task(held(dibs.hold("user:2", ttl=0.9, renew=True)))
                await aeventually(lambda: "user:2" in own_server.keys())
                own_server.freeze()
                try:
                    await asyncio.sleep(60)
                finally:
                    seen += kinds(events)
                    own_server.thaw()
        other.cancel()
        await asyncio.wait([other])
    assert "lost" in seen and "outage" not in seen


async def held(hold: Any) -> None:
    async with hold:
        await asyncio.sleep(60)


async def test_a_body_whose_renewer_was_cancelled_is_stopped_at_its_deadline(
    valkey: Server,
) -> None:
    """A program that cancels all tasks but its own takes the renewals, not the deadline."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        async with dibs.hold("user:1", ttl=1.4, renew=True):
            pass
        with pytest.raises(LeaseLost):
            async with dibs.hold("user:2", ttl=1.5, renew=True):
                [renewer] = renewers()
                renewer.cancel()
                await asyncio.wait([renewer])
                await asyncio.sleep(20)
