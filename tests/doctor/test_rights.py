"""What each verb needs: the table of the doctor says what dibs does, and what the page says."""

import itertools
import re
from pathlib import Path

import pytest

from dibs import UsageError
from dibs._core.capabilities import Handshake, must_allow, read_engine
from dibs._core.request import ErrorReply, Reply
from dibs.doctor.facts import CommandRight, ServerFacts
from dibs.doctor.rights import (
    TRIED_COMMANDS,
    VERBS,
    about_keys,
    engine_in_use,
    lacks,
    tries,
    verdict,
)

PAGE = Path(__file__).parents[2] / "docs/reference/targets.md"
DENIED = ErrorReply("NOPERM this user has no permissions to run the 'x' command")
NATIVE = {"LUA": (1, 0, 0), "DELIFEQ": (1, 0, 1), "DELEX": (1, 1, 0)}
USES = {
    "hold with renew": ["renew"],
    "hold with fence": ["fence"],
    "leader": ["renew", "fence"],
    "once, claim": ["complete"],
    "cached": ["load"],
    "cached with tags": ["load", "tag"],
    "streamed": ["stream"],
}
"""What dibs checks before it begins with a verb."""
CHOSEN = ("get", "del", "pttl", "pexpire", "eval", "command|info")


def info(native: str) -> Reply:
    """What a server with this compare-and-delete answers to COMMAND INFO."""
    _, delex, delifeq = NATIVE[native]
    return [each for there in (1, 1, delex, delifeq) for each in ([b"x"] if there else None, None)]


def of_dibs(native: str, refused: set[str]) -> set[str]:
    """The verbs that dibs refuses when it has asked what it may run."""

    def reply(name: str) -> Reply:
        return DENIED if name in refused else 0

    handshake = Handshake()
    permits = ("zrange", "zrem", "zremrangebyscore", "zscore", "pexpireat")
    asked = ("get", "del", "pttl", "pexpire", "eval", "client|tracking", *permits)
    answer = DENIED if "command|info" in refused else info(native)
    try:
        engine = handshake.received([answer, *map(reply, asked)])
        if engine is None:
            engine = handshake.received([reply(native.lower())])
    except UsageError:
        return {*USES, "hold"}
    assert engine is not None
    return {verb for verb, uses in USES.items() if any(_is_refused(engine, use) for use in uses)}


def _is_refused(engine: object, use: str) -> bool:
    try:
        must_allow(engine, use)  # type: ignore[arg-type]
    except UsageError:
        return True
    return False


def of_the_doctor(native: str, refused: set[str]) -> set[str]:
    """The verbs that do not work, by the table."""
    there = {native.lower()} if native != "LUA" else set()
    commands: dict[str, CommandRight] = {
        name: "denied" if name in refused else "allowed"
        for name in TRIED_COMMANDS
        if name not in ("delex", "delifeq") or name in there
    }
    known = read_engine(DENIED if "command|info" in refused else info(native))
    server = ServerFacts("x", engine=engine_in_use(known, commands), commands=commands)
    return {lack.verb for lack in lacks(server)} & {*USES, "hold"}


@pytest.mark.parametrize("native", NATIVE)
def test_the_table_refuses_what_dibs_refuses(native: str) -> None:
    """For every set of commands that an ACL may forbid."""
    for count in range(len(CHOSEN) + 2):
        for refused in itertools.combinations((*CHOSEN, native.lower()), count):
            some = set(refused)
            assert of_the_doctor(native, some) == of_dibs(native, some), (native, refused)


def test_the_table_needs_no_more_than_the_page_says() -> None:
    """Every right that a verb of the page needs, by this table, is in its row."""
    rows = {
        cells[1].strip(): [set(re.findall(r"`([\w\\|]+)`", cell)) for cell in cells[2:4]]
        for line in PAGE.read_text("utf-8").splitlines()
        if len(cells := re.split(r"(?<!\\)\|", line)) == 5
    }
    always = rows["`hold`, `try_hold`, `exclusive`"]
    names = {
        "hold": "`hold`, `try_hold`, `exclusive`",
        "hold with renew": "`hold` with `renew`, `extend`",
        "hold with fence": "`hold` with `fence`",
        "hold with limit": "`hold` with `limit`",
        "leader": "`leader`, `scheduled`",
        "scheduled": "`leader`, `scheduled`",
        "cached with tags": "`cached` with `tags`, `invalidate_tag`",
        "peek": "`peek`",
        "once, claim": "`once`, `claim`",
        "cached": "`cached`, `get_or_load`",
        "streamed": "`streamed`",
    }
    for verb in VERBS:
        if verb.name in names:
            more = rows[names[verb.name]]
            native, older = (always[column] | more[column] for column in (0, 1))
            assert set(verb.needs) <= native, verb
            assert {*verb.needs, *verb.by_script} <= older, verb


def test_every_command_of_a_verb_is_tried() -> None:
    """With the key that does not exist, and no other."""
    needed = {name for verb in VERBS for name in (*verb.needs, *verb.by_script)}
    assert needed <= set(TRIED_COMMANDS)
    assert tries("shop:probe").count(b"shop:probe") == len(TRIED_COMMANDS) - 6


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (0, "allowed"),
        (None, "allowed"),
        (DENIED, "denied"),
        (ErrorReply("NOPERM No permissions to access a key"), "allowed"),
        (ErrorReply("ERR unknown command 'DELEX'"), "missing"),
        (ErrorReply("NOSCRIPT No matching script."), "allowed"),
        (ErrorReply("MOVED 1 127.0.0.1:7000"), "allowed"),
        (ErrorReply("ERR CLIENT CACHING can be called only when … in tracking mode"), "allowed"),
        (ErrorReply("LOADING the dataset"), None),
    ],
)
def test_a_reply_to_a_try_is_understood(reply: Reply, found: str | None) -> None:
    """Of the command, not of the key, and not of the moment."""
    assert verdict(reply) == found
    assert about_keys(reply) is ("access a key" in str(reply))
