"""Tokens of detached leases and claims, and what continuing one answers, without a server."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.claim import encoded_note, read_record, running_record, since_in, with_note
from dibs._core.lease import (
    HeldElsewhere,
    HoldCall,
    LeaseState,
    Resumed,
    hand_back_request,
    read_resume,
    resume_request,
    secret_in,
    token_for,
    with_secret_of,
)
from dibs._core.lease_value import note_in, secret_of, token_maker
from dibs._core.options import HoldOptions, Settings
from dibs.errors import UsageError

SETTINGS = Settings(namespace="app:", on_outage="open")
PLAIN = HoldOptions(SETTINGS, ttl=5)
FENCED = HoldOptions(SETTINGS, ttl=5, fence=True)
TOKEN = b"5a1f-2c@web-1:4711"

tokens = st.builds(
    lambda a, b: token_maker(b"%x" % a, b"web-1:7", b)(), st.integers(0), st.integers(0)
)
notes = st.text(st.characters(codec="utf-8"), max_size=200)


@given(tokens)
def test_a_token_says_its_secret_and_its_verb(token: bytes) -> None:
    """What `detach` returns is understood by the same verb, and holds no host name."""
    said = token_for("claim", secret_of(token))
    assert secret_in("claim", said) == secret_of(token) and "web-1" not in said
    with pytest.raises(UsageError, match=r"claim\(\)"):
        secret_in("hold", said)


@given(tokens, tokens, notes)
def test_another_secret_keeps_the_rest_of_a_record(old: bytes, new: bytes, note: str) -> None:
    """Payload, time and note of a claim stay what they were."""
    record = running_record(old, b"-", 1_700_000_000.0, encoded_note(note))
    changed = with_secret_of(new, record)
    assert secret_of(changed) == secret_of(new) and note_in(changed) == note
    assert since_in(changed) == 1_700_000_000.0
    assert with_secret_of(old, changed) == record


@given(tokens, notes, notes)
def test_a_note_can_be_replaced(token: bytes, before: str, after: str) -> None:
    """For any content; the rest of the record stays."""
    record = running_record(token, b"-", 1.0, encoded_note(before))
    changed = with_note(record, encoded_note(after))
    assert read_record(changed, 1.0).note == after
    assert with_note(changed, b"") == running_record(token, b"-", 1.0)
    assert read_record(with_note(changed, b""), 1.0).note is None


def test_the_request_has_a_second_key_only_with_a_fence() -> None:
    """A cluster user without a right to the counter can continue a lease without one."""
    assert resume_request(b"k", PLAIN, b"a-1", TOKEN).payload.count(b"fence") == 0
    assert resume_request(b"k", FENCED, b"a-1", TOKEN).payload.count(b"app:fence:{k}") == 1


def test_an_unknown_outcome_is_taken_back_whenever_it_can_be() -> None:
    """The same script with the secrets exchanged, whole, and worth delivering at any time."""
    request = hand_back_request(b"k", FENCED, b"a-1", TOKEN)
    assert request.until == math.inf and b"hold_resume.lua" in request.payload
    assert request.payload.index(b"5a1f-2c\r\n") < request.payload.index(b"\r\na-1\r\n")


def test_what_the_answers_mean() -> None:
    """Continued, with or without a fence; held by another, and for how long; free."""
    assert read_resume([b"v", 1, 0], PLAIN) == Resumed(b"v", None)
    assert read_resume([b"v", 1, 17], FENCED) == Resumed(b"v", 17)
    assert read_resume([b"v", 0, 1500], PLAIN) == HeldElsewhere(b"v", 1.5)
    assert read_resume([b"v", 0, -1], PLAIN) == HeldElsewhere(b"v", math.inf)
    assert read_resume([None, 0, -2], PLAIN) == HeldElsewhere(None, 0.0)


def test_a_lease_knows_its_key_under_the_old_and_the_new_value() -> None:
    """While the value is being changed it is not known which of them the key has."""
    lease = LeaseState(HoldCall(b"k", "k", None, PLAIN), TOKEN, 0.0)
    assert lease.is_ours(TOKEN) and not lease.is_ours(b"b-2@x") and not lease.is_ours(None)
    lease.successor = b"b-2@x"
    assert lease.is_ours(TOKEN) and lease.is_ours(b"b-2@x")
    lease.became(b"b-2@x")
    assert lease.successor is None and lease.token == b"b-2@x"
    assert not lease.is_ours(TOKEN) and not lease.is_ours(b"")
