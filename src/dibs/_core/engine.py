"""Which commands this server has, asked once per connection.

The ladder: take a key by `SET NX GET` (7.0) or by script; give it back by `DELEX … IFEQ`
(Redis 8.4, Valkey 9.2), `DELIFEQ` (Valkey 9.0) or by script; keep it by `SET … IFEQ` or by script.
"""

import hashlib
import pkgutil
from functools import cache
from typing import Literal, NamedTuple

from ..errors import UsageError
from .request import ErrorReply, Reply, Request, pack

# One command each that tells a version apart: ACL came with 6.0, EXPIRETIME with 7.0.
_MARKS = ("ACL", "EXPIRETIME", "DELEX", "DELIFEQ")

SCRIPTS = (
    "acquire",
    "acquire_fenced",
    "release",
    "extend",
    "claim",
    "store",
    "abandon",
    "complete",
)

ASK = Request(pack("COMMAND", "INFO", *_MARKS), 1, b"")


class Engine(NamedTuple):
    """What a server can do for us. Made by `read_engine`."""

    set_nx_get: bool
    compare_delete: Literal["DELEX", "DELIFEQ", "LUA"]

    @property
    def set_ifeq(self) -> bool:
        """Every server that has either compare-and-delete also has `SET … IFEQ`."""
        return self.compare_delete != "LUA"


def weakest(engines: list[Engine]) -> Engine:
    """What all of them can do: a cluster in the middle of an upgrade."""
    first = engines[0].compare_delete
    same = all(engine.compare_delete == first for engine in engines)
    return Engine(
        set_nx_get=all(engine.set_nx_get for engine in engines),
        compare_delete=first if same else "LUA",
    )


def read_engine(reply: Reply) -> Engine:
    """What the answer to `ASK` says. UsageError: the server is too old."""
    if isinstance(reply, ErrorReply):
        if reply.code != "NOPERM":
            raise ConnectionError(str(reply))  # LOADING, BUSY …: not now
        # COMMAND is forbidden to this user: assume the oldest that we can work with.
        return Engine(set_nx_get=False, compare_delete="LUA")
    assert isinstance(reply, list)
    acl, expiretime, delex, delifeq = [bool(entry) for entry in (*reply, *[None] * 4)[:4]]
    if not acl:
        raise UsageError("this server is too old: dibs needs Redis 6.0 or Valkey 7.2, or newer")
    native = "DELEX" if delex else "DELIFEQ" if delifeq else "LUA"
    return Engine(set_nx_get=expiretime, compare_delete=native)


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


def with_scripts(request: Request) -> Request:
    """The same request, preceded by the scripts that it runs: the answer to a NOSCRIPT.

    The replies to the scripts come first; `request.replies` from the end are the request's own.
    """
    needed = [name for name in SCRIPTS if _digest(name) in request.payload]
    load = b"".join([pack("SCRIPT", "LOAD", _source(name)) for name in needed])
    replies = len(needed) + request.replies
    return Request(load + request.payload, replies, request.key, request.until)
