"""Rules about what this user may do, and what the server knows."""

import re
from collections.abc import Iterator, Mapping

from .facts import Asked, ServerFacts, Verdict
from .finding import Finding
from .rights import ALL_THERE, Lack, lacks, reduced

_ALLOW = "Allow the commands; in a managed service, that is a setting of the user:"


def denied_commands(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """Verbs that do not work because an ACL forbids a command."""
    found = _of(lacks(server), server.commands, "denied")
    if found:
        names = sorted({name for lack in found for name in lack.commands})
        yield Finding(
            "acl-commands",
            "error",
            f"The user {_user(server, asked)} may not run what these need:",
            "They raise a UsageError, or end as an outage.",
            _ALLOW,
            (_allow(server, asked, names),),
            details=_by_verb(found),
        )


def missing_commands(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """Verbs that do not work because the server, or a proxy before it, lacks a command."""
    found = _of(lacks(server), server.commands, "missing")
    if found:
        yield Finding(
            "commands-missing",
            "error",
            "The server, or a proxy before it, does not know what these need:",
            "They raise a UsageError, or end as an outage.",
            "Connect to the server itself rather than through a proxy; remove `rename-command`"
            " from its configuration; or use another service.",
            details=_by_verb(found),
        )


def optional_commands(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """Commands that an ACL forbids, and without which everything is guarded, but less good."""
    found = reduced(server)
    if found:
        yield Finding(
            "acl-optional",
            "note" if ALL_THERE.issuperset(found) else "warning",
            f"The user {_user(server, asked)} may not run commands that dibs can do without:",
            "Nothing fails without them. This is what it costs.",
            _ALLOW,
            (_allow(server, asked, sorted(found)),),
            details=tuple(f"{name}: {cost}" for name, cost in found.items()),
        )


def late_copies(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """The server, or a proxy before it, cannot end a connection."""
    if "missing" in (server.commands.get("client|kill"), server.commands.get("client|info")):
        yield Finding(
            "late-copies",
            "note",
            "The server, or a proxy before it, has no CLIENT KILL by ID, ADDR and LADDR.",
            "Where a packet is late and a request is sent again on a second connection, the first"
            " copy may arrive after its answer: an older value may replace one that was set since,"
            " and a key may stay taken until its ttl ends.",
            "Connect to Redis 6.2, Valkey, or a newer one, rather than through a proxy.",
        )


def denied_keys(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """The ACL has no pattern for the namespace."""
    if server.keys == "denied":
        what = f"begin with {asked.namespace!r}" if asked.namespace else "have no namespace"
        pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", asked.namespace) + "*"
        yield Finding(
            "acl-keys",
            "error",
            f"The user {_user(server, asked)} may not read or write keys that {what}.",
            "Every call raises a UsageError.",
            "Use the namespace that the user may use, Dibs(url, namespace=…), here --namespace; or"
            " allow these keys:",
            (f"ACL SETUSER {_user(server, asked)} {_quoted('~' + pattern)}",),
        )


def _quoted(word: str) -> str:
    """A word as redis-cli and valkey-cli read it."""
    if re.fullmatch(r"[!-~]+", word) and not set(word) & set("\"'\\"):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _of(found: list[Lack], commands: Mapping[str, Verdict], verdict: Verdict) -> list[Lack]:
    """The same, with only the commands of this verdict."""
    some = [
        Lack(verb, tuple(name for name in names if commands[name] == verdict))
        for verb, names in found
    ]
    return [lack for lack in some if lack.commands]


def _by_verb(found: list[Lack]) -> tuple[str, ...]:
    return tuple(f"{lack.verb}: {', '.join(lack.commands)}" for lack in found)


def _user(server: ServerFacts, asked: Asked) -> str:
    return server.user or asked.user or "default"


def _allow(server: ServerFacts, asked: Asked, names: list[str]) -> str:
    return " ".join(["ACL SETUSER", _user(server, asked), *[f"+{name}" for name in names]])


def any_password(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """The URL has a password, and the server does not compare it."""
    if server.takes_any_password:
        yield Finding(
            "auth-unset",
            "warning",
            f"The URL has a password, and {server.address} has none.",
            "Whoever reaches the server can read and delete every key, without a password. Over"
            " RESP2, dibs raises a UsageError at the first call.",
            "Set the password on the server, also in the configuration file; or remove it from the"
            " URL:",
            ("CONFIG SET requirepass PASSWORD",),
        )


RULES = (
    denied_commands, missing_commands, optional_commands, late_copies, denied_keys, any_password,
)  # fmt: skip
