"""What the decorator promises."""

from dataclasses import dataclass
from typing import Any

import pytest

from dibs import AsyncDibs, Busy, Event, UsageError
from dibs.testing import Server


@dataclass
class Account:
    id: Any


async def test_one_call_at_a_time_for_each_key(valkey: Server) -> None:
    """The template is filled from the arguments; another account is another key."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("sync:{account.id}:{kind}", ttl=30)
        async def sync(account: Account, kind: str = "all") -> list[str]:
            """Docs."""
            return valkey.keys()

        assert await sync(Account(7)) == ["sync:7:all"]
        assert await sync(account=Account(8), kind="new") == ["sync:8:new"]
        assert sync.__name__ == "sync" and sync.__doc__ == "Docs."
        async with dibs.hold("sync:7:all", ttl=5):
            with pytest.raises(Busy):
                await sync(Account(7))
            assert await sync(Account(9)) == sorted(["sync:7:all", "sync:9:all"])
        assert valkey.keys() == []


async def test_busy_answers_in_place_of_the_call(valkey: Server) -> None:
    """busy(error) answers in place of a call that meets Busy."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("sync:{account.id}", ttl=30, busy=lambda error: f"wait {error.name}")
        async def sync(account: Account) -> str:
            return "done"

        assert await sync(Account(7)) == "done"
        async with dibs.hold("sync:7", ttl=5):
            assert await sync(Account(7)) == "wait sync:{account.id}"


async def test_a_busy_from_inside_is_not_ours_to_answer(valkey: Server) -> None:
    """Busy raised by the body is the body's: the polite answer is for our own key only."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("outer:{n}", ttl=30, busy=lambda error: "polite")
        async def outer(n: int) -> None:
            raise Busy("inner:1", 3.0)

        with pytest.raises(Busy):
            await outer(1)
        assert valkey.keys() == []


async def test_events_carry_the_template_and_never_the_key(valkey: Server) -> None:
    """Names in events are templates: no personal data in metrics."""
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.exclusive("sync:{user_id}", ttl=30)
        async def sync(user_id: str) -> None:
            pass

        await sync("U4711")
    assert [event.kind for event in events] == ["acquired", "released"]
    assert {event.name for event in events} == {"sync:{user_id}"}
    assert "U4711" not in repr(events)


async def test_mistakes_are_told_when_decorating_with_exclusive(valkey: Server) -> None:
    """A field that the function lacks, or a bad ttl: UsageError before any call."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for template in ("sync:{user}", "sync:{0}", "sync:{}", "sync:{account", "", "a:{x!r}"):
            with pytest.raises(UsageError):

                @dibs.exclusive(template, ttl=30)
                async def sync(account: Account) -> None:
                    pass

        with pytest.raises(UsageError):
            dibs.exclusive("sync:{account.id}", ttl=0)


async def test_mistakes_are_told_when_calling(valkey: Server) -> None:
    """A field that this call lacks: UsageError, and nothing was written."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("sync:{account.id}", ttl=30)
        async def sync(account: Any) -> None:
            pytest.fail("ran without a key")

        before = valkey.commands()
        for account in (object(), Account(None), Account("")):
            with pytest.raises(UsageError, match=r"account\.id"):
                await sync(account)
        assert valkey.commands() == before
