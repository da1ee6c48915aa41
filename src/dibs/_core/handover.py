"""A lease or a claim that is handed to another process: its token, and how it is continued.

Detaching replaces the secret in the key's value by a new one, which is the token. Continuing
replaces it once more, so a token can be used once, and the handle of the process that detached it
cannot touch what another one continues.
"""

import math
import re
from typing import Literal, NamedTuple

from ..errors import UsageError
from .engine import run_script, run_whole_script
from .keys import companion_key
from .lease import FENCE_LIFE, LeaseState, parts_of, secret_of
from .options import HoldOptions
from .request import Reply, Request

Verb = Literal["hold", "claim"]
UNGUARDED = b"unguarded"
"""In place of a secret: the store was out when the key was to be taken."""
_TOKEN = re.compile(r"(hold|claim):([0-9a-f]+-[0-9a-f]+|unguarded)")


class Resumed(NamedTuple):
    """It is continued here: the value of its key, and the fence, if one was asked for."""

    value: bytes
    fence: int | None


class Elsewhere(NamedTuple):
    """It cannot be continued: what the key has instead (None: nothing), for how many seconds."""

    value: bytes | None
    left: float


# ---- tokens


def token_for(verb: Verb, secret: bytes) -> str:
    """What another process needs to continue it."""
    return f"{verb}:{secret.decode()}"


def secret_in(verb: Verb, token: object) -> bytes:
    """The secret in *token*. UsageError: it was not made by `detach` of the same verb."""
    found = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if found is None:
        raise UsageError(f"token must be what detach() returned, not {type(token).__name__}")
    if found[1] != verb:
        raise UsageError(f"this is the token of a {found[1]}; continue it with {found[1]}()")
    return found[2].encode()


def with_secret_of(token: bytes, value: bytes) -> bytes:
    """*value* with the secret of *token* in place of its own."""
    return secret_of(token) + value[len(secret_of(value)) :]


def lend(lease: LeaseState, verb: Verb) -> str:
    """The token with which another process may continue it from now on.

    Until then, or until it is detached, it is kept alive here: if this process dies before the
    token is delivered, the key is free after one ttl.
    """
    lease.is_detached = True
    secret = secret_of(lease.token).partition(b"~")[0]  # without what a `resume` noted in it
    return token_for(verb, secret if lease.guarded else UNGUARDED)


# ---- continuing


def resume_request(key: bytes, options: HoldOptions, secret: bytes, token: bytes) -> Request:
    """Continue what *secret* was made for, under *token*, if the key still has that secret."""
    new, holder, _ = parts_of(token)
    keys, life_ms = [key], 0
    if options.fence_prefix is not None:
        keys, life_ms = [key, companion_key(options.fence_prefix, key)], int(FENCE_LIFE * 1000)
    words = (secret, new, holder or b"", options.ttl_ms, life_ms)
    return Request(run_script("hold_resume", keys, *words), 1, key)


def hand_back_request(key: bytes, options: HoldOptions, secret: bytes, token: bytes) -> Request:
    """Undo a `resume_request` whose outcome is not known: *secret* can be continued again."""
    new, holder, _ = parts_of(token)
    words = (new, secret, holder or b"", options.ttl_ms, 0, b"undo")
    return Request(run_whole_script("hold_resume", [key], *words), 1, key, math.inf)


def settle_request(key: bytes, secret: bytes, token: bytes, ms: int) -> Request:
    """Keep what *secret* was made for *ms* longer, and no more: its work was done in an outage.

    If nobody has continued it. It is delivered when the store is back.
    """
    new, _, holder = token.partition(b"@")
    words = (secret, new, holder, ms, 0)
    return Request(run_whole_script("hold_resume", [key], *words), 1, key, math.inf)


def read_resume(reply: list[Reply], options: HoldOptions) -> Resumed | Elsewhere:
    """Continued, or what is there instead."""
    value, is_ours, number = reply
    data = value if isinstance(value, bytes) else None
    if data is not None and is_ours:
        return Resumed(data, None if options.fence_prefix is None else int(str(number)))
    left = number if isinstance(number, int) else 0
    return Elsewhere(data, math.inf if left == -1 else max(left, 0) / 1000)
