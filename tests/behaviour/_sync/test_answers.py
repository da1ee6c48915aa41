# Generated from tests/behaviour/_async/test_answers.py by unasync.py – do not edit.
"""What answers in place of a refused call gets, how long a caller waits, and a forgotten await."""

import math
from datetime import timedelta
from typing import Any

import pytest

from dibs import Dibs, Busy, Duplicate, UsageError
from dibs.testing import Server

from .._threads import Background, sleep


def test_busy_gets_the_arguments_that_it_takes(server: Server) -> None:
    """By their names, however the call passed them: a bot can answer with it."""
    seen: list[Any] = []

    def reply(error: Busy, update: str, *, context: int = 0) -> str:
        seen.append((error.key, update, context))
        return "please wait"

    with Dibs(server.url, budget=5) as dibs:

        @dibs.exclusive("chat:{update}", ttl=5, busy=reply)
        def on_update(update: str, context: int, other: str = "x") -> str:
            return on_update(update, context=7) if context < 7 else "twice"

        assert on_update("ann", 1) == "please wait"
    assert seen == [("chat:ann", "ann", 7)]


def test_duplicate_gets_the_arguments_that_it_takes(server: Server) -> None:
    """One that takes the error alone gets no other; `**rest` gets all."""
    seen: list[Any] = []
    with Dibs(server.url, budget=5) as dibs:

        def all_of_it(error: Duplicate, **rest: Any) -> int:
            seen.append(rest)
            return 0

        @dibs.once("order:{user}", window=9, after="hold", duplicate=lambda error: -1)
        def order(user: str, cart: int) -> int:
            return cart

        @dibs.once("pay:{user}", window=9, after="hold", duplicate=all_of_it)
        def pay(user: str, cart: int) -> int:
            return cart

        assert [order("ann", 2), order("ann", 3)] == [2, -1]
        assert [pay("ann", 2), pay("ann", cart=3)] == [2, 0]
    assert seen == [{"user": "ann", "cart": 3}]


def test_an_answer_that_needs_what_no_call_has_is_refused(server: Server) -> None:
    """At the decoration, not in the night of the first refusal."""

    def reply(error: Busy, message: str) -> None: ...

    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="busy= takes 'message'"):

            @dibs.exclusive("chat:{user}", ttl=5, busy=reply)
            def talk(user: str) -> None: ...


def test_to_wait_for_ever_is_said_so(server: Server) -> None:
    """`wait=math.inf`; None, which means so elsewhere, is refused and not taken for 0."""
    wrong: Any = None
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        for verb in (lambda: one.hold("a:1", ttl=5, wait=wrong),
                     lambda: one.claim("a:2", window=5, wait=wrong)):  # fmt: skip
            with pytest.raises(UsageError, match=r"math\.inf waits for ever"):
                verb()
        lease = two.try_hold("a:1", ttl=5)
        assert lease is not None

        def wait() -> float:
            with one.hold("a:1", ttl=5, wait=math.inf) as mine:
                return mine.remaining

        waiting = Background(wait)
        sleep(0.05)
        lease.release()
        assert waiting.result() > 0
        with one.hold("a:3", ttl=5, wait=timedelta(0)):
            pass
        with one.claim("a:4", window=5, wait=math.inf):
            pass
