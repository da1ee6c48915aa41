"""Requests that are written together."""

from dibs._core.request import ErrorReply, Request, apart, first_error, pack, together


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


def test_replies_of_one_write_are_told_apart() -> None:
    """apart(): one for each request, a list where it has several."""
    one, two = Request(pack("A"), 1, b"k"), Request(pack("B") + pack("C"), 2, b"k")
    assert apart([one, two, one], [1, 2, 3, 4]) == [1, [2, 3], 4]
    assert apart([one, one], [1, None]) == [1, None]
