"""Asking one server for everything that a rule may want to know."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import monotonic, time
from typing import Any

from .._diagnostics import (
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
from .asking import Session, host_and_port, lines, pairs, refusal, session, text
from .facts import SETTINGS, Asked, Clock, Failure, ServerFacts, Verdict
from .failures import (
    Step,
    failure_of,
    overdue,
    says_no_password,
    speaks_plain,
    speaks_tls,
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

    def __init__(self, address: Address, asked: Asked, name: str | None = None) -> None:
        self.facts = ServerFacts(name or _name(address), user=address.options.get("username"))
        self._address = address
        self._asked = asked
        self._step: Step = "resolve" if host_and_port(address) else "handshake"

    def run(self) -> None:
        """Ask everything. Raises nothing: what went wrong is a fact."""
        try:
            self._run()
        except Exception as error:
            self._failed(failure_of(error, self._step))

    def ended(self) -> ServerFacts:
        """The facts when the time is over."""
        if self.facts.failure is None and not self.facts.commands:
            return replace(self.facts, failure=overdue(self._step))
        return self.facts

    def _run(self) -> None:
        with session(self._address, STEP_LIMIT, self._reached) as opened:
            dialect = opened.dialect
            self._reached("ask")
            self._learn(protocol=dialect.protocol, plain=dialect.plain)
            self._ask_all(opened)

    def _ask_all(self, opened: Session) -> None:
        plain = self.facts.plain
        steps: list[Callable[[Session], None]] = [self._ask_commands, self._ask_latency]
        if plain:
            self._learn(unknown={_IN_INFO: _CLOSES, _IN_CONFIG: _CLOSES, "clock": _CLOSES})
        else:
            more = [self._ask_clock, self._ask_password]
            steps = [self._ask_facts, *steps[:1], *more, *steps[1:]]
        for step in steps:
            step(opened)
        if plain:
            self._try_script()

    def _learn(self, **facts: Any) -> None:
        self.facts = replace(self.facts, **facts)

    def _reached(self, step: Step) -> None:
        self._step = step

    def _failed(self, failure: Failure) -> None:
        where = host_and_port(self._address)
        if failure.code == "database" and _is_clustered(self._address):
            failure = Failure("cluster-database", failure.detail)
        if where is None and failure.code in ("refused", "unreachable"):
            failure = Failure("socket", failure.detail)
        self._learn(failure=looked_into(failure, self._address))

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
                (_IN_INFO, refusal(info, "INFO")),
                (_IN_CONFIG, refusal(config[0], "CONFIG GET")),
            )
            if why is not None
        }
        user = text(user) or self.facts.user
        self._learn(info=lines(info), config=known, user=user, unknown=unknown)
        self._learn(engine=_engine(commands))

    def _ask_commands(self, opened: Session) -> None:
        names = rights.PLAIN if self.facts.plain else rights.COMMANDS
        replies = opened.send(rights.tries(self._asked.probe, names), len(names))
        _raise_if_locked_out(replies)
        self._learn_commands(dict(zip(names, replies, strict=True)))

    def _learn_commands(self, replies: dict[str, Reply]) -> None:
        verdicts: dict[str, Verdict] = {
            name: found
            for name, reply in replies.items()
            if (found := rights.verdict(reply)) is not None
        }
        keys: Verdict | None = "denied" if any(map(rights.about_keys, replies.values())) else None
        if keys is None and "allowed" in (verdicts.get("get"), verdicts.get("set")):
            keys = "allowed"
        written = replies.get("set")
        code = code_of_reply(str(written)) if isinstance(written, ErrorReply) else None
        engine = rights.engine_in_use(self.facts.engine, verdicts)
        self._learn(commands=verdicts, keys=keys, refusal=code, engine=engine)

    def _try_script(self) -> None:
        """On a connection of its own, because a proxy that knows no EVAL closes it."""
        verdict: Verdict = "missing"
        try:
            with session(self._address, STEP_LIMIT) as opened:
                [reply] = opened.send(rights.tries(self._asked.probe, ("eval",)), 1)
                verdict = rights.verdict(reply) or "allowed"
        except EOFError:
            pass
        self._learn(commands={**self.facts.commands, "eval": verdict})

    def _ask_clock(self, opened: Session) -> None:
        if self.facts.commands.get("time") != "allowed":
            self._learn(unknown={**self.facts.unknown, "clock": "this user may not run TIME"})
            return
        clocks = [found for _ in range(3) if (found := clock_of(opened)) is not None]
        if clocks:
            self._learn(clock=min(clocks, key=lambda each: each.error))

    def _ask_password(self, opened: Session) -> None:
        """HELLO with a password is answered well where the user has none; AUTH alone is not."""
        options = self._address.options
        if options.get("password") and (options.get("username") or "default") == "default":
            [reply] = opened.ask(("AUTH", options["password"]))
            said = str(reply).lower() if isinstance(reply, ErrorReply) else ""
            self._learn(takes_any_password=says_no_password(said))

    def _ask_latency(self, opened: Session) -> None:
        payload = rights.tries(self._asked.probe, ("get",))
        end = monotonic() + CALLS_LIMIT
        while len(self.facts.latency) < CALLS and (since := monotonic()) < end:
            opened.send(payload, 1)
            self._learn(latency=(*self.facts.latency, monotonic() - since))


def _name(address: Address) -> str:
    return repr(address).rpartition("/")[0]


def _engine(reply: Reply) -> Any:
    try:
        return read_engine(reply)
    except ConnectionError:  # LOADING, BUSY …: every other reply says so as well
        return OLDEST


def _raise_if_locked_out(replies: list[Reply]) -> None:
    """ConnectionError: no password was given, or the server can answer nothing now."""
    first = replies[0]
    if not isinstance(first, ErrorReply):
        return
    if first.code == "NOAUTH" or code_of_reply(str(first)) in ("loading", "busy", "backend"):
        raise ConnectionError(str(first))


def clock_of(opened: Session) -> Clock | None:
    """The local clock against the server's, by one question."""
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
    """Whether a server that does not have the database of the URL is a node of a cluster."""
    first = Address(address.connection_class, {**address.options, "db": 0})
    with suppress(Exception), session(first, STEP_LIMIT) as opened:
        return lines(opened.ask(("INFO", "cluster"))[0]).get("cluster_enabled") == "1"
    return False


def looked_into(failure: Failure, address: Address) -> Failure:
    """*failure*, or what another connection to the server tells about its reason."""
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
    """The first names that the certificate of a server is for; none, if it cannot be asked."""
    unchecked = {**address.options, "ssl_check_hostname": False}
    connection = Address(address.connection_class, unchecked).connection(0.3, RESP2.protocol)
    with suppress(Exception), connected_socket(connection) as connected:
        assert isinstance(connected, ssl.SSLSocket)
        certificate: Any = connected.getpeercert()
        names = [str(name) for _, name in certificate.get("subjectAltName", ())]
        return tuple(printable(name) for name in names[:_MOST_NAMES])
    return ()


def _other_protocol(failure: Failure, where: tuple[str, int], *, is_tls: bool) -> Failure:
    """The failure if the other of plain and TLS would have worked; else *failure* itself."""
    if is_tls and speaks_plain(where, 0.3):
        return Failure("tls-plain", "the server answers a plain PING on this port")
    is_http = 'got "H" as reply' in failure.detail  # a web server answers plain text in plain text
    if not is_tls and not is_http and speaks_tls(where, 0.3):
        return Failure("tls-required", "the server answers a TLS handshake on this port")
    return failure
