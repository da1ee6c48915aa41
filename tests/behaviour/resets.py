"""A line on which the last words of a server over TLS are lost if the client has written."""

import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

FINISHED = b"\x14\x03\x03\x00\x01\x01"
"""What a client of TLS 1.3 sends before its last part of the handshake."""
WRITES_WITHIN = 0.5
"""A client that writes at all does so within this time; else the alert is delivered."""
_RESET = struct.pack("ii", 1, 0)


@contextmanager
def line_that_resets(port: int) -> Iterator[int]:
    """The port of a line to the server at *port*, as it is if a reset overtakes the alert."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=_accept, args=(listener, port), daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, port: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=_carry, args=(client, server), daemon=True).start()


def _carry(client: socket.socket, server: socket.socket) -> None:
    with closing(client), closing(server), suppress(OSError, EOFError):
        while _finished(client, server):
            pass
        held = _last_words(server)
        if select.select([client], [], [], WRITES_WITHIN)[0]:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        else:
            client.sendall(held)


def _last_words(server: socket.socket) -> bytes:
    held = b""
    with suppress(ConnectionResetError):  # it has not read everything either
        while data := server.recv(65536):
            held += data
    return held


def _finished(client: socket.socket, server: socket.socket) -> bool:
    """Carry what has come. False: that was the last part of the client's handshake."""
    for source in select.select([client, server], [], [])[0]:
        data = source.recv(65536)
        if not data:
            raise EOFError
        (server if source is client else client).sendall(data)
        if source is client and FINISHED in data:
            return False
    return True
