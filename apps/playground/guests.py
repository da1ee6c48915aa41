"""Guests who scan the QR code: each with their own connection, all at once."""

import asyncio
import math
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple
from urllib.parse import quote

_TIMEOUT = 20.0
"""How long a guest waits for the menu, in seconds."""


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Scan(NamedTuple):
    """What one guest got."""

    status: int
    """0: no answer."""
    how: str
    """The answer's X-Cache."""
    took: float


async def rush(ports: Sequence[int], branch_id: str, guests: int) -> list[Scan]:
    """The results of all guests, who come at once and are spread over *ports*."""
    path = f"/menus/active?branchId={quote(branch_id, safe='')}&tableId=A7"
    # Connected first: else the last would come when the first has its menu already.
    lines = await asyncio.gather(*(_connect(ports[n % len(ports)]) for n in range(guests)))
    return await asyncio.gather(*(_scan(line, path) for line in lines))


def percentile(scans: Sequence[Scan], percent: float) -> float:
    """The time within which that share of the guests had an answer."""
    took = sorted(scan.took for scan in scans)
    return took[max(math.ceil(len(took) * percent / 100) - 1, 0)]


async def _connect(port: int) -> Line | None:
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return None


async def _scan(line: Line | None, path: str) -> Scan:
    # By hand, because 200 guests of a big client library would measure that library.
    since = monotonic()
    try:
        async with asyncio.timeout(_TIMEOUT):
            head = await _get(line, path)
    except (OSError, TimeoutError):
        return Scan(0, "", monotonic() - since)
    status, *headers = head.decode("latin-1").split("\r\n")
    words = dict(line.lower().split(": ", 1) for line in headers if ": " in line)
    return Scan(int(status.split(" ")[1]), words.get("x-cache", ""), monotonic() - since)


async def _get(line: Line | None, path: str) -> bytes:
    """The head of the answer, once all of it has arrived. ConnectionError: there is none."""
    if line is None:
        raise ConnectionError("nobody is there")
    reader, writer = line
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: menu\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read(-1)
    finally:
        writer.close()
    head, complete, _ = answer.partition(b"\r\n\r\n")
    if not complete:
        raise ConnectionError("the answer has no end")
    return head
