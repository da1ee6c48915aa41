"""A response as data: recorded while it is sent, stored, and sent again to a duplicate."""

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from .._core.codec import decompressed

_dumps = json.JSONEncoder(separators=(",", ":")).encode
_loads = json.JSONDecoder().decode
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_REFUSAL = re.compile(rb'"type"\s*:\s*"urn:dibs:')
Headers = tuple[tuple[str, str], ...]
RawHeaders = Iterable[tuple[str | bytes, str | bytes]]

_NOT_STORED = frozenset(
    (
        # Of one connection, not of the response (RFC 9110, 7.6.1).
        "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
        "upgrade",
        # Of one person's session, of one moment, or of one server.
        "set-cookie", "set-cookie2", "authorization", "www-authenticate", "proxy-authenticate",
        "proxy-authorization", "authentication-info", "proxy-authentication-info",
        "clear-site-data", "set-authorization", "dpop-nonce", "x-csrf-token", "x-csrftoken",
        "x-xsrf-token", "csrf-token", "x-auth-token", "x-access-token", "access-token",
        "x-refresh-token", "refresh-token", "x-id-token", "x-session-token", "x-session-id",
        "x-session", "session-token", "x-jwt", "x-jwt-token", "x-api-key", "x-api-token",
        "x-subject-token", "x-amz-security-token", "date", "age", "server",
        "alt-svc", "x-request-id", "x-correlation-id", "traceparent", "tracestate", "x-trace-id",
        "x-amzn-trace-id", "server-timing", "x-runtime", "x-response-time", "x-process-time",
        # Computed again from what is sent.
        "content-length",
    )
)  # fmt: skip
_PREFIXES_NOT_STORED = ("access-control-", "ratelimit", "x-ratelimit-", "x-rate-limit-")
"""Of one origin, or of what is left of a quota at one moment."""


class Response(NamedTuple):
    """A whole response. The names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes


def storable(headers: RawHeaders) -> Headers:
    """Return the headers that may be sent again to a client that repeats the request."""
    return tuple([(name, value) for name, value in _decoded(headers) if _is_storable(name)])


def _is_storable(name: str) -> bool:
    return name not in _NOT_STORED and not name.startswith(_PREFIXES_NOT_STORED)


def _decoded(headers: RawHeaders) -> Iterator[tuple[str, str]]:
    return ((_text(name).lower(), _text(value)) for name, value in headers)


def _without_slashes(path: str) -> str:
    """Return the path, where slashes at its end and in a row do not count."""
    return "/".join([part for part in path.split("/") if part])


def _text(word: str | bytes) -> str:
    return word if isinstance(word, str) else bytes(word).decode("latin-1")


class Completion:
    """Says when a response is complete for its client, whatever the server still has to send.

    It is complete where it begins if it can have no body, else when its length is reached, or when
    it ends.
    """

    __slots__ = ("_left",)

    def __init__(self, method: str, status: int, headers: RawHeaders) -> None:
        """*method*: of the request, in upper case."""
        self._left = _body_length(method, status, headers)
        """Bytes that the client still waits for; None: it waits for the end."""

    @property
    def has_length(self) -> bool:
        """Return True if the client knows how long the response is."""
        return self._left is not None

    @property
    def is_complete(self) -> bool:
        """Return True if the client has all of it."""
        return self._left is not None and self._left <= 0

    def add(self, size: int, *, is_last: bool = False) -> bool:
        """Count a piece of the body. Returns whether the client has all of it then."""
        if is_last:
            self._left = 0
        elif self._left is not None:
            self._left -= size
        return self.is_complete


def _body_length(method: str, status: int, headers: RawHeaders) -> int | None:
    """Return how many bytes of a body the client waits for; None: until the response ends."""
    if method == "HEAD" or status in (204, 304) or status < 200:
        return 0
    for name, value in headers:
        if len(name) == 14 and _text(name).lower() == "content-length":
            length = _text(value)
            return int(length) if length.isdecimal() else None
    return None


_LOOKED_AT = 4096
"""Bytes of an error that are looked at: whether it is a refusal of dibs."""


class Recording:
    """A response that is being sent: its status, and its content up to a limit."""

    __slots__ = ("_beginning", "_body", "_headers", "_limit", "_path", "_size", "status")

    def __init__(self, limit: int | None, path: str | None = None) -> None:
        """*limit*: bytes of the body that are recorded; None: nothing but what ends the claim.

        *path*: of the request, where a router may redirect it.
        """
        self._path = path
        self.status = 0
        """0: the response has not begun."""
        self._limit = limit or 0
        self._headers: tuple[tuple[str | bytes, str | bytes], ...] = ()
        self._body: list[bytes] | None = None if limit is None else []
        self._size = 0
        self._beginning = b""
        """Of the body of an error, also if it is not stored."""

    def begin(self, status: int, headers: RawHeaders) -> None:
        """Record status and headers. Headers in bytes are decoded only if they are stored."""
        self.status = status
        if self._body is not None or status >= 400 or self._path is not None:
            self._headers = tuple(headers)  # a copy: outer middlewares change the list in place

    def add(self, piece: bytes) -> None:
        """Record a piece of the body. A body that grows beyond the limit is not stored."""
        if self.status >= 400 and len(self._beginning) < _LOOKED_AT:
            self._beginning += bytes(piece[:_LOOKED_AT])
        if self._body is None:
            return
        self._size += len(piece)
        if self._size > self._limit:
            self.discard()
        else:
            self._body.append(bytes(piece))

    @property
    def is_storable(self) -> bool:
        """Return whether what was recorded so far would be stored."""
        return self._body is not None

    @property
    def reads_body(self) -> bool:
        """Return whether `add` does anything: the response is stored, or is an error."""
        return self._body is not None or self.status >= 400

    @property
    def is_partial(self) -> bool:
        """True: it answers the conditions or the range of one request (If-None-Match, Range).

        A retry without them would get nothing, or a part.
        """
        return self.status in (206, 304)

    @property
    def is_redirect_to_itself(self) -> bool:
        """Return True if a router asks for the same request with another slash.

        Nothing was done.
        """
        if self.status not in (307, 308) or self._path is None:
            return False
        location = urlsplit(dict(_decoded(self._headers)).get("location", "")).path
        return _without_slashes(unquote(location)) == _without_slashes(self._path)

    def discard(self) -> None:
        """Do not store this response: it is too long, or its body does not pass here."""
        self._body = None

    @property
    def is_later(self) -> bool:
        """Return True if it asks for a later attempt, and says of this one that nothing was done.

        A 4xx with Retry-After; or a refusal of dibs, perhaps of another service.
        """
        headers = dict(_decoded(self._headers))
        if "retry-after" in headers and self.status < 500:
            return True
        is_json = "json" in headers.get("content-type", "")
        return is_json and _REFUSAL.search(self._beginning) is not None

    @property
    def response(self) -> Response | None:
        """The response as it is stored; None: only the fact that there was one."""
        if self._body is None or self.is_partial:
            return None
        return Response(self.status, storable(self._headers), b"".join(self._body))


# ---- content codings


def readable(stored: Response, accept_encoding: str | None, most: int) -> Response | None:
    """*stored* in a coding that the client accepts, decompressed if need be; None: impossible.

    That is also one with more than *most* bytes: who asks for it could fill the memory.

    A middleware that compresses may run inside of the guard; then the compressed body is stored. A
    client that sends no Accept-Encoding accepts any coding (RFC 9110, 12.5.3). But if the first
    response says `Vary: Accept-Encoding`, such a client would have got an uncompressed one.
    """
    named = dict(stored.headers)
    coding = named.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return stored
    if accept_encoding is None:
        is_accepted = "accept-encoding" not in named.get("vary", "").lower()
    else:
        is_accepted = _accepts(accept_encoding, coding)
    if is_accepted:
        return stored
    plain = _decompressed(coding, stored.body, most)
    if plain is None:
        return None
    headers = tuple([line for line in stored.headers if line[0] != "content-encoding"])
    return Response(stored.status, headers, plain)


def _accepts(accept_encoding: str, coding: str) -> bool:
    """Return True if the list names *coding* or `*`, and not with a weight of 0."""
    weights: dict[str, bool] = {}
    for each in accept_encoding.lower().split(","):
        name, _, weight = each.partition(";")
        weights[name.strip()] = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
    alias = {"gzip": "x-gzip", "x-gzip": "gzip"}.get(coding, coding)
    return weights.get(coding, weights.get(alias, weights.get("*", False)))


_MOST_MEMBERS = 1000


def _decompressed(coding: str, body: bytes, most: int) -> bytes | None:
    """Return the whole body: gzip may consist of several members (RFC 1952, 2.2).

    None: not readable.
    """
    if coding not in ("gzip", "x-gzip", "deflate"):
        return None
    plain: list[bytes] = []
    for _ in range(_MOST_MEMBERS):
        member = zlib.decompressobj(32 + zlib.MAX_WBITS)  # a header of gzip or of zlib
        try:
            plain.append(decompressed(body, most, member))
        except (zlib.error, ValueError):
            return None
        most -= len(plain[-1])
        body = member.unused_data.lstrip(b"\0")  # padding after a member is allowed
        if not body or coding == "deflate":
            return b"".join(plain)
    return None


# ---- the stored form


class _ResponseCodec:
    """One line of JSON with status and headers, then the body as it is."""

    name = "http"
    fingerprint = "1"

    def encode(self, value: Any) -> bytes:
        status, headers, body = value
        return _dumps([status, headers]).encode() + b"\n" + body

    def decode(self, data: bytes) -> Any:
        """ValueError, TypeError: these bytes are not a response that `Recording` stores."""
        head, _, body = data.partition(b"\n")
        status, headers = _loads(head.decode())
        if type(status) is not int or not 200 <= status < 600:
            raise ValueError("a stored response has no final status")
        return Response(
            status, tuple([_checked_line(name, value) for name, value in headers]), body
        )


def _checked_line(name: object, value: object) -> tuple[str, str]:
    """Return a stored header.

    Raises ValueError if one that is not stored, or that cannot be sent.
    """
    if not isinstance(name, str) or not isinstance(value, str):
        raise ValueError("a stored header is not text")
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or not _is_storable(name):
        raise ValueError("a stored header cannot be sent")
    return name, value


RESPONSE_CODEC = _ResponseCodec()
