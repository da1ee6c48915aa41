# Generated from tests/behaviour/_async/test_limit.py by unasync.py – do not edit.
"""`limit=`: up to so many holders of a key, each with its own lease, on every engine."""

from functools import partial
from typing import Any

import pytest

from dibs import Dibs, Lease, Busy, Event, LeaseLost, Unavailable, UsageError
from dibs._process_state import process_state
from dibs.testing import CommandFilter, FaultProxy, Server

from .._threads import Background, eventually, sleep
from ..events import kinds

KEY = "report:1"


def taken(dibs: Dibs, number: int, **options: Any) -> list[Lease]:
    """So many permits."""
    options = {"ttl": 60, "limit": number, **options}
    leases = [dibs.try_hold(KEY, **options) for _ in range(number)]
    assert all(leases)
    return [lease for lease in leases if lease]


def test_so_many_may_hold_a_key_and_no_more(server: Server) -> None:
    """Three get a permit, in this process or another; the fourth is Busy until one is released."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold(KEY, ttl=60, limit=3) as first, one.hold(KEY, ttl=5, limit=3) as soon:
            with two.hold(KEY, ttl=60, limit=3) as third:
                assert len({first.token, soon.token, third.token}) == 3
                for dibs in (one, two):
                    assert dibs.try_hold(KEY, ttl=60, limit=3) is None
                    with pytest.raises(Busy) as caught:
                        with dibs.hold(KEY, ttl=60, limit=3):
                            pytest.fail("a fourth")
                    assert 0 < caught.value.retry_after <= 5, "the first of them to end"
                    assert caught.value.holder == one._leases.identity.holder
            with two.hold(KEY, ttl=60, limit=3):
                assert two.try_hold(KEY, ttl=60, limit=3) is None
        assert server.keys() == []


def test_a_permit_costs_one_round_trip(valkey: Server) -> None:
    """Acquired by one script, released by one command."""
    with Dibs(valkey.url, budget=5) as dibs:
        with dibs.hold(KEY, ttl=5, limit=3):  # makes the script known
            pass
        before = valkey.commands()
        with dibs.hold(KEY, ttl=5, limit=3):
            pass
        assert valkey.commands() - before <= 8, "those inside of the script are counted as well"


def test_a_crashed_holders_permit_comes_back_after_its_ttl(server: Server) -> None:
    """Each permit expires for itself; the key stays for the longest of them, and no longer."""
    with Dibs(server.url, budget=5) as crashed, Dibs(server.url, budget=5) as dibs:
        assert crashed.try_hold(KEY, ttl=1.2, limit=2)
        assert crashed.try_hold(KEY, ttl=60, limit=2)
        with pytest.raises(Busy) as caught:
            with dibs.hold(KEY, ttl=2, limit=2):
                pytest.fail("a third")
        assert 0 < caught.value.retry_after <= 1.2
        with dibs.hold(KEY, ttl=2, limit=2, wait=10):
            assert dibs.try_hold(KEY, ttl=2, limit=2) is None
        assert 50_000 < server.client().pttl(KEY) <= 60_050


def test_no_key_outlives_its_permits(valkey: Server) -> None:
    """Every permit is dropped without a release: the key is gone with the last of them."""
    with Dibs(valkey.url, budget=5) as dibs:
        taken(dibs, 3, ttl=0.3, fence=False)
        assert 0 < valkey.client().pttl(KEY) <= 300
        eventually(lambda: not valkey.client().exists(KEY))


def test_a_waiter_is_woken_by_a_release_elsewhere(valkey: Server) -> None:
    """Long before it would look by itself; and by each release, not only by the last."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        leases = taken(one, 2)

        def wait() -> Lease | None:
            return two.try_hold(KEY, ttl=60, limit=2, wait=30)

        for lease in leases:
            waiting = Background(wait)
            sleep(0.2)
            assert lease.release()
            assert waiting.result() is not None
        assert two.try_hold(KEY, ttl=60, limit=2) is None


def test_waiters_of_one_process_are_served_in_order(valkey: Server) -> None:
    """Those who came first get the next permits."""
    order: list[int] = []
    with Dibs(valkey.url, budget=5) as dibs:
        leases = taken(dibs, 2)

        def wait(number: int) -> None:
            with dibs.hold(KEY, ttl=60, limit=2, wait=30):
                order.append(number)
                sleep(0.02)

        waiting: list[Background] = []
        for number in range(6):
            waiting.append(Background(wait, number))
            sleep(0.05)
        for lease in leases:
            lease.release()
        for each in waiting:
            each.result()
    assert sorted(order[:2]) == [0, 1] and sorted(order[2:4]) == [2, 3]
    assert valkey.keys() == []


def test_a_waiter_is_judged_by_its_own_limit(valkey: Server) -> None:
    """One with a higher limit does not queue after one with a lower limit, in one process; both are
    woken by one release."""
    with Dibs(valkey.url, budget=5) as dibs:
        leases = taken(dibs, 3)

        def wait(limit: int) -> Lease | None:
            return dibs.try_hold(KEY, ttl=60, limit=limit, wait=30)

        def waiting() -> int:
            return process_state(dibs).waiter_count

        low = Background(wait, 1)
        eventually(lambda: waiting() == 1)
        for _ in range(2):
            assert dibs.try_hold(KEY, ttl=60, limit=5, wait=0.5), "there are five"
        high = Background(wait, 5)
        eventually(lambda: waiting() == 2)
        last = [each for each in leases if each.release()]
        assert len(last) == 3
        fifth = high.result()
        assert fifth is not None
        assert waiting() == 1, "three are out, for one with a limit of 1"
        valkey.client().delete(KEY)
        assert low.result() is not None
        assert dibs._leases.waiters.queues == {}


def test_a_release_between_refusal_and_registration_is_not_missed(valkey: Server) -> None:
    """The waiter counts the permits when it registers: one that came back meanwhile is seen."""
    with FaultProxy(valkey.port) as line:
        with Dibs(valkey.url, budget=5) as one, Dibs(line.url, budget=5) as two:
            leases = taken(one, 2)
            two.peek("warm:up")
            line.delay(replies=0.15)  # the release comes before the refusal arrives

            def wait() -> Lease | None:
                return two.try_hold(KEY, ttl=60, limit=2, wait=1.5)

            waiting = Background(wait)
            sleep(0.07)
            leases[0].release()
            assert waiting.result() is not None, "before it would look by itself"


def test_a_permit_is_renewed_and_told_when_it_is_lost(server: Server) -> None:
    """As any lease; a lost permit never touches the others."""
    events: list[Event] = []
    with (
        Dibs(server.url, budget=5, listeners=[events.append]) as dibs,
        Dibs(server.url, budget=5) as other,
    ):
        with other.hold(KEY, ttl=60, limit=2) as theirs:
            with pytest.raises(LeaseLost):
                with dibs.hold(KEY, ttl=2, limit=2, renew=True, on_late="raise") as kept:
                    eventually(lambda: "renewed" in kinds(events))
                    assert not kept.lost and dibs.try_hold(KEY, ttl=5, limit=2) is None
                    server.client().zrem(KEY, kept.token)
                    eventually(lambda: kept.lost)
            assert kept.lost and not theirs.lost and theirs.extend(30)


def test_a_permit_is_extended_and_released_once(server: Server) -> None:
    """True while it is ours; afterwards False, and the key of the others stays."""
    with Dibs(server.url, budget=5) as dibs:
        one, two = taken(dibs, 2, ttl=5)
        assert one.extend(60) and one.remaining > 50
        assert server.client().pttl(KEY) > 50_000
        assert one.release() and not one.release() and not one.extend(5)
        server.client().zrem(KEY, two.token)
        assert not two.extend(5) and two.lost
        assert server.keys() == []


def test_a_permit_stays_taken_for_at_least_so_long(server: Server) -> None:
    """Released at once, it is free when its `at_least` is over; the others are not touched."""
    with Dibs(server.url, budget=5) as dibs:
        (lease,) = taken(dibs, 1, at_least=0.5)
        assert lease.release()
        assert server.client().pttl(KEY) <= 500, "nor does the key stay for longer"
        with pytest.raises(Busy) as caught:
            with dibs.hold(KEY, ttl=5, limit=1):
                pytest.fail("too early")
        assert 0 < caught.value.retry_after <= 0.5
        with dibs.hold(KEY, ttl=5, limit=1, wait=10):
            pass
        assert server.keys() == []


def test_every_permit_has_a_greater_fence(server: Server) -> None:
    """In the order in which they were taken; the counter outlives them."""
    with Dibs(server.url, budget=5) as dibs:
        leases = taken(dibs, 3, fence=True)
        fences = [lease.fence for lease in leases if lease.fence is not None]
        assert len(set(fences)) == 3 and fences == sorted(fences)
        leases[0].release()
        (last,) = [dibs.try_hold(KEY, ttl=5, limit=3, fence=True)]
        assert last and last.fence and last.fence > fences[-1]


def test_peek_tells_the_permit_that_ends_first(server: Server) -> None:
    """No holder: None. An expired permit has no holder."""
    with Dibs(server.url, budget=5) as dibs, Dibs(server.url, budget=5) as other:
        taken(dibs, 2, ttl=60)
        assert other.try_hold(KEY, ttl=5, limit=3)
        found = dibs.peek(KEY)
        assert found and 0 < found.remaining <= 5
        assert found.holder == other._leases.identity.holder
        server.client().delete(KEY)
        assert dibs.peek(KEY) is None


def test_each_caller_counts_against_its_own_limit(valkey: Server) -> None:
    """A deployment that lowers the limit: a new process gets none while more are out."""
    with Dibs(valkey.url, budget=5) as old, Dibs(valkey.url, budget=5) as new:
        leases = taken(old, 3)
        assert new.try_hold(KEY, ttl=5, limit=2) is None
        assert leases[0].release()
        assert new.try_hold(KEY, ttl=5, limit=2) is None
        assert old.try_hold(KEY, ttl=5, limit=3)
        assert leases[1].release() and leases[2].release()
        assert new.try_hold(KEY, ttl=5, limit=2)


# ---- another use of the key


def test_a_key_is_held_with_a_limit_or_without(server: Server) -> None:
    """UsageError, in the same process as well; no lease is touched."""
    with Dibs(server.url, budget=5) as dibs, Dibs(server.url, budget=5) as other:
        with dibs.hold(KEY, ttl=60) as lease:
            for each in (dibs, other):
                with pytest.raises(UsageError, match="limit="):
                    each.try_hold(KEY, ttl=5, limit=3)
            assert server.client().get(KEY) == lease.token.encode() and not lease.lost
        with dibs.hold(KEY, ttl=60, limit=3) as lease:
            for each in (dibs, other):
                with pytest.raises(UsageError, match="limit="):
                    each.try_hold(KEY, ttl=5)
                with pytest.raises(UsageError, match="limit="):
                    with each.claim(KEY, window=5):
                        pytest.fail("claimed")
            assert server.client().zrange(KEY, 0, -1) == [lease.token.encode()]


def test_nothing_is_cached_under_a_limited_key(valkey: Server) -> None:
    """UsageError; the permits are not touched."""

    def load() -> int:
        return 17

    with Dibs(valkey.url, budget=5) as dibs:
        with dibs.hold(KEY, ttl=60, limit=3) as lease:
            with pytest.raises(UsageError):
                dibs.get_or_load(KEY, load, ttl=5)
            assert valkey.client().zrange(KEY, 0, -1) == [lease.token.encode()]
            assert not lease.lost


def test_a_sorted_set_of_another_program_is_not_touched(server: Server) -> None:
    """UsageError, however many members it has; neither its members nor its ttl change."""
    client = server.client()
    with Dibs(server.url, budget=5) as dibs:
        for members in ({"ann": 1.0}, {"ann": 1.0, "bob": 2e15, "cid": 3.0, "dan": 4.0}):
            client.delete(KEY)
            client.zadd(KEY, members)
            with pytest.raises(UsageError):
                dibs.try_hold(KEY, ttl=5, limit=3)
            assert client.zcard(KEY) == len(members) and client.pttl(KEY) == -1


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3", 100_001])
def test_a_limit_is_a_number_of_holders(limit: Any) -> None:
    """UsageError before anything is sent."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match="limit"):
            dibs.hold(KEY, ttl=5, limit=limit)


def test_functions_run_so_many_at_a_time(valkey: Server) -> None:
    """`exclusive` with a limit."""
    with Dibs(valkey.url, budget=5) as dibs:
        inside: list[int] = []
        most: list[int] = []

        @dibs.exclusive("report:{number}", ttl=60, limit=2, wait=30)
        def work(number: int) -> None:
            inside.append(number)
            most.append(len(inside))
            sleep(0.02)
            inside.pop()

        running = [Background(work, 1) for _ in range(8)]
        for each in running:
            each.result()
        assert len(most) == 8 and max(most) <= 2


# ---- faults


@pytest.mark.parametrize("fault", ["cut", "swallow"])
def test_a_lost_reply_costs_no_permit(valkey: Server, fault: str) -> None:
    """The repeated request is recognised: one permit, also where it was the last one."""
    with FaultProxy(valkey.port) as line:
        lose = line.cut_after_request if fault == "cut" else line.swallow_replies
        with Dibs(line.url, budget=1.5) as dibs:
            taken(dibs, 1)
            lose(match=KEY.encode())
            lease = dibs.try_hold(KEY, ttl=60, limit=2, fence=True)
            assert lease and lease.guarded and lease.fence and line.triggered == 1
            assert valkey.client().zcard(KEY) == 2
            lose(match=KEY.encode())
            assert lease.release()
            assert valkey.client().zcard(KEY) == 1


def test_an_outage_of_a_limited_hold(valkey: Server) -> None:
    """open: unguarded; closed: Unavailable. A permit whose reply was lost is released."""
    events: list[Event] = []
    with FaultProxy(valkey.port) as line:
        with Dibs(line.url, budget=0.3, listeners=[events.append]) as dibs:
            dibs.peek("warm:up")
            line.stall(replies=True)
            with dibs.hold(KEY, ttl=60, limit=3) as lease:
                assert not lease.guarded and not lease.lost
            with pytest.raises(Unavailable):
                dibs.try_hold(KEY, ttl=60, limit=3, on_outage="closed")
            line.heal()
            eventually(lambda: "recovered" in kinds(events), within=90)
            eventually(lambda: valkey.keys() == [])


def test_a_server_without_evalsha_gives_permits(valkey: Server) -> None:
    """EVAL is all that is needed; a wait without tracking looks again and again."""
    events: list[Event] = []
    with CommandFilter(valkey.port) as proxy:
        proxy.refuse("EVALSHA", "CLIENT", "HELLO")
        with Dibs(proxy.url, budget=5, listeners=[events.append]) as dibs:
            leases = taken(dibs, 2, fence=True)
            assert leases[0].extend(30)
            assert dibs.try_hold(KEY, ttl=5, limit=2) is None
            leases[0].release()
            with dibs.hold(KEY, ttl=2, limit=2, wait=5, renew=True) as lease:
                eventually(lambda: "renewed" in kinds(events))
                assert not lease.lost


def test_a_permit_is_handed_over(server: Server) -> None:
    """It stays taken in between, and is continued once: with a ttl, and a greater fence."""
    with Dibs(server.url, budget=5) as web, Dibs(server.url, budget=5) as worker:
        with web.hold(KEY, ttl=5, limit=2, fence=True) as lease:
            token = lease.detach(ttl=600)
            assert lease.remaining == 0 and lease.lost
        with web.hold(KEY, ttl=60, limit=2):
            assert worker.try_hold(KEY, ttl=5, limit=2) is None
            with worker.hold(KEY, ttl=30, limit=2, fence=True, token=token) as job:
                assert 0 < job.remaining <= 30 and job.guarded
                assert (job.fence or 0) > (lease.fence or 0)
                assert job.extend(40)
                with pytest.raises(LeaseLost):
                    with web.hold(KEY, ttl=5, limit=2, token=token):
                        pytest.fail("it was continued before")
                assert web.try_hold(KEY, ttl=5, limit=2) is None
                again = job.detach(ttl=60)
            with web.hold(KEY, ttl=30, limit=2, token=again):
                assert worker.try_hold(KEY, ttl=5, limit=2) is None
            with worker.hold(KEY, ttl=5, limit=2):
                pass
        assert [each for each in server.keys() if "fence" not in str(each)] == []


def test_a_permit_that_is_not_continued_expires(server: Server) -> None:
    """Its ttl is that of `detach`, also if it is shorter; then its token is worth nothing."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold(KEY, ttl=60, limit=1) as lease:
            token = lease.detach(ttl=0.3)
        with dibs.hold(KEY, ttl=60, limit=1, wait=30):
            with pytest.raises(LeaseLost):
                with dibs.hold(KEY, ttl=60, limit=1, token=token):
                    pytest.fail("it has expired")


def test_an_exception_after_detaching_frees_the_permit(server: Server) -> None:
    """The job could not be enqueued; one that a worker has continued is left alone."""
    with Dibs(server.url, budget=5) as web, Dibs(server.url, budget=5) as worker:
        with pytest.raises(ConnectionError):
            with web.hold(KEY, ttl=60, limit=1) as lease:
                lease.detach(ttl=600)
                raise ConnectionError
        assert server.keys() == []
        with pytest.raises(ConnectionError):
            with web.hold(KEY, ttl=60, limit=1) as lease:
                job = worker.hold(KEY, ttl=60, limit=1, token=lease.detach(ttl=600))
                kept = job.__enter__()
                raise ConnectionError
        assert kept.extend(60)
        job.__exit__(None, None, None)
        assert server.keys() == []


def test_a_permit_that_cannot_be_handed_over_is_kept(server: Server) -> None:
    """The server did not answer, and the policy is "closed"; the request may have arrived."""
    with FaultProxy(server.port) as proxy:
        with Dibs(proxy.url, budget=0.5) as dibs:
            with dibs.hold(KEY, ttl=60, limit=1, on_outage="closed") as lease:
                proxy.swallow_replies(1000, match=b"give")
                with pytest.raises(Unavailable):
                    lease.detach(ttl=600)
                eventually(lambda: [lease.token] == held(server), within=60)
            eventually(lambda: server.keys() == [], within=60)


def test_a_renewal_does_not_lose_a_permit_that_is_handed_over(valkey: Server) -> None:
    """The answer is lost, and the request sent again: meanwhile the permit has another token."""
    events: list[Event] = []
    with FaultProxy(valkey.port) as proxy:
        with Dibs(proxy.url, budget=8, listeners=[events.append]) as dibs:
            with dibs.hold(KEY, ttl=4, limit=1, renew=True) as lease:
                proxy.swallow_replies(1, match=b"give")
                token = lease.detach(ttl=60)
            with dibs.hold(KEY, ttl=4, limit=1, token=token):
                pass
            assert "lost" not in kinds(events)


def held(server: Server) -> list[str]:
    """The tokens of all permits."""
    return [each.decode() for each in server.client().zrange(KEY, 0, -1)]


def test_a_repeated_request_gets_the_fence_of_its_own_permit(server: Server) -> None:
    """The reply was lost, and another permit was taken before the request came again."""
    with FaultProxy(server.port) as proxy:
        with (
            Dibs(proxy.url, budget=4) as one,
            Dibs(server.url, budget=4) as two,
        ):
            for dibs in (one, two):
                with dibs.hold("warm", ttl=5, limit=3, fence=True):
                    pass
            proxy.swallow_replies(1, match=b"EVALSHA")
            first = Background(partial(one.try_hold, KEY, ttl=60, limit=3, fence=True))
            eventually(lambda: server.client().zcard(KEY) == 1)
            later = two.try_hold(KEY, ttl=60, limit=3, fence=True)
            assert server.client().zcard(KEY) == 2
            earlier = first.result()
            assert proxy.triggered == 1
            assert earlier.fence < later.fence
    assert server.client().zcard(KEY) == 2


def test_the_fences_of_permits_do_not_pile_up(valkey: Server) -> None:
    """One for each permit that is held, some more at times, and none for ever."""
    with Dibs(valkey.url, budget=5) as dibs:
        kept = dibs.try_hold(KEY, ttl=60, limit=2, fence=True)
        fences = [kept.fence]
        for _ in range(40):
            with dibs.hold(KEY, ttl=5, limit=2, fence=True) as lease:
                fences.append(lease.fence)
            assert 1 <= valkey.client().zcard(f"fences:{{{KEY}}}") <= 2 * 2 + 9
        assert fences == sorted(set(fences))
        assert int(valkey.client().zscore(f"fences:{{{KEY}}}", kept.token)) == kept.fence
        assert 0 < valkey.client().pttl(f"fences:{{{KEY}}}") <= 60_050
