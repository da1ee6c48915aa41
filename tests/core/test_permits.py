"""Requests and readings of leases with a limit, without a server."""

import math

import pytest

from dibs._core.capabilities import run_script
from dibs._core.lease import (
    WON,
    AllTaken,
    HoldCall,
    Holding,
    LeaseState,
    Won,
    count_request,
    has_changed,
    is_full,
    keep_request,
    peek_permits,
    permit_request,
    read_peek_permits,
    read_permit,
    release_permit,
    script_request,
)
from dibs._core.options import HoldOptions, Settings
from dibs._core.request import pack

from .engines import ENGINES

SETTINGS = Settings(namespace="", on_outage="open")
PLAIN = HoldOptions(SETTINGS, ttl=5)
FENCED = HoldOptions(SETTINGS, ttl=5, fence=True)
LIMITED = HoldOptions(SETTINGS, ttl=5, limit=3)
BOTH = HoldOptions(SETTINGS, ttl=5, limit=3, fence=True)
TOKEN = b"5a1f-2c@web-1:4711"


def call(options: HoldOptions) -> HoldCall:
    return HoldCall(b"k", "k", None, options)


def refusal(left: int = 1500, greatest: bytes = b"17") -> AllTaken:
    said = read_permit([[TOKEN, left, greatest], 9], b"other")
    assert isinstance(said, AllTaken)
    return said


def test_a_permit_is_asked_for_with_its_limit_and_its_fence() -> None:
    """The second key and the life of the counter only where a fence is asked for."""
    without = permit_request(call(LIMITED), TOKEN)
    assert without.replies == 2 and b"fence" not in without.payload
    assert without.payload.endswith(b"$4\r\n5000\r\n$1\r\n3\r\n" + pack("PTTL", b"k"))
    assert b"fence:{k}" in permit_request(call(BOTH), TOKEN).payload


def test_a_fence_without_a_limit_is_no_permit() -> None:
    """The script of a fence stays what it was."""
    digests = {script_request(call(each), TOKEN).payload[:64] for each in (FENCED, LIMITED, BOTH)}
    assert len(digests) == 3, "one that takes a fence, one that takes a permit, with 1 or 2 keys"


def test_what_the_answers_of_a_permit_mean() -> None:
    """Ours, ours with a fence, or when the first of them ends, and whose it is."""
    assert read_permit([None, -2], TOKEN) is WON
    assert read_permit([17, 5000], TOKEN) == Won(17)
    assert refusal() == Holding(1.5, "web-1:4711")
    assert refusal(-3).remaining == 0.0, "it has expired since"


def test_a_refusal_says_whether_anything_has_changed() -> None:
    """A permit that was taken or renewed has another expiry, which is the greatest then."""
    assert has_changed(None, refusal()) and has_changed(refusal(), refusal(greatest=b"18"))
    assert not has_changed(refusal(), refusal(left=3))
    assert not has_changed(Holding(1, None), Holding(2, None)), "not of permits: others decide"


def test_who_waits_counts_expired_permits_as_well() -> None:
    """Full is full until one is released; an expiry is waited for by a timer."""
    assert is_full(3, LIMITED) and is_full(4, LIMITED) and not is_full(2, LIMITED)
    assert count_request(b"k").payload == pack("ZCARD", b"k")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_permit_is_kept_by_a_script_and_a_lease_as_ever(engine: object) -> None:
    """On every engine: there is no native command for it."""
    permit = LeaseState(call(LIMITED), TOKEN, 0.0)
    lease = LeaseState(call(PLAIN), TOKEN, 0.0)
    kept = keep_request(engine, permit, TOKEN, 5000)  # type: ignore[arg-type]
    assert b"EVALSHA" in kept.payload
    assert keep_request(engine, lease, TOKEN, 5000).payload != kept.payload  # type: ignore[arg-type]


def test_a_process_may_have_several_permits_of_one_key() -> None:
    """Each is kept under its token; a lease without a limit under its key."""
    assert LeaseState(call(LIMITED), TOKEN, 0.0).entry == TOKEN
    assert LeaseState(call(PLAIN), TOKEN, 0.0).entry == b"k"


def test_a_permit_is_given_back_by_one_command() -> None:
    """It is a member of a set: another holder's cannot be removed by mistake."""
    assert release_permit(b"k", TOKEN, 7.0).payload == pack("ZREM", b"k", TOKEN)
    assert release_permit(b"k", TOKEN, 7.0).until == 7.0


def test_a_look_at_permits() -> None:
    """The holder of the one that ends first; or none."""
    assert read_peek_permits([TOKEN, 2500]) == Holding(2.5, "web-1:4711")
    assert read_peek_permits(None) is None
    assert b"EVALSHA" in peek_permits(b"k").payload
    assert read_peek_permits([TOKEN, None]) == Holding(math.inf, "web-1:4711")


def test_the_quick_way_to_write_a_request_is_the_same_as_the_plain_one() -> None:
    """For any key and token, also with the text of the placeholders in them."""
    for key in (b"k", b"?", b"$1\r\n?\r\n", b"x" * 1024):
        asked = HoldCall(key, "k", None, LIMITED)
        plain = run_script("hold_permit", [key], TOKEN, 5000, 3) + pack("PTTL", key)
        assert permit_request(asked, TOKEN).payload == plain
