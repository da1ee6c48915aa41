"""A request, its replies, and the queue of requests on one connection.

A request is bytes ready for the wire, and how many replies will come back. On a connection that
many tasks share, a request is pending until its replies have come: in order.

A late copy, with a budget of 0.25 s:

    0.000  `SET k token NX GET PX 5000` is written on connection A; the network holds it back.
    0.125  Half the budget, and no byte: connection B opens. It begins with `CLIENT KILL ID A`;
           then come the same bytes. The server answers on B: the key is ours.
    0.300  The network delivers the first copy. The server has ended A and never reads it.

Where a server cannot end A (a proxy, a user without the right), A is kept as superseded:

    0.300  The first copy is executed while the key is ours: the reply is our own token. No harm.
    0.400  We release on B, and the release is written on A as well, behind the first copy.
    0.500  Or the first copy arrives only now, and takes the free key: the release behind it, with
           the same token, deletes it again.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

import hiredis

from .keys import printable


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
        """If set: deliver it without a waiter for the reply, until this (local) time."""

    def at(self, now: float) -> "Request":
        """Return what is written of it at *now*, after an outage."""
        return self


class ErrorReply(Exception):
    """An error reply. It is a value, not raised: one error must not hide the other replies."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # it gets into sentences, and those into logs

    @property
    def code(self) -> str:
        """The first word of the server's message, such as WRONGTYPE, NOSCRIPT, MOVED or ERR."""
        return str(self).partition(" ")[0]


class OddReply(Exception):
    """A reply that no server gives to this request: its reader cannot say what happened."""


def parts_in(reply: "Reply") -> list["Reply"]:
    """Return the parts of a reply that has some. Raises OddReply if it has none."""
    if not isinstance(reply, list):
        raise OddReply
    return reply


Reply = (
    bytes | int | float | str | bool | list["Reply"] | dict["Reply", "Reply"] | ErrorReply | None
)


REPEATED = -1
"""In place of a 0: the request was sent twice, and the first time may have done what it asks."""


def first_error(reply: Reply) -> ErrorReply | None:
    """Return the first error in a reply or in a list of replies."""
    replies: list[Reply] = reply if isinstance(reply, list) else [reply]
    return next((each for each in replies if isinstance(each, ErrorReply)), None)


def deciding_error(reply: Reply) -> ErrorReply | None:
    """Return the error that a request failed with: its first command decides.

    What comes after it only adds facts; without them, what was done is done all the same.
    """
    first = reply[0] if isinstance(reply, list) and reply else reply
    return first if isinstance(first, ErrorReply) else None


SIZE = [b"$%d\r\n" % size for size in range(1200)]
"""How the wire announces a word of that many bytes; made once, because it is in every request."""


def pack(*words: bytes | str | int) -> bytes:
    """Return one command as the wire wants it."""
    # hiredis 3.5 ends the process if a signal handler raises while it writes a number.
    command: Any = words
    for word in words:
        if type(word) is int:
            command = tuple([b"%d" % each if type(each) is int else each for each in words])
            break
    return hiredis.pack_command(command)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def commands_in(payload: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the commands in a write, each as the wire wants it, and its words."""
    start = 0
    while start < len(payload):
        number, at = _read_number(payload, start)
        words: list[bytes] = []
        for _ in range(number):
            size, at = _read_number(payload, at)
            words.append(payload[at : at + size])
            at += size + 2
        yield payload[start:at], words
        start = at


def _read_number(payload: bytes, at: int) -> tuple[int, int]:
    """Return the number behind `*` or `$`, and where the line after it begins."""
    end = payload.index(b"\r\n", at)
    return int(payload[at + 1 : end]), end + 2


def together(requests: list[Request]) -> Request:
    """Many requests as one write; the replies come back in one flat list."""
    return Request(
        b"".join([request.payload for request in requests]),
        sum([request.replies for request in requests]),
        requests[0].key,
    )


def apart(requests: list[Request], replies: list[Any]) -> list[Any]:
    """Return the replies to `together(requests)`, one for each.

    A list, where a request has several.
    """
    if len(replies) == len(requests):
        return replies
    flat = iter(replies)
    return [
        next(flat) if request.replies == 1 else list(islice(flat, request.replies))
        for request in requests
    ]


# ---- replies

MORE = object()
"""What the reply parser says when it needs more bytes. Not None, not False: those are replies."""


class ProtocolError(ConnectionError):
    """The server sent bytes that are no reply."""


PARSER_ERRORS = (TypeError, ValueError, OverflowError)
"""What a parser raises besides, as for a map with a list as a key."""


def reply_parser() -> Any:
    """Return a parser of replies. An error reply comes out as a value, an `ErrorReply`."""
    return hiredis.Reader(protocolError=ProtocolError, replyError=ErrorReply, notEnoughData=MORE)


# ---- pending requests


class Waiter(Protocol):
    """Who waits for a reply: an asyncio future, as a rule."""

    def done(self) -> bool:
        """Return True if the caller no longer waits."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Hand over the reply."""
        ...

    def set_exception(self, exception: Exception, /) -> None:
        """No reply will come."""
        ...


Pending = tuple[Waiter | None, Request]
"""A request without a reply yet: its waiter, or None, and the request itself.

A bare tuple, because two are made for every lease.
"""


def is_wanted(pending: Pending) -> bool:
    """Return True if a caller waits for the reply, or the request must be delivered anyway."""
    waiter, request = pending
    return request.until > 0 or (waiter is not None and not waiter.done())


def fail(pending: Pending, error: Exception) -> None:
    """No reply will come to *pending*."""
    waiter = pending[0]
    if waiter is not None and not waiter.done():
        try:
            waiter.set_exception(error)
        except RuntimeError:  # its loop is closed, and its waiter gone
            return


class _Repeated:
    """Waits for the second execution of a release: its 0 may mean that the first one did it."""

    __slots__ = ("_waiter", "done", "set_exception")

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self.done = waiter.done
        self.set_exception = waiter.set_exception

    def set_result(self, result: Any, /) -> None:
        self._waiter.set_result(REPEATED if result == 0 else result)


def repeated(pending: Pending) -> Pending:
    """Return *pending* as it is sent a second time."""
    waiter, request = pending
    if not request.until or waiter is None or isinstance(waiter, _Repeated):
        return pending
    return _Repeated(waiter), request


class ClientInfo(NamedTuple):
    """How the server names a connection to it that it would end for us."""

    id: bytes
    addr: bytes
    laddr: bytes
    """The server's own end: the same for two connections that reach the same server."""

    @property
    def is_unix(self) -> bool:
        """Return True if a Unix socket. All its clients have the same address."""
        return b"/" in self.laddr


def _unchanged(pending: Pending) -> Pending:
    return pending


class Channel:
    """The requests on one connection, in order: not yet written, and not yet answered."""

    def __init__(self) -> None:
        self.client: ClientInfo | None = None
        """How the server names it, where it would end it for us."""
        self.queue: deque[Pending] = deque()
        """Unanswered, the oldest first; the last `len(unsent)` of them are not written yet."""
        self.unsent: list[bytes] = []
        self.written: int = 0
        """Bytes that were handed to the transport so far."""
        self.has_received = False
        """True: bytes have arrived since the last check."""
        self.is_shared = False
        """True: several requests were answered at once the last time: several callers are busy."""
        self.sent_again: Callable[[Pending], Pending] = _unchanged
        """Gives what must be delivered somebody who waits for its reply."""
        self._got: list[Reply] = []

    @property
    def head(self) -> Pending | None:
        """The oldest request that is written and not answered."""
        return self.queue[0] if len(self.queue) > len(self.unsent) else None

    def receive(self, parse: Callable[[], Any], pushed: Callable[[list[Reply]], None]) -> None:
        """Hand out all replies that are complete. Raises IndexError if a reply to nothing."""
        # This runs for every reply, hence in one piece.
        queue, got = self.queue, self._got
        self.has_received = True
        before = len(queue)
        while (reply := parse()) is not MORE:
            if type(reply) is hiredis.PushNotification:
                pushed(reply)
                continue
            waiter, request = queue[0]
            if request.replies != 1:
                got.append(reply)
                if len(got) < request.replies:
                    continue
                reply = got
                self._got = got = []
            queue.popleft()
            if waiter is None:
                continue
            if not waiter.done():
                waiter.set_result(reply)
            elif request.until:  # its caller was cancelled; perhaps it was not served
                waiter, _ = self.sent_again((None, request))
                if waiter is not None:
                    waiter.set_result(reply)
        self.is_shared = before - len(queue) > 1

    def clear(self) -> list[Pending]:
        """Forget all requests; those that are still wanted."""
        remaining = [pending for pending in self.queue if is_wanted(pending)]
        self.queue.clear()
        self.unsent.clear()
        return remaining


_INFO = re.compile(rb"id=(\d+) addr=(\S+) laddr=(\S+)(?: |$)")
_MOST = 1000
"""Connections that are remembered; the oldest goes first."""
_ELSEWHERE = 60.0
"""Seconds after which a connection to another server is forgotten."""


def read_client_info(reply: Reply) -> ClientInfo | None:
    """Return what CLIENT INFO says. None: nothing by which a connection could be ended."""
    text = reply.encode() if isinstance(reply, str) else reply
    match = _INFO.search(text) if isinstance(text, bytes) else None
    return None if match is None else ClientInfo(*match.groups())


def can_end(old: ClientInfo | None, new: ClientInfo | None) -> bool:
    """Return whether the server can be asked on connection *new* to end *old*.

    Only where both reach the same server: elsewhere, "there is no such client" proves nothing.
    """
    return old is not None and new is not None and old.laddr == new.laddr


def kill_request(clients: list[ClientInfo]) -> Request:
    """End these connections. The replies are read by `Abandoned.ended`."""
    words = [("ID", each.id, "ADDR", each.addr, "LADDR", each.laddr) for each in clients]
    payload = b"".join([pack("CLIENT", "KILL", *each) for each in words])
    return Request(payload, len(clients), b"")


class Abandoned:
    """The connections to one server that were left with requests on them, and may still be open."""

    def __init__(self) -> None:
        self.clients: dict[ClientInfo, float] = {}
        """Each with the time at which it was left. Read without a lock: empty, as a rule."""

    def add(self, client: ClientInfo | None, now: float, *, is_open: bool = False) -> None:
        """*client* is left. *is_open*: the server has not ended it, so it has not restarted.

        After a restart, the id of a connection by Unix socket is another's, with the same address.
        """
        if client is None or (client.is_unix and not is_open):
            return
        self.clients[client] = now
        if len(self.clients) > _MOST:
            self.clients.pop(next(iter(self.clients)), None)

    def due_on(self, new: ClientInfo | None, now: float) -> list[ClientInfo]:
        """Return those that are to be ended before anything else is asked on connection *new*."""
        due: list[ClientInfo] = []
        for client, since in list(self.clients.items()):
            if can_end(client, new):
                due.append(client)
            elif now - since > _ELSEWHERE:
                self.clients.pop(client, None)
            if client.is_unix:  # tried once: later it might be another's
                self.clients.pop(client, None)
        return due

    def ended(self, clients: list[ClientInfo], replies: list[Reply]) -> None:
        """The server's *replies* to `kill_request`: ended now, or gone before."""
        for client, reply in zip(clients, replies, strict=True):
            if not isinstance(reply, ErrorReply):
                self.clients.pop(client, None)
