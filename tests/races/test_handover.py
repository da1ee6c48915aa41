"""A hand-over that meets a cancellation, a fork or many rivals: one continues, nothing is stuck."""

import asyncio

from dibs import AsyncDibs, Duplicate, LeaseLost
from dibs.testing import Server, aeventually

from ..conftest import Spawn
from .cancelling import MOST_STEPS, run_cancelled_at


async def test_a_hand_over_is_cancelled_at_every_suspension(valkey: Server) -> None:
    """Either the key is free, or the token continues it: never a key without an owner."""
    for step in range(MOST_STEPS):
        tokens: list[str] = []
        async with AsyncDibs(valkey.url, budget=5) as web, AsyncDibs(valkey.url, budget=5) as dibs:

            async def work(web: AsyncDibs = web, tokens: list[str] = tokens) -> None:
                async with web.claim("order:1", window=600) as claim:
                    tokens.append(await claim.detach(ttl=600))
                async with web.claim("order:1", window=600, token=tokens[0]):
                    await asyncio.sleep(0)

            was_cancelled = await run_cancelled_at(step, work())

            async def is_settled(dibs: AsyncDibs = dibs, tokens: list[str] = tokens) -> bool:
                try:
                    async with dibs.claim("order:1", window=600, token=[*tokens, None][0]):
                        return True
                except LeaseLost:
                    return not valkey.keys()
                except Duplicate:
                    return False

            await aeventually(is_settled)
        assert valkey.keys() == []
        if not was_cancelled:
            assert step > 4
            return
    raise AssertionError("there was no end to the suspensions")


async def test_of_many_with_one_token_one_continues(valkey: Server) -> None:
    """Delivered a hundred times at once, in two clients: done once."""
    done: list[int] = []
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:
        async with one.claim("order:1", window=600) as claim:
            token = await claim.detach(ttl=600)

        async def deliver(number: int) -> None:
            dibs = one if number % 2 else two
            try:
                async with dibs.claim("order:1", window=600, token=token, after="hold"):
                    done.append(number)
                    await asyncio.sleep(0.05)
            except Duplicate:
                pass

        await asyncio.gather(*[deliver(number) for number in range(100)])
    assert len(done) == 1


def fork_after_detaching(url: str) -> list[object]:
    import os

    from dibs import Dibs, LeaseLost

    dibs = Dibs(url, budget=5)
    reader, writer = os.pipe()
    try:
        with dibs.claim("order:1", window=600) as detached, dibs.hold("race:1", ttl=30) as held:
            token = detached.detach(ttl=60)
            pid = os.fork()
            if pid == 0:
                try:
                    outcome = [detached.fail()]
                    try:
                        held.detach(ttl=60)
                    except LeaseLost:
                        outcome.append("lost")
                    with dibs.claim("order:1", window=600, token=token):
                        outcome.append("continued")
                    os.write(writer, repr(outcome).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            child = os.read(reader, 1000).decode()
            os.waitpid(pid, 0)
            return [child, held.lost]
    finally:
        dibs.close()


def test_a_forked_child_continues_by_the_token_and_by_nothing_else(
    valkey: Server, spawn: Spawn
) -> None:
    """It cannot detach or end what its parent holds, and can continue what its parent detached."""
    said = spawn(fork_after_detaching, valkey.url).result()
    assert said == ["[False, 'lost', 'continued']", False]
    assert valkey.keys() == []
