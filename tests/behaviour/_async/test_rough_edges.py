"""What users do to a library on a bad day, each of it once a defect."""

import time

import pytest

from dibs import AsyncDibs, Busy, DibsError, UsageError
from dibs.testing import FaultProxy, Server

from .._tasks import Beside, eventually, sleep


async def test_a_hold_is_for_one_block_at_a_time(valkey: Server) -> None:
    """One hold object shared like a lock: the second block is refused, never let in."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        shared = dibs.hold("user:1", ttl=5)
        async with shared:
            with pytest.raises((Busy, UsageError)):
                async with shared:
                    pytest.fail("held twice")
        async with shared as lease:
            assert lease.guarded, "one after the other is fine"


async def test_a_late_copy_of_a_repeated_request_takes_no_key(valkey: Server) -> None:
    """Asked again on a second line, released; then the first copy arrives: the key is free."""
    with FaultProxy(valkey.port) as line:
        async with AsyncDibs(line.url, budget=1) as dibs:
            await dibs.peek("warm:up")
            line.delay(requests=0.8)

            async def hold() -> bool:
                async with dibs.hold("user:1", ttl=60) as lease:
                    return lease.guarded

            holder = Beside(hold)
            await sleep(0.2)
            line.delay()
            assert await holder.result()
            await sleep(1.0)
            assert valkey.keys() == []


async def test_a_demotion_strands_nobody(own_server: Server) -> None:
    """READONLY for one of many who ask at once: everybody is answered."""
    async with AsyncDibs(own_server.url, budget=2) as dibs:

        async def ask(number: int) -> bool:
            for turn in range(20):
                async with dibs.hold(f"user:{number}:{turn}", ttl=5):
                    await sleep(0.001)
            return True

        callers = [Beside(ask, number) for number in range(20)]
        own_server.client().replicaof("127.0.0.1", 1)
        for caller in callers:
            assert await caller.result()


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

        waiters = [Beside(wait, key) for key in ("user:1", "user:1", "user:2")]
        await sleep(0.3)
        since = time.monotonic()
        await dibs.aclose()
        for waiter in waiters:
            assert await waiter.result() == "UsageError"
        assert time.monotonic() - since < 5
        assert await mine.release() is False


async def test_leaving_a_block_after_closing_is_no_error(valkey: Server) -> None:
    """An application that closes dibs before its last request ends: the block ends well."""
    dibs = AsyncDibs(valkey.url, budget=5)
    async with dibs.hold("user:1", ttl=5):
        await dibs.aclose()


async def test_a_server_that_refuses_pttl_is_not_hammered(own_server: Server) -> None:
    """A waiter who may not ask how long: it tries every now and then, it does not spin."""
    own_server.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-pttl"]
    )
    own_server.client().set("user:1", "somebody", ex=60)
    async with AsyncDibs(f"redis://ann:secret@127.0.0.1:{own_server.port}", budget=5) as dibs:
        assert await dibs.try_hold("warm:up", ttl=5) is not None
        before = own_server.commands()
        assert await dibs.try_hold("user:1", ttl=5, wait=1) is None
        assert own_server.commands() - before < 100


async def test_a_release_whose_reply_is_lost_is_a_release(valkey: Server) -> None:
    """The server gave the key back, the line broke before it could say so: True, not `late`."""
    kinds: list[str] = []
    with FaultProxy(valkey.port) as line:
        listeners = [lambda event: kinds.append(event.kind)]
        async with AsyncDibs(line.url, budget=2, listeners=listeners) as dibs:
            lease = await dibs.try_hold("user:1", ttl=60)
            assert lease is not None
            line.cut_after_request(match=b"user:1")
            assert await lease.release() is True
            assert line.triggered == 1
        assert kinds == ["acquired", "released"]


async def test_a_broken_release_does_not_hide_what_is_owed(own_server: Server) -> None:
    """Many releases owed at once, and a line that breaks while they are paid: none is forgotten."""
    with FaultProxy(own_server.port) as line:
        async with AsyncDibs(line.url, budget=0.5) as dibs:
            leases = [await dibs.try_hold(f"user:{n}", ttl=60) for n in range(20)]
            own_server.freeze()
            for lease in leases:
                assert lease is not None
                await lease.release()
            line.cut()
            own_server.thaw()
            await eventually(lambda: own_server.keys() == [], within=10)


async def test_keys_and_times_that_python_cannot_digest(valkey: Server) -> None:
    """A lone surrogate, an endless integer: UsageError, not the exception from below."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="Unicode"):
            dibs.hold("user:\ud800", ttl=5)
        with pytest.raises(UsageError, match="ttl"):
            dibs.hold("user:1", ttl=10**400)
