"""What the client asks: the wishes of a case, and the ASGI scope made of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypedDict

from .asgi import Headers, Wrap


class Wishes(TypedDict, total=False):
    """What a case may ask for; whatever it leaves out is as usual."""

    route: str
    """"POST /path"; usual: the guarded one."""
    keys: Sequence[bytes]
    """The values of the key header, one line each; usual: the key of the trial."""
    headers: Headers
    """More lines of the head."""
    kind: bytes
    """The media type of the body; usual: JSON."""
    body: Sequence[bytes]
    """The pieces of the body; usual: one, the payload of the trial."""
    facts: dict[str, Any]
    """What else is in the scope."""
    outer: Wrap
    """A layer around the middleware."""
    unfinished: bool
    """Whether more of the body will come."""
    pipe_breaks: bool
    """Whether sending to a client that has left raises OSError."""
    at_the_end: Callable[[], Awaitable[None]]
    """Awaited by the server when the client has the last byte, before the app hears of it."""


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
