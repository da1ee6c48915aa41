# Printed from tests/behaviour/_async/test_renew.py by tools/unasync.py – do not edit.
"""What `renew` and `max_hold` promise, on every engine."""

from dibs import Dibs, Event
from dibs.testing import Server

from .._threads import eventually, sleep


def test_a_renewed_lease_outlives_its_ttl(server: Server) -> None:
    """renew=True: kept alive far beyond its ttl, gone at the end."""
    with Dibs(server.url) as dibs, Dibs(server.url) as other:
        with dibs.hold("user:1", ttl=0.3, renew=True) as lease:
            sleep(1.0)
            assert not lease.lost
            lease.check()
            assert other.try_hold("user:1", ttl=1) is None
        assert server.keys() == []


def test_many_renewals_share_one_write(server: Server) -> None:
    """A hundred leases are renewed by one keeper; renewals that are due together go together."""
    with Dibs(server.url, budget=2) as dibs:
        holds = [dibs.hold(f"user:{n}", ttl=1.5, renew=True) for n in range(100)]
        leases = [hold.__enter__() for hold in holds]
        sleep(2.0)
        assert not any(lease.lost for lease in leases)
        for hold in holds:
            hold.__exit__(None, None, None)
        assert server.keys() == []


def test_max_hold_ends_the_renewals(server: Server) -> None:
    """max_hold: the server has let go by then, and the lease knows it is lost."""
    with Dibs(server.url) as dibs:
        hold = dibs.hold("user:1", ttl=0.4, renew=True, max_hold=0.8)
        lease = hold.__enter__()
        sleep(0.6)
        assert not lease.lost
        with_body = lease._body
        assert with_body is not None
        lease._body = None  # this test plays the body itself; being cancelled is tested elsewhere
        eventually(lambda: lease.lost)
        eventually(lambda: server.keys() == [])
        lease._body = with_body
        assert lease.release() is False


def test_a_renewal_that_finds_the_key_gone_loses_the_lease(server: Server) -> None:
    """The key vanished: `lost` turns true at the next renewal, and a `lost` event says why."""
    events: list[Event] = []
    with Dibs(server.url, listeners=[events.append]) as dibs:
        hold = dibs.hold("user:1", ttl=0.6, renew=True)
        lease = hold.__enter__()
        body, lease._body = lease._body, None
        server.flush()
        eventually(lambda: lease.lost)
        assert server.keys() == [], "a renewal never takes a key back"
        eventually(lambda: "lost" in [event.kind for event in events])
        lease._body = body
        lease.release()
