# Printed from src/dibs/_async/cluster.py by tools/unasync.py – do not edit.
"""The link to a cluster: one link for each node, and a map of who has which slot."""

import functools
import logging
from collections.abc import Callable
from typing import Any

from .._core.breaker import Limits, Outage
from .._core.connection import Outbox
from .._core.engine import Engine, weakest
from .._core.request import ErrorReply, Request, first_error
from .._core.slots import (
    ASK_SLOTS,
    SLOTS,
    Ask,
    Moved,
    Node,
    Redirect,
    asking,
    read_asked,
    read_redirect,
    read_slots,
    slot_of,
    where_to_ask,
)
from .._core.watch import Tracked, Watching, read_watch, watch_request
from .._links.targets import Cluster
from .._links.watchers import Wake
from .._threads import Background, Crew, Guard, Link, monotonic, sleep, world
from ..errors import Cause, UsageError

_log = logging.getLogger("dibs")

_HOPS = 50
"""How often one request is sent on at most, while slots move; then it is an outage."""
_ASK_AGAIN = 0.2
"""Seconds between two questions for the map, while it is old or a node is out."""
_ON_THE_MOVE = 0.02
"""Seconds between two questions for a key whose slot is moving."""
_KEEP_FOR = 60.0
"""Seconds for which a node that has no slots any more is remembered."""


class Route:
    """A node, the link to it, and what it could do when we looked last."""

    __slots__ = ("engine", "left_at", "link", "node")

    def __init__(self, node: Node, link: Link) -> None:
        self.node = node
        self.link = link
        self.engine: Engine | None = None
        self.left_at: float | None = None
        """Since when it has no slots; None: it has some, or nobody knows."""


class ClusterLink:
    """Requests in, replies out, from whichever node has the key. The same verbs as a `Link`."""

    def __init__(
        self,
        cluster: Cluster,
        limits: Limits,
        on_outage: Callable[[Cause], None],
        on_recovered: Callable[[Cause, float], None],
        on_left: Callable[[], None],
    ) -> None:
        self.engine: Engine | None = None
        """What all the nodes that we know can do; None: we know none."""
        self._cluster = cluster
        self._limits = limits
        self._on_outage, self._on_recovered, self._on_left = on_outage, on_recovered, on_left
        self._seeds = [Node(host, port) for host, port in cluster.seeds]
        self._map: list[Route | None] = [None] * SLOTS
        self._routes: dict[Node, Route] = {}
        self._out: set[Node] = set()
        """Nodes that did not answer when we asked them last."""
        self._owed: dict[Node, Outbox] = {}
        """What nodes that are out must still be told; their successors, if they have any."""
        self._moving: set[int] = set()
        """Slots for which a node has answered ASK, since the last map."""
        self._has_map = False
        self._map_is_old = False
        self._closed = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing that was started in another event loop or process is used."""
        self._guard = Guard()
        self._work = Background("dibs cluster")
        self._crew = Crew()
        self._world: object = None
        """Where the map is being asked for; None: nowhere."""

    def ready(self, now: float) -> Engine:
        """What the cluster can do. Outage: no node answers."""
        if self.engine is None:
            self._ask_slots(now)
        if self.engine is None:
            raise Outage("no node of the cluster knows the slots", sent=False, code="clusterdown")
        return self.engine

    # ---- asking

    def send(self, request: Request, now: float) -> Any:
        """The reply (a list, if there are several), from the node that has the key."""
        # In one piece, because every lease comes this way twice.
        route = self._map[slot_of(request.key)]
        if route is None:
            route = self._find(request.key, now)
        link = route.link
        try:
            reply = link.send(request, now)
        except (Outage, UsageError) as error:
            return self._failed(error, route, request, now)
        if link.engine is not route.engine:
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
        return self._follow(request, reply, route, now)

    def _send_to(self, route: Route, request: Request, now: float) -> Any:
        """The reply of that node."""
        try:
            return route.link.send(request, now)
        except (Outage, UsageError) as error:
            return self._failed(error, route, request, now)

    def _failed(
        self, error: Exception, route: Route, request: Request, now: float
    ) -> Any:
        if isinstance(error, UsageError) and self._routes.get(route.node) is not route:
            # The node left the cluster, and its link was closed, after we had chosen it.
            return self.send(request, now)
        if isinstance(error, Outage):
            self._is_out(route.node, request)
        raise error

    def _follow(self, request: Request, reply: Any, route: Route, now: float) -> Any:
        """The reply from where the key is, if *reply* says that it is elsewhere.

        Each node has a budget of its own: the time that another one took is not its silence.
        """
        for _ in range(_HOPS):
            redirect = read_redirect(first_error(reply), route.node)
            if redirect is None:
                return reply
            if monotonic() - now > self._limits.budget and not isinstance(redirect, Moved):
                raise Outage(str(first_error(reply)), sent=True, code="tryagain")
            if isinstance(redirect, Ask):
                self._moving.add(redirect.slot)
                there = self._route(redirect.node)
                replies = self._send_to(there, asking(request), monotonic())
                reply = read_asked(replies, request)
                if read_redirect(first_error(reply), there.node) is None:
                    return reply
            route = self._next(redirect, request.key)
            reply = self._send_to(route, request, monotonic())
        raise Outage(str(first_error(reply)), sent=True, code="tryagain")

    def _next(self, redirect: Redirect, key: bytes) -> Route:
        """Where to ask after a redirection."""
        if isinstance(redirect, Moved):
            self._map[redirect.slot] = self._route(redirect.node)
            self.distrust()
        else:
            sleep(_ON_THE_MOVE)
        return self._find(key, monotonic())

    def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """The replies to requests of one reply each: one write for each node."""
        replies: list[Any] = [None] * len(requests)
        for route, places in (self._by_node(requests, now)).items():
            mine = [requests[place] for place in places]
            for place, reply in zip(places, self._send_many(route, mine, now), strict=True):
                replies[place] = reply
        return replies

    def _by_node(self, requests: list[Request], now: float) -> dict[Route, list[int]]:
        places: dict[Route, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(self._find(request.key, now), []).append(place)
        return places

    def _send_many(self, route: Route, requests: list[Request], now: float) -> list[Any]:
        if len(requests) > 1:
            try:
                replies = route.link.send_all(requests, now)
            except Outage:
                self._is_out(route.node, requests[0])
                raise
            if first_error(replies) is None:
                return replies
        return [self.send(request, now) for request in requests]

    def post(self, request: Request) -> None:
        """Deliver *request* though nobody waits for it."""
        slot = slot_of(request.key)
        route = self._map[slot]
        if route is None:
            return
        if slot in self._moving or route.engine is None:
            # Where it has to go is known only after asking; or nobody has been there yet.
            self._crew.spawn(functools.partial(self.send, request, monotonic()))
            return
        if route.node in self._out:
            self._owe_to(route.node, request)
        route.link.post(request)

    def owe(self, request: Request) -> None:
        """Deliver *request* when its node has another connection."""
        route = self._map[slot_of(request.key)]
        if route is not None:
            route.link.owe(request)

    # ---- watching keys

    def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Have *wake* called when *key* changes, until `unwatch`."""
        return read_watch(self.track(watch_request(key), wake, now))

    def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """The replies to *request*; *wake* is called when its key changes afterwards."""
        route = self._find(request.key, now)
        answer = route.link.track(request, wake, now)
        if read_redirect(first_error(answer.replies), route.node) is None:
            return answer
        # It is elsewhere, or about to be: nobody will tell, the caller looks again.
        route.link.unwatch(request.key, wake)
        reply = self.send(request, now)
        return Tracked(reply if request.replies > 1 else [reply], told=False)

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        for route in list(self._routes.values()):
            route.link.unwatch(key, wake)

    # ---- the map

    def _find(self, key: bytes, now: float) -> Route:
        """Who has *key*. Outage: nobody, or nobody can be asked."""
        route = self._map[slot_of(key)]
        if route is None and not self._has_map:
            self._ask_slots(now)
            route = self._map[slot_of(key)]
        if route is None:
            self.distrust()
            raise Outage("no node of the cluster has this slot", sent=False, code="clusterdown")
        return route

    def _route(self, node: Node) -> Route:
        route = self._routes.get(node)
        if route is None:
            recovered = functools.partial(self._recovered, node)
            place = self._cluster.node(*node)
            link = Link(place, self._limits, self._on_outage, recovered, self._on_left)
            route = self._routes.setdefault(node, Route(node, link))
        return route

    def _ask_slots(self, now: float) -> None:
        """Ask for the map: those we know, then the seeds. Outage: none of them answers."""
        outage = Outage("no node of the cluster is known", sent=False, code="clusterdown")
        known = [route.node for route in self._map if route is not None]
        for node in where_to_ask(known, self._out, self._seeds):
            route = self._route(node)
            try:
                route.link.ready(now)
                slots = read_slots(route.link.send(ASK_SLOTS, now), node)
            except Outage as error:
                outage = error
                continue
            if slots:
                self._read_map(slots)
                self._learn(route)
                return
        if not self._has_map:
            raise outage

    def _read_map(self, slots: dict[int, Node]) -> None:
        """Use a new map, and leave nodes that are not on it any more."""
        self._map_is_old, self._has_map = False, True
        self._moving = set()
        routes = {node: self._route(node) for node in set(slots.values())}
        self._map = [routes.get(slots[slot]) if slot in slots else None for slot in range(SLOTS)]
        for route in routes.values():
            route.left_at = None
            if route.engine is None:
                self._crew.spawn(functools.partial(self._open, route))
        now = monotonic()
        for node in [node for node in self._routes if node not in routes]:
            if self._is_gone(self._routes[node], now):
                self._leave(self._routes.pop(node))

    def _open(self, route: Route) -> None:
        """Connect to a node that is new on the map before somebody needs it."""
        route.link.ready(monotonic())
        self._learn(route)

    def _is_gone(self, route: Route, now: float) -> bool:
        """A node without slots: dead ones at once, others after a time. They may get some back."""
        if route.left_at is None:
            route.left_at = now
        return route.node in self._out or now - route.left_at > _KEEP_FOR

    def _leave(self, route: Route) -> None:
        """A node has no slots any more: close its link, send what it is owed to its successor."""
        self._out.discard(route.node)
        owed = self._owed.pop(route.node, None)
        route.link.leave()
        self._crew.spawn(route.link.close)
        for request in owed.take(monotonic()) if owed is not None else ():
            self.post(request)

    def _learn(self, route: Route) -> None:
        """A node was reached for the first time, or after a while: it may be another version."""
        route.engine = route.link.engine
        routes = [each for each in list(self._routes.values()) if each.left_at is None]
        engines = [each.engine for each in routes if each.engine is not None]
        self.engine = weakest(engines) if engines and self._has_map else None

    # ---- nodes that are out

    def distrust(self) -> None:
        """The map is old, or a node may not be the master any more: ask who has which slot."""
        self._map_is_old = True
        self._look_after_map()

    def _is_out(self, node: Node, request: Request) -> None:
        self._out.add(node)
        self._owe_to(node, request)
        self._look_after_map()

    def _owe_to(self, node: Node, request: Request) -> None:
        if request.until:
            self._owed.setdefault(node, Outbox()).add(request, monotonic())

    def _recovered(self, node: Node, cause: Cause, lasted: float) -> None:
        self._out.discard(node)
        self._owed.pop(node, None)  # its own link has delivered it
        self._on_recovered(cause, lasted)

    def _look_after_map(self) -> None:
        """Ask for the map beside the callers, until it is new and all its nodes answer."""
        here = world()
        with self._guard:
            if self._world is here or self._closed:
                return
            self._world = here
        try:
            self._work.start(self._keep_asking)
        except RuntimeError:  # no thread can be started now: the next trouble tries again
            self._world = None

    def _keep_asking(self) -> None:
        while self._goes_on():
            try:
                self._ask_slots(monotonic())
            except (Outage, UsageError):
                pass  # asked again
            except Exception:
                _log.exception("dibs: asking for the map of the cluster failed")
            sleep(_ASK_AGAIN)

    def _goes_on(self) -> bool:
        # Decided in one step with saying so: who comes a moment later starts another run.
        with self._guard:
            if (self._map_is_old or self._out) and not self._closed:
                return True
            self._world = None
            return False

    # ---- the end

    def close(self) -> None:
        """Close all links."""
        self._closed = True
        self._work.stop()
        for route in list(self._routes.values()):
            route.link.close()
        self._crew.stop()

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections."""
        for route in self._routes.values():
            route.link.abandon()
            route.engine = None
        self.engine = None
        self._has_map = False
        self._map = [None] * SLOTS
        self._out, self._owed = set(), {}
        self._begin_anew()
