"""RESP as a server sees it: commands in, replies of RESP2 and RESP3 out."""

from typing import Any


class ErrorReply(Exception):
    """What a command answers in place of a result."""

    @property
    def code(self) -> str:
        """Its first word."""
        return str(self).partition(" ")[0]


class Status(str):
    """A reply like `OK`, which is no bulk string."""

    __slots__ = ()


class Replies(list[Any]):
    """Several replies to one command: confirmations of SUBSCRIBE."""


OK = Status("OK")


def read_commands(data: bytes) -> tuple[list[list[bytes]], bytes]:
    """The commands that are complete, and the bytes behind them."""
    commands, at = list[list[bytes]](), 0
    while (found := _read_command(data, at)) is not None:
        words, at = found
        commands.append(words)
    return commands, data[at:]


def _read_command(data: bytes, at: int) -> tuple[list[bytes], int] | None:
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    assert data[at : at + 1] == b"*", data[at : at + 40]
    words = list[bytes]()
    at, count = end + 2, int(data[at + 1 : end])
    for _ in range(count):
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at + 1 : end])
        at = end + 4 + size
        if at > len(data):
            return None
        words.append(data[end + 2 : at - 2])
    return words, at


def encode(reply: Any, protocol: int) -> bytes:
    """*reply* as bytes."""
    match reply:
        case None:
            return b"_\r\n" if protocol >= 3 else b"$-1\r\n"
        case ErrorReply():
            return b"-%s\r\n" % str(reply).encode()
        case Status():
            return b"+%s\r\n" % reply.encode()
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(reply), reply)
        case int():
            return b":%d\r\n" % reply
        case float():
            return _encode_float(reply, protocol)
        case Replies():
            return b"".join([encode_message(each, protocol) for each in reply])
        case list():
            return b"*%d\r\n" % len(reply) + b"".join([encode(each, protocol) for each in reply])
        case dict():
            words = [encode(each, protocol) for pair in reply.items() for each in pair]
            head = b"%%%d\r\n" % len(reply) if protocol >= 3 else b"*%d\r\n" % len(words)
            return head + b"".join(words)
        case _:
            raise TypeError(reply)


def _encode_float(number: float, protocol: int) -> bytes:
    text = number_text(number)
    return b",%s\r\n" % text if protocol >= 3 else encode(text, protocol)


def number_text(number: float) -> bytes:
    """A score as servers write it."""
    return b"%d" % number if number.is_integer() else repr(number).encode()


def encode_message(words: list[Any], protocol: int) -> bytes:
    """What a server sends to subscribers."""
    return encode_push(*words) if protocol >= 3 else encode(words, protocol)


def encode_push(kind: bytes, *facts: Any) -> bytes:
    """Something that the server says unasked."""
    words = [encode(each, 3) for each in (kind, *facts)]
    return b">%d\r\n" % len(words) + b"".join(words)
