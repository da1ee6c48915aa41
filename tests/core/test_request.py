"""Requests that are written together."""

import asyncio

from dibs._core.multiplexer import Redelivery
from dibs._core.request import (
    MORE,
    Channel,
    ErrorReply,
    Request,
    apart,
    first_error,
    pack,
    together,
)


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


def test_a_release_that_was_not_served_is_not_lost_with_its_caller() -> None:
    """It is delivered again if its caller was cancelled before the server said that it is LOADING.

    What need not be delivered is forgotten, and what was served is not sent again.
    """
    loop = asyncio.new_event_loop()
    release, read = Request(pack("DEL", "k"), 1, b"k", until=60.0), Request(pack("GET"), 1, b"k")
    again: list[Request] = []
    channel = Channel()
    channel.sent_again = lambda each: (Redelivery(again.append, None, each[1]), each[1])
    loading = ErrorReply("LOADING Redis is loading the dataset in memory")
    for request, reply in ((read, loading), (release, 1), (release, loading)):
        caller = loop.create_future()
        channel.queue.append((caller, request))
        caller.cancel()
        replies = iter((reply, MORE))
        channel.receive(lambda: next(replies), lambda push: None)  # noqa: B023 - called at once
    assert again == [release] and not channel.queue
    loop.close()
