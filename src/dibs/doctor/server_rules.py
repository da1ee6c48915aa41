"""Rules about one server: version, settings, rights and keys."""

import re
from collections.abc import Iterator, Mapping
from math import ceil

from .._doctor_api import MOST_APART_MS
from .facts import (
    CommandRight,
    Examination,
    Finding,
    ServerFacts,
    Severity,
    TargetFacts,
    amount,
    milliseconds_text,
)
from .rights import ALL_THERE, Lack, lacks, reduced

_OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}
_TWO_HOLDERS = "a key that is gone early can be acquired again, so there may be two holders"


def old_version(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Older than what dibs is tested with."""
    product, version = server.product or "", server.version or ""
    oldest = _OLDEST.get(product)
    match = re.match(r"(\d+)\.(\d+)", version)
    if oldest is not None and match and tuple(map(int, match.groups())) < oldest:
        yield Finding(
            "version-old",
            "warning",
            f"{product} {version} is older than {oldest[0]}.{oldest[1]}.",
            "The tests of dibs do not run on it. What it lacks is done by scripts and by polling.",
            "Upgrade to Valkey 9 or Redis 8.",
        )


def only_scripts(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """The server has no single command for compare-and-delete."""
    natives = [server.commands.get(name) for name in ("delex", "delifeq")]
    if server.commands.get("command|info") == "allowed" and natives == ["missing", "missing"]:
        yield Finding(
            "by-script",
            "note",
            "The server has neither DELIFEQ nor DELEX: leases are released and renewed by script.",
            "Everything works and is guarded.",
            "Nothing needs to be done. Valkey from 9.0 and Redis from 8.4 have the commands.",
        )


def resp2(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """No RESP3, so no notifications."""
    if server.protocol == 2 and not server.plain:
        yield Finding(
            "resp2",
            "warning",
            "The connection speaks RESP2: HELLO was refused, or the URL says protocol=2.",
            "There are no notifications: waiters poll ten times a second, local= keeps nothing.",
            "Remove protocol=2 from the URL; connect to the server itself rather than through a"
            " proxy that refuses HELLO.",
        )


def no_tracking(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """RESP3, and no notifications all the same."""
    if server.protocol == 3 and server.commands.get("client|tracking") == "missing":
        yield Finding(
            "no-tracking",
            "warning",
            "The server, or a proxy before it, does not know CLIENT TRACKING.",
            "There are no notifications: waiters poll ten times a second, local= keeps nothing.",
            "Connect to the server itself rather than through a proxy; or use a service that has"
            " it.",
        )


def proxy(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield something between us and the server that knows few commands."""
    if server.plain:
        yield Finding(
            "proxy",
            "warning",
            "A proxy closes the connection on HELLO, CLIENT or COMMAND, as twemproxy does.",
            "Leases, claims and values are guarded, by script. There are no notifications: waiters"
            " poll ten times a second, local= keeps nothing. All requests about a key must reach"
            " the same server.",
            "Connect to the server itself, without the proxy. If the proxy has to stay: set"
            ' `hash_tag: "{}"` in its configuration, because a fence and a lock must be on the'
            " server of their key.",
        )


def eviction(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield a policy that drops keys when memory is short.

    Leases have a ttl: volatile-* drops them.
    """
    policy, limit = server.text("maxmemory-policy"), server.number("maxmemory")
    if policy is None or policy == "noeviction":
        return
    now = f"memory is limited to {amount(limit)}" if limit else "maxmemory is 0, so not yet"
    severity: Severity = "warning" if limit == 0 else "error"
    yield Finding(
        "eviction",
        severity,
        f"maxmemory-policy is {policy}: the server may drop leases ({now}).",
        f"Leases have a ttl, so every policy but noeviction may drop them: {_TWO_HOLDERS}.",
        "Set noeviction, also in the configuration file; keep caches that need eviction on"
        " another server:",
        ("CONFIG SET maxmemory-policy noeviction",),
    )


def memory(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """With noeviction a full server refuses every write."""
    limit, used = server.number("maxmemory"), server.number("used_memory")
    is_full = server.refusal == "oom"
    policy = server.text("maxmemory-policy")
    near = bool(limit and used and used >= 0.9 * limit and policy == "noeviction")
    if not is_full and not near:
        return
    more = 2 * max(limit or 0, used or 0)
    yield Finding(
        "memory",
        "error" if is_full else "warning",
        f"The server uses {amount(used or 0)} of {amount(limit or 0)}"
        + (" and refuses writes (OOM)." if is_full else "."),
        "A full server refuses new leases, which is an outage. Keys that are held can still be"
        " renewed and released.",
        "Give it more memory, also in the configuration file, or store less:",
        (f"CONFIG SET maxmemory {more}",) if more else (),
    )


def quota(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield a managed service that still reads, and refuses to write or to run scripts."""
    if server.refusal == "quota":
        yield Finding(
            "quota",
            "error",
            "The server answers that a quota of the service is exhausted, and refuses writes.",
            "For dibs this is an outage: callers proceed unguarded, or get Unavailable.",
            "Raise the quota of the managed service: requests, bandwidth or the size of the data.",
        )


def persistence(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield what a restart of the server forgets."""
    if server.info.get("aof_enabled") == "1" or server.info.get("role") == "slave":
        return
    if "aof_enabled" not in server.info or scope.kind == "embedded":
        return
    saves = server.text("save") or ""
    contents = "only the keys of its last snapshot" if saves else "no keys"
    yield Finding(
        "persistence",
        "note",
        f"After a restart the server has {contents}: appendonly is no.",
        "The server forgets leases and what `once` has stored when it is restarted: "
        f"{_TWO_HOLDERS}, and a request that was completed before may be processed again.",
        "If that matters, switch it on, also in the configuration file; leases can use fences:",
        ("CONFIG SET appendonly yes",),
    )


def failing_persistence(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield a server that cannot write its data refuses writes."""
    states = [server.info.get(name) for name in ("rdb_last_bgsave_status", "aof_last_write_status")]
    refuses = server.refusal == "misconf"
    if not refuses and "err" not in states:
        return
    yield Finding(
        "persistence-failing",
        "error" if refuses else "warning",
        "The server cannot write its data to disk" + (" and refuses writes." if refuses else "."),
        "While it refuses writes (MISCONF), every new lease is an outage.",
        "Free disk space or correct permissions and `dir`; then save. The log has the reason:",
        ("BGSAVE",),
    )


def clock(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield the local clock against the server's. Leases do not depend on it; schedules do."""
    reading = server.clock
    if reading is None or abs(reading.ahead) <= 1 + reading.error:
        return
    side = "ahead of" if reading.ahead > 0 else "behind"
    is_apart = abs(reading.ahead) - reading.error > MOST_APART_MS / 1000
    effect = "Functions with `scheduled`" + (
        " do not run on this machine" if is_apart else " would not run on it from a minute on"
    )
    yield Finding(
        "clock",
        "error" if is_apart else "warning",
        f"The clock of this machine is {abs(reading.ahead):.1f} s {side} the server's.",
        f"{effect}, and events have wrong times. If the server's clock is set forward, leases end"
        " early, and there may be two holders. The ttl of leases is not affected by the clock of"
        " this machine.",
        "Synchronise both machines by NTP: `timedatectl set-ntp true`, or `chronyc makestep`.",
    )


def latency(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Calls that take as long as the budget allows."""
    if not server.latency:
        return
    p95, longest = percentile(server.latency, 0.95), max(server.latency)
    if p95 <= scope.budget / 2 and longest <= scope.budget:
        return
    needed = ceil(max(4 * p95, 2 * longest) * 20) / 20
    yield Finding(
        "latency",
        "error" if p95 > scope.budget else "warning",
        f"Calls take {milliseconds_text(p95)} (p95), at most {milliseconds_text(longest)};"
        f" the budget is {milliseconds_text(scope.budget)}.",
        "A call without an answer within half a budget is sent again; without one within the"
        " budget it is an outage.",
        "Run the application nearer to the server, or look for slow commands (SLOWLOG GET); or"
        f" give it more time: Dibs(url, budget={needed:g}), here --budget {needed:g}.",
    )


def percentile(values: tuple[float, ...], part: float) -> float:
    """Return the value that *part* of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(ceil(part * len(ordered)), len(ordered)) - 1]


_SMALL_TABLE, _USUAL_TABLE = 10_000, 1_000_000


def tracking_table(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield a server that tracks fewer keys than are waited for, or kept in memory."""
    limit, used = server.number("tracking-table-max-keys"), server.number("tracking_total_keys")
    if not limit or (limit >= _SMALL_TABLE and (used or 0) < 0.9 * limit):
        return
    more = max(_USUAL_TABLE, 2 * limit)
    yield Finding(
        "tracking-table",
        "warning",
        f"The server tracks at most {limit} keys (tracking-table-max-keys), {used or 0} now.",
        "For each further key that is waited for, or kept in memory by local=, it forgets another"
        " one: waiters poll, and values in memory are dropped.",
        "Raise the limit, also in the configuration file:",
        (f"CONFIG SET tracking-table-max-keys {more}",),
    )


def clients(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Few connections are left."""
    limit, used = server.number("maxclients"), server.number("connected_clients")
    if not limit or not used or used < 0.8 * limit:
        return
    yield Finding(
        "max-clients",
        "warning",
        f"{used} of {limit} connections are in use.",
        "When none is left, a new process cannot connect: that is an outage for it.",
        "Look for clients that open too many (CLIENT LIST), or raise the limit, also in the"
        " configuration file:",
        (f"CONFIG SET maxclients {2 * limit}",),
    )


def idle_timeout(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield the server closes connections that are idle."""
    limit = server.number("timeout")
    if limit:
        yield Finding(
            "idle-timeout",
            "warning" if limit < 60 else "note",
            f"The server closes connections that are idle for {limit} s (timeout).",
            "The next call has to open a new connection first, which takes a few round trips.",
            "Switch it off, also in the configuration file:",
            ("CONFIG SET timeout 0",),
        )


def keepalive(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """The server does not notice clients that are gone."""
    if server.number("tcp-keepalive") == 0:
        yield Finding(
            "keepalive",
            "note",
            "The server sends no TCP keepalive (tcp-keepalive 0).",
            "Connections of machines that are gone stay open and count as clients.",
            "Switch it on, also in the configuration file:",
            ("CONFIG SET tcp-keepalive 300",),
        )


SERVER_RULES = (
    old_version, only_scripts, resp2, no_tracking, proxy, eviction, memory, quota, persistence,
    failing_persistence, clock, latency, tracking_table, clients, idle_timeout, keepalive,
)  # fmt: skip


_SAME_KEY = "Two programs may use the same key for different things: one is refused for no reason."


def without_namespace(facts: TargetFacts) -> Iterator[Finding]:
    """Of several clients of one database, one has no namespace."""
    if facts.keys is None:
        return
    mine, others = facts.asked.namespace, facts.keys.namespaces - {facts.asked.namespace}
    if mine == "" and others:
        yield Finding(
            "namespace-empty",
            "warning",
            f"There is no namespace, and this database has keys of {len(others)} namespaces of"
            " dibs.",
            _SAME_KEY,
            "Give each application its own: Dibs(url, namespace='shop:'), here --namespace shop:",
        )
    elif mine and "" in others:
        yield Finding(
            "namespace-empty",
            "warning",
            "Another client of dibs uses this database without a namespace.",
            _SAME_KEY,
            "Give it a separate namespace: Dibs(url, namespace='shop:').",
        )


def prefixes(facts: TargetFacts) -> Iterator[Finding]:
    """Yield a namespace that begins with another one."""
    mine = facts.asked.namespace
    if facts.keys is None or not mine:
        return
    others = [each for each in facts.keys.namespaces if each and each != mine]
    near = sorted(each for each in others if each.startswith(mine) or mine.startswith(each))
    if near:
        yield Finding(
            "namespace-prefix",
            "warning",
            f"The namespace {mine!r} and {near[0][:40]!r} begin alike"
            + (f" (and {len(near) - 1} more)." if len(near) > 1 else "."),
            f"{_SAME_KEY} An ACL pattern for the shorter one covers both.",
            "Choose namespaces of which none is the beginning of another, and end each with a"
            " separator: 'shop:' and 'shop2:', not 'shop' and 'shop2'.",
        )


def foreign_types(facts: TargetFacts) -> Iterator[Finding]:
    """Yield the keys of other types under the namespace."""
    keys = facts.keys
    if keys is None or not keys.foreign:
        return
    listed = ", ".join(f"{count} {name}" for name, count in sorted(keys.foreign.items()))
    where = f"under {facts.asked.namespace!r}" if facts.asked.namespace else "in this database"
    yield Finding(
        "keys-foreign",
        "warning" if facts.asked.namespace else "note",
        f"Other programs have keys {where}: {listed}, of {keys.mine} that were looked at.",
        "A call for a key of another type raises a UsageError; these programs may delete leases.",
        "Choose a namespace that no other program uses: Dibs(url, namespace=…), here --namespace.",
    )


KEY_RULES = (without_namespace, prefixes, foreign_types)


_ALLOW = "Allow the commands; in a managed service, that is a setting of the user:"


def denied_commands(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield verbs that do not work because an ACL forbids a command."""
    lacking = _lacks_of_verdict(lacks(server), server.commands, "denied")
    if lacking:
        names = sorted({name for lack in lacking for name in lack.commands})
        yield Finding(
            "acl-commands",
            "error",
            f"The user {_user_name(server, scope)} may not run what these need:",
            "They raise a UsageError, or end as an outage.",
            _ALLOW,
            (_allow_command(server, scope, names),),
            details=_by_verb(lacking),
        )


def missing_commands(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield verbs that do not work because the server, or a proxy before it, lacks a command."""
    lacking = _lacks_of_verdict(lacks(server), server.commands, "missing")
    if lacking:
        yield Finding(
            "commands-missing",
            "error",
            "The server, or a proxy before it, does not know what these need:",
            "They raise a UsageError, or end as an outage.",
            "Connect to the server itself rather than through a proxy; remove `rename-command`"
            " from its configuration; or use another service.",
            details=_by_verb(lacking),
        )


def optional_commands(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Commands that an ACL forbids, and without which everything is guarded, but less good."""
    lacking = reduced(server)
    if lacking:
        yield Finding(
            "acl-optional",
            "note" if ALL_THERE.issuperset(lacking) else "warning",
            f"The user {_user_name(server, scope)} may not run commands that dibs can do without:",
            "Nothing fails without them. This is what it costs.",
            _ALLOW,
            (_allow_command(server, scope, sorted(lacking)),),
            details=tuple(f"{name}: {cost}" for name, cost in lacking.items()),
        )


def late_copies(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield the server, or a proxy before it, cannot end a connection."""
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


def denied_keys(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """The ACL has no pattern for the namespace."""
    if server.keys == "denied":
        what = f"begin with {scope.namespace!r}" if scope.namespace else "have no namespace"
        pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", scope.namespace) + "*"
        yield Finding(
            "acl-keys",
            "error",
            f"The user {_user_name(server, scope)} may not read or write keys that {what}.",
            "Every call raises a UsageError.",
            "Use the namespace that the user may use, Dibs(url, namespace=…), here --namespace; or"
            " allow these keys:",
            (f"ACL SETUSER {_user_name(server, scope)} {_quoted_word('~' + pattern)}",),
        )


def _quoted_word(word: str) -> str:
    """Return a word as redis-cli and valkey-cli read it."""
    if re.fullmatch(r"[!-~]+", word) and not set(word) & set("\"'\\"):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lacks_of_verdict(
    lacks: list[Lack], commands: Mapping[str, CommandRight], verdict: CommandRight
) -> list[Lack]:
    """Return *lacks*, with only the commands of *verdict*."""
    some = [
        Lack(verb, tuple(name for name in names if commands[name] == verdict))
        for verb, names in lacks
    ]
    return [lack for lack in some if lack.commands]


def _by_verb(lacks: list[Lack]) -> tuple[str, ...]:
    return tuple(f"{lack.verb}: {', '.join(lack.commands)}" for lack in lacks)


def _user_name(server: ServerFacts, scope: Examination) -> str:
    return server.user or scope.user or "default"


def _allow_command(server: ServerFacts, scope: Examination, names: list[str]) -> str:
    return " ".join(["ACL SETUSER", _user_name(server, scope), *[f"+{name}" for name in names]])


def any_password(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """The URL has a password, and the server does not compare it."""
    if server.takes_any_password:
        yield Finding(
            "auth-unset",
            "warning",
            f"The URL has a password, and {server.address} has none.",
            "Anyone who reaches the server can read and delete every key, without a password. Over"
            " RESP2, dibs raises a UsageError at the first call.",
            "Set the password on the server, also in the configuration file; or remove it from the"
            " URL:",
            ("CONFIG SET requirepass PASSWORD",),
        )


RIGHTS_RULES = (
    denied_commands, missing_commands, optional_commands, late_copies, denied_keys, any_password,
)  # fmt: skip
