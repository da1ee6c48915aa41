"""The end of a claim: finished work counts as done, even if the key or the store was lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from dibs import AsyncDibs, Event
from dibs._core.capabilities import Engine
from dibs._core.claim import ClaimRecord, RecordWrite, running_record, write_request
from dibs._core.options import ClaimOptions
from dibs._internal_api import ClaimRequest, claiming
from dibs.testing import Server

from .._tasks import eventually
from ..events import kinds
from .submissions import AFTER, refused

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

BIG = "x" * 100_000


@contextmanager
def full(server: Server) -> Iterator[None]:
    """A server that is out of memory, and evicts nothing."""
    client = server.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says, and that it names no key."""
    said = [each.getMessage() for each in caplog.records if each.name == "dibs"]
    assert not any("4711" in line for line in said)
    return said


# ---- the key is free


@pytest.mark.parametrize("after", AFTER)
async def test_a_claim_whose_key_is_free_counts_as_done(
    server: Server, after: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease expired and the key is free: the usual record is written, and an event reports
    it."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        runs = 0

        @dibs.once("order:{number}", window=60, after=after)
        async def order(number: int) -> int:
            nonlocal runs
            runs += 1
            server.client().delete("order:4711")
            return number + runs

        assert await order(4711) == 4712
        if after == "release":
            assert server.keys() == [] and warnings(caplog) == []
            assert kinds(events) == ["claimed", "late"]
            return
        assert 55_000 < server.client().pttl("order:4711") <= 60_050
        assert (events[-1].kind, events[-1].cause) == ("completed", "expired")
        if after == "replay":
            assert await order(4711) == 4712
        else:
            assert (await refused(dibs, "order:4711", after=after)).state == "done"
        assert runs == 1
    assert len(said := warnings(caplog)) == 1
    assert said[0].startswith("order:{number}: its lease ran out before it ended")


async def test_a_failure_that_holds_its_key_does_so_if_the_key_is_free(server: Server) -> None:
    """on_error="hold", the body raises after its lease ran out: duplicates are refused."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(KeyError):
            async with dibs.claim("order:1", window=60, on_error="hold"):
                server.client().delete("order:1")
                raise KeyError("mine")
        assert (await refused(dibs)).state == "done"


async def test_a_claim_that_ran_out_by_itself_counts_as_done(valkey: Server) -> None:
    """No renewal came through for longer than the lease; then it ends: the result is stored."""
    events: list[Event] = []
    options: dict[str, Any] = {"window": 60, "lease": 0.5, "after": "replay"}
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        async with dibs.claim("order:1", **options) as claim:
            valkey.client().pexpire("order:1", 1)
            await eventually(lambda: claim.lost and valkey.keys() == [])
            claim.complete(17)
        assert not claim.lost
        async with dibs.claim("order:1", **options) as claim:
            assert claim.replayed and claim.result == 17
    ended = [kind for kind in kinds(events) if kind != "renewed"]
    assert ended == ["claimed", "lost", "completed", "replayed"]


async def test_a_job_whose_lease_was_lost_is_not_done(valkey: Server) -> None:
    """Another worker may have it: it is run again, however its function ended."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for how in ("returned", "raised"):
            options = ClaimOptions("job", window=60, lease=0.5, after="hold", on_error="hold")
            request = ClaimRequest("job:1", options, None, "job:{id}")
            claim = await claiming(dibs, request).__aenter__()
            valkey.flush()
            await eventually(lambda claim=claim: claim.lost)
            assert await claim.end(how) is False
            assert valkey.keys() == [] and not claim.is_open


@pytest.mark.parametrize("native", ["DELIFEQ", "LUA"])
async def test_a_record_at_a_free_key_is_written_in_its_time_only(
    server: Server, native: Any
) -> None:
    """A copy that arrives late finds the record, another's claim, or that its time is over."""
    record = ClaimRecord(running_record(b"a-1@here:1", b"-", 1.0), b"{}", 60_000)
    value = record.value("result")
    engine = Engine(set_nx_get=True, compare_delete=native)

    async def send(write: RecordWrite) -> Any:
        request = write_request(engine, b"order:1", record, write, value, 0.0)
        return await dibs._store.ask(request, 0.0)

    async with AsyncDibs(server.url, budget=5) as dibs:
        await dibs.peek("warm:up")
        clock = await send(RecordWrite("result", 0))
        assert clock > 1_700_000_000_000 and server.keys() == [], "it only asks"
        assert await send(RecordWrite("result", clock + 60_000)) == 1
        assert server.client().get("order:1") == value
        server.client().pexpire("order:1", 30_000)
        assert await send(RecordWrite("result", clock + 60_000)) == 1
        assert server.client().pttl("order:1") <= 30_050, "the second copy changes nothing"
        server.client().set("order:1", "another's")
        assert await send(RecordWrite("result", clock + 60_000)) == 0
        assert server.client().get("order:1") == b"another's"
        server.flush()
        assert await send(RecordWrite("result", clock - 1)) >= clock and server.keys() == []


# ---- the result cannot be stored


@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("result", [None, 17, BIG])
async def test_a_server_without_memory_records_that_it_was_done(
    server: Server, result: Any, is_free: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """OOM at the end: *done* alone is stored, in the place of the claim; it is not done again."""
    events: list[Event] = []
    after = "hold" if result is None else "replay"
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        options: dict[str, Any] = {"window": 600, "after": after, "on_error": "hold"}
        async with dibs.claim("order:4711", name="order:{id}", **options) as claim:
            claim.complete(result)
            if is_free:
                server.flush()
            length = len(server.client().get("order:4711") or b"x" * 100)
            with full(server):
                assert await claim.finish() is True
        assert len(server.client().get("order:4711") or b"") <= length
        assert 590_000 < server.client().pttl("order:4711") <= 600_050
        error = await refused(dibs, "order:4711", **options)
        assert error.state == "done" and error.retry_after > 590
    cause = "expired" if is_free else None
    assert events[1].kind == "completed"
    assert events[1].cause == (cause if result is None else "not_stored")
    said = warnings(caplog)
    assert len(said) == (events[1].cause is not None)
    assert (
        result is None
        or "order:{id}: its result could not be stored (the server is out of" in said[0]
    )


async def test_a_server_without_memory_after_a_failure(server: Server) -> None:
    """on_error="hold": the key is held. on_error="release": it is free, memory or not."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        for on_error in ("hold", "release"):
            with pytest.raises(KeyError):
                async with dibs.claim("order:1", window=600, on_error=on_error):
                    with full(server):
                        raise KeyError("mine")
            assert server.keys() == (["order:1"] if on_error == "hold" else [])
            server.flush()


async def test_a_result_that_is_too_long_for_the_server(
    start_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """The server closes the connection on it: the submission counts as done, and others go on."""
    server = start_server(config=("--proto-max-bulk-len", "1mb"))
    options: dict[str, Any] = {"window": 600, "after": "replay", "lease": 60}
    async with AsyncDibs(server.url, budget=1.5) as dibs, AsyncDibs(server.url, budget=5) as other:
        async with dibs.claim("order:1", **options) as claim:
            claim.complete("x" * 2_000_000)
            await claim.finish()

        def is_done() -> bool:
            return (server.client().get("order:1") or b"").startswith(b"dibs1 done ")

        await eventually(is_done)
        assert (await refused(other, **options)).state == "done"

        async def is_guarded() -> bool:
            async with dibs.hold("user:1", ttl=5) as lease:
                return lease.guarded

        await eventually(is_guarded)


async def test_a_user_who_may_not_run_scripts(start_server: Callable[..., Server]) -> None:
    """What only a script can record is not recorded; the work was done, so nothing is raised.

    On a server that compares by a command; elsewhere a key could not even be released.
    """
    own_server = start_server("valkey")
    client = own_server.client()
    client.execute_command("ACL", "SETUSER", "shop", "on", ">pw", "~*", "+@all", "-@scripting")
    url = own_server.url.replace("//", "//shop:pw@", 1)
    async with AsyncDibs(url, budget=5) as dibs:
        for is_full in (False, True):
            async with dibs.claim("order:1", window=60, after="replay") as claim:
                claim.complete(17)
                if is_full:
                    with full(own_server):
                        assert await claim.finish() is False
                else:
                    own_server.flush()
                    assert await claim.finish() is False
            own_server.flush()


# ---- how long it counts


async def test_a_record_lasts_from_the_end_of_the_work(server: Server) -> None:
    """Work that is longer than its window leaves its record for a whole window."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        for after in ("hold", "replay"):
            async with dibs.claim("order:1", window=600, after=after) as claim:
                assert claim._lease is not None
                claim._lease.since -= 3600  # it began an hour ago
                claim.complete(17)
            assert 590_000 < server.client().pttl("order:1") <= 600_050
            server.flush()


# ---- the store is out


async def test_an_outage_for_longer_than_the_lease(own_server: Server) -> None:
    """The server is killed while the work runs and comes back empty: the work counts as done."""
    events: list[Event] = []
    options: dict[str, Any] = {"window": 600, "lease": 1, "after": "replay"}
    async with AsyncDibs(own_server.url, budget=0.3, listeners=[events.append]) as dibs:
        async with dibs.claim("order:1", **options) as claim:
            own_server.kill()
            await eventually(lambda: claim.lost)
            claim.complete(17)
            assert await claim.finish() is False
        own_server.restart()
        await eventually(lambda: own_server.keys() == ["order:1"], within=90)
    assert "leaked" in kinds(events)
    async with AsyncDibs(own_server.url, budget=5) as dibs:
        assert (await refused(dibs, **options)).state == "done"


async def test_what_is_recorded_after_an_outage_lasts_from_the_end_of_the_work(
    own_server: Server,
) -> None:
    """Not from when the server is back."""
    options: dict[str, Any] = {"window": 600, "lease": 1, "after": "hold"}
    async with AsyncDibs(own_server.url, budget=0.3) as dibs:
        async with dibs.claim("order:1", **options) as claim:
            own_server.kill()
            await eventually(lambda: claim.lost)
        ended = monotonic()
        await eventually(lambda: monotonic() > ended + 1.5)
        own_server.restart()
        await eventually(lambda: own_server.keys() == ["order:1"], within=90)
        passed = monotonic() - ended
        left = own_server.client().pttl("order:1") / 1000
        assert 0 < left <= 600 - passed + 0.01


async def test_an_outage_while_the_note_changes(own_server: Server) -> None:
    """For either value that the key has when the server resumes: it is done."""
    options: dict[str, Any] = {"window": 600, "lease": 60, "after": "hold"}
    async with AsyncDibs(own_server.url, budget=0.3) as dibs:
        async with dibs.claim("order:1", **options) as claim:
            own_server.freeze()
            assert await claim.set_note("job-17") is False
        own_server.thaw()

        def is_done() -> bool:
            return (own_server.client().get("order:1") or b"").startswith(b"dibs1 done ")

        await eventually(is_done, within=90)
