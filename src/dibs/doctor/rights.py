"""Which commands each verb needs, and what it costs if one of them is missing.

The table of docs/reference/targets.md, for programs. Whether a user may run a command is found out
by trying it on a key that does not exist; none of the tries writes anything.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from .._doctor_api import Engine, ErrorReply, Reply, code_of_reply, pack
from .facts import CommandRight, ServerFacts

_NO_SCRIPT = "0" * 40
_TRIES: dict[str, tuple[str | int, ...]] = {
    "set": ("set", "?", "-", "xx", "px", 1),
    "get": ("get", "?"),
    "del": ("del", "?"),
    "pttl": ("pttl", "?"),
    "pexpire": ("pexpire", "?", 1),
    "exists": ("exists", "?"),
    "eval": ("eval", "return 1", 1, "?"),
    "evalsha": ("evalsha", _NO_SCRIPT, 1, "?"),
    "delex": ("delex", "?", "ifeq", "-"),
    "delifeq": ("delifeq", "?", "-"),
    "time": ("time",),
    "command|info": ("command", "info", "get"),
    "client|tracking": ("client", "tracking", "off"),
    "client|caching": ("client", "caching", "yes"),
    "client|info": ("client", "info"),
    "client|kill": ("client", "kill", "id", 2**63 - 1, "addr", "-", "laddr", "-"),
    "zadd": ("zadd", "?", "xx", 1, "-"),
    "zcard": ("zcard", "?"),
    "zrange": ("zrange", "?", 0, 0),
    "zscore": ("zscore", "?", "-"),
    "zrem": ("zrem", "?", "-"),
    "zremrangebyscore": ("zremrangebyscore", "?", 1, 1),
    "zrangebyscore": ("zrangebyscore", "?", 1, 1),
    "pexpireat": ("pexpireat", "?", 1),
    "getrange": ("getrange", "?", 0, 0),
    "setrange": ("setrange", "?", 0, ""),
    "strlen": ("strlen", "?"),
}
TRIED_COMMANDS = tuple(_TRIES)
PLAIN_COMMANDS = ("set", "get", "del", "pttl", "pexpire", "exists")
"""Those that a proxy knows which closes the connection on others."""

_PERMITS = ("eval", "time", "zadd", "zcard", "zrange", "zscore", "zrem", "zremrangebyscore")
_OF_ITEMS = ("getrange", "setrange", "strlen")


class VerbRights(NamedTuple):
    """What is offered to users under a name, and the commands it cannot do without."""

    name: str
    needs: tuple[str, ...]
    by_script: tuple[str, ...] = ()
    """Also needed where leases are renewed and released by script."""


_BY_SCRIPT = ("eval", "get", "del")
VERBS = (
    VerbRights("hold", ("set",), _BY_SCRIPT),
    VerbRights("hold with renew", ("set",), (*_BY_SCRIPT, "pexpire")),
    VerbRights("hold with fence", ("set", "eval", "get", "time"), _BY_SCRIPT),
    VerbRights("hold with limit", (*_PERMITS, "pexpireat"), _BY_SCRIPT),
    VerbRights("throttle", ("set", "eval", "get", "time"), _BY_SCRIPT),
    VerbRights("leader", ("set", "eval", "get", "time"), (*_BY_SCRIPT, "pexpire")),
    VerbRights("peek", ("get",), _BY_SCRIPT),
    VerbRights("once, claim", ("set",), (*_BY_SCRIPT, "pexpire")),
    VerbRights("cached", ("set", "eval", "get", "del", "pttl"), ("pexpire",)),
    VerbRights("cached with tags", ("set", "eval", "get", "del", "pttl", "pexpire")),
    VerbRights("streamed", ("set", "eval", "get", "del", "pttl", "pexpire", *_OF_ITEMS)),
    VerbRights("invalidate", ("eval", "get", "del")),
    VerbRights("scheduled", ("set", "eval", "get", "time", "pexpire"), _BY_SCRIPT),
)

_LATE = "a request that was repeated may arrive late, after its answer"
COSTS = {
    "client|tracking": "no notifications: waiters poll, and local= keeps nothing",
    "client|caching": "no notifications: waiters poll, and local= keeps nothing",
    "client|info": _LATE,
    "client|kill": _LATE,
    "command|info": "the server is taken for an old one: scripts instead of single commands",
    "delex": "releases and renewals go by script",
    "delifeq": "releases and renewals go by script",
    "evalsha": "scripts are sent whole each time",
    "pttl": "retry_after is 0, and waiters poll",
    "exists": "followers of a load watch its lock",
}
"""What is lost without a command that no verb needs."""
ALL_THERE = frozenset(
    ("client|info", "client|kill", "command|info", "delex", "delifeq", "evalsha", "exists")
)
"""Those of them that no feature needs."""
_ENDING = ("client|info", "client|kill")


def ends_connections(server: ServerFacts) -> bool:
    """Whether the server ends a connection before its requests are repeated on another one."""
    return all(server.commands.get(name) == "allowed" for name in _ENDING)


def tries(probe: str, names: tuple[str, ...] = TRIED_COMMANDS) -> bytes:
    """Return the requests that try these commands on the key *probe*, in one write."""
    parts = [[probe if word == "?" else word for word in _TRIES[name]] for name in names]
    return b"".join([pack(*words) for words in parts])


_ALLOWED = ("MOVED", "ASK", "CROSSSLOT", "NOSCRIPT", "WRONGTYPE")


def verdict(reply: Reply) -> CommandRight | None:
    """Return what the reply to a try says about its command. None: the server could not say."""
    if not isinstance(reply, ErrorReply) or reply.code in _ALLOWED:
        return "allowed"
    text = str(reply)
    if reply.code == "NOPERM":
        return "allowed" if about_keys(reply) else "denied"
    if code_of_reply(text) is not None:
        return None
    return "allowed" if "tracking mode" in text else "missing"


def about_keys(reply: Reply) -> bool:
    """Return True if the user may run the command, but not on this key."""
    if not isinstance(reply, ErrorReply) or reply.code != "NOPERM":
        return False
    return " key" in str(reply) and " run " not in str(reply)


def engine_in_use(known: Engine, commands: Mapping[str, CommandRight]) -> Engine:
    """Return what dibs uses on a server that says it is *known*, of what this user may run."""
    native = known.compare_delete
    refused = native != "LUA" and commands.get(native.lower()) not in (None, "allowed")
    tracking = commands.get("client|tracking") in (None, "allowed")
    return replace(known, compare_delete="LUA" if refused else native, tracking=tracking)


class Lack(NamedTuple):
    """A verb that does not work, and the commands it lacks."""

    verb: str
    commands: tuple[str, ...]


def lacks(server: ServerFacts) -> list[Lack]:
    """Return the verbs that do not work on this server for this user."""
    lacking = [Lack(verb.name, _lacking_commands(verb, server)) for verb in VERBS]
    return [each for each in lacking if each.commands]


def _lacking_commands(verb: VerbRights, server: ServerFacts) -> tuple[str, ...]:
    by_script = verb.by_script if server.engine.compare_delete == "LUA" else ()
    needed = dict.fromkeys((*verb.needs, *by_script))
    return tuple(name for name in needed if server.commands.get(name) in ("denied", "missing"))


def reduced(server: ServerFacts) -> dict[str, str]:
    """Return commands that cost something, and are needed by no verb that works without them."""
    needed = {name for lack in lacks(server) for name in lack.commands}
    return {
        name: cost
        for name, cost in COSTS.items()
        if name not in needed and server.commands.get(name) == "denied"
    }
