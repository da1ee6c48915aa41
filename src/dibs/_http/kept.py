"""An answer that is kept, to be given again: one line of JSON, then the body as it was."""

import json
import re
import zlib
from typing import Any, NamedTuple

_print = json.JSONEncoder(separators=(",", ":")).encode
_BROKEN = re.compile(r"[\r\n\0]")
Headers = tuple[tuple[str, str], ...]

_NOT_AGAIN = frozenset(
    (
        # Of one connection, not of the answer (RFC 9110, 7.6.1).
        "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
        "upgrade",
        # Of one person's session, of one moment, or of one server.
        "set-cookie", "set-cookie2", "authorization", "www-authenticate", "proxy-authenticate",
        "proxy-authorization", "authentication-info", "clear-site-data", "date", "age", "server",
        "alt-svc", "x-request-id", "x-correlation-id", "traceparent", "tracestate", "x-trace-id",
        "x-amzn-trace-id", "server-timing", "x-runtime", "x-response-time", "x-process-time",
        # Counted again from what is sent.
        "content-length",
    )
)  # fmt: skip
_NO_FAMILY = ("access-control-", "ratelimit", "x-ratelimit-", "x-rate-limit-")
"""Of one origin, or of how much somebody has left at one moment."""


class Kept(NamedTuple):
    """Status, headers (names in lower case) and body of an answer."""

    status: int
    headers: Headers
    body: bytes


def keepable(headers: Headers) -> Headers:
    """Those that may be sent again to whoever repeats the request."""
    return tuple([(name.lower(), value) for name, value in headers if _may(name.lower())])


def _may(name: str) -> bool:
    return name not in _NOT_AGAIN and not name.startswith(_NO_FAMILY)


# ---- the coding of a body


def decoded(kept: Kept, accepts: str | None) -> Kept | None:
    """*kept* so that a client can read it whose Accept-Encoding is *accepts*; None: it cannot.

    Whatever compresses may sit inside of the guard; then what is kept is what it made. A client
    that says nothing can read any coding (RFC 9110, 12.5.3); but where the coding was chosen by
    what the first one said, which Vary tells, one that says nothing would have got none.
    """
    named = dict(kept.headers)
    coding = named.get("content-encoding", "").strip().lower()
    if accepts is None:
        is_readable = "accept-encoding" not in named.get("vary", "").lower()
    else:
        is_readable = _accepted(coding, accepts)
    if coding in ("", "identity") or is_readable:
        return kept
    plain = _unpacked(coding, kept.body)
    if plain is None:
        return None
    headers = tuple([line for line in kept.headers if line[0] != "content-encoding"])
    return Kept(kept.status, headers, plain)


def _accepted(coding: str, accepts: str) -> bool:
    """True: it is in the list, or a star is, and not with a weight of 0."""
    weights: dict[str, bool] = {}
    for each in accepts.lower().split(","):
        name, _, weight = each.partition(";")
        weights[name.strip()] = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
    alias = {"gzip": "x-gzip", "x-gzip": "gzip"}.get(coding, coding)
    return weights.get(coding, weights.get(alias, weights.get("*", False)))


def _unpacked(coding: str, body: bytes) -> bytes | None:
    if coding not in ("gzip", "x-gzip", "deflate"):
        return None
    try:
        return zlib.decompress(body, 32 + zlib.MAX_WBITS)  # either of the two headers
    except zlib.error:
        return None


class _KeptCodec:
    name = "http"
    fingerprint = "1"

    def encode(self, value: Any) -> bytes:
        status, headers, body = value
        return _print([status, headers]).encode() + b"\n" + body

    def decode(self, data: bytes) -> Any:
        head, _, body = data.partition(b"\n")
        status, headers = json.loads(head)
        if any(_BROKEN.search(word) for line in headers for word in line):
            raise ValueError("a header that ends its own line is none of ours")
        return Kept(int(status), tuple([(n, v) for n, v in headers]), body)


KEPT = _KeptCodec()
