# Generated from tests/behaviour/_async/test_renew.py by unasync.py – do not edit.
"""What `renew` and `max_hold` promise, on every engine."""

import gc
import logging
from time import monotonic

import pytest

from dibs import Dibs, Event, LeaseLost
from dibs.testing import Server

from .._threads import eventually, sleep


def test_a_renewed_lease_outlives_its_ttl(server: Server) -> None:
    """renew=True: kept alive far beyond its ttl, gone at the end."""
    with Dibs(server.url, budget=5) as dibs, Dibs(server.url, budget=5) as other:
        with dibs.hold("user:1", ttl=1.2, renew=True) as lease:
            sleep(1.8)
            assert not lease.lost
            lease.check()
            assert other.try_hold("user:1", ttl=1) is None
        assert server.keys() == []


def test_a_lease_is_renewed_while_the_server_is_out_of_memory(own_server: Server) -> None:
    """A full server takes no new keys. Those that are held can be kept, extended, shortened."""
    client = own_server.client()
    with Dibs(own_server.url, budget=5) as dibs:
        short = dibs.try_hold("user:2", ttl=60, at_least=20)
        assert short is not None
        with dibs.hold("user:1", ttl=1.2, renew=True) as lease:
            client.config_set("maxmemory", 1)
            sleep(1.8)
            assert not lease.lost
            assert lease.extend(30)
            assert short.release()
        assert client.pttl("user:2") <= 20_050
        assert own_server.keys() == ["user:2"]


def test_many_renewals_share_one_write(server: Server) -> None:
    """A hundred leases are renewed by one renewer; renewals that are due together go together."""
    with Dibs(server.url, budget=5) as dibs:
        holds = [dibs.hold(f"user:{n}", ttl=1.5, renew=True) for n in range(100)]
        leases = [hold.__enter__() for hold in holds]
        sleep(2.0)
        assert not any(lease.lost for lease in leases)
        for hold in holds:
            hold.__exit__(None, None, None)
        assert server.keys() == []


def test_a_shorter_lease_is_renewed_in_time_beside_a_longer_one(server: Server) -> None:
    """Nothing was due for a while when it came; also where many others came and went."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold("user:1", ttl=60, renew=True):
            for number in range(200):
                with dibs.hold(f"order:{number}", ttl=30, renew=True):
                    pass
            with dibs.hold("user:2", ttl=1.5, renew=True) as lease:
                end = lease._state.deadline
                eventually(lambda: lease._state.deadline > end + 1)
                assert not lease.lost


def test_max_hold_ends_the_renewals(server: Server) -> None:
    """max_hold: the server has expired the key by then, and the lease knows that it is lost."""
    with Dibs(server.url, budget=5) as dibs:
        hold = dibs.hold("user:1", ttl=1, renew=True, max_hold=2)
        lease = hold.__enter__()
        sleep(1.2)
        assert not lease.lost
        with_body = lease._state.body
        assert with_body is not None
        lease._state.body = None  # this test plays the body itself
        eventually(lambda: lease.lost)
        eventually(lambda: server.keys() == [])
        lease._state.body = with_body
        assert lease.release() is False


def test_a_renewal_that_finds_the_key_gone_loses_the_lease(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The key vanished: `lost` turns true at the next renewal; an event and a warning say why."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        hold = dibs.hold("user:1", ttl=0.6, renew=True)
        lease = hold.__enter__()
        body, lease._state.body = lease._state.body, None
        server.flush()
        eventually(lambda: lease.lost)
        assert server.keys() == [], "a renewal never takes a key back"
        eventually(lambda: "lost" in [event.kind for event in events])
        lease._state.body = body
        lease.release()
    [line] = [each for each in caplog.records if "lost" in each.getMessage()]
    assert line.levelno == logging.WARNING and line.name == "dibs"
    assert "user:*: the lease was lost after" in line.getMessage() and "user:1" not in caplog.text


def test_one_broken_key_does_not_stop_other_renewals(server: Server) -> None:
    """One of many renewed keys was overwritten with a list: that lease is lost, the others live."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        holds = [dibs.hold(f"user:{n}", ttl=1.5, renew=True) for n in range(10)]
        leases = [hold.__enter__() for hold in holds]
        bodies = [lease._state.body for lease in leases]
        leases[3]._state.body = None  # this test plays the body itself
        server.client().delete("user:3")
        server.client().rpush("user:3", "x")
        eventually(lambda: leases[3].lost, within=90)
        sleep(1.6)
        assert [lease.lost for lease in leases] == [n == 3 for n in range(10)]
        assert [event.kind for event in events].count("lost") == 1
        leases[3]._state.body = bodies[3]
        for number, hold in enumerate(holds):
            if number != 3:
                hold.__exit__(None, None, None)


def test_an_extended_lease_is_not_cut_short_by_its_renewal(server: Server) -> None:
    """extend(60) on a renewed lease: the next renewal leaves it at that."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold("user:1", ttl=1.2, renew=True) as lease:
            assert lease.extend(60)
            sleep(1.4)
            assert lease.remaining > 50
            assert server.client().pttl("user:1") > 50_000


def test_what_ran_out_here_was_lost_although_its_key_is_there(server: Server) -> None:
    """Another program has extended the key: the lease does not rely on that, and frees it."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        lease = dibs.try_hold("user:1", ttl=0.3)
        assert lease is not None
        server.client().persist("user:1")
        eventually(lambda: lease.lost)
        assert lease.release() is False
        assert server.keys() == []
        assert [event.kind for event in events] == ["acquired", "late"]
        assert lease.release() is False
        assert len(events) == 2, "it is over: nothing is sent, and nothing is said"


def test_a_hold_that_nobody_has_any_more_is_not_renewed(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Entered by hand and dropped: its key runs out, an event and a line in the log say so."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        with caplog.at_level(logging.WARNING, "dibs"):
            dibs.hold("user:1", ttl=1.2, renew=True).__enter__()
            gc.collect()
            eventually(lambda: "leaked" in [event.kind for event in events])
        leaked = next(event for event in events if event.kind == "leaked")
        assert leaked.name == "user:*" and leaked.cause is not None and leaked.held is not None
        assert "user:*" in caplog.text and "user:1" not in caplog.text
        eventually(lambda: server.keys() == [])
        assert [event.kind for event in events].count("leaked") == 1
        with dibs.hold("user:1", ttl=5):
            pass


@pytest.mark.parametrize("kept", ["the lease", "the hold"])
def test_a_hold_that_somebody_still_has_is_renewed(server: Server, kept: str) -> None:
    """A reference to the lease or to the hold is enough: its owner can still release it."""
    with Dibs(server.url, budget=5) as dibs:
        hold = dibs.hold("user:1", ttl=1.5, renew=True)
        lease = hold.__enter__()
        mine = lease if kept == "the lease" else hold
        del hold, lease
        gc.collect()
        sleep(2.0)
        assert server.keys() == ["user:1"]
        if kept == "the lease":
            assert mine.release()  # type: ignore[union-attr]
        else:
            mine.__exit__(None, None, None)  # type: ignore[union-attr]
        assert server.keys() == []


def test_a_lease_that_was_seen_as_lost_is_not_revived(valkey: Server) -> None:
    """A renewal that was under way at the deadline may be confirmed: its holder has stopped."""
    with Dibs(valkey.url, budget=5) as dibs:
        lease = dibs.hold("report:1", ttl=60, renew=True).__enter__()
        state = lease._state
        state.deadline = monotonic() - 1
        assert lease.lost
        state.deadline = monotonic() + 60  # as a confirmed renewal does
        assert lease.lost
        with pytest.raises(LeaseLost):
            lease.check()
        lease.release()
