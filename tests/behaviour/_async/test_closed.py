"""A closed Dibs refuses every call."""

import time

import pytest

from dibs import AsyncDibs, DibsError, Event, UsageError
from dibs.testing import Server

from .._tasks import Background, eventually, sleep


async def _refuses_everything(dibs: AsyncDibs) -> None:
    loaded: list[str] = []

    @dibs.exclusive("user:{number}", ttl=5)
    async def exclusive(number: int) -> None:
        loaded.append("exclusive")

    @dibs.once("order:{number}", window=5)
    async def once(number: int) -> None:
        loaded.append("once")

    async def load() -> str:
        loaded.append("load")
        return "loaded"

    with pytest.raises(UsageError, match="closed"):
        await dibs.try_hold("user:1", ttl=5)
    with pytest.raises(UsageError, match="closed"):
        await dibs.try_hold("user:1", ttl=5, wait=1)
    with pytest.raises(UsageError, match="closed"):
        async with dibs.hold("user:2", ttl=5, renew=True):
            loaded.append("hold")
    with pytest.raises(UsageError, match="closed"):
        async with dibs.claim("order:1", window=5):
            loaded.append("claim")
    for number in (1, 2):
        with pytest.raises(UsageError, match="closed"):
            await exclusive(number)
        with pytest.raises(UsageError, match="closed"):
            await once(number)
    with pytest.raises(UsageError, match="closed"):
        await dibs.peek("user:1")
    with pytest.raises(UsageError, match="closed"):
        await dibs.get_or_load("menu:1", load, ttl=60, local=True)
    with pytest.raises(UsageError, match="closed"):
        await dibs.get_or_load("menu:2", load, ttl=60)
    assert loaded == []


async def test_a_closed_dibs_refuses_every_verb(server: Server) -> None:
    """UsageError: also for keys that it held, claims that it ran and values that it remembered."""

    async def load() -> str:
        return "before"

    dibs = AsyncDibs(server.url, budget=5)
    lease = await dibs.try_hold("user:1", ttl=60)
    claiming = dibs.claim("order:1", window=60)
    await claiming.__aenter__()
    await dibs.get_or_load("menu:1", load, ttl=60, local=True)
    await dibs.get_or_load("menu:1", load, ttl=60, local=True)
    await dibs.aclose()
    await _refuses_everything(dibs)
    assert lease is not None and await lease.release() is False
    assert await lease.extend(5) is False


async def test_a_closed_dibs_hands_out_nothing_in_an_outage(own_server: Server) -> None:
    """Closed while the store was out: not even an unguarded lease."""
    dibs = AsyncDibs(own_server.url, budget=0.1)
    assert await dibs.try_hold("user:1", ttl=60) is not None
    own_server.kill()

    async def is_out() -> bool:
        lease = await dibs.try_hold("user:2", ttl=5)
        return lease is not None and not lease.guarded

    while not await is_out():
        pass
    await dibs.aclose()
    await _refuses_everything(dibs)


async def test_a_dibs_that_was_never_used_can_be_closed(valkey: Server) -> None:
    """Nothing connected, nothing to close: and still it is closed."""
    dibs = AsyncDibs(valkey.url)
    await dibs.aclose()
    await dibs.aclose()
    await _refuses_everything(dibs)
    await eventually(lambda: valkey.keys() == [])


async def test_a_closed_dibs_says_so(server: Server) -> None:
    """After close: a UsageError, not a hang. Closing twice is fine."""
    dibs = AsyncDibs(server.url, budget=5)
    async with dibs.hold("user:1", ttl=5):
        pass
    await dibs.aclose()
    await dibs.aclose()
    with pytest.raises(UsageError, match="closed"):
        async with dibs.hold("user:1", ttl=5):
            pytest.fail("held on a closed dibs")


async def test_a_closed_dibs_cannot_be_entered_again(valkey: Server) -> None:
    """It raises on entry, not at the first call inside: a task that was left behind must not
    continue in it."""
    dibs = AsyncDibs(valkey.url, budget=5)
    async with dibs:
        assert await dibs.try_hold("user:1", ttl=5) is not None
    with pytest.raises(UsageError, match="cannot be opened again"):
        async with dibs:
            pytest.fail("entered")


async def test_closing_answers_everybody(valkey: Server) -> None:
    """Closed while others wait or work: none of them hangs, none gets a raw exception."""
    async with AsyncDibs(valkey.url, budget=5) as other, other.hold("user:1", ttl=60):
        dibs = AsyncDibs(valkey.url, budget=5)
        mine = await dibs.try_hold("user:2", ttl=60)
        assert mine is not None

        async def wait(key: str) -> str:
            try:
                async with dibs.hold(key, ttl=5, wait=60):
                    return "held"
            except DibsError as error:
                return type(error).__name__

        waiters = [Background(wait, key) for key in ("user:1", "user:1", "user:2")]
        await sleep(0.3)
        since = time.monotonic()
        await dibs.aclose()
        for waiter in waiters:
            assert await waiter.result() == "UsageError"
        assert time.monotonic() - since < 30
        assert await mine.release() is False


async def test_closing_is_not_reported_as_an_outage(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Closed while callers wait for a connection: a UsageError, no unguarded lease, no warning."""
    events: list[Event] = []
    own_server.freeze()
    dibs = AsyncDibs(own_server.url, budget=0.2, connect=60, listeners=[events.append])

    async def hold(key: str) -> str:
        try:
            async with dibs.hold(key, ttl=5) as lease:
                return f"guarded {lease.guarded}"
        except DibsError as error:
            return type(error).__name__

    callers = [Background(hold, f"user:{number}") for number in range(3)]
    await sleep(0.3)
    await dibs.aclose()
    assert [await caller.result() for caller in callers] == ["UsageError"] * 3
    assert "unavailable" not in caplog.text
    assert [event.kind for event in events] == []


async def test_leaving_a_block_after_closing_is_no_error(valkey: Server) -> None:
    """An application that closes dibs before its last request ends: the block ends well."""
    dibs = AsyncDibs(valkey.url, budget=5)
    async with dibs.hold("user:1", ttl=5):
        await dibs.aclose()
