"""A proxy that lacks commands, as some services and proxies do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from io import BufferedReader

from .proxy import Proxy

Words = list[bytes]


class CommandFilter(Proxy):
    """Passes commands to a server on a port of 127.0.0.1, except those that are named here.

    A command is named as "EVAL" or, with its subcommand, as "CLIENT TRACKING". The proxy sends a
    refused command to the server under an unknown name: the server answers with an error, and the
    replies of a pipeline keep their order.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._server_port = target
        self._refused: set[str] = set()
        self._closing: set[str] = set()
        self._replaced: dict[str, Words] = {}
        self._seen: list[str] = []
        self._open: set[socket.socket] = set()
        self._listener.listen(128)
        threading.Thread(target=self._accept, name="command filter", daemon=True).start()

    @property
    def seen(self) -> list[str]:
        """The commands that clients have sent so far, in capital letters."""
        return list(self._seen)

    def refuse(self, *commands: str) -> None:
        """Answer these commands with "ERR unknown command", from now on."""
        self._refused.update(commands)

    def close_on(self, *commands: str) -> None:
        """Close a connection that sends one of these commands, from now on."""
        self._closing.update(commands)

    def replace(self, command: str, *words: str) -> None:
        """Send the server *words* in place of this command, from now on."""
        self._replaced[command] = [word.encode() for word in words]

    def allow_all(self) -> None:
        """Pass all commands from now on."""
        self._refused.clear()
        self._closing.clear()
        self._replaced.clear()

    def close(self) -> None:
        """Close the port and all connections; harmless the second time."""
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._open |= {client, server}
            with server:
                replies = threading.Thread(
                    target=self._forward_replies, args=(server, client), daemon=True
                )
                replies.start()
                for words in _commands(client):
                    if not self._forward_request(words, server):
                        break
                self._open -= {client, server}
                for each in (server, client):
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                replies.join()

    def _forward_request(self, words: Words, server: socket.socket) -> bool:
        """Send a command to the server. False: close the connection instead."""
        names = _names(words)
        self._seen.append(names[-1])
        if not self._closing.isdisjoint(names):
            return False
        if not self._refused.isdisjoint(names):
            words = [words[0] + b"?", *words[1:]]
        for name in names:
            words = self._replaced.get(name, words)
        server.sendall(packed(words))
        return True

    def _forward_replies(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)


def _names(words: Words) -> list[str]:
    """The names of a command: "CLIENT", "CLIENT TRACKING"."""
    texts = [word.decode(errors="replace").upper() for word in words[:2]]
    has_subcommand = texts[0] in ("CLIENT", "COMMAND", "SCRIPT", "CLUSTER", "ACL", "CONFIG")
    return [texts[0], " ".join(texts)] if has_subcommand else [texts[0]]


def _commands(client: socket.socket) -> Iterator[Words]:
    """The commands that a client sends, until it closes the connection."""
    with client.makefile("rb") as stream:
        while (head := stream.readline()).startswith(b"*"):
            yield [_word(stream) for _ in range(int(head[1:]))]


def _word(stream: BufferedReader) -> bytes:
    size = int(stream.readline()[1:])
    return stream.read(size + 2)[:-2]


def packed(words: Words) -> bytes:
    """A command as the wire wants it."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))
