"""Who waits for a key, as a note at the server: requests and readings. Nobody decides by it."""

import re
from typing import NamedTuple

from .capabilities import run_whole_script
from .keys import companion_key
from .lease import HoldCall
from .request import Reply, Request, pack

NOTE_EVERY = 10.0
"""Seconds after which a note is written again."""
_LIFE_MS = 30_000
MOST_NOTES = 100
"""For each key; of those who come later nothing is noted."""
_NOTE = re.compile(rb"[0-9a-f]{12}@(.+) (\d+)")


class WaitingProcess(NamedTuple):
    """A process in which somebody waits."""

    holder: str
    """Host and process, as for those who hold."""
    waited: float | None
    """Seconds, by its own clock; of those who wait there, the first."""


def note_request(call: HoldCall, note: bytes) -> Request:
    """Note that somebody waits. Whole: nobody waits for the reply that the script is not known."""
    key = companion_key(call.options.waiting_prefix, call.key)
    return Request(run_whole_script("wait_note", [key], note, _LIFE_MS, MOST_NOTES), 1, call.key)


def unnote_request(call: HoldCall, note: bytes) -> Request:
    """Nobody waits any more."""
    key = companion_key(call.options.waiting_prefix, call.key)
    return Request(pack("ZREM", key, note), 1, call.key)


def notes_request(namespace: str, key: bytes) -> bytes:
    """The notes of a key, as a command."""
    name = companion_key(f"{namespace}waiting:".encode(), key)
    return pack("ZRANGE", name, 0, MOST_NOTES - 1, "WITHSCORES")


def read_notes(reply: Reply, now: float) -> tuple[WaitingProcess, ...]:
    """Who waits, the longest first. *now*: seconds since the epoch, by the server's clock."""
    items = reply if isinstance(reply, list) else []
    flat = [each for item in items for each in (item if isinstance(item, list) else [item])]
    waiters = [
        WaitingProcess(note[1].decode(errors="replace"), max(now - int(note[2]) / 1000, 0.0))
        for member, expiry in zip(flat[::2], flat[1::2], strict=False)
        if isinstance(member, bytes) and (note := _NOTE.fullmatch(member)) is not None
        and isinstance(expiry, bytes | int | float) and float(expiry) > now * 1000
    ]  # fmt: skip
    return tuple(sorted(waiters, key=lambda waiter: -(waiter.waited or 0.0)))
