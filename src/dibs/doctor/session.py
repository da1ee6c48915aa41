"""Asking a server over a connection opened as dibs opens it, and why one could not be opened."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any, Literal

from .._doctor_api import (
    CONNECTION_ERRORS,
    RESP2,
    Address,
    Dialect,
    ErrorReply,
    Negotiation,
    Reply,
    Request,
    ThreadConnection,
    cause_of,
    check_files,
    close_failed_socket,
    is_closed_by_server,
    is_hello_refused,
    pack,
    read_alert,
    reason_of,
    settings_error,
    tls_problem,
)
from .facts import ConnectionFailure

OpeningStep = Literal["resolve", "connect", "handshake", "ask"]
"""How far opening a connection has come."""

_BY_CAUSE = {
    "refused": "refused",
    "unreachable": "unreachable",
    "disconnected": "closed",
    "dns": "dns",
    "max_clients": "max-clients",
    "loading": "loading",
    "busy": "busy",
    "masterdown": "replica",
    "backend": "proxy-backend",
    "quota": "quota",
}
_BY_TLS_PROBLEM = {
    "file": "tls-file",
    "authority": "tls-ca",
    "host": "tls-host",
    "validity": "tls-expired",
    "plain": "tls-plain",
    "client": "tls-client",
    "refused": "tls-client",  # unless `looked_into` finds that the ciphers are the reason
    "version": "tls-failed",
    "ciphers": "tls-failed",
}
_IN_TIME: dict[OpeningStep, ConnectionFailure] = {
    "resolve": ConnectionFailure("dns", "the name server did not answer in time"),
    "connect": ConnectionFailure("unreachable", "no TCP connection in time; perhaps a firewall"),
    "handshake": ConnectionFailure("silent", ""),
    "ask": ConnectionFailure("silent", "it answered at first"),
}  # fmt: skip


def overdue(step: OpeningStep) -> ConnectionFailure:
    """Return the failure of a step that has not come to an end."""
    return _IN_TIME[step]


def connection_failure(error: BaseException, step: OpeningStep) -> ConnectionFailure:
    """Return what *error*, in this step of opening a connection, means."""
    chain = list(_error_chain(error))
    failure = _of_tls(chain) or _of_login(chain) or _of_database(chain)
    return failure or _of_network(error, chain, step) or _of_rest(error, step)


def _of_network(
    error: BaseException, chain: list[BaseException], step: OpeningStep
) -> ConnectionFailure | None:
    if step == "resolve" and isinstance(error, OSError | UnicodeError):
        return ConnectionFailure("dns", _error_text(error))
    code = _BY_CAUSE.get(cause_of(error).code)
    if code is not None:
        return ConnectionFailure(code, _error_text(error))
    if any(_is_timeout(each) for each in chain):
        return overdue(step)
    if any(_is_garbage(each) for each in chain):
        return ConnectionFailure("not-redis", _error_text(error))
    return ConnectionFailure("unreachable", _error_text(error)) if step == "connect" else None


def _of_rest(error: BaseException, step: OpeningStep) -> ConnectionFailure:
    # Replies of a kind that no server sends; redis-py trips over them, too.
    if step == "ask" or isinstance(error, AttributeError | LookupError):
        return ConnectionFailure("not-redis", _error_text(error))
    wrong = settings_error(error)
    return (
        ConnectionFailure("settings", str(wrong))
        if wrong is not None
        else ConnectionFailure("closed", _error_text(error))
    )


def _is_garbage(error: BaseException) -> bool:
    return type(error).__name__ == "InvalidResponse" or "rotocol error" in str(error)


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError"


def _error_text(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return ""
    return " ".join(str(error).split())[:160] or type(error).__name__


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and those that it was raised from."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        seen.append(each)
        yield each
        each = each.__cause__ or each.__context__


def _of_tls(chain: list[BaseException]) -> ConnectionFailure | None:
    for each in chain:
        problem = tls_problem(each)
        if problem is not None:
            return ConnectionFailure(_BY_TLS_PROBLEM[problem], _tls_detail(each))
        if isinstance(each, ssl.SSLError) and not isinstance(each, ssl.SSLEOFError):
            return ConnectionFailure("tls-failed", _tls_detail(each))
    return None


def _tls_detail(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or _error_text(error)
    return reason_of(error) or _error_text(error)


def _of_login(chain: list[BaseException]) -> ConnectionFailure | None:
    text = _error_text(chain[0])
    message = text.lower()
    if (
        "wrongpass" in message
        or "invalid username-password" in message
        or "invalid password" in message
    ):
        return ConnectionFailure("auth-wrong", "")
    if any(
        words in message for words in ("noauth", "authentication required", "already authentic")
    ):
        return ConnectionFailure("auth-missing", "the URL has none")
    if says_no_password(message):
        return ConnectionFailure("auth-unset", "")
    if type(chain[0]).__name__ == "NoPermissionError":
        return ConnectionFailure("acl-connect", text)
    return None


def says_no_password(message: str) -> bool:
    """Return whether a server answers to a password, in small letters, that it has none."""
    return "without any password configured" in message or "no password is set" in message


def _of_database(chain: list[BaseException]) -> ConnectionFailure | None:
    text = _error_text(chain[0])
    if "not allowed in cluster mode" in text:
        return ConnectionFailure("cluster-database", text)
    if "DB index" in text or "out of range" in text:
        return ConnectionFailure("database", text)
    return None


def _unverified_context() -> ssl.SSLContext:
    """Trust any certificate: nothing is sent over the connection."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def answers_tls(address: tuple[str, int], limit: float) -> bool:
    """Return whether a server that closes plain connections answers a TLS handshake."""
    try:
        with socket.create_connection(address, limit) as sock:
            _unverified_context().wrap_socket(sock, server_hostname=address[0]).close()
    except ssl.SSLError as error:
        return "ALERT" in reason_of(error)  # it refuses us, in TLS
    except OSError:
        return False
    return True


_HANDSHAKE = 0x16  # the type of a TLS record; that of an alert is another one


def wants_certificate(address: tuple[str, int], limit: float) -> bool:
    """Return whether a server that ended the handshake with an alert misses a certificate of ours.

    Without a cipher in common it refuses our first message; without a certificate, a later one.
    With the ciphers that are usual here: if the handshake succeeds, those of the URL do not fit.
    """
    incoming, outgoing, has_begun = ssl.MemoryBIO(), ssl.MemoryBIO(), False
    handshake = _unverified_context().wrap_bio(incoming, outgoing, server_hostname=address[0])
    with suppress(OSError), socket.create_connection(address, limit) as sock:
        sock.settimeout(limit)
        while not _is_done(handshake):
            sock.sendall(outgoing.read())
            received = sock.recv(65536)
            has_begun = has_begun or received[:1] == bytes([_HANDSHAKE])
            incoming.write(received) if received else incoming.write_eof()
        return False
    return has_begun


def _is_done(handshake: ssl.SSLObject) -> bool:
    """Return False if it needs what the other side says. Raises SSLError if that has refused it."""
    try:
        handshake.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def speaks_plain(address: tuple[str, int], limit: float) -> bool:
    """Return whether a server on which the TLS handshake fails answers a plain PING."""
    try:
        with socket.create_connection(address, limit) as sock:
            sock.settimeout(limit)
            sock.sendall(b"PING\r\n")
            return sock.recv(1) in (b"+", b"-")
    except OSError:
        return False


CommandWords = tuple[str | bytes | int, ...]


class Session:
    """One connection. After any exception it cannot be used again."""

    def __init__(self, connection: Any, dialect: Dialect, limit: float) -> None:
        self._connection = ThreadConnection(connection, limit)
        self.dialect = dialect

    def ask(self, *commands: CommandWords) -> list[Reply]:
        """Return the replies to these commands, sent in one write. An error of one is its reply."""
        return self.send(b"".join([pack(*words) for words in commands]), len(commands))

    def send(self, payload: bytes, replies: int) -> list[Reply]:
        """Return the replies to commands that are packed already."""
        reply = self._connection.exchange(Request(payload, replies, b""))
        return reply if replies > 1 else [reply]

    def close(self) -> None:
        """Close; under a thread that reads, too."""
        with contextlib.suppress(Exception):
            self._connection.shutdown()
            self._connection.close()


@contextlib.contextmanager
def session(
    address: Address, limit: float, reached: Callable[[OpeningStep], object] = lambda step: None
) -> Generator[Session]:
    """Open a connection. *limit*: of each step, in seconds; *reached* is called with the step.

    CONNECTION_ERRORS, UsageError: it cannot be opened.
    """
    _try_tcp(address, limit, reached)
    reached("handshake")
    opened = _negotiated_session(address, limit)
    try:
        yield opened
    finally:
        opened.close()


def _try_tcp(address: Address, limit: float, reached: Callable[[OpeningStep], object]) -> None:
    """Resolve the name and connect once, so that it is known which of the two fails."""
    where = host_and_port(address)
    if where is None:
        return
    reached("resolve")
    socket.getaddrinfo(*where, type=socket.SOCK_STREAM)
    reached("connect")
    socket.create_connection(where, limit).close()


def host_and_port(address: Address) -> tuple[str, int] | None:
    """Return where a server listens. None: on a Unix socket."""
    options = address.options
    if options.get("path"):
        return None
    return str(options.get("host", "localhost")), int(options.get("port", 6379))


def _negotiated_session(address: Address, limit: float) -> Session:
    """Over RESP3, or as much as the server, or a proxy before it, understands."""
    negotiation = Negotiation()
    dialect: Dialect | None = negotiation.first(monotonic()) if address.protocol > 2 else RESP2
    while True:
        try:
            return _opened_session(address, dialect, limit)
        except CONNECTION_ERRORS as error:
            refused, closed = is_hello_refused(error), is_closed_by_server(error)
            if closed and not dialect.again:
                alert = read_alert(address.connection(limit, RESP2.protocol), min(limit, 0.3))
                if alert is not None:
                    raise alert from None
            dialect = negotiation.after(dialect, refused=refused, closed=closed)
            if dialect is None:
                raise


def _opened_session(address: Address, dialect: Dialect, limit: float) -> Session:
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
    """Return a reply as text; an error as "", because it was not answered."""
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    return "" if reply is None or isinstance(reply, ErrorReply) else str(reply)


def pairs(reply: Reply) -> dict[str, str]:
    """Return a map of RESP3, or the flat list that it is in RESP2."""
    if isinstance(reply, dict):
        return {text(name): text(value) for name, value in reply.items()}
    flat = [text(each) for each in reply] if isinstance(reply, list) else []
    return dict(zip(flat[::2], flat[1::2], strict=False))


def lines(reply: Reply) -> dict[str, str]:
    """Return the `name:value` lines of INFO and CLUSTER INFO."""
    pairs = [line.partition(":") for line in text(reply).splitlines() if ":" in line]
    return {name: value.strip() for name, _, value in pairs}


def refusal_text(reply: Reply, command: str) -> str | None:
    """Return why *command* was not answered. None: it was."""
    if not isinstance(reply, ErrorReply):
        return None
    if reply.code == "NOPERM":
        return f"this user may not run {command}"
    if "unknown" in str(reply).lower():
        return f"the server, or a proxy before it, does not know {command}"
    return f"{command} was answered with {reply.code}"
