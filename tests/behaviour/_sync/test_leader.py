# Generated from tests/behaviour/_async/test_leader.py by unasync.py – do not edit.
"""What `leader` promises: one at a time, handed over at its end, and aware of being deposed."""

import logging

import pytest

from dibs import Dibs, Lease, Busy, Event, LeaseLost, Unavailable, UsageError
from dibs.testing import Server

from .._threads import Background, eventually, sleep
from ..events import kinds


def test_a_candidate_is_elected_when_the_leader_resigns(server: Server) -> None:
    """The second one waits, is woken by the end of the first, and has a greater fence."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:

        def lead() -> int | None:
            with two.leader("indexer", ttl=5) as leader:
                return leader.fence

        with one.leader("indexer", ttl=5) as first:
            first.check()
            assert first.fence is not None and not first.lost
            candidate = Background(lead)
            sleep(0.3)
            held = two.peek("indexer")
            assert held is not None and held.holder == one._leases.identity.holder
        fence = candidate.result()
        assert fence > first.fence
        assert [key for key in server.keys() if not key.startswith("fence:")] == []


def test_a_leader_is_kept_in_office(valkey: Server) -> None:
    """A leader leads far beyond its ttl, and a candidate whose wait is over gets Busy."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        with one.leader("indexer", ttl=1.5) as leader:
            with pytest.raises(Busy):
                with two.leader("indexer", ttl=1.5, wait=2):
                    raise AssertionError("there is a leader")
            leader.check()


def test_every_change_of_the_leader_is_an_event(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Elected and resigned, with the fence, as events and as log lines; no token in any."""
    events: list[Event] = []
    caplog.set_level(logging.INFO, "dibs")
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        with dibs.leader("indexer:tenant-7", ttl=5) as leader:
            pass
    changes = [event for event in events if event.kind in ("elected", "resigned", "deposed")]
    assert kinds(changes) == ["elected", "resigned"]
    assert {event.name for event in changes} == {"indexer:*"}
    assert {event.fence for event in changes} == {leader.fence}
    assert changes[0].waited is not None and changes[0].guarded is True
    assert changes[1].held is not None
    said = [record.getMessage() for record in caplog.records]
    assert any("indexer:*: elected leader" in line for line in said)
    assert any("indexer:*: resigned" in line for line in said)


def test_an_election_has_the_name_of_its_key(valkey: Server) -> None:
    """A key without a colon is a constant in the code, and so a name; `name=` overrides it."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        with dibs.leader("indexer"):
            pass
        with dibs.leader("tenant:7", name="tenant:{id}"):
            pass
    names = [event.name for event in events if event.kind == "elected"]
    assert names == ["indexer", "tenant:{id}"]


def test_a_deposed_leader_is_told_at_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The key was taken away: `lost` within a third of the ttl, an event, and LeaseLost at the end.

    In asyncio the body is cancelled; in threads it looks at `lost` or calls `check()`.
    """
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        with pytest.raises(LeaseLost):
            with dibs.leader("indexer", ttl=2) as leader:
                server.flush()
                until_lost(leader)
                # Reported while the body still runs, and not only at its end.
                eventually(lambda: "deposed" in kinds(events))
                leader.check()
        assert leader.lost
    assert kinds(events).count("deposed") == 1 and "resigned" not in kinds(events)
    assert any("deposed" in record.getMessage() for record in caplog.records)


def until_lost(leader: Lease) -> None:
    eventually(lambda: leader.lost)


def test_who_leads_no_more_can_stand_again(valkey: Server) -> None:
    """The same process may be elected again after it was deposed, with a greater fence."""
    with Dibs(valkey.url, budget=5) as dibs:
        with pytest.raises(LeaseLost):
            with dibs.leader("indexer", ttl=0.9) as first:
                valkey.client().delete("indexer")
                until_lost(first)
        with dibs.leader("indexer", ttl=0.9) as second:
            assert first.fence is not None and second.fence is not None
            assert second.fence > first.fence


def test_nobody_is_elected_while_redis_is_unavailable(own_server: Server) -> None:
    """With any outage policy; the election is held when Redis is back."""
    with Dibs(own_server.url, budget=0.3, on_outage="open") as dibs:
        own_server.freeze()
        with pytest.raises(Unavailable):
            with dibs.leader("indexer", wait=0.7):
                raise AssertionError("nobody can know that it is the only one")

        def lead() -> bool:
            with dibs.leader("indexer") as leader:
                return leader.guarded

        candidate = Background(lead)
        sleep(0.7)
        own_server.thaw()
        assert candidate.result() is True


def test_the_exception_of_a_leader_reaches_the_caller(valkey: Server) -> None:
    """A body that raises resigns as well."""
    with Dibs(valkey.url, budget=5) as dibs:
        with pytest.raises(KeyError):
            with dibs.leader("indexer"):
                raise KeyError("of the body")
        assert dibs.peek("indexer") is None


def test_a_leader_block_is_for_one_use_at_a_time(valkey: Server) -> None:
    """Bad options are refused before anything is sent, and so is a block inside of itself."""
    with Dibs(valkey.url, budget=5) as dibs:
        for wrong in ({"ttl": 0}, {"ttl": -1}, {"wait": -1}, {"ttl": "15"}):
            with pytest.raises(UsageError):
                dibs.leader("indexer", **wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            dibs.leader("")
        block = dibs.leader("indexer")
        with block:
            with pytest.raises(UsageError):
                with block:
                    raise AssertionError("it is in use")
        with block as leader:
            assert not leader.lost
