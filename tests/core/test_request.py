"""Requests that are written together."""

from dibs._core.request import ErrorReply, Request, first_error, pack, together


def test_many_requests_are_one_write() -> None:
    """together(): the payloads in order, the replies counted."""
    one, two = Request(pack("A"), 1, b"k"), Request(pack("B") + pack("C"), 2, b"k")
    both = together([one, two])
    assert both.payload == one.payload + two.payload
    assert both.replies == 3
    error = ErrorReply("ERR x")
    assert first_error([1, error, None]) is error
    assert first_error([1, None]) is None
    assert first_error(error) is error
