# Generated from tests/behaviour/_async/test_exclusive.py by unasync.py – do not edit.
"""What the decorator promises."""

from dataclasses import dataclass
from typing import Any

import pytest

from dibs import Dibs, Busy, Event, UsageError
from dibs.testing import Server


@dataclass
class Account:
    id: Any


def test_one_call_at_a_time_for_each_key(valkey: Server) -> None:
    """The template is filled from the arguments; another account is another key."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("sync:{account.id}:{kind}", ttl=30)
        def sync(account: Account, kind: str = "all") -> list[str]:
            """Docs."""
            return valkey.keys()

        assert sync(Account(7)) == ["sync:7:all"]
        assert sync(account=Account(8), kind="new") == ["sync:8:new"]
        assert sync.__name__ == "sync" and sync.__doc__ == "Docs."
        with dibs.hold("sync:7:all", ttl=5):
            with pytest.raises(Busy):
                sync(Account(7))
            assert sync(Account(9)) == sorted(["sync:7:all", "sync:9:all"])
        assert valkey.keys() == []


def test_busy_answers_in_place_of_the_call(valkey: Server) -> None:
    """busy(error) answers in place of a call that meets Busy."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("sync:{account.id}", ttl=30, busy=lambda error: f"wait {error.name}")
        def sync(account: Account) -> str:
            return "done"

        assert sync(Account(7)) == "done"
        with dibs.hold("sync:7", ttl=5):
            assert sync(Account(7)) == "wait sync:{account.id}"


def test_a_busy_from_inside_is_not_ours_to_answer(valkey: Server) -> None:
    """Busy raised by the body is the body's: the polite answer is for our own key only."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("outer:{n}", ttl=30, busy=lambda error: "polite")
        def outer(n: int) -> None:
            raise Busy("inner:1", 3.0)

        with pytest.raises(Busy):
            outer(1)
        assert valkey.keys() == []


def test_events_carry_the_template_and_never_the_key(valkey: Server) -> None:
    """Names in events are templates: no personal data in metrics."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.exclusive("sync:{user_id}", ttl=30)
        def sync(user_id: str) -> None:
            pass

        sync("U4711")
    assert [event.kind for event in events] == ["acquired", "released"]
    assert {event.name for event in events} == {"sync:{user_id}"}
    assert "U4711" not in repr(events)


def test_mistakes_are_told_when_decorating_with_exclusive(valkey: Server) -> None:
    """A field that the function lacks, or a bad ttl: UsageError before any call."""
    with Dibs(valkey.url, budget=5) as dibs:
        for template in ("sync:{user}", "sync:{0}", "sync:{}", "sync:{account", "", "a:{x!r}"):
            with pytest.raises(UsageError):

                @dibs.exclusive(template, ttl=30)
                def sync(account: Account) -> None:
                    pass

        with pytest.raises(UsageError):
            dibs.exclusive("sync:{account.id}", ttl=0)


def test_mistakes_are_told_when_calling(valkey: Server) -> None:
    """A field that this call lacks: UsageError, and nothing was written."""
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.exclusive("sync:{account.id}", ttl=30)
        def sync(account: Any) -> None:
            pytest.fail("ran without a key")

        before = valkey.commands()
        for account in (object(), Account(None), Account("")):
            with pytest.raises(UsageError, match=r"account\.id"):
                sync(account)
        assert valkey.commands() == before
