"""An answer that is kept, to be given again: one line of JSON, then the body as it was."""

import json
import re
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
        "alt-svc", "x-request-id", "x-correlation-id", "traceparent", "tracestate",
        # Counted again from what is sent.
        "content-length",
    )
)  # fmt: skip


class Kept(NamedTuple):
    """Status, headers (names in lower case) and body of an answer."""

    status: int
    headers: Headers
    body: bytes


def keepable(headers: Headers) -> Headers:
    """Those that may be sent again to whoever repeats the request."""
    return tuple([(name.lower(), value) for name, value in headers if _may(name.lower())])


def _may(name: str) -> bool:
    return name not in _NOT_AGAIN and not name.startswith("access-control-")


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
