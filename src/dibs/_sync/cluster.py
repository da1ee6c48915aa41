# Generated from src/dibs/_async/cluster.py by unasync.py – do not edit.
"""The transport to a cluster: each request goes to the node that has its key."""

import contextlib
import functools
from itertools import repeat
from typing import Any

from .._core.breaker import Outage
from .._core.connection import TimeLimit, undelivered
from .._core.request import ErrorReply, Request, first_error
from .._core.slots import (
    Ask,
    Moved,
    Redirect,
    TryAgain,
    asking,
    read_asked,
    read_redirect,
    slot_of,
    with_host,
)
from .._core.watch import Tracked, Watching, read_watch, watch_request
from .._threads import gather, monotonic, sleep
from .._transport.watchers import Wake
from ..errors import UsageError
from .cluster_map import ClusterMap, Route

_HOPS = 50
"""How often one request is sent on at most, while slots move; then it is an outage."""
_ON_THE_MOVE = 0.02
"""Seconds between two questions for a key whose slot is moving."""


class ClusterTransport(ClusterMap):
    """Requests in, replies out, from whichever node has the key. The verbs of a `Transport`."""

    # ---- asking

    def send(self, request: Request, now: float) -> Any:
        """The reply (a list, if there are several), from the node that has the key."""
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
        """The reply of that node."""
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
        """The reply from where the key is, if *reply* says that it is elsewhere.

        Each node has a budget of its own: the time that another one took is not its silence.
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
                reply = read_asked(replies, request)
                if read_redirect(first_error(reply), there.node) is None:
                    return reply
            route = self._next(redirect, request.key)
            reply = self._send_to(route, request, monotonic())
            is_over = limit.count(monotonic() - since)
        raise Outage(str(first_error(reply)), sent=True, code="tryagain")

    def _redirect(self, reply: Any, route: Route) -> Redirect | None:
        """Where *reply* says that the key is; None: it was served."""
        said = read_redirect(first_error(reply), route.node)
        redirect = with_host(said, list(self._routes))
        if redirect is not said and isinstance(redirect, TryAgain):
            self.reconnect()
        return redirect

    def _next(self, redirect: Redirect, key: bytes) -> Route:
        """Where to ask after a redirection."""
        if isinstance(redirect, Moved):
            self._map[redirect.slot] = self._route(redirect.node)
            self.reconnect()
        else:
            sleep(_ON_THE_MOVE)
        return self._find(key, monotonic())

    def send_all(self, requests: list[Request], now: float) -> list[Any]:
        """The replies to many requests: one write for each node. Outage: of all that failed.

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
        """Deliver *request* though nobody waits for it."""
        slot = slot_of(request.key)
        route = self._map[slot]
        if route is None:
            self._undelivered.add(None, request, monotonic())
            with contextlib.suppress(RuntimeError):  # no loop runs: delivered with the next map
                self.reconnect()
            return
        if slot in self._moving or route.engine is None:
            # Where it has to go is known only after asking; or nobody has been there yet.
            self._send_on(request)
            return
        if route.out is not None:
            self._undelivered.add(route.node, request, monotonic())
        route.transport.post(request)

    def _send_on(self, request: Request) -> None:
        """Deliver *request* where its key is, though nobody waits for it."""
        self._threads.spawn(functools.partial(self._deliver, request))

    def _deliver(self, request: Request) -> None:
        try:
            again = undelivered(request, self.send(request, monotonic()))
        except Outage as outage:  # of a node: its transport delivers it
            again = request if outage.cause.code == "tryagain" else None
        if again is not None:
            self.deliver_later(again)

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
        """The replies to *request*; *wake* is called when its key changes afterwards."""
        route = self._find(request.key, now)
        try:
            answer = route.transport.track(request, wake, now)
        except (Outage, UsageError) as error:
            reply = self._failed(error, route, request, now)
            return Tracked(reply if request.replies > 1 else [reply], tracked=False)
        if read_redirect(first_error(answer.replies), route.node) is None:
            return answer
        # It is elsewhere, or about to be: no push will come, the caller looks again.
        route.transport.unwatch(request.key, wake)
        reply = self.send(request, now)
        return Tracked(reply if request.replies > 1 else [reply], tracked=False)

    def track_all(self, asked: list[tuple[Request, Wake]], now: float) -> list[Tracked]:
        """The same for many requests, one after the other."""
        return [self.track(request, wake, now) for request, wake in asked]

    def changed(self, key: bytes) -> None:
        """Call who watches *key*, without waiting for the server to tell."""
        for route in list(self._routes.values()):
            route.transport.changed(key)

    def is_behind(self, now: float) -> bool:
        """Whether a node may have reported changes of keys that were not read yet."""
        return any(route.transport.is_behind(now) for route in list(self._routes.values()))

    def unwatch(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        for route in list(self._routes.values()):
            route.transport.unwatch(key, wake)
