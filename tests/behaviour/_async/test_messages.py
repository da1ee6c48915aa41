"""What errors say to people: durations, names, and what to do."""

from typing import Any

import pytest

from dibs import AsyncDibs, Busy, Duplicate, UsageError
from dibs.testing import Server


async def test_a_wait_of_hours_is_said_in_hours(server: Server) -> None:
    """Not as 7.2e+03 s: people log and show it."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.hold("job:1", ttl=7200):
            with pytest.raises(Busy, match=r"try again in 2 h$"):
                await two.hold("job:1", ttl=7200).__aenter__()
        async with one.claim("order:1", window=86_400, after="hold"):
            pass
        with pytest.raises(Duplicate, match=r"try again in 24 h$"):
            await two.claim("order:1", window=86_400, after="hold").__aenter__()


async def test_a_word_without_a_colon_is_shown_whole(server: Server) -> None:
    """It is the name of a task; what may be an id is not shown."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        for key, shown in (
            ("nightly-report", "nightly-report"),
            ("u4711", r"\*"),
            ("a@b.c", r"\*"),
        ):
            async with one.hold(key, ttl=5):
                with pytest.raises(Busy, match=rf"^{shown} is held by"):
                    await two.hold(key, ttl=5).__aenter__()


@pytest.mark.parametrize("wait", [0, 0.01])
async def test_a_nested_hold_is_said_to_be_in_this_process(server: Server, wait: float) -> None:
    """Whose it is matters more than a process id that is one's own."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.hold("job:1", ttl=5):
            with pytest.raises(Busy, match="held by this process; leases are not re-entrant") as it:
                await one.hold("job:1", ttl=5, wait=wait).__aenter__()
            assert it.value.holder is not None
            with pytest.raises(Busy) as elsewhere:
                await two.hold("job:1", ttl=5, wait=wait).__aenter__()
            assert "re-entrant" not in str(elsewhere.value)


async def test_permits_are_counted_and_a_wait_is_named(server: Server) -> None:
    """All of them are taken: one holder of five is not the cause. What was waited is said too."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.hold("api", ttl=5, limit=2), one.hold("api", ttl=5, limit=2):
            with pytest.raises(Busy, match=r"^all 2 permits of api are taken; try") as refused:
                await two.hold("api", ttl=5, limit=2).__aenter__()
            assert (refused.value.limit, refused.value.waited) == (2, 0.0)
            with pytest.raises(Busy, match=r"are taken, after a wait of 0.01 s; try again in"):
                await two.hold("api", ttl=5, limit=2, wait=0.01).__aenter__()
        async with one.hold("job", ttl=5):
            with pytest.raises(Busy, match=r"^job is held by \S+, after a wait of 0.01 s; try"):
                await two.hold("job", ttl=5, wait=0.01).__aenter__()
            with pytest.raises(Busy, match=r"after a wait of 0.01 s"):
                await two.leader("job", ttl=5, wait=0.01).__aenter__()


async def test_a_limit_is_named(server: Server) -> None:
    """1e9 is finite, but more than ten years."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="the limit is 315360000 s, ten years"):
            dibs.hold("a:1", ttl=5, wait=1e9)
        with pytest.raises(UsageError, match="finite"):
            dibs.hold("a:1", ttl=float("inf"))


async def test_what_was_called_wrongly_is_said_with_what_to_write(server: Server) -> None:
    """A loader that was called, a classmethod below, a missing argument, a closed client."""
    async with AsyncDibs(server.url, budget=5) as dibs:

        async def load() -> int:
            return 1

        made: Any = load()
        with pytest.raises(UsageError, match=r"pass the function itself, without \(\)"):
            await dibs.get_or_load("a:1", made, ttl=5)
        if hasattr(made, "close"):
            made.close()

        with pytest.raises(UsageError, match="put @classmethod above"):
            wrong: Any = classmethod(load)
            dibs.exclusive("a:b", ttl=5)(wrong)
        with pytest.raises(UsageError, match="put @staticmethod above"):
            wrong = staticmethod(load)
            dibs.once("a:b", window=5)(wrong)

        @dibs.cached("v:{item}", ttl=5)
        async def value(item: str) -> str:
            return item

        missing: Any = value.invalidate
        with pytest.raises(TypeError, match=r"value\(\) missing .*'item'"):
            await missing()
    with pytest.raises(UsageError, match=r"is closed .*: make another one"):
        await dibs.try_hold("a:1", ttl=5)
