"""A line on which each request is executed twice.

What a client of dibs may meet when it repeats a request on a second connection: the first copy was
executed, its answer was lost, and the answer to the second copy counts. Nothing of the first
connection is executed after that, because the server has ended it.

Where it does not end connections, a copy may come later. That is harmless for requests that
compare: a copy of those is executed after a few other requests of the same client. The first answer
counts, because a client that repeats a release knows that the first copy may have done it.
"""

from __future__ import annotations

import hashlib
import pkgutil
import socket
import threading
from collections import deque

import hiredis

from dibs.testing import CommandFilter
from dibs.testing.faults import WireCommand, wire_bytes

LATER = 3
"""After how many further commands of its client a copy that comes later is executed."""
COMPARING = (
    "hold_extend", "hold_permit_extend", "hold_release", "hold_resume", "hold_permit_resume",
    "once_complete", "cache_store", "cache_unlock", "schedule_record", "inspect_release",
)  # fmt: skip
"""Scripts of which a copy is harmless, however late it comes."""
COMMANDS = (b"DELIFEQ", b"DELEX", b"ZREM")


def _sources() -> set[bytes]:
    texts = [pkgutil.get_data("dibs._core", f"lua/{name}.lua") or b"" for name in COMPARING]
    return {*texts, *[hashlib.sha1(text).hexdigest().encode() for text in texts]}


class EchoingLine(CommandFilter):
    """Passes each command to a server twice: on the client's connection, and on another one."""

    def __init__(self, target: int) -> None:
        self._harmless = _sources()
        self._of_thread = threading.local()
        super().__init__(target)

    def _serve(self, client: socket.socket) -> None:
        try:
            super()._serve(client)
        finally:
            copies = getattr(self._of_thread, "copies", None)
            if copies is not None:
                copies.close()

    def _forward_request(self, words: WireCommand, server: socket.socket) -> bool:
        if not hasattr(self._of_thread, "copies"):
            self._of_thread.copies = Copies(self._server_port)
        self._of_thread.copies.execute(words, later=self._is_harmless(words))
        return super()._forward_request(words, server)

    def _is_harmless(self, words: WireCommand) -> bool:
        is_script = words[0] in (b"EVAL", b"EVALSHA") and words[1] in self._harmless
        return is_script or words[0] in COMMANDS or (words[0] == b"SET" and b"IFEQ" in words)


class Copies:
    """The connection on which the copies of one client's requests are executed."""

    def __init__(self, port: int) -> None:
        self._server = socket.create_connection(("127.0.0.1", port))
        self._replies = hiredis.Reader()
        self._later = deque[tuple[int, WireCommand]]()
        self._number = 0

    def execute(self, words: WireCommand, *, later: bool) -> None:
        """Execute a copy now, or *later*; and those that are due."""
        self._number += 1
        while self._later and self._later[0][0] <= self._number:
            self._execute(self._later.popleft()[1])
        if later:
            self._later.append((self._number + LATER, words))
        else:
            self._execute(words)

    def _execute(self, words: WireCommand) -> None:
        self._server.sendall(wire_bytes(words))
        while (reply := self._replies.gets()) is False or _is_push(reply):
            if reply is False:
                data = self._server.recv(65536)
                if not data:
                    raise ConnectionResetError
                self._replies.feed(data)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()


def _is_push(reply: object) -> bool:
    return type(reply) is hiredis.PushNotification
