"""The process of an embedded server: its folder, its start."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from io import BufferedReader


class ServerFolder:
    """A directory for one server and its supervisor, which only our user may enter.

    `is_private`: it was made for one `Dibs` object. Otherwise it is shared by all processes that
    name it.
    """

    def __init__(self, path: str, *, is_private: bool) -> None:
        self.path = path
        self.is_private = is_private
        self.server_socket = os.path.join(path, "valkey.sock")
        self.supervisor_socket = os.path.join(path, "supervisor.sock")
        self.lock_file = os.path.join(path, "supervisor.lock")
        """The process that has locked it may start or end the supervisor."""
        self.log = os.path.join(path, "valkey.log")
        """What supervisor and server print; overwritten at every start."""


ServerReply = bytes | list["ServerReply"]

_PING_EVERY = 0.002
_PING_WITHIN = 1.0


class NoReply(Exception):
    """The server replied with an error, or closed the connection."""


def arguments(options: Mapping[str, str]) -> list[str]:
    """Return *options* as the command-line arguments of a server."""
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def wait_until_ready(path: str, has_ended: Callable[[], bool], within: float) -> str | None:
    """Wait until the server on the Unix socket *path* answers PING.

    Returns None when it does, or why it does not: its process has ended, or *within* seconds are
    over.
    """
    deadline = time.monotonic() + within
    while not _answers_ping(path):
        if has_ended():
            return "ended at once"
        if time.monotonic() > deadline:
            return f"did not answer within {within:g} s"
        time.sleep(_PING_EVERY)
    return None


def _answers_ping(path: str) -> bool:
    try:
        return ask(path, "PING", within=_PING_WITHIN) == b"PONG"
    except (OSError, NoReply):
        return False


def ask(path: str, *words: str, within: float) -> ServerReply:
    """Send one command to the server on the Unix socket *path*, and return its reply.

    A bare connection is used: a client library would send other commands. Raises NoReply, or
    OSError if the server cannot be reached or does not reply *within* that many seconds.
    """
    request = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(within)
        connection.connect(path)
        connection.sendall(f"*{len(words)}\r\n{request}".encode())
        with connection.makefile("rb") as stream:
            return _read_reply(stream)


def _read_reply(stream: BufferedReader) -> ServerReply:
    line = stream.readline().rstrip()
    match line[:1]:
        case b"+" | b":":
            return line[1:]
        case b"$":
            return stream.read(int(line[1:]) + 2)[:-2]
        case b"*":
            return [_read_reply(stream) for _ in range(int(line[1:]))]
        case _:
            raise NoReply(line.decode(errors="backslashreplace") or "no answer")


def last_line(log: str) -> str:
    """Return the last line of the file *log* that is not empty, or that there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return "it left no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
