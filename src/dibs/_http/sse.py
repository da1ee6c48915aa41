"""Server-sent events: items as text, and where a browser that reconnects goes on."""

import re

_LINE = re.compile("\r\n|\r|\n")
_LAST = re.compile(r"(\d{1,12})\.([0-9a-f]{16})")

HEARTBEAT = b":\n\n"
"""A comment: it keeps proxies from closing a connection on which nothing is sent."""


def event(text: str, *, name: str = "", number: int = 0, run: str = "") -> bytes:
    """One event. *number*: how many items the client has with it, of which *run*."""
    lines = [f"event: {name}"] if name else []
    lines += [f"id: {number}.{run}"] if number else []
    lines += [f"data: {line}" for line in _LINE.split(text)]
    return ("\n".join(lines) + "\n\n").encode()


def read_last_event_id(value: str | None) -> tuple[int, str]:
    """How many items a client has that reconnects, and of which run; 0 of none, if it does not."""
    match = _LAST.fullmatch(value or "")
    return (0, "") if match is None else (int(match[1]), match[2])
