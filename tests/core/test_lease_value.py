"""The value of a key: whose it is, and whether it was released."""

from hypothesis import given
from hypothesis import strategies as st

from dibs._core.lease_value import (
    cooled,
    holder_in,
    is_cooling,
    note_in,
    parts_of,
    secret_of,
    token_maker,
    worker_in,
)

hosts = st.from_regex(r"[a-z0-9.-]{1,20}:[0-9]{1,5}", fullmatch=True)


@given(hosts)
def test_a_released_value_has_the_same_secret_and_holder(host: str) -> None:
    """Only that it was released is added; nothing else is changed, and no note appears."""
    token = token_maker(b"ab12", host.encode())()
    left = cooled(token)
    assert not is_cooling(token) and is_cooling(left)
    assert secret_of(left) == secret_of(token)
    assert holder_in(left) == holder_in(token) == host
    assert note_in(left) is None and worker_in(left) is None


def test_a_note_is_not_taken_for_a_release() -> None:
    """Whatever the note of a claim says, the claim is held."""
    value = b"ab12-1 - 19a@web-1:7\nkept cool, still cooling"
    assert not is_cooling(value) and holder_in(value) == "web-1:7"
    assert parts_of(value).is_claim and note_in(value) == "kept cool, still cooling"
    assert not is_cooling(b"a value of another program cooling")
