"""Reading what a server holds, and freeing a key for a person: requests and readings.

Keys are read in pages by SCAN: what type each has, how long the server keeps it, and the first
bytes of its value. A whole large value is never read.
"""

import re
from typing import Literal, NamedTuple

from ..errors import UsageError
from .cache import lock_of
from .engine import Engine, run_whole_script
from .entries import HEAD, Entry, proof_in, read_time
from .keys import companion_key, is_text
from .lease import release_request, secret_of
from .request import Reply, Request, pack
from .schedule import records_key
from .waiting import notes_request

PERMITS = 20
"""How many permits of one key are listed."""


class Page(NamedTuple):
    """Some of the keys, and where to go on."""

    entries: list[Entry]
    cursor: str | None
    """For the next page; None: this was the last one."""
    unreachable: str | None = None
    """The node of a cluster whose keys are missing, because it did not answer."""
    why: str = ""
    """… and why it did not."""


class ServerFacts(NamedTuple):
    """What a server says about itself."""

    address: str
    """In a cluster: host and port of the node. Else empty."""
    facts: dict[str, str]
    """The fields of INFO: redis_version, used_memory, maxmemory_policy …"""


def pattern_for(namespace: str, pattern: str) -> bytes:
    """What SCAN matches: *pattern* behind the namespace, in which nothing is special."""
    if not is_text(pattern):
        raise UsageError("a pattern must be valid Unicode; this one has a lone surrogate")
    return (exactly(namespace) + pattern).encode()


def exactly(text: str) -> str:
    """A pattern that matches *text* and nothing else."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)


# ---- requests


def scan_request(cursor: bytes, pattern: bytes, count: int) -> Request:
    """The next keys, and the server's clock."""
    return Request(pack("SCAN", cursor, "MATCH", pattern, "COUNT", count) + pack("TIME"), 2, b"")


def read_scan(replies: list[Reply]) -> tuple[bytes, list[bytes], float]:
    """The next cursor (0: that was all), the keys, and the time in seconds since the epoch."""
    match replies:
        case [[bytes(cursor), list(keys)], time]:
            found = [key for key in keys if isinstance(key, bytes)]
            return cursor, list(dict.fromkeys(found)), read_time(time)
        case _:
            return b"0", [], 0.0


def type_request(key: bytes) -> Request:
    """The type of a key."""
    return Request(b"*2\r\n$4\r\nTYPE\r\n$%d\r\n%b\r\n" % (len(key), key), 1, key)


_RANGE = b"*4\r\n$8\r\nGETRANGE\r\n$%d\r\n%b\r\n$1\r\n0\r\n$3\r\n" + b"%d\r\n" % (HEAD - 1)


def value_request(key: bytes, kind: Reply, now: float) -> Request:
    """How long a key of this type is kept, and the beginning of its value."""
    size = len(key)
    ttl = b"*2\r\n$4\r\nPTTL\r\n$%d\r\n%b\r\n" % (size, key)
    if kind in (b"string", "string"):
        return Request(ttl + _RANGE % (size, key), 2, key)
    if kind in (b"zset", "zset"):
        since = b"(%d" % (now * 1000)
        words = ("ZRANGEBYSCORE", key, since, "+inf", "WITHSCORES", "LIMIT", 0, PERMITS)
        return Request(ttl + pack("ZCOUNT", key, since, "+inf") + pack(*words), 3, key)
    return Request(ttl, 1, key)


def next_node(nodes: list[str], cursor: str) -> tuple[str, bytes, str | None]:
    """The node to ask, from where, and the cursor of the node after it (None: it is the last one).

    A cursor is `position@node`; where that node has left the cluster, the next one is begun.
    """
    position, _, node = cursor.partition("@")
    rest = [each for each in nodes if each >= node] or nodes[-1:]
    start = position.encode() if rest[0] == node and position.isdigit() else b"0"
    return rest[0], start, f"0@{rest[1]}" if len(rest) > 1 else None


def is_cut(reply: Reply) -> bool:
    """Whether a value may be longer than what was read of it."""
    return isinstance(reply, list) and isinstance(reply[-1], bytes) and len(reply[-1]) >= HEAD


def length_request(key: bytes) -> Request:
    """The length of a string."""
    return Request(pack("STRLEN", key), 1, key)


def companions_request(namespace: str, key: bytes) -> Request:
    """What lives beside a key: its fence, the lock of its load, who waits, what a schedule has
    run; and the server's clock."""
    fence, lock = companion_key(f"{namespace}fence:".encode(), key), lock_of(namespace, key)
    words = pack("TIME") + pack("GETRANGE", fence, 0, 31) + pack("GETRANGE", lock, 0, HEAD - 1)
    records = pack("ZRANGE", records_key(f"{namespace}fires:".encode(), key), 0, -1)
    return Request(words + notes_request(namespace, key) + records, 5, key)


# ---- freeing


Outcome = Literal["released", "free", "other"]
"""released · free: nobody had the key · other: somebody else has it than was said."""


def named_secret(token: str) -> bytes:
    """The secret in what a user calls a token: `lease.token`, or what `detach` returned."""
    data = token.strip().encode(errors="replace")
    return secret_of(re.sub(rb"^(hold|claim):", b"", data))


def discard_request(engine: Engine, key: bytes, value: bytes) -> Request:
    """Delete the key if it is still the same holding. The reply is 1: deleted.

    A foreign value must be the same altogether; a note of a claim, for one, may have changed.
    """
    proof = proof_in(value)
    if proof is None:
        return release_request(engine, key, value, 0.0)
    return Request(run_whole_script("inspect_release", [key], proof[1]), 1, key)


def member_request(key: bytes, cursor: bytes) -> Request:
    """The next permits of a key."""
    return Request(pack("ZSCAN", key, cursor, "COUNT", 500), 1, key)


def read_members(reply: Reply) -> tuple[bytes, list[bytes]]:
    """The next cursor (0: that was all), and tokens."""
    match reply:
        case [bytes(cursor), list(members)]:
            return cursor, [member for member in members[::2] if isinstance(member, bytes)]
        case _:
            return b"0", []


def read_info(reply: Reply) -> dict[str, str]:
    """The fields of INFO."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply or "")
    lines = [line.partition(":") for line in text.splitlines() if not line.startswith("#")]
    return {name: value for name, colon, value in lines if colon}
