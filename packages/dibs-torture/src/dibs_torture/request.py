"""The request of a case: its options, and the ASGI scope made of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypedDict

from .asgi import Headers, Wrap


class RequestOptions(TypedDict, total=False):
    """The options of a request; what is left out is as usual."""

    route: str
    """"POST /path"; usual: the guarded one."""
    keys: Sequence[bytes]
    """The values of the key header, one header each; usual: the key of the harness."""
    headers: Headers
    """More headers."""
    content_type: bytes
    """The media type of the body; usual: JSON."""
    body: Sequence[bytes]
    """The pieces of the body; usual: one, the payload of the harness."""
    scope: dict[str, Any]
    """What else is in the ASGI scope."""
    outer: Wrap
    """A layer around the middleware."""
    unfinished: bool
    """Whether more of the body will come."""
    send_raises: bool
    """Whether sending to a client that has left raises OSError."""
    on_last_byte: Callable[[], Awaitable[None]]
    """Awaited by the server when the client has the last byte, before `send` returns."""


def scope_of(route: str, headers: Headers, *, state: dict[str, Any]) -> dict[str, Any]:
    """Return the scope of a request, with everything in it that servers put there."""
    method, _, path = route.partition(" ")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"torture.test"), *headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
        "state": dict(state),
        "extensions": {},
    }
