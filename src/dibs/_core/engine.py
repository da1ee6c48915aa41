"""What a server (or a proxy before it) can do, and which scripts it is given.

The newest way that a server has is used: take a key by `SET NX GET` (7.0) or by script; give it
back by `DELEX … IFEQ` (Redis 8.4, Valkey 9.2), `DELIFEQ` (Valkey 9.0) or by script. A key is kept
by script, which never shortens; by `SET … IFEQ` where none may be run.
A script goes by EVALSHA, and whole by EVAL where the server does not know it, or has no EVALSHA.
`capabilities.py` finds out which of them a server has.
"""

import hashlib
import pkgutil
import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from .request import ErrorReply, Request, pack

SCRIPTS = (
    "hold_acquire",
    "hold_acquire_fenced",
    "hold_release",
    "hold_extend",
    "hold_resume",
    "hold_permit",
    "hold_permit_extend",
    "hold_permit_peek",
    "cache_lock",
    "cache_put",
    "cache_store",
    "cache_tag",
    "cache_unlock",
    "once_complete",
    "once_record",
    "schedule_look",
    "schedule_record",
    "throttle",
)


# Not a NamedTuple: its fields are read for every request, and slots are read faster.
@dataclass(frozen=True, slots=True)
class Engine:
    """What a server can do for us. Made by `Handshake`."""

    set_nx_get: bool
    compare_delete: Literal["DELEX", "DELIFEQ", "LUA"]
    tracking: bool = True
    """CLIENT TRACKING is there; else whoever waits has to poll."""
    whole_scripts: bool = False
    """Only EVAL is to be used, never EVALSHA."""
    refused: frozenset[str] = frozenset()
    """Commands that this user may not run, or that the server lacks."""

    @property
    def set_ifeq(self) -> bool:
        """Every server that has either compare-and-delete also has `SET … IFEQ`."""
        return self.compare_delete != "LUA"


OLDEST = Engine(set_nx_get=False, compare_delete="LUA")
"""What is assumed of a server that does not say: scripts for everything."""


def common_engine(engines: list[Engine]) -> Engine:
    """What all of them can do: a cluster in the middle of an upgrade."""
    first = engines[0].compare_delete
    same = all(engine.compare_delete == first for engine in engines)
    return Engine(
        set_nx_get=all(engine.set_nx_get for engine in engines),
        compare_delete=first if same else "LUA",
        tracking=all(engine.tracking for engine in engines),
        whole_scripts=any(engine.whole_scripts for engine in engines),
        refused=frozenset[str]().union(*[engine.refused for engine in engines]),
    )


@cache
def _source(name: str) -> bytes:
    text = pkgutil.get_data("dibs._core", f"lua/{name}.lua")
    assert text is not None
    return text


@cache
def _digest(name: str) -> bytes:
    # Not a matter of security: EVALSHA names scripts by their SHA-1.
    return hashlib.sha1(_source(name), usedforsecurity=False).hexdigest().encode()


def run_script(name: str, keys: list[bytes], *args: bytes | int) -> bytes:
    """A script call as the wire wants it. A server that does not know it answers NOSCRIPT."""
    return pack("EVALSHA", _digest(name), len(keys), *keys, *args)


def run_whole_script(name: str, keys: list[bytes], *args: bytes | int) -> bytes:
    """The same with the script itself, for requests that nobody may be left to send again."""
    return pack("EVAL", _source(name), len(keys), *keys, *args)


_BY_DIGEST = re.compile(rb"\*\d+\r\n\$7\r\nEVALSHA\r\n\$40\r\n([0-9a-f]{40})\r\n")


def with_scripts(request: Request) -> Request:
    """The same request, with the script itself in place of its digest: the answer to a NOSCRIPT.

    EVAL also makes the server remember the script, so the next EVALSHA is understood. SCRIPT LOAD
    is never needed: many proxies and services refuse it.
    """
    found = _BY_DIGEST.match(request.payload)
    name = None if found is None else _names().get(found.group(1))
    if found is None or name is None:
        return request
    source = _source(name)
    words = request.payload[: request.payload.index(b"\r\n") + 2]
    head = b"%b$4\r\nEVAL\r\n$%d\r\n%b\r\n" % (words, len(source), source)
    payload = head + request.payload[found.end() :]
    return Request(payload, request.replies, request.key, request.until)


def with_scripts_once(requests: list[Request]) -> list[Request]:
    """The same requests, each script in the first one that needs it: for one write to a server."""
    sent: set[bytes] = set()
    whole: list[Request] = []
    for request in requests:
        found = _BY_DIGEST.match(request.payload)
        is_first = found is not None and found.group(1) not in sent
        if found is not None:
            sent.add(found.group(1))
        whole.append(with_scripts(request) if is_first else request)
    return whole


@cache
def _names() -> dict[bytes, str]:
    return {_digest(name): name for name in SCRIPTS}


class ScriptMemory:
    """Remembers whether EVALSHA is worth a try: some proxies answer NOSCRIPT for ever."""

    MISSES = 3
    """So many times within `NEAR` seconds, although the script was sent whole each time."""
    NEAR = 10.0
    LASTS = 600.0
    """For how long scripts are then sent whole, in seconds."""

    def __init__(self) -> None:
        self.whole_until = 0.0
        """0: EVALSHA has always worked."""
        self._misses: dict[bytes, tuple[int, float, float]] = {}
        """How often within a time, since when, and when last."""

    def send_whole(self, engine: Engine | None, now: float) -> bool:
        """True: send scripts whole from the start."""
        return now < self.whole_until or (engine is not None and engine.whole_scripts)

    def lacks(self, request: Request, error: ErrorReply, now: float) -> bool:
        """True: the server does not know the script, or no EVALSHA: send it whole."""
        found = _BY_DIGEST.match(request.payload)
        if found is None:
            return False
        if error.code == "NOSCRIPT":
            self._missed(found.group(1), now)
            return True
        if "evalsha" in str(error).partition(", with args")[0].lower():
            self.whole_until = now + self.LASTS
            return True
        return False

    def _missed(self, digest: bytes, now: float) -> None:
        count, since, last = self._misses.get(digest, (0, now, -1.0))
        if now == last:
            return  # another request of one write
        count, since = (count + 1, since) if now - since < self.NEAR else (1, now)
        self._misses[digest] = (count, since, now)
        if count > self.MISSES:
            self._misses.clear()
            self.whole_until = now + self.LASTS
