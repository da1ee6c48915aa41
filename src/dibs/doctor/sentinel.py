"""Asking the sentinels of a service about it."""

from contextlib import suppress
from dataclasses import replace

from .._diagnostics import Address, ErrorReply, Reply
from .asking import pairs, session, text
from .facts import Clock, Failure, Replica, SentinelFacts
from .failures import Step, failure_of, overdue
from .server import STEP_LIMIT, clock_of


class SentinelGatherer:
    """Asks one sentinel."""

    def __init__(self, address: Address, service: str) -> None:
        name = f"{address.options['host']}:{address.options['port']}"
        self.facts = SentinelFacts(name)
        self.is_done = False
        self._address = address
        self._service = service
        self._step: Step = "resolve"

    def run(self) -> None:
        """Ask it. Raises nothing."""
        try:
            self._run()
        except Exception as error:
            self.facts = replace(self.facts, failure=failure_of(error, self._step))
        self.is_done = True

    def ended(self) -> SentinelFacts:
        """The facts when the time is over."""
        if self.is_done or self.facts.state:
            return self.facts
        return replace(self.facts, failure=overdue(self._step))

    def _run(self) -> None:
        with session(self._address, STEP_LIMIT, self._reached) as opened:
            state, quorum, services, replicas = opened.ask(
                ("SENTINEL", "MASTER", self._service),
                ("SENTINEL", "CKQUORUM", self._service),
                ("SENTINEL", "MASTERS"),
                ("SENTINEL", "SLAVES", self._service),  # REPLICAS came with 5.0
            )
        if isinstance(state, ErrorReply) and "No such master" not in str(state):
            why = "it is no sentinel" if "unknown command" in str(state) else str(state)
            self.facts = replace(self.facts, failure=Failure("sentinel-refuses", why[:160]))
            return
        names = [pairs(each).get("name", "") for each in _list(services)]
        self.facts = replace(
            self.facts,
            state=pairs(state),
            services=tuple(name for name in names if name),
            replicas=_replicas(replicas),
            quorum=str(quorum) if isinstance(quorum, ErrorReply) else "" if text(quorum) else None,
        )

    def _reached(self, step: Step) -> None:
        self._step = step


def _list(reply: Reply) -> list[Reply]:
    return reply if isinstance(reply, list) else []


def _replicas(reply: Reply) -> tuple[Replica, ...] | None:
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
        """Ask it."""
        with suppress(Exception), session(self._address, STEP_LIMIT) as opened:
            self.clock = clock_of(opened)
        self.is_done = True


def primary_of(sentinels: list[SentinelFacts]) -> tuple[str, int] | None:
    """Where the primary is, by the newest configuration that a sentinel knows."""
    known = [each.state for each in sentinels if each.state.get("port", "").isdigit()]
    if not known:
        return None
    newest = max(known, key=lambda state: int(state.get("config-epoch", "0") or 0))
    return newest["ip"], int(newest["port"])
