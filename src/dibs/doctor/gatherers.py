"""The facts of a server, a cluster and a Sentinel service."""

import re
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from time import monotonic, time
from typing import Any, Literal

from .._doctor_api import (
    ASK,
    OLDEST,
    RESP2,
    Address,
    ErrorReply,
    Reply,
    code_of_reply,
    connected_socket,
    pack,
    printable,
    read_engine,
)
from . import rights
from .facts import (
    SETTINGS,
    Clock,
    ClusterFacts,
    ClusterNode,
    CommandRight,
    ConnectionFailure,
    Examination,
    KeyFacts,
    Replica,
    SentinelFacts,
    ServerFacts,
)
from .session import (
    OpeningStep,
    Session,
    answers_tls,
    connection_failure,
    host_and_port,
    lines,
    overdue,
    pairs,
    refusal_text,
    says_no_password,
    session,
    speaks_plain,
    text,
    wants_certificate,
)

STEP_LIMIT = 1.0
"""How long a server may be silent, in seconds."""
CALLS, CALLS_LIMIT = 50, 0.5
"""How many calls are timed, and for how long at most."""
_MOST_NAMES = 3
_IN_INFO = "version, memory, persistence, replication, clients"
_IN_CONFIG = "tracking table, time-outs, min-replicas-to-write"
_CLOSES = "the connection is closed on commands that a proxy does not know"


class ServerGatherer:
    """Fills in the facts of one server, step by step; `facts` may be read at any time."""

    def __init__(self, address: Address, scope: Examination, name: str | None = None) -> None:
        self.facts = ServerFacts(
            name or _address_name(address), user=address.options.get("username")
        )
        self._address = address
        self._scope = scope
        self._step: OpeningStep = "resolve" if host_and_port(address) else "handshake"

    def run(self) -> None:
        """Ask everything. Raises nothing: what went wrong is a fact."""
        try:
            self._gather_facts()
        except Exception as error:
            self._note_failure(connection_failure(error, self._step))

    def ended(self) -> ServerFacts:
        """Return the facts when the time is over."""
        if self.facts.failure is None and not self.facts.commands:
            return replace(self.facts, failure=overdue(self._step))
        return self.facts

    def _gather_facts(self) -> None:
        with session(self._address, STEP_LIMIT, self._step_reached) as opened:
            dialect = opened.dialect
            self._step_reached("ask")
            self._add_facts(protocol=dialect.protocol, plain=dialect.plain)
            self._ask_all(opened)

    def _ask_all(self, opened: Session) -> None:
        plain = self.facts.plain
        steps: list[Callable[[Session], None]] = [self._ask_commands, self._ask_latency]
        if plain:
            self._add_facts(unknown={_IN_INFO: _CLOSES, _IN_CONFIG: _CLOSES, "clock": _CLOSES})
        else:
            more = [self._ask_clock, self._ask_password]
            steps = [self._ask_facts, *steps[:1], *more, *steps[1:]]
        for step in steps:
            step(opened)
        if plain:
            self._try_script()

    def _add_facts(self, **facts: Any) -> None:
        self.facts = replace(self.facts, **facts)

    def _step_reached(self, step: OpeningStep) -> None:
        self._step = step

    def _note_failure(self, failure: ConnectionFailure) -> None:
        where = host_and_port(self._address)
        if failure.code == "database" and _is_clustered(self._address):
            failure = ConnectionFailure("cluster-database", failure.detail)
        if where is None and failure.code in ("refused", "unreachable"):
            failure = ConnectionFailure("socket", failure.detail)
        self._add_facts(failure=looked_into(failure, self._address))

    # ---- the questions

    def _ask_facts(self, opened: Session) -> None:
        settings = [pack("CONFIG", "GET", name) for name in SETTINGS]
        payload = b"".join([pack("INFO"), pack("ACL", "WHOAMI"), ASK.payload, *settings])
        info, user, commands, *config = opened.send(payload, 3 + len(settings))
        known: dict[str, str] = {}
        for reply in config:
            known |= pairs(reply)
        unknown = {
            area: why
            for area, why in (
                (_IN_INFO, refusal_text(info, "INFO")),
                (_IN_CONFIG, refusal_text(config[0], "CONFIG GET")),
            )
            if why is not None
        }
        user = text(user) or self.facts.user
        self._add_facts(info=lines(info), config=known, user=user, unknown=unknown)
        self._add_facts(engine=_engine_of(commands))

    def _ask_commands(self, opened: Session) -> None:
        names = rights.PLAIN_COMMANDS if self.facts.plain else rights.TRIED_COMMANDS
        replies = opened.send(rights.tries(self._scope.probe, names), len(names))
        _raise_if_locked_out(replies)
        self._learn_commands(dict(zip(names, replies, strict=True)))

    def _learn_commands(self, replies: dict[str, Reply]) -> None:
        verdicts: dict[str, CommandRight] = {
            name: right
            for name, reply in replies.items()
            if (right := rights.verdict(reply)) is not None
        }
        keys: CommandRight | None = (
            "denied" if any(map(rights.about_keys, replies.values())) else None
        )
        if keys is None and "allowed" in (verdicts.get("get"), verdicts.get("set")):
            keys = "allowed"
        written = replies.get("set")
        code = code_of_reply(str(written)) if isinstance(written, ErrorReply) else None
        engine = rights.engine_in_use(self.facts.engine, verdicts)
        self._add_facts(commands=verdicts, keys=keys, refusal=code, engine=engine)

    def _try_script(self) -> None:
        """On a separate connection, because a proxy that knows no EVAL closes it."""
        verdict: CommandRight = "missing"
        try:
            with session(self._address, STEP_LIMIT) as opened:
                [reply] = opened.send(rights.tries(self._scope.probe, ("eval",)), 1)
                verdict = rights.verdict(reply) or "allowed"
        except EOFError:
            pass
        self._add_facts(commands={**self.facts.commands, "eval": verdict})

    def _ask_clock(self, opened: Session) -> None:
        if self.facts.commands.get("time") != "allowed":
            self._add_facts(unknown={**self.facts.unknown, "clock": "this user may not run TIME"})
            return
        clocks = [reading for _ in range(3) if (reading := clock_of(opened)) is not None]
        if clocks:
            self._add_facts(clock=min(clocks, key=lambda each: each.error))

    def _ask_password(self, opened: Session) -> None:
        """HELLO with a password is answered well where the user has none; AUTH alone is not."""
        options = self._address.options
        if options.get("password") and (options.get("username") or "default") == "default":
            [reply] = opened.ask(("AUTH", options["password"]))
            message = str(reply).lower() if isinstance(reply, ErrorReply) else ""
            self._add_facts(takes_any_password=says_no_password(message))

    def _ask_latency(self, opened: Session) -> None:
        payload = rights.tries(self._scope.probe, ("get",))
        end = monotonic() + CALLS_LIMIT
        while len(self.facts.latency) < CALLS and (since := monotonic()) < end:
            opened.send(payload, 1)
            self._add_facts(latency=(*self.facts.latency, monotonic() - since))


def _address_name(address: Address) -> str:
    return repr(address).rpartition("/")[0]


def _engine_of(reply: Reply) -> Any:
    try:
        return read_engine(reply)
    except ConnectionError:  # LOADING, BUSY …: every other reply says so as well
        return OLDEST


def _raise_if_locked_out(replies: list[Reply]) -> None:
    """Raise ConnectionError if no password was given, or the server can answer nothing now."""
    first = replies[0]
    if not isinstance(first, ErrorReply):
        return
    if first.code == "NOAUTH" or code_of_reply(str(first)) in ("loading", "busy", "backend"):
        raise ConnectionError(str(first))


def clock_of(opened: Session) -> Clock | None:
    """Return the local clock against the server's, by one question."""
    before = time()
    [reply] = opened.ask(("TIME",))
    after = time()
    if not isinstance(reply, list) or len(reply) != 2:
        return None
    seconds, micros = (text(each) for each in reply)
    if not (seconds.isdigit() and micros.isdigit()):
        return None
    server = int(seconds) + int(micros) / 1e6
    return Clock((before + after) / 2 - server, (after - before) / 2)


def _is_clustered(address: Address) -> bool:
    """Return whether a server that does not have the database of the URL is a node of a cluster."""
    first = Address(address.connection_class, {**address.options, "db": 0})
    with suppress(Exception), session(first, STEP_LIMIT) as opened:
        return lines(opened.ask(("INFO", "cluster"))[0]).get("cluster_enabled") == "1"
    return False


def looked_into(failure: ConnectionFailure, address: Address) -> ConnectionFailure:
    """Return *failure*, or what another connection to the server tells about its reason."""
    where, is_tls = host_and_port(address), "SSL" in address.connection_class.__name__
    if where is None:
        return failure
    if failure.code == "tls-host":
        return replace(failure, names=_names_on_certificate(address))
    if failure.code == "tls-client" and "HANDSHAKE" in failure.detail:
        return failure if wants_certificate(where, 0.3) else replace(failure, code="tls-failed")
    if failure.code in ("closed", "silent", "not-redis", "tls-failed"):
        return _other_protocol(failure, where, is_tls=is_tls)
    return failure


def _names_on_certificate(address: Address) -> tuple[str, ...]:
    """Return the first names that the certificate of a server is for.

    None, if it cannot be asked.
    """
    unchecked = {**address.options, "ssl_check_hostname": False}
    connection = Address(address.connection_class, unchecked).connection(0.3, RESP2.protocol)
    with suppress(Exception), connected_socket(connection) as connected:
        assert isinstance(connected, ssl.SSLSocket)
        certificate: Any = connected.getpeercert()
        names = [str(name) for _, name in certificate.get("subjectAltName", ())]
        return tuple(printable(name) for name in names[:_MOST_NAMES])
    return ()


def _other_protocol(
    failure: ConnectionFailure, where: tuple[str, int], *, is_tls: bool
) -> ConnectionFailure:
    """Return the failure if the other of plain and TLS would have worked; else *failure* itself."""
    if is_tls and speaks_plain(where, 0.3):
        return ConnectionFailure("tls-plain", "the server answers a plain PING on this port")
    is_http = 'got "H" as reply' in failure.detail  # a web server answers plain text in plain text
    if not is_tls and not is_http and answers_tls(where, 0.3):
        return ConnectionFailure("tls-required", "the server answers a TLS handshake on this port")
    return failure


class SeedGatherer:
    """Asks one node; `facts` is None until it has answered."""

    def __init__(self, address: Address, host: str, port: int) -> None:
        self.name = f"{host}:{port}"
        self.facts: ClusterFacts | None = None
        self._failure: ConnectionFailure | None = None
        self._address = address
        self._host = host
        self._step: OpeningStep = "resolve"

    def run(self) -> None:
        """Ask it. Raises nothing."""
        try:
            with session(self._address, STEP_LIMIT, self._step_reached) as opened:
                info, nodes, slots = opened.ask(
                    ("CLUSTER", "INFO"), ("CLUSTER", "NODES"), ("CLUSTER", "SLOTS")
                )
            self._failure = unusable(slots)
            if self._failure is None:
                self.facts = read_cluster(info, nodes, slots, self._host)
        except Exception as error:
            self._failure = looked_into(connection_failure(error, self._step), self._address)

    @property
    def failure(self) -> ConnectionFailure:
        """Return why it has not answered."""
        return self._failure or overdue(self._step)

    def _step_reached(self, step: OpeningStep) -> None:
        self._step = step


def unusable(slots: Reply) -> ConnectionFailure | None:
    """Return why dibs cannot use this node. None: it can."""
    if not isinstance(slots, ErrorReply):
        return None
    if "cluster support disabled" in str(slots):
        return ConnectionFailure("cluster-disabled", "the server is not a node of a cluster")
    return ConnectionFailure("acl-cluster", refusal_text(slots, "CLUSTER SLOTS") or "")


def read_cluster(info: Reply, nodes: Reply, slots: Reply, host: str) -> ClusterFacts:
    """Return what a node says. CLUSTER NODES knows more than CLUSTER SLOTS, if it is allowed."""
    by_slots = list(_nodes_of_slots(slots, host))
    known = [
        each for line in text(nodes).splitlines() if (each := _node_of_line(line, host)) is not None
    ]
    covered = sum(each.slots for each in by_slots)
    return ClusterFacts(lines(info), tuple(known or by_slots), covered)


def _node_of_line(line: str, host: str) -> ClusterNode | None:
    """`id ip:port@bus,name flags primary ping pong epoch link slots …`."""
    words = line.split()
    if len(words) < 8 or "noaddr" in words[2] or "handshake" in words[2]:
        return None
    where = words[1].partition(",")[0].partition("@")[0]
    ip, _, port = where.rpartition(":")
    flags = frozenset(words[2].split(","))
    role: Literal["primary", "replica"] = "primary" if "master" in flags else "replica"
    return ClusterNode(f"{ip or host}:{port}", role, flags, sum(map(_number_of_slots, words[8:])))


def _number_of_slots(slots: str) -> int:
    """Of "5" or "5-9"; "[5->-…]" is a slot that is being moved, and counts elsewhere."""
    first, _, last = slots.partition("-")
    return int(last or first) - int(first) + 1 if first.isdigit() else 0


def _nodes_of_slots(slots: Reply, host: str) -> Iterator[ClusterNode]:
    nodes: dict[str, ClusterNode] = {}
    for entry in slots if isinstance(slots, list) else []:
        if not isinstance(entry, list) or len(entry) < 3:
            continue
        first, last, primary, *replicas = entry
        size = int(text(last)) - int(text(first)) + 1
        node = _node_of_slot(primary, "primary", host)
        known = nodes.get(node.address, node)
        nodes[node.address] = replace(known, slots=known.slots + size)
        for each in (_node_of_slot(replica, "replica", host) for replica in replicas):
            nodes.setdefault(each.address, each)
    yield from nodes.values()


def _node_of_slot(reply: Reply, role: Literal["primary", "replica"], host: str) -> ClusterNode:
    ip, port = (text(reply[0]), text(reply[1])) if isinstance(reply, list) else ("", "0")
    return ClusterNode(f"{ip or host}:{port}", role, frozenset(), 0)


class SentinelGatherer:
    """Asks one sentinel."""

    def __init__(self, address: Address, service: str) -> None:
        name = f"{address.options['host']}:{address.options['port']}"
        self.facts = SentinelFacts(name)
        self.is_done = False
        self._address = address
        self._service = service
        self._step: OpeningStep = "resolve"

    def run(self) -> None:
        """Ask it. Raises nothing."""
        try:
            self._gather_facts()
        except Exception as error:
            self.facts = replace(self.facts, failure=connection_failure(error, self._step))
        self.is_done = True

    def ended(self) -> SentinelFacts:
        """Return the facts when the time is over."""
        if self.is_done or self.facts.state:
            return self.facts
        return replace(self.facts, failure=overdue(self._step))

    def _gather_facts(self) -> None:
        with session(self._address, STEP_LIMIT, self._step_reached) as opened:
            state, quorum, services, replicas = opened.ask(
                ("SENTINEL", "MASTER", self._service),
                ("SENTINEL", "CKQUORUM", self._service),
                ("SENTINEL", "MASTERS"),
                ("SENTINEL", "SLAVES", self._service),  # REPLICAS came with 5.0
            )
        if isinstance(state, ErrorReply) and "No such master" not in str(state):
            why = "it is no sentinel" if "unknown command" in str(state) else str(state)
            self.facts = replace(
                self.facts, failure=ConnectionFailure("sentinel-refuses", why[:160])
            )
            return
        names = [pairs(each).get("name", "") for each in _list_or_empty(services)]
        self.facts = replace(
            self.facts,
            state=pairs(state),
            services=tuple(name for name in names if name),
            replicas=_replicas_in(replicas),
            quorum=str(quorum) if isinstance(quorum, ErrorReply) else "" if text(quorum) else None,
        )

    def _step_reached(self, step: OpeningStep) -> None:
        self._step = step


def _list_or_empty(reply: Reply) -> list[Reply]:
    return reply if isinstance(reply, list) else []


def _replicas_in(reply: Reply) -> tuple[Replica, ...] | None:
    if not isinstance(reply, list):
        return None
    known = [pairs(each) for each in reply]
    return tuple([
        Replica(
            f"{each.get('ip')}:{each.get('port')}", frozenset(each.get("flags", "").split(",")),
            each.get("master-link-status", ""),
        )
        for each in known
    ])  # fmt: skip


class ClockGatherer:
    """Asks one replica what time it is. Raises nothing."""

    def __init__(self, name: str, address: Address) -> None:
        self.name = name
        self.clock: Clock | None = None
        self.is_done = False
        self._address = address

    def run(self) -> None:
        """Ask the replica."""
        with suppress(Exception), session(self._address, STEP_LIMIT) as opened:
            self.clock = clock_of(opened)
        self.is_done = True


def primary_of(sentinels: list[SentinelFacts]) -> tuple[str, int] | None:
    """Return where the primary is, by the newest configuration that a sentinel knows."""
    known = [each.state for each in sentinels if each.state.get("port", "").isdigit()]
    if not known:
        return None
    newest = max(known, key=lambda state: int(state.get("config-epoch", "0") or 0))
    return newest["ip"], int(newest["port"])


COUNT, MOST, LIMIT = 500, 50_000, 1.0
"""Keys for each SCAN and in all, and for how many seconds at most."""
_TYPES_EACH = 100
"""Of so many keys of each SCAN the type is asked."""
_OURS = ("string", "zset", "none")
"""The types of leases, claims and values; of permits; and of a key that has expired meanwhile."""

_COMPANIONS = (
    re.compile(rb"^(.*?)(?:fences?|lock):\{\1", re.DOTALL),
    re.compile(rb"^(.+?)(?:fences?|lock):\1", re.DOTALL),
    re.compile(rb"^(.*?)once:[0-9a-f]{32}$", re.DOTALL),
    re.compile(rb"^((?:[^{]|\{[^}]*\})*?)scheduled-last:", re.DOTALL),
)


def namespace_in(key: bytes) -> bytes | None:
    """Return the namespace of a companion key of dibs. None: it is another key."""
    companion = next((match for each in _COMPANIONS if (match := each.match(key))), None)
    return None if companion is None else companion.group(1)


class KeyScanner:
    """Counts the keys of one server; `facts` may be read at any time."""

    def __init__(self, address: Address, scope: Examination) -> None:
        self.unknown: str | None = None
        self._address = address
        self._mine = scope.namespace.encode()
        self._seen = self._under = 0
        self._total: int | None = None
        self._types = Counter[str]()
        self._namespaces: set[bytes] = set()

    @property
    def facts(self) -> KeyFacts:
        """Return what has been seen so far."""
        foreign = {name: count for name, count in [*self._types.items()] if name not in _OURS}
        names = [each.decode(errors="replace") for each in [*self._namespaces]]
        return KeyFacts(self._seen, self._total, self._under, foreign, frozenset(names))

    def run(self) -> None:
        """Look at keys until all, enough or the time is over. Raises nothing."""
        try:
            with session(self._address, STEP_LIMIT) as opened:
                if opened.dialect.plain:
                    self.unknown = "a proxy does not know SCAN"
                else:
                    self._scan_keys(opened)
        except Exception:
            self.unknown = "a server could not be asked"

    def _scan_keys(self, opened: Session) -> None:
        [size, cursor] = opened.ask(("DBSIZE",), ("SCAN", 0, "COUNT", COUNT))
        self._total = size if isinstance(size, int) else None
        end = monotonic() + LIMIT
        while True:
            if isinstance(cursor, ErrorReply) or not isinstance(cursor, list):
                self.unknown = refusal_text(cursor, "SCAN") or "SCAN was not answered as usual"
                return
            position, keys = cursor
            self._look_at(opened, [key for key in keys if isinstance(key, bytes)])  # type: ignore[union-attr]
            if text(position) == "0" or self._seen >= MOST or monotonic() > end:
                return
            [cursor] = opened.ask(("SCAN", text(position), "COUNT", COUNT))

    def _look_at(self, opened: Session, keys: list[bytes]) -> None:
        self._seen += len(keys)
        self._namespaces |= {prefix for key in keys if (prefix := namespace_in(key)) is not None}
        mine = [key for key in keys if key.startswith(self._mine)]
        self._under += len(mine)
        some = mine[:_TYPES_EACH]
        if some:
            replies = opened.ask(*[("TYPE", key) for key in some])
            self._types.update(text(reply) for reply in replies if text(reply))
