# Generated from tests/behaviour/_async/test_hold.py by unasync.py – do not edit.
"""What `hold`, `try_hold` and `peek` promise, on every engine."""

import pytest

from dibs import Dibs, Busy, LeaseLost, UsageError
from dibs.testing import Server

from .._threads import redis, sleep


def test_a_free_key_is_taken_in_one_round_trip(server: Server) -> None:
    """Free: a lease, and one request (an acquire and its PTTL) is all it costs."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold("warm:up", ttl=5):
            pass
        before = server.commands()
        lease = dibs.try_hold("user:1", ttl=5)
        assert lease is not None
        # A script counts the commands it runs, too: EVALSHA, GET, SET, PTTL.
        assert server.commands() - before <= 4
        assert lease.guarded and not lease.lost and 4 < lease.remaining <= 5
        assert server.keys() == ["user:1"]
        assert lease.release()
        assert server.keys() == []


def test_a_key_held_elsewhere_is_busy_for_as_long_as_the_server_says(server: Server) -> None:
    """Held elsewhere: Busy with the server's remaining time and who has it, in one round trip."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold("user:1", ttl=5) as lease:
            with pytest.raises(Busy) as caught:
                with two.hold("user:1", ttl=60):
                    pytest.fail("held twice")
            assert caught.value.key == "user:1"
            assert 4 < caught.value.retry_after <= 5
            assert caught.value.holder is not None and ":" in caught.value.holder
            assert lease.token not in str(caught.value) and lease.token not in repr(caught.value)
            assert two.try_hold("user:1", ttl=60) is None
        with two.hold("user:1", ttl=5):
            pass


def test_a_key_held_by_this_process_is_busy_without_a_question(server: Server) -> None:
    """Held by this process: Busy, and not a single command."""
    with Dibs(server.url, budget=5) as dibs, dibs.hold("user:1", ttl=5):
        before = server.commands()
        for _ in range(10):
            with pytest.raises(Busy) as caught:
                with dibs.hold("user:1", ttl=5):
                    pytest.fail("held twice")
            assert 0 < caught.value.retry_after <= 5
            assert dibs.try_hold("user:1", ttl=5) is None
        assert server.commands() == before


def test_the_body_raises_and_the_key_is_free(server: Server) -> None:
    """The body raises: released, and exactly that exception reaches the caller."""
    with Dibs(server.url, budget=5) as dibs:
        failure = KeyError("mine")
        with pytest.raises(KeyError) as caught:
            with dibs.hold("user:1", ttl=5):
                raise failure
        assert caught.value is failure
        assert server.keys() == []


def test_a_late_holder_is_lost_and_leaves_its_successor_alone(server: Server) -> None:
    """The holder outlives its ttl: lost, release() is False, the successor's key untouched."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        slow = one.try_hold("user:1", ttl=0.05)
        assert slow is not None
        sleep(0.1)
        assert slow.lost and slow.remaining == 0.0
        with pytest.raises(LeaseLost):
            slow.check()
        successor = two.try_hold("user:1", ttl=5)
        assert successor is not None
        assert slow.release() is False
        assert two.peek("user:1") is not None
        assert successor.release() is True


def test_the_same_process_can_take_a_key_whose_lease_ran_out(server: Server) -> None:
    """A lease that ran out does not block its own process."""
    with Dibs(server.url, budget=5) as dibs:
        slow = dibs.try_hold("user:1", ttl=0.05)
        sleep(0.1)
        again = dibs.try_hold("user:1", ttl=5)
        assert slow is not None and again is not None
        assert slow.release() is False
        assert dibs.try_hold("user:1", ttl=5) is None, "the new lease is known here"
        assert again.release() is True


def test_release_is_true_once(server: Server) -> None:
    """release() returns True once; later calls return False, without a request."""
    with Dibs(server.url, budget=5) as dibs:
        lease = dibs.try_hold("user:1", ttl=5)
        assert lease is not None
        assert lease.release() is True
        before = server.commands()
        assert lease.release() is False
        assert server.commands() == before
        assert lease.lost and lease.remaining == 0.0


def test_a_released_lease_is_no_longer_held(server: Server) -> None:
    """After release() and detach(): `lost` is true and check() raises; extend() is False."""
    with Dibs(server.url, budget=5) as dibs:
        for limit in (None, 2):
            released = dibs.try_hold(f"user:{limit}", ttl=5, limit=limit)
            detached = dibs.try_hold(f"job:{limit}", ttl=5, limit=limit)
            assert released is not None and detached is not None
            released.release()
            detached.detach(ttl=5)
            for lease in (released, detached):
                assert lease.extend(30) is False
                assert lease.lost and lease.remaining == 0.0
                with pytest.raises(LeaseLost, match="was released or handed over") as caught:
                    lease.check()
                assert caught.value.state == "released"


def test_what_is_lost_has_no_time_left(server: Server) -> None:
    """A lease that another holder took over: remaining is 0.0 at once, not at its deadline."""
    with Dibs(server.url, budget=5) as dibs:
        lease = dibs.try_hold("user:1", ttl=30)
        assert lease is not None
        server.flush()
        assert lease.extend(30) is False
        assert lease.lost and lease.remaining == 0.0


def test_extend_moves_the_end(server: Server) -> None:
    """extend(ttl): the server and the lease both end that much later."""
    with Dibs(server.url, budget=5) as dibs:
        lease = dibs.try_hold("user:1", ttl=1)
        assert lease is not None
        assert lease.extend(30) is True
        assert 29 < lease.remaining <= 30
        assert 29_000 < server.client().pttl("user:1") <= 30_050
        lease.release()


def test_extend_never_takes_a_key_back(server: Server) -> None:
    """Expired or taken: extend() is False, and the key is left as it is."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        lease = one.try_hold("user:1", ttl=5)
        assert lease is not None
        server.flush()
        assert lease.extend(30) is False
        assert lease.lost and server.keys() == []
        other = two.try_hold("user:1", ttl=5)
        assert other is not None
        assert lease.extend(30) is False
        assert server.client().pttl("user:1") <= 5_050
        other.release()


def test_extend_does_not_revive_a_lost_lease(server: Server) -> None:
    """Its holder has read that it is lost; that the key is still there changes nothing."""
    with Dibs(server.url, budget=5) as dibs:
        lease = dibs.try_hold("user:1", ttl=0.1)
        assert lease is not None
        server.client().set("user:1", lease.token, px=60_000)
        while not lease.lost:
            sleep(0.02)
        assert lease.extend(30) is False
        assert lease.lost and server.client().pttl("user:1") > 30_000


def test_a_released_lease_is_not_lost_when_its_ttl_is_over(server: Server) -> None:
    """It ended as it should."""
    with Dibs(server.url, budget=5) as dibs:
        lease = dibs.try_hold("user:1", ttl=0.5)
        assert lease is not None
        assert lease.release()
        sleep(0.6)
        assert lease.extend(30) is False
        with pytest.raises(LeaseLost) as caught:
            lease.check()
        assert caught.value.state == "released"


def test_what_outlives_a_block_sees_that_its_lease_is_over(server: Server) -> None:
    """A task or thread that was started inside: `lost` and check() say the same."""
    with Dibs(server.url, budget=5) as dibs:
        for options in ({}, {"renew": True}, {"limit": 2}):
            with dibs.hold("user:1", ttl=30, **options) as lease:
                lease.check()
                assert not lease.lost
            assert lease.lost
            with pytest.raises(LeaseLost) as caught:
                lease.check()
            assert caught.value.state == "released"


def test_peek_tells_who_and_how_long(server: Server) -> None:
    """peek: remaining and holder while held, None when free, and nothing is changed."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        assert two.peek("user:1") is None
        with one.hold("user:1", ttl=5):
            holding = two.peek("user:1")
            assert holding is not None and 4 < holding.remaining <= 5
            assert holding.holder is not None
        assert two.peek("user:1") is None


def test_a_foreign_value_is_busy_without_a_holder(server: Server) -> None:
    """A key that another program wrote (`SET key 1 EX 5 NX`) is respected: Busy, holder unknown."""
    server.client().set("user:1", "1", ex=5)
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(Busy) as caught:
            with dibs.hold("user:1", ttl=5):
                pytest.fail("took somebody's key")
        assert caught.value.holder is None and 4 < caught.value.retry_after <= 5


def test_a_key_of_another_type_is_a_mistake_that_is_explained(server: Server) -> None:
    """The key holds a list: a UsageError that names it, and the list is left alone."""
    server.client().rpush("user:1", "a")
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match=r"^user:\*: the key holds a value of another type"):
            with dibs.hold("user:1", ttl=5):
                pytest.fail("took a list")
    assert server.client().lrange("user:1", 0, -1) == [b"a"]


def test_the_namespace_goes_before_every_key(server: Server) -> None:
    """Two namespaces do not meet."""
    with (
        Dibs(server.url, budget=5, namespace="blue:") as blue,
        Dibs(server.url, budget=5, namespace="red:") as red,
        blue.hold("user:1", ttl=5) as lease,
        red.hold("user:1", ttl=5),
    ):
        assert sorted(server.keys()) == ["blue:user:1", "red:user:1"]
        assert lease.key == "user:1"
        server.client().delete("red:user:1")
        assert red.peek("user:1") is None and blue.peek("user:1") is not None


def test_scripts_survive_a_script_flush(server: Server) -> None:
    """The server forgot our scripts: they are sent again, and callers do not notice."""
    with Dibs(server.url, budget=5) as dibs:
        for _ in range(2):
            with dibs.hold("user:1", ttl=5, fence=True) as lease:
                server.client().script_flush()
                assert lease.extend(10)
                server.client().script_flush()
        assert not server.client().exists("user:1")


def test_a_callers_client_lends_its_settings_and_is_never_closed(server: Server) -> None:
    """A redis-py client as target: its settings are used, itself never, and it stays open."""
    client = redis.Redis(host="127.0.0.1", port=server.port, db=3)
    with Dibs(client) as dibs, dibs.hold("user:1", ttl=5):
        inside = server.client()
        assert inside.dbsize() == 0, "database 0 is not where the client points"
    assert client.ping()
    client.close()


def test_nothing_connects_before_the_first_use() -> None:
    """Making and closing one needs no server."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        assert "127.0.0.1" in repr(dibs) or "Dibs" in repr(dibs)


def test_reprs_tell_the_state_and_not_the_secret(server: Server) -> None:
    """repr: state, fence, name; never the token or the key."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold("user:secret-7", ttl=5, fence=True) as lease:
            text = repr(lease)
            assert "ends in" in text and "fence" in text and "user:*" in text
            assert lease.token not in text and "secret-7" not in text
        assert "released" in repr(lease)


def test_leases_that_ran_out_are_forgotten(valkey: Server) -> None:
    """A process that never releases (one key a day) does not grow."""
    with Dibs(valkey.url, budget=5) as dibs:
        for number in range(600):
            assert dibs.try_hold(f"day:{number}", ttl=0.001) is not None
        assert len(dibs._leases.table) < 300


def test_a_late_block_raises_where_it_is_asked_to(server: Server) -> None:
    """on_late="raise": a block that ends after its lease was lost does not end as if it had it."""
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(LeaseLost):
            with dibs.hold("user:1", ttl=0.05, on_late="raise"):
                sleep(0.1)
        with pytest.raises(LeaseLost):
            with dibs.hold("user:2", ttl=60, on_late="raise"):
                server.client().set("user:2", "another", px=60_000)
        assert server.client().get("user:2") == b"another"
        with dibs.hold("user:3", ttl=0.05) as lease:  # the default: only the lease says so
            sleep(0.1)
        assert lease.lost
        with dibs.hold("user:4", ttl=60, on_late="raise", at_least=0.001) as lease:
            pass
        assert lease.lost


def test_a_late_block_never_masks_what_its_body_raised(server: Server) -> None:
    """The body's own exception reaches the caller, late or not."""
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(LookupError):
            with dibs.hold("user:1", ttl=0.05, on_late="raise"):
                sleep(0.1)
                raise LookupError

        @dibs.exclusive("user:{number}", ttl=0.05, on_late="raise")
        def work(number: int) -> str:
            sleep(0.1)
            return "late"

        with pytest.raises(LeaseLost):
            work(2)
        with pytest.raises(UsageError, match="on_late"):
            dibs.hold("user:1", ttl=1, on_late="shout")  # type: ignore[arg-type]


def test_a_hold_is_for_one_block_at_a_time(valkey: Server) -> None:
    """One hold object shared like a lock: the second block is refused, never let in."""
    with Dibs(valkey.url, budget=5) as dibs:
        shared = dibs.hold("user:1", ttl=5)
        with shared:
            with pytest.raises((Busy, UsageError)):
                with shared:
                    pytest.fail("held twice")
        with shared as lease:
            assert lease.guarded, "one after the other is fine"
