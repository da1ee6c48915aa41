"""What answers in place of a refused call gets, how long a caller waits, and a forgotten await."""

import math
from datetime import timedelta
from typing import Any

import pytest

from dibs import AsyncDibs, Busy, Duplicate, UsageError
from dibs.testing import Server

from .._tasks import Background, sleep


async def test_busy_gets_the_arguments_that_it_takes(server: Server) -> None:
    """By their names, however the call passed them: a bot can answer with it."""
    seen: list[Any] = []

    async def reply(error: Busy, update: str, *, context: int = 0) -> str:
        seen.append((error.key, update, context))
        return "please wait"

    async with AsyncDibs(server.url, budget=5) as dibs:

        @dibs.exclusive("chat:{update}", ttl=5, busy=reply)
        async def on_update(update: str, context: int, other: str = "x") -> str:
            return await on_update(update, context=7) if context < 7 else "twice"

        assert await on_update("ann", 1) == "please wait"
    assert seen == [("chat:ann", "ann", 7)]


async def test_duplicate_gets_the_arguments_that_it_takes(server: Server) -> None:
    """One that takes the error alone gets no other; `**rest` gets all."""
    seen: list[Any] = []
    async with AsyncDibs(server.url, budget=5) as dibs:

        def all_of_it(error: Duplicate, **rest: Any) -> int:
            seen.append(rest)
            return 0

        @dibs.once("order:{user}", window=9, after="hold", duplicate=lambda error: -1)
        async def order(user: str, cart: int) -> int:
            return cart

        @dibs.once("pay:{user}", window=9, after="hold", duplicate=all_of_it)
        async def pay(user: str, cart: int) -> int:
            return cart

        assert [await order("ann", 2), await order("ann", 3)] == [2, -1]
        assert [await pay("ann", 2), await pay("ann", cart=3)] == [2, 0]
    assert seen == [{"user": "ann", "cart": 3}]


async def test_an_answer_that_needs_what_no_call_has_is_refused(server: Server) -> None:
    """At the decoration, not in the night of the first refusal."""

    def reply(error: Busy, message: str) -> None: ...

    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="busy= takes 'message'"):

            @dibs.exclusive("chat:{user}", ttl=5, busy=reply)
            async def talk(user: str) -> None: ...


async def test_to_wait_for_ever_is_said_so(server: Server) -> None:
    """`wait=math.inf`; None, which means so elsewhere, is refused and not taken for 0."""
    wrong: Any = None
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        for verb in (lambda: one.hold("a:1", ttl=5, wait=wrong),
                     lambda: one.claim("a:2", window=5, wait=wrong)):  # fmt: skip
            with pytest.raises(UsageError, match=r"math\.inf waits for ever"):
                verb()
        lease = await two.try_hold("a:1", ttl=5)
        assert lease is not None

        async def wait() -> float:
            async with one.hold("a:1", ttl=5, wait=math.inf) as mine:
                return mine.remaining

        waiting = Background(wait)
        await sleep(0.05)
        await lease.release()
        assert await waiting.result() > 0
        async with one.hold("a:3", ttl=5, wait=timedelta(0)):
            pass
        async with one.claim("a:4", window=5, wait=math.inf):
            pass
