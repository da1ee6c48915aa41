"""A run as text: one line for each thing that happened."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dibs

from .faults import Plan
from .running import Outcome

_LUA = Path(dibs.__file__).parent / "_core" / "lua"


def trace_lines(outcome: Outcome, plan: Plan) -> Iterator[str]:
    """The plan, then what happened until the first violation. Handshakes are left out."""
    rights = "" if plan.may_kill else ", no right to CLIENT KILL"
    yield f"{outcome.workload} {outcome.seed}: {plan.engine.name}{rights}"
    for fault in plan.faults:
        yield f"  fault at {fault}"
    for at, (kind, *facts) in outcome.trace:
        if outcome.violated_at is not None and at > outcome.violated_at:
            break
        if kind == "server":
            line, words, reply = facts
            if not _is_handshake(words):
                yield f"{at:9.4f}  {line:8} {_command(words)} => {_shown(reply)}"
        elif kind == "event":
            yield f"{at:9.4f}  {facts[0]:8} event: {facts[1]}"
        else:
            yield f"{at:9.4f}  {kind}: {' '.join(map(str, facts))}"


def _is_handshake(words: list[bytes]) -> bool:
    first = words[0]
    is_told = first == b"CLIENT" and words[1] == b"SETINFO"
    return first in (b"HELLO", b"COMMAND") or first.islower() or is_told


def _command(words: list[bytes]) -> str:
    name = words[0].decode()
    if name in ("EVAL", "EVALSHA"):
        script = words[1].decode()
        named = _scripts().get(script if name == "EVALSHA" else _digest(words[1]), "script")
        return " ".join([named, *map(_shown, words[3:])])
    return " ".join([name, *map(_shown, words[1:])])


@cache
def _scripts() -> dict[str, str]:
    return {_digest(path.read_bytes()): path.stem for path in _LUA.glob("*.lua")}


def _digest(source: bytes) -> str:
    return hashlib.sha1(source, usedforsecurity=False).hexdigest()


def _shown(reply: Any) -> str:
    match reply:
        case bytes():
            return repr(reply[:60].decode("utf-8", "replace"))[1:-1]
        case list():
            return f"[{', '.join(map(_shown, reply))}]"
        case Exception():
            return f"error {reply}"
        case _:
            return str(reply)
