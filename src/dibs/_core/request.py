"""A request: bytes ready for the wire, and how many replies will come back."""

from itertools import islice
from typing import Any


class Request:
    """One or more commands in one write. Nothing in it changes after it is made."""

    # Two of these for every lease: a plain class with slots is the quickest to make.
    __slots__ = ("key", "payload", "replies", "until")

    def __init__(self, payload: bytes, replies: int, key: bytes, until: float = 0.0) -> None:
        self.payload = payload
        self.replies = replies
        self.key = key
        """The key that all its commands are about; it decides the node of a cluster."""
        self.until = until
        """If set: deliver it though nobody waits for the reply, until this (local) time."""


class ErrorReply(Exception):
    """The server said no. It is a value, not raised: one bad reply must not hide its neighbours."""

    @property
    def code(self) -> str:
        """The first word of what the server said: WRONGTYPE, NOSCRIPT, MOVED, ERR …"""
        return str(self).partition(" ")[0]


Reply = (
    bytes | int | float | str | bool | list["Reply"] | dict["Reply", "Reply"] | ErrorReply | None
)


REPEATED = -1
"""In place of a 0: the request was sent twice, and the first time may have done what it asks."""


def first_error(reply: Reply) -> ErrorReply | None:
    """The first error in a reply or in a list of replies."""
    replies: list[Reply] = reply if isinstance(reply, list) else [reply]
    return next((each for each in replies if isinstance(each, ErrorReply)), None)


def deciding_error(reply: Reply) -> ErrorReply | None:
    """The error that a request failed with: its first command decides.

    What comes after it only tells more; without that, what was done is done all the same.
    """
    first = reply[0] if isinstance(reply, list) and reply else reply
    return first if isinstance(first, ErrorReply) else None


SIZE = [b"$%d\r\n" % size for size in range(1200)]
"""How the wire announces a word of that many bytes; made once, because it is in every request."""


def pack(*words: bytes | str | int) -> bytes:
    """One command as the wire wants it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def together(requests: list[Request]) -> Request:
    """Many requests as one write; the replies come back in one flat list."""
    return Request(
        b"".join([request.payload for request in requests]),
        sum([request.replies for request in requests]),
        requests[0].key,
    )


def apart(requests: list[Request], replies: list[Any]) -> list[Any]:
    """The replies to `together(requests)`, one for each: a list, where a request has several."""
    if len(replies) == len(requests):
        return replies
    flat = iter(replies)
    return [
        next(flat) if request.replies == 1 else list(islice(flat, request.replies))
        for request in requests
    ]
