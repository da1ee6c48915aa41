# Generated from src/dibs/_async/cluster.py by unasync.py – do not edit.
"""A cluster: the map of its slots, and a transport for each of its nodes."""

import contextlib
import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import repeat
from typing import Any

from .._core.capabilities import Engine, common_engine
from .._core.cluster_slots import (
    ASK_SLOTS,
    SLOTS,
    Ask,
    Moved,
    Node,
    Outboxes,
    Range,
    Redirect,
    TryAgain,
    asking,
    first_failure,
    read_asked,
    read_redirect,
    read_slots,
    slot_of,
    where_to_ask,
    with_host,
)
from .._core.connection import (
    Breaker,
    Limits,
    Outage,
    TimeLimit,
    interpret,
    worth_repeating,
)
from .._core.request import ErrorReply, Request, first_error
from .._core.tracking import Tracked, Watching, read_watch, watch_request
from .._forks import reopen_after_fork
from .._threads import (
    Background,
    BackgroundTasks,
    Flight,
    Guard,
    Transport,
    current_loop,
    gather,
    gather_until,
    monotonic,
    sleep,
)
from .._transport.base import Wake
from .._transport.targets import Cluster
from ..errors import Cause, UsageError

_log = logging.getLogger("dibs")

_ASK_AGAIN = 0.2
"""Seconds between two questions for the map, while it is old or a node is out."""
_KEEP_FOR = 60.0
"""Seconds for which a node that has lost its slots is remembered."""


class Route:
    """A node, the transport to it, and what it could do when we looked last."""

    __slots__ = ("engine", "is_opening", "left_at", "node", "out", "transport")
    transport: Transport

    def __init__(self, node: Node) -> None:
        self.node = node
        self.engine: Engine | None = None
        self.is_opening = False
        self.out: tuple[Cause, float] | None = None
        """Why it is out, and since when; None: it is not."""
        self.left_at: float | None = None
        """Since when it has no slots; None: it has some, or it is not known."""


class ClusterMap(ABC):
    """The nodes of a cluster, their slots, and the transports to them."""

    opened_at = 0.0
    """Of one connection among many: that says nothing here."""

    def __init__(
        self,
        cluster: Cluster,
        limits: Limits,
        on_outage: Callable[[Cause], None],
        on_recovered: Callable[[Cause, float], None],
    ) -> None:
        self.engine: Engine | None = None
        """What all the nodes that we know can do; None: we know none."""
        self._cluster = cluster
        self._limits = limits
        self._on_outage = on_outage
        self._on_recovered = on_recovered
        self._seeds = [Node(host, port) for host, port in cluster.seeds]
        self._map: list[Route | None] = [None] * SLOTS
        self._routes: dict[Node, Route] = {}
        self._out: set[Node] = set()
        """Nodes that did not answer when we asked them last."""
        self._undelivered = Outboxes()
        """For nodes that are out, or their successors; and for slots whose node is not known."""
        self._moving: set[int] = set()
        """Slots for which a node has answered ASK, since the last map."""
        self._has_map = False
        self._map_is_old = False
        self._closed = False
        self._begin_anew()
        reopen_after_fork(self)

    def _begin_anew(self) -> None:
        """Nothing that was started in another event loop or process is used."""
        self._guard = Guard()
        self._work = Background("dibs cluster")
        self._threads = BackgroundTasks()
        self._asking: Flight | None = None
        """The question for the first map: all who come before the answer wait for the same one."""
        self._loop: object = None
        """Where the map is being asked for; None: nowhere."""

    @property
    def breakers(self) -> list[Breaker]:
        """The circuit breaker of each node that has slots."""
        routes = list(self._routes.values())
        return [each for route in routes for each in route.transport.breakers]

    @property
    def may_arrive_late(self) -> bool:
        """Return True if a request was repeated, and one of its copies may still be executed."""
        return any(route.transport.may_arrive_late for route in list(self._routes.values()))

    @abstractmethod
    def post(self, request: Request) -> None:
        """Deliver *request*, for which no caller waits."""

    @abstractmethod
    def _send_on(self, request: Request) -> None:
        """Deliver *request*, for which no caller waits, to the node of its key."""

    def ready(self, now: float) -> Engine:
        """Return what the cluster can do. Raises Outage if no node answers."""
        if self.engine is None:
            self._ask_together(now)
        if self.engine is None:
            raise Outage("no node of the cluster knows the slots", sent=False, code="clusterdown")
        return self.engine

    # ---- the map

    def _find(self, key: bytes, now: float) -> Route:
        """Return the node of *key*. Raises Outage if there is none, or no node answers."""
        route = self._map[slot_of(key)]
        if route is None and not self._has_map:
            self._ask_together(now)
            route = self._map[slot_of(key)]
        if route is None:
            self.reconnect()
            raise Outage("no node of the cluster has this slot", sent=False, code="clusterdown")
        return route

    def masters(self, now: float) -> dict[str, Transport]:
        """Return the transport of each node that has slots, by its address.

        Raises Outage if no node answers.
        """
        self.ready(now)
        routes = {route.node: route for route in self._map if route is not None}
        return {f"{node.host}:{node.port}": routes[node].transport for node in sorted(routes)}

    def _route(self, node: Node) -> Route:
        route = self._routes.get(node)
        if route is None:
            route = Route(node)
            went_out = functools.partial(self._outage_began, route)
            recovered = functools.partial(self._recovered, route)
            address = self._cluster.node(*node)
            route.transport = Transport(address, self._limits, went_out, recovered)
            route.transport.send_on = self._send_on
            route = self._routes.setdefault(node, route)
        return route

    def _ask_together(self, now: float) -> None:
        """Ask for the first map, once for all who need it. Raises Outage if no node answers."""
        asking = self._asking
        if asking is None or not asking.is_open:
            asking = self._asking = Flight(functools.partial(self._ask_slots, now))
        asking.join()

    def _ask_slots(self, now: float) -> None:
        """Ask for the map: those we know, then the seeds. Outage: none of them answers.

        Without a map, all nodes are asked at the same time, not one after the other.
        """
        known = [route.node for route in list(self._routes.values()) if route.left_at is None]
        nodes = where_to_ask(known, self._out, self._seeds)
        questions = [functools.partial(self._ask_node, node, now) for node in nodes]
        if not self._has_map:
            outcomes = gather_until(questions, _has_slots)
            if not _has_slots(outcomes):
                raise first_failure(outcomes)
            return
        for question in questions:
            with contextlib.suppress(Outage, UsageError):
                if question():
                    return

    def _ask_node(self, node: Node, now: float) -> bool:
        """Use the map of that node. False: it knows no slots.

        Raises Outage or UsageError if no answer.
        """
        route = self._route(node)
        route.transport.ready(now)
        slots = interpret(read_slots, route.transport.send(ASK_SLOTS, now), node)
        if slots:
            self._read_map(slots)
            self._learn(route)
        return bool(slots)

    def _read_map(self, slots: list[Range]) -> None:
        """Use a new map, and leave nodes that are no longer on it."""
        routes = {each.node: self._route(each.node) for each in slots}
        fresh: list[Route | None] = [None] * SLOTS
        for start, end, node in slots:
            fresh[start : end + 1] = [routes[node]] * (end + 1 - start)
        self._map, self._moving = fresh, set()
        self._map_is_old, self._has_map = False, True
        for route in routes.values():
            route.left_at = None
            if route.engine is None and not route.is_opening:
                route.is_opening = self._threads.spawn(functools.partial(self._open, route))
        now = monotonic()
        for node in [node for node in self._routes if node not in routes]:
            if self._is_gone(self._routes[node], now):
                self._leave(self._routes.pop(node), now)
        for request in self._undelivered.take(None, now):
            self.post(request)

    def _open(self, route: Route) -> None:
        """Connect to a node that is new on the map before it is needed."""
        try:
            route.transport.ready(monotonic())
            self._learn(route)
        finally:
            route.is_opening = False

    def _is_gone(self, route: Route, now: float) -> bool:
        """Return a node without slots: dead ones at once, others after a time.

        They may get some back.
        """
        if route.left_at is None:
            route.left_at = now
        return route.out is not None or now - route.left_at > _KEEP_FOR

    def _leave(self, route: Route, now: float) -> None:
        """A node has lost its slots: close its transport; its outbox goes to its successor."""
        self._ended(route, now)
        self._threads.spawn(route.transport.close)
        for request in self._undelivered.take(route.node, now):
            self.post(request)

    def _learn(self, route: Route) -> None:
        """A node was reached for the first time, or after a while: it may be another version."""
        route.engine = route.transport.engine
        routes = [each for each in list(self._routes.values()) if each.left_at is None]
        engines = [each.engine for each in routes if each.engine is not None]
        if not engines and route.engine is not None:
            # A seed that goes by another name than the nodes; those are just being opened.
            engines = [route.engine]
        self.engine = common_engine(engines) if engines and self._has_map else None

    # ---- nodes that are out

    def reconnect(self) -> None:
        """The map is old, or a node may no longer be the master: ask who has which slot."""
        self._map_is_old = True
        self._look_after_map()

    def _outage_began(self, route: Route, cause: Cause) -> None:
        if self._routes.get(route.node) is route and route.out is None:
            route.out = cause, monotonic()
            self._out.add(route.node)
            self._on_outage(cause)
            self._look_after_map()

    def _recovered(self, route: Route, cause: Cause, lasted: float) -> None:
        self._undelivered.forget(route.node)  # its own transport has delivered it
        self._ended(route, monotonic())

    def _ended(self, route: Route, now: float) -> None:
        """A node answers again, or others have its slots."""
        out, route.out = route.out, None
        self._out.discard(route.node)
        if out is not None:
            cause, since = out
            self._on_recovered(cause, now - since)

    def _look_after_map(self) -> None:
        """Ask for the map in the background, until it is new and all its nodes answer."""
        here = current_loop()
        with self._guard:
            if self._loop is here or self._closed:
                return
            self._loop = here
        try:
            self._work.start(self._keep_asking)
        except RuntimeError:  # no thread can be started now: the next trouble tries again
            self._loop = None

    def _keep_asking(self) -> None:
        while self._goes_on():
            try:
                self._ask_slots(monotonic())
            except (Outage, UsageError):
                pass  # asked again
            except Exception:
                _log.exception("dibs: reading the slot map of the cluster failed")
            sleep(_ASK_AGAIN)

    def _goes_on(self) -> bool:
        # Decided in one step with saying so: who comes a moment later starts another run.
        with self._guard:
            is_needed = self._map_is_old or self._out or self._undelivered.waits_for_map
            if is_needed and not self._closed:
                return True
            self._loop = None
            return False

    # ---- the end

    def close(self) -> None:
        """Close all transports."""
        self._closed = True
        self._work.stop()
        for route in list(self._routes.values()):
            route.transport.close()
        self._threads.stop()

    def open(self) -> None:
        """In a forked child: forget the parent's connections."""
        for route in self._routes.values():
            route.engine = route.out = None
            route.is_opening = False
        self.engine = None
        self._has_map = False
        self._map = [None] * SLOTS
        self._out, self._undelivered = set(), Outboxes()
        self._begin_anew()


def _has_slots(outcomes: list[Any]) -> bool:
    return True in outcomes


_HOPS = 50
"""How often one request is sent on at most, while slots move; then it is an outage."""
_ON_THE_MOVE = 0.02
"""Seconds between two questions for a key whose slot is moving."""


class ClusterTransport(ClusterMap):
    """Requests in, replies out, from the node that has the key. The verbs of a `Transport`."""

    # ---- asking

    def send(self, request: Request, now: float) -> Any:
        """Return the reply (a list, if there are several), from the node that has the key."""
        # In one piece, because every lease comes this way twice.
        route = self._map[slot_of(request.key)]
        if route is None:
            route = self._find(request.key, now)
        transport = route.transport
        try:
            reply = transport.send(request, now)
        except (Outage, UsageError) as error:
            return self._failed(error, route, request, now)
        if transport.engine is not route.engine:
            self._learn(route)
        if request.replies == 1:
            if type(reply) is not ErrorReply:
                return reply
        else:
            for each in reply:
                if type(each) is ErrorReply:
                    break
            else:
                return reply
        return self._follow(request, reply, route)

    def _send_to(self, route: Route, request: Request, now: float) -> Any:
        """Return the reply of that node."""
        try:
            return route.transport.send(request, now)
        except (Outage, UsageError) as error:
            return self._failed(error, route, request, now)

    def _failed(
        self, error: Exception, route: Route, request: Request, now: float
    ) -> Any:
        if isinstance(error, UsageError) and self._routes.get(route.node) is not route:
            # The node left the cluster, and its transport was closed, after we had chosen it.
            slot = slot_of(request.key)
            if self._map[slot] is route:
                self._map[slot] = self._route(route.node)
            return self.send(request, now)
        if route.out is not None:
            self._undelivered.add(route.node, request, monotonic())
        raise error

    def _follow(self, request: Request, reply: Any, route: Route) -> Any:
        """Return the reply from where the key is, if *reply* says that it is elsewhere.

        Each node has a separate budget: the time that another one took is not its silence.
        Nor is the time in which this process did not read an answer that had come.
        """
        limit, is_over = TimeLimit(self._limits.budget), False
        for _ in range(_HOPS):
            redirect = self._redirect(reply, route)
            if redirect is None:
                return reply
            if is_over and not isinstance(redirect, Moved):
                break
            since = monotonic()
            if isinstance(redirect, Ask):
                self._moving.add(redirect.slot)
                there = self._route(redirect.node)
                replies = self._send_to(there, asking(request), monotonic())
                reply = interpret(read_asked, replies, request)
                if interpret(read_redirect, first_error(reply), there.node) is None:
                    return reply
            route = self._next(redirect, request.key)
            reply = self._send_to(route, request, monotonic())
            is_over = limit.count(monotonic() - since)
        self.deliver_later(request)
        raise Outage(str(first_error(reply)), sent=True, code="tryagain")

    def _redirect(self, reply: Any, route: Route) -> Redirect | None:
        """Return where *reply* says that the key is; None: it was served."""
        answer = interpret(read_redirect, first_error(reply), route.node)
        redirect = with_host(answer, list(self._routes))
        if redirect is not answer and isinstance(redirect, TryAgain):
            self.reconnect()
        return redirect

    def _next(self, redirect: Redirect, key: bytes) -> Route:
        """Return where to ask after a redirection."""
        if isinstance(redirect, Moved):
            self._map[redirect.slot] = self._route(redirect.node)
            self.reconnect()
        else:
            sleep(_ON_THE_MOVE)
        return self._find(key, monotonic())

    def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """Return the replies to many requests: one write for each node. Outage: of all that failed.

        Where only some nodes are out, the outage stands in the place of each reply of theirs.
        """
        nodes = self._by_node(requests, now)
        works = [
            functools.partial(self._send_many, route, [requests[place] for place in places], now)
            for route, places in nodes.items()
        ]
        outcomes = gather(works)
        if all(isinstance(outcome, Exception) for outcome in outcomes):
            raise outcomes[0]
        replies: list[Any] = [None] * len(requests)
        for places, outcome in zip(nodes.values(), outcomes, strict=True):
            failed = isinstance(outcome, Exception)
            for place, reply in zip(places, repeat(outcome) if failed else outcome, strict=False):
                replies[place] = reply
        return replies

    def _by_node(self, requests: list[Request], now: float) -> dict[Route, list[int]]:
        places: dict[Route, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(self._find(request.key, now), []).append(place)
        return places

    def _send_many(self, route: Route, requests: list[Request], now: float) -> list[Any]:
        if len(requests) > 1:
            with contextlib.suppress(UsageError):  # a closed transport, as above
                replies = route.transport.send_all(requests, now)
                return [
                    reply if first_error(reply) is None else self.send(request, now)
                    for request, reply in zip(requests, replies, strict=True)
                ]
        return [self.send(request, now) for request in requests]

    def post(self, request: Request) -> None:
        """Deliver *request*, for which no caller waits."""
        slot = slot_of(request.key)
        route = self._map[slot]
        if route is None:
            self._undelivered.add(None, request, monotonic())
            with contextlib.suppress(RuntimeError):  # no loop runs: delivered with the next map
                self.reconnect()
            return
        if slot in self._moving or route.engine is None:
            # Its node is known only after asking, or there is no connection to it yet.
            self._send_on(request)
            return
        if route.out is not None:
            self._undelivered.add(route.node, request, monotonic())
        route.transport.post(request)

    def _send_on(self, request: Request) -> None:
        """Deliver *request*, for which no caller waits, to the node of its key."""
        self._threads.spawn(functools.partial(self._deliver, request))

    def _deliver(self, request: Request) -> None:
        with contextlib.suppress(Outage):  # then it is in an outbox
            repeat = worth_repeating(request, self.send(request, monotonic()))
            if repeat is not None:
                self.deliver_later(repeat)

    def deliver_later(self, request: Request) -> None:
        """Deliver *request* when its node has another connection."""
        route = self._map[slot_of(request.key)]
        if route is None:
            self._undelivered.add(None, request, monotonic())
        else:
            route.transport.deliver_later(request)

    # ---- watching keys

    def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Have *wake* called when *key* changes, until `unwatch`."""
        return read_watch(self.track(watch_request(key), wake, now))

    def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """Return the replies to *request*; *wake* is called when its key changes afterwards."""
        route = self._find(request.key, now)
        try:
            answer = route.transport.track(request, wake, now)
        except (Outage, UsageError) as error:
            reply = self._failed(error, route, request, now)
            return Tracked(reply if request.replies > 1 else [reply], tracked=False)
        if interpret(read_redirect, first_error(answer.replies), route.node) is None:
            return answer
        # It is elsewhere, or about to be: no push will come, the caller looks again.
        route.transport.unwatch(request.key, wake)
        reply = self.send(request, now)
        return Tracked(reply if request.replies > 1 else [reply], tracked=False)

    def track_all(self, asked: list[tuple[Request, Wake]], now: float) -> list[Tracked]:
        """Send many requests, one after the other."""
        return [self.track(request, wake, now) for request, wake in asked]

    def changed(self, key: bytes) -> None:
        """Call who watches *key*, without waiting for the server to tell."""
        for route in list(self._routes.values()):
            route.transport.changed(key)

    def is_behind(self, now: float) -> bool:
        """Return whether a node may have reported changes of keys that were not read yet."""
        return any(route.transport.is_behind(now) for route in list(self._routes.values()))

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """Stop calling *wake*."""
        for route in list(self._routes.values()):
            route.transport.unwatch(key, wake)
