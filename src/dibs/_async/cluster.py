"""The link to a cluster: one link for each node, and a map of who has which slot."""

from collections.abc import Callable
from typing import Any

from redis.crc import key_slot

from .._core.breaker import Limits, Outage
from .._core.engine import Engine, weakest
from .._core.request import ErrorReply, Request, first_error
from .._core.slots import ASK_SLOTS, Node, is_on_the_move, read_moved, read_slots
from .._core.watch import Tracked, Watching
from .._links.targets import Cluster
from .._links.watchers import Wake
from .._tasks import Link, monotonic, sleep
from ..errors import Cause

_HOPS = 50
"""How often one request is sent on at most, while slots move."""
_ASK_AGAIN = 0.2
"""Seconds between two questions for the map, while a node is out."""
_ON_THE_MOVE = 0.02


class AsyncClusterLink:
    """Requests in, replies out, from whichever node has the key. The same verbs as a `Link`."""

    def __init__(
        self,
        cluster: Cluster,
        limits: Limits,
        on_outage: Callable[[Cause], None],
        on_recovered: Callable[[Cause, float], None],
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._on_outage = on_outage
        self._on_recovered = on_recovered
        self._seeds = [Node(host, port) for host, port in cluster.seeds]
        self._slots: dict[int, Node] = {}
        self._links: dict[Node, Link] = {}
        self._map_is_old = True
        self._asked_at = float("-inf")

    @property
    def engine(self) -> Engine | None:
        """What all the nodes that we know can do; None: we know none."""
        engines = [link.engine for link in list(self._links.values()) if link.engine is not None]
        return weakest(engines) if engines and self._slots else None

    async def ready(self, now: float) -> Engine:
        """What the cluster can do. Outage: no node answers."""
        if self.engine is None:
            await self._ask_slots(now)
        engine = self.engine
        if engine is None:
            raise Outage("no node of the cluster knows the slots", sent=False, code="clusterdown")
        return engine

    async def send(self, request: Request, now: float) -> Any:
        """The reply (a list, if there are several), from the node that has the key."""
        hops = 0
        while True:
            node = await self._node_of(request.key, now)
            try:
                reply = await self._link(node).send(request, now)
            except Outage:
                self._map_is_old = True
                raise
            error = first_error(reply)
            if error is None:
                return reply
            hops += 1
            if is_on_the_move(error) and monotonic() - now > self._limits.budget:
                raise Outage(error.code, sent=False, code="tryagain")
            if hops > _HOPS or not await self._is_elsewhere(error, node):
                return reply

    async def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """The replies to requests of one reply each: one write for each node."""
        replies: list[Any] = [None] * len(requests)
        for node, places in (await self._by_node(requests, now)).items():
            mine = [requests[place] for place in places]
            for place, reply in zip(places, await self._send_to(node, mine, now), strict=True):
                replies[place] = reply
        return replies

    def post(self, request: Request) -> None:
        """Deliver *request* though nobody waits for it."""
        node = self._slots.get(key_slot(request.key))
        if node is not None:
            self._link(node).post(request)

    async def watch(self, key: bytes, wake: Wake, now: float) -> Watching:
        """Have *wake* called when *key* changes, until `unwatch`."""
        return await self._link(await self._node_of(key, now)).watch(key, wake, now)

    async def track(self, request: Request, wake: Wake, now: float) -> Tracked:
        """The replies to *request*; *wake* is called when its key changes afterwards."""
        node = await self._node_of(request.key, now)
        return await self._link(node).track(request, wake, now)

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        for link in list(self._links.values()):
            link.unwatch(key, wake)

    def owe(self, request: Request) -> None:
        """Deliver *request* when its node has another connection."""
        node = self._slots.get(key_slot(request.key))
        if node is not None:
            self._link(node).owe(request)

    def distrust(self) -> None:
        """A node answers, but is not the one we want: ask again who has which slot."""
        self._map_is_old = True

    async def aclose(self) -> None:
        """Close all links."""
        for link in list(self._links.values()):
            await link.aclose()

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections."""
        for link in self._links.values():
            link.abandon()

    # ---- the map

    def _link(self, node: Node) -> Link:
        link = self._links.get(node)
        if link is None:
            place = self._cluster.node(*node)
            fresh = Link(place, self._limits, self._on_outage, self._on_recovered)
            link = self._links.setdefault(node, fresh)
        return link

    async def _node_of(self, key: bytes, now: float) -> Node:
        if self._map_is_old and now - self._asked_at > _ASK_AGAIN:
            await self._ask_slots(now)
        node = self._slots.get(key_slot(key))
        if node is None:
            self._map_is_old = True
            raise Outage("no node of the cluster has this slot", sent=False, code="clusterdown")
        return node

    async def _ask_slots(self, now: float) -> None:
        """Ask for the map: those we know, then the seeds. Outage: none of them answers."""
        self._asked_at = now
        outage = Outage("no node of the cluster is known", sent=False, code="clusterdown")
        for node in dict.fromkeys([*set(self._slots.values()), *self._seeds]):
            try:
                link = self._link(node)
                await link.ready(now)
                slots = read_slots(await link.send(ASK_SLOTS, now), node)
            except Outage as error:
                outage = error
                continue
            if slots:
                self._slots, self._map_is_old = slots, False
                return
        if not self._slots:
            raise outage

    async def _is_elsewhere(self, error: ErrorReply, node: Node) -> bool:
        """True: ask again; the map has been put right, or the slot is on the move."""
        moved = read_moved(error, node)
        if moved is not None:
            self._slots[moved.slot] = moved.node
            self._map_is_old = True
            return True
        if is_on_the_move(error):
            await sleep(_ON_THE_MOVE)
            return True
        return False

    # ---- many at once

    async def _by_node(self, requests: list[Request], now: float) -> dict[Node, list[int]]:
        places: dict[Node, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(await self._node_of(request.key, now), []).append(place)
        return places

    async def _send_to(self, node: Node, requests: list[Request], now: float) -> list[Any]:
        if len(requests) == 1:
            return [await self.send(requests[0], now)]
        replies = await self._link(node).send_all(requests, now)
        if first_error(replies) is None:
            return replies
        return [await self.send(request, now) for request in requests]
