"""Why a connection could not be opened: from an error of redis-py, ssl or a socket to a code."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from .._diagnostics import cause_of, reason_of, settings_error, tls_problem
from .facts import Failure

Step = Literal["resolve", "connect", "handshake", "ask"]
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
_IN_TIME: dict[Step, Failure] = {
    "resolve": Failure("dns", "the name server did not answer in time"),
    "connect": Failure("unreachable", "no TCP connection in time; perhaps a firewall"),
    "handshake": Failure("silent", ""),
    "ask": Failure("silent", "it answered at first"),
}  # fmt: skip


def overdue(step: Step) -> Failure:
    """The failure of a step that has not come to an end."""
    return _IN_TIME[step]


def failure_of(error: BaseException, step: Step) -> Failure:
    """What *error*, in this step of opening a connection, means."""
    chain = list(_chain(error))
    found = _of_tls(chain) or _of_login(chain) or _of_database(chain)
    return found or _of_network(error, chain, step) or _of_rest(error, step)


def _of_network(error: BaseException, chain: list[BaseException], step: Step) -> Failure | None:
    if step == "resolve" and isinstance(error, OSError | UnicodeError):
        return Failure("dns", _text(error))
    code = _BY_CAUSE.get(cause_of(error).code)
    if code is not None:
        return Failure(code, _text(error))
    if any(_is_timeout(each) for each in chain):
        return overdue(step)
    if any(_is_garbage(each) for each in chain):
        return Failure("not-redis", _text(error))
    return Failure("unreachable", _text(error)) if step == "connect" else None


def _of_rest(error: BaseException, step: Step) -> Failure:
    # Replies of a kind that no server sends; redis-py trips over them, too.
    if step == "ask" or isinstance(error, AttributeError | LookupError):
        return Failure("not-redis", _text(error))
    wrong = settings_error(error)
    return Failure("settings", str(wrong)) if wrong is not None else Failure("closed", _text(error))


def _is_garbage(error: BaseException) -> bool:
    return type(error).__name__ == "InvalidResponse" or "rotocol error" in str(error)


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError"


def _text(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return ""
    return " ".join(str(error).split())[:160] or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        seen.append(each)
        yield each
        each = each.__cause__ or each.__context__


def _of_tls(chain: list[BaseException]) -> Failure | None:
    for each in chain:
        problem = tls_problem(each)
        if problem is not None:
            return Failure(_BY_TLS_PROBLEM[problem], _tls_detail(each))
        if isinstance(each, ssl.SSLError) and not isinstance(each, ssl.SSLEOFError):
            return Failure("tls-failed", _tls_detail(each))
    return None


def _tls_detail(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or _text(error)
    return reason_of(error) or _text(error)


def _of_login(chain: list[BaseException]) -> Failure | None:
    text = _text(chain[0])
    said = text.lower()
    if "wrongpass" in said or "invalid username-password" in said or "invalid password" in said:
        return Failure("auth-wrong", "")
    if any(words in said for words in ("noauth", "authentication required", "already authentic")):
        return Failure("auth-missing", "the URL has none")
    if says_no_password(said):
        return Failure("auth-unset", "")
    if type(chain[0]).__name__ == "NoPermissionError":
        return Failure("acl-connect", text)
    return None


def says_no_password(said: str) -> bool:
    """Whether a server answers to a password, in small letters, that it has none."""
    return "without any password configured" in said or "no password is set" in said


def _of_database(chain: list[BaseException]) -> Failure | None:
    text = _text(chain[0])
    if "not allowed in cluster mode" in text:
        return Failure("cluster-database", text)
    if "DB index" in text or "out of range" in text:
        return Failure("database", text)
    return None


def _unverified() -> ssl.SSLContext:
    """Whoever answers is believed: nothing is sent over it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def speaks_tls(address: tuple[str, int], limit: float) -> bool:
    """Whether a server that closes plain connections answers a TLS handshake."""
    try:
        with socket.create_connection(address, limit) as sock:
            _unverified().wrap_socket(sock, server_hostname=address[0]).close()
    except ssl.SSLError as error:
        return "ALERT" in reason_of(error)  # it refuses us, in TLS
    except OSError:
        return False
    return True


_HANDSHAKE = 0x16  # the type of a TLS record; that of an alert is another one


def wants_certificate(address: tuple[str, int], limit: float) -> bool:
    """Whether a server that ended the handshake with an alert misses a certificate of ours.

    Without a cipher in common it refuses our first message; without a certificate, a later one.
    With the ciphers that are usual here: if the handshake succeeds, those of the URL do not fit.
    """
    incoming, outgoing, has_begun = ssl.MemoryBIO(), ssl.MemoryBIO(), False
    handshake = _unverified().wrap_bio(incoming, outgoing, server_hostname=address[0])
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
    """False: it needs what the other side says. SSLError: that has refused it."""
    try:
        handshake.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def speaks_plain(address: tuple[str, int], limit: float) -> bool:
    """Whether a server on which the TLS handshake fails answers a plain PING."""
    try:
        with socket.create_connection(address, limit) as sock:
            sock.settimeout(limit)
            sock.sendall(b"PING\r\n")
            return sock.recv(1) in (b"+", b"-")
    except OSError:
        return False
