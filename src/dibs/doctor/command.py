"""`dibs doctor`: gathers the facts of every server within a deadline, judges them, reports."""

import argparse
import os
import shutil
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TextIO

import redis

from .._doctor_api import (
    DEFAULT_BUDGET,
    Address,
    Cluster,
    Embedded,
    SentinelService,
    Target,
    checked_namespace,
    expand,
    parse_address,
    parse_target,
    printable,
    start_embedded,
)
from ..errors import DibsError, UsageError
from .facts import (
    PROBE,
    ConnectionFailure,
    Examination,
    KeyFacts,
    ServerFacts,
    TargetFacts,
    TargetKind,
)
from .gatherers import (
    ClockGatherer,
    KeyScanner,
    SeedGatherer,
    SentinelGatherer,
    ServerGatherer,
    primary_of,
)
from .report import ReportStyle, as_text, exit_code, findings, report_json

TIME_LIMIT = 2.2
"""Seconds for everything; a process has to start and to print as well."""
_FIRST_LIMIT = 1.1
"""… for those that name the servers: sentinels, and the nodes of the URL."""
_MOST_NODES = 40
_MOST_REPLICAS = 10


def gather(url: str, *, namespace: str, budget: float) -> TargetFacts:
    """Return the facts about a target.

    UsageError: the URL or the namespace cannot be used. Nothing else is raised.
    """
    since = monotonic()
    expand(checked_namespace(namespace), PROBE)
    target = parse_target(url, redis)
    scope = _examination_of(target, namespace, budget)
    workers = Workers(since + TIME_LIMIT)
    with _started_target(target) as destination:
        if isinstance(destination, ConnectionFailure):
            facts = TargetFacts(scope, (ServerFacts(scope.address, failure=destination),))
        elif isinstance(destination, Cluster):
            facts = _of_cluster(destination, scope, workers, since)
        elif isinstance(destination, SentinelService):
            facts = _of_service(destination, scope, workers, since)
        else:
            facts = _of_servers([(destination, None)], scope, workers)
    return replace(facts, seconds=monotonic() - since)


def _examination_of(target: Target, namespace: str, budget: float) -> Examination:
    kinds: dict[type, TargetKind] = {Cluster: "cluster", SentinelService: "sentinel"}
    kind: TargetKind = kinds.get(type(target), "server")
    if isinstance(target, Embedded):
        return Examination("embedded", repr(target), namespace, budget)
    address = target if isinstance(target, Address) else target.template
    options = address.options
    return Examination(
        kind,
        repr(target).rpartition("/")[0] if kind == "server" else repr(target),
        namespace,
        budget,
        tls="SSL" in address.connection_class.__name__,
        user=options.get("username"),
        database=int(options.get("db") or 0),
        service=target.name if isinstance(target, SentinelService) else "",
    )


@contextmanager
def _started_target(
    target: Target,
) -> Generator[Address | Cluster | SentinelService | ConnectionFailure]:
    """Yield the target; an embedded server is started, or joined, for the length of the block."""
    if not isinstance(target, Embedded):
        yield target
        return
    try:
        server = start_embedded(target.folder)
    except DibsError as error:
        yield ConnectionFailure("embedded", str(error))
        return
    try:
        yield parse_address(server.url, redis)
    finally:
        server.close()


class Workers:
    """Threads that end with the process, and waiting for them until a deadline."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._running = 0

    def start(self, work: Callable[[], None]) -> None:
        """Run *work*, which raises nothing, in a thread."""

        def run() -> None:
            try:
                work()
            finally:
                self._ended.put(None)

        self._running += 1
        threading.Thread(target=run, name="dibs doctor", daemon=True).start()

    def wait(self, until: float | None = None, enough: Callable[[], bool] = lambda: False) -> None:
        """Return when all have ended, when it is *enough*, or when the time is over."""
        end = self._deadline if until is None else min(until, self._deadline)
        while self._running and not enough():
            try:
                self._ended.get(timeout=max(end - monotonic(), 0))
            except Empty:
                return
            self._running -= 1


def _of_servers(
    addresses: Iterable[tuple[Address, str | None]],
    scope: Examination,
    workers: Workers,
    scanned: frozenset[str | None] = frozenset((None,)),
) -> TargetFacts:
    """Return the facts of these servers.

    Keys are looked at on those that are named in *scanned*.
    """
    servers = [(ServerGatherer(each, scope, name), each, name) for each, name in addresses]
    scanners = [KeyScanner(each, scope) for _, each, name in servers if name in scanned]
    for gatherer in (*[each for each, _, _ in servers], *scanners):
        workers.start(gatherer.run)
    workers.wait()
    unknown = {each.unknown for each in scanners if each.unknown}
    return TargetFacts(
        scope,
        tuple(gatherer.ended() for gatherer, _, _ in servers),
        keys=_merged_keys([each.facts for each in scanners if each.unknown is None]),
        unknown={"keys": min(unknown)} if unknown else {},
    )


def _merged_keys(parts: list[KeyFacts]) -> KeyFacts | None:
    if not parts:
        return None
    foreign: dict[str, int] = {}
    for each in parts:
        for name, count in each.foreign.items():
            foreign[name] = foreign.get(name, 0) + count
    return KeyFacts(
        sum(each.seen for each in parts),
        sum(each.total or 0 for each in parts),
        sum(each.mine for each in parts),
        foreign,
        frozenset[str]().union(*[each.namespaces for each in parts]),
    )


def _of_cluster(target: Cluster, scope: Examination, workers: Workers, since: float) -> TargetFacts:
    seeds = [SeedGatherer(target.node(*where), *where) for where in target.seeds]
    for seed in seeds:
        workers.start(seed.run)
    workers.wait(since + _FIRST_LIMIT, lambda: any(seed.facts for seed in seeds))
    cluster = next((seed.facts for seed in seeds if seed.facts is not None), None)
    if cluster is None:
        workers.wait()  # for the reasons
        failed = [ServerFacts(seed.name, failure=seed.failure) for seed in seeds]
        return TargetFacts(scope, tuple(failed))
    nodes = cluster.nodes[:_MOST_NODES]
    addresses = [(target.node(*_split_address(node.address)), node.address) for node in nodes]
    primaries = frozenset(node.address for node in nodes if node.role == "primary")
    facts = _of_servers(addresses, scope, workers, primaries)
    return replace(facts, cluster=cluster)


def _split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _of_service(
    target: SentinelService, scope: Examination, workers: Workers, since: float
) -> TargetFacts:
    sentinels = [SentinelGatherer(each, target.name) for each in target.sentinels]
    for sentinel in sentinels:
        workers.start(sentinel.run)
    # Not only the first one: an old sentinel may still name the old primary.
    workers.wait(since + _FIRST_LIMIT, lambda: all(each.is_done for each in sentinels))
    primary = primary_of([each.facts for each in sentinels])
    facts = TargetFacts(scope)
    if primary is not None:
        host = target.forced_host or primary[0]
        options = {**target.template.options, "host": host, "port": primary[1]}
        address = Address(target.template.connection_class, options)
        clocks = [ClockGatherer(*each) for each in _replicas_of(target, sentinels)]
        for clock in clocks:
            workers.start(clock.run)
        facts = _of_servers([(address, None)], scope, workers)
        workers.wait(since + _FIRST_LIMIT, lambda: all(each.is_done for each in clocks))
        known = {each.name: each.clock for each in clocks if each.clock is not None}
        facts = replace(facts, clocks=known)
    return replace(facts, sentinels=tuple(each.ended() for each in sentinels))


def _replicas_of(
    target: SentinelService, sentinels: list[SentinelGatherer]
) -> list[tuple[str, Address]]:
    """Return the replicas that are up, by the first sentinel that knows any."""
    listed = next((each.facts.replicas for each in sentinels if each.facts.replicas), ())
    replicas: list[tuple[str, Address]] = []
    for replica in [each for each in listed if each.is_up][:_MOST_REPLICAS]:
        host, port = _split_address(replica.address)
        options = {**target.template.options, "host": target.forced_host or host, "port": port}
        replicas.append((replica.address, Address(target.template.connection_class, options)))
    return replicas


DESCRIPTION = (
    "Examine a server for use with dibs, within 3 s. Each finding has a code, a reason and a fix. "
    "Nothing is written: commands are tried on a key that does not exist."
)
DOCTOR_EXIT_CODES = (
    "exit code: 0 no error or warning, 1 errors or warnings, 2 wrong usage, 3 no server answered"
)


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.description = DESCRIPTION
    parser.epilog = DOCTOR_EXIT_CODES
    add = parser.add_argument
    add("--url", help="target, as for Dibs(…); default: DIBS_URL")
    add("--namespace", help="namespace of the application; default: DIBS_NAMESPACE, or none")
    budget = DEFAULT_BUDGET
    add("--budget", type=float, default=budget, help=f"of the application, in s; default: {budget}")
    add("--json", action="store_true", help="print one JSON object")


def doctor(args: argparse.Namespace) -> int:
    """Examine the server, print the report, and return the exit code."""
    environment = os.environ
    url = args.url or environment.get("DIBS_URL")
    try:
        if not url:
            raise UsageError("no server: pass --url redis://HOST:PORT, or set DIBS_URL")
        namespace = args.namespace
        if namespace is None:
            namespace = environment.get("DIBS_NAMESPACE", "")
        facts = gather(url, namespace=namespace, budget=_parsed_budget(args))
    except UsageError as error:
        lines = [printable(line) for line in str(error).split("\n")]
        sys.stderr.write("dibs doctor: " + "\n".join(lines) + "\n")
        return 2
    results = findings(facts)
    style = ReportStyle(_terminal_width(sys.stdout), colours=wants_colours(sys.stdout, environment))
    _print_text(report_json(facts, results) if args.json else as_text(facts, results, style))
    return exit_code(facts, results)


def _parsed_budget(args: argparse.Namespace) -> float:
    if not 0 < args.budget < 3600:
        raise UsageError(f"--budget must be a number of seconds above 0, not {args.budget:g}")
    return args.budget


def wants_colours(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """No colours in a pipe, with NO_COLOR, or in a terminal that has none."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _terminal_width(stream: TextIO) -> int:
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else 80


def _print_text(text: str) -> None:
    """Print *text*; characters that the terminal does not have are replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(f"{text}\n".encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()
