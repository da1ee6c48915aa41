"""An open connection on which a server is asked, as dibs itself would open it."""

import contextlib
import socket
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any

from .._diagnostics import (
    CONNECTION_ERRORS,
    RESP2,
    Address,
    Dialect,
    ErrorReply,
    Negotiation,
    Reply,
    Request,
    ThreadConnection,
    check_files,
    close_failed_socket,
    is_closed_by_server,
    is_hello_refused,
    pack,
    read_alert,
)
from .failures import Step

Words = tuple[str | bytes | int, ...]


class Session:
    """One connection. Whatever it raises, nothing else can be asked on it afterwards."""

    def __init__(self, connection: Any, dialect: Dialect, limit: float) -> None:
        self._connection = ThreadConnection(connection, limit)
        self.dialect = dialect

    def ask(self, *commands: Words) -> list[Reply]:
        """The replies to these commands, sent in one write. An error of one is its reply."""
        return self.send(b"".join([pack(*words) for words in commands]), len(commands))

    def send(self, payload: bytes, replies: int) -> list[Reply]:
        """The replies to commands that are packed already."""
        found = self._connection.exchange(Request(payload, replies, b""))
        return found if replies > 1 else [found]

    def close(self) -> None:
        """Close; under a thread that reads, too."""
        with contextlib.suppress(Exception):
            self._connection.shutdown()
            self._connection.close()


@contextlib.contextmanager
def session(
    address: Address, limit: float, reached: Callable[[Step], object] = lambda step: None
) -> Generator[Session]:
    """Open a connection. *limit*: of each step, in seconds; *reached* is told where it is.

    CONNECTION_ERRORS, UsageError: it cannot be opened.
    """
    _try_tcp(address, limit, reached)
    reached("handshake")
    opened = _negotiated(address, limit)
    try:
        yield opened
    finally:
        opened.close()


def _try_tcp(address: Address, limit: float, reached: Callable[[Step], object]) -> None:
    """Resolve the name and connect once, so that it is known which of the two fails."""
    where = host_and_port(address)
    if where is None:
        return
    reached("resolve")
    socket.getaddrinfo(*where, type=socket.SOCK_STREAM)
    reached("connect")
    socket.create_connection(where, limit).close()


def host_and_port(address: Address) -> tuple[str, int] | None:
    """Where a server listens. None: on a Unix socket."""
    options = address.options
    if options.get("path"):
        return None
    return str(options.get("host", "localhost")), int(options.get("port", 6379))


def _negotiated(address: Address, limit: float) -> Session:
    """Over RESP3, or as much as the server, or a proxy before it, understands."""
    negotiation = Negotiation()
    dialect: Dialect | None = negotiation.first(monotonic()) if address.protocol > 2 else RESP2
    while True:
        try:
            return _opened(address, dialect, limit)
        except CONNECTION_ERRORS as error:
            refused, closed = is_hello_refused(error), is_closed_by_server(error)
            if closed and not dialect.again:
                alert = read_alert(address.connection(limit, RESP2.protocol), min(limit, 0.3))
                if alert is not None:
                    raise alert from None
            dialect = negotiation.after(dialect, refused=refused, closed=closed)
            if dialect is None:
                raise


def _opened(address: Address, dialect: Dialect, limit: float) -> Session:
    check_files(address.options)
    connection = address.connection(limit, dialect.protocol, plain=dialect.plain)
    try:
        connection.connect()
    except CONNECTION_ERRORS as error:
        close_failed_socket(error)
        raise
    return Session(connection, dialect, limit)


# ---- reading replies


def text(reply: Reply) -> str:
    """A reply as text; an error as "", because it was not answered."""
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    return "" if reply is None or isinstance(reply, ErrorReply) else str(reply)


def pairs(reply: Reply) -> dict[str, str]:
    """A map of RESP3, or the flat list that it is in RESP2."""
    if isinstance(reply, dict):
        return {text(name): text(value) for name, value in reply.items()}
    flat = [text(each) for each in reply] if isinstance(reply, list) else []
    return dict(zip(flat[::2], flat[1::2], strict=False))


def lines(reply: Reply) -> dict[str, str]:
    """The `name:value` lines of INFO and CLUSTER INFO."""
    found = [line.partition(":") for line in text(reply).splitlines() if ":" in line]
    return {name: value.strip() for name, _, value in found}


def refusal(reply: Reply, command: str) -> str | None:
    """Why *command* was not answered. None: it was."""
    if not isinstance(reply, ErrorReply):
        return None
    if reply.code == "NOPERM":
        return f"this user may not run {command}"
    if "unknown" in str(reply).lower():
        return f"the server, or a proxy before it, does not know {command}"
    return f"{command} was answered with {reply.code}"
