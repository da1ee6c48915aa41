# Generated from src/dibs/_async/sentinel.py by unasync.py – do not edit.
"""The master of a Sentinel service: found by asking its sentinels, and watched.

A process that stays on a master that was replaced sees other keys than the rest. So one
connection is subscribed to what a sentinel publishes, and all sentinels are asked once a second.
When the master is another server, the connections to the old one are closed, and what was on its
way there is sent again to the new one.
"""

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from redis.sentinel import MasterNotFoundError

from .._core.cluster_slots import (
    ASK_AFTER_FAILURE,
    CHANNELS,
    LOOK_EVERY,
    Master,
    choose,
    concerns,
    is_master,
    read_master,
)
from .._core.connection import Outage, interpret
from .._core.request import PARSER_ERRORS
from .._forks import reopen_after_fork
from .._threads import (
    Background,
    BackgroundTasks,
    Guard,
    Signal,
    Transport,
    current_loop,
    gather_until,
    monotonic,
    redis,
    shutdown,
)
from .._transport.connection_errors import CONNECTION_ERRORS
from .._transport.targets import Address, SentinelService
from ..errors import UsageError

_log = logging.getLogger("dibs")


_Connection: Any = object
"""Stands for the class of redis-py (plain or TLS) that the following is mixed into."""


class MasterConnection(_Connection):
    """Finds its address by asking, and connects to a master only."""

    def __init__(self, *, sentinels: "Sentinels", **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self.master: Master | None = None
        self._sentinels = sentinels

    def connect(self) -> None:
        """Connect to the master.

        Raises ConnectionError if none is known, or it no longer is one.
        """
        self.master = self._sentinels.master()
        self.host, self.port = self._sentinels.address_of(self.master)
        super().connect()  # pyright: ignore[reportUnknownMemberType]
        if not self._is_master() or not self._sentinels.connected(self):
            self.disconnect()
            raise MasterNotFoundError("the server that Sentinel reported is not a master")

    def _is_master(self) -> bool:
        self.send_command("ROLE")
        try:
            return is_master(self.read_response())
        except ResponseError:
            return True  # this user may not ask; a replica will answer READONLY


class Sentinels:
    """Who is the master: asked when a connection is opened, and watched from then on."""

    def __init__(self, service: SentinelService, on_switch: Callable[[str], None]) -> None:
        self.transport: Transport | None = None
        """Called when the master is another server."""
        self.address = self._of_master(service.template)
        self._service = service
        self._on_switch = on_switch
        self._known: Master | None = None
        self._failed_at: dict[int, float] = {}
        """When a sentinel, by its number, did not answer."""
        self._refused = False
        """True: the last sentinel that did not answer refused the credentials."""
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._subscription: Any = None
        self._closed = False
        self._begin_anew()
        reopen_after_fork(self)

    def _begin_anew(self) -> None:
        """Nothing that was opened in another event loop or process is used."""
        self._answered: set[int] = set()
        """Sentinels, by their numbers, that answered when we asked them last."""
        self._clients = [_client(sentinel) for sentinel in self._service.sentinels]
        self._guard = Guard()
        self._work = Background("dibs sentinel")
        self._threads = BackgroundTasks()
        self._end = Signal()
        self._loop: object = None
        """Where the watching runs; None: nowhere."""

    def _of_master(self, address: Address) -> Address:
        base = address.connection_class
        mixed = type("MasterConnection", (MasterConnection, base), {})
        return Address(mixed, {**address.options, "sentinels": self})

    # ---- what connections need

    def master(self) -> Master:
        """Return who is the master.

        Raises ConnectionError if no sentinel knows; UsageError: none lets us ask.
        """
        self._start()
        self._look("connecting")
        if self._known is not None:
            return self._known
        if self._refused:
            raise UsageError(
                "the sentinels refused the credentials; check sentinel_username and "
                "sentinel_password in the URL, or the sentinel_kwargs of the Sentinel"
            )
        raise MasterNotFoundError(f"no sentinel reports a master for {self._service.name!r}")

    def address_of(self, master: Master) -> tuple[str, int]:
        """Return where to connect to."""
        return self._service.forced_host or master.host, master.port

    def connected(self, connection: Any) -> bool:
        """A connection is open. False: meanwhile the master is another server."""
        with self._guard:
            self._connections.add(connection)
            return self._known is not None and connection.master.address == self._known.address

    def suspect(self) -> None:
        """The master has lost its replicas, or something else is odd: ask at once."""
        if not self._closed:
            self._threads.spawn(functools.partial(self._look, "asked"))

    # ---- asking

    def _look(self, why: str) -> None:
        """Ask who the master is; if it is another one than before, leave the old one."""
        answers = self._ask()
        with self._guard:
            before = self._known
            self._known = known = choose(before, answers, len(self._clients))
        if before is None or known is None or before.address == known.address or self._closed:
            return
        _log.info("dibs: Sentinel reports a new master: %s:%s", known.host, known.port)
        if why == "connecting":
            # A caller that opens a connection may hold a lock that closing the others needs.
            self._threads.spawn(self._leave_old)
        else:
            self._leave_old()
        self._on_switch(why)

    def _leave_old(self) -> None:
        assert self.transport is not None
        with self._guard:
            known = self._known
            connections = list(self._connections)
        for connection in connections:
            if known is not None and connection.master.address != known.address:
                shutdown(connection)  # also those that a thread is using just now
        self.transport.reconnect()

    def _ask(self) -> list[Master]:
        """Return the replies of the sentinels that answer.

        One that has not answered is left alone for a time, unless no other answers.
        """
        now = monotonic()
        failed = {n for n, at in self._failed_at.items() if now - at < ASK_AFTER_FAILURE}
        numbers = range(len(self._clients))
        answers = self._ask_each([number for number in numbers if number not in failed])
        return answers or self._ask_each(list(failed))

    def _ask_each(self, numbers: list[int]) -> list[Master]:
        """Return what those sentinels say. Any that may hang are asked at the same time."""
        doubtful = [number for number in numbers if number not in self._answered]
        well = [number for number in numbers if number in self._answered]
        answers: list[Any] = [self._ask_one(number) for number in well]
        if doubtful:
            questions = [functools.partial(self._ask_one, number) for number in doubtful]
            answers += gather_until(questions, lambda _: False)
        for error in [each for each in answers if isinstance(each, Exception)]:
            raise error
        return [master for master in answers if master is not None]

    def _ask_one(self, number: int) -> Master | None:
        client, name = self._clients[number], self._service.name
        try:
            # The epoch first. If the master changes between the two replies, the new address has
            # the old epoch, until the next look. The old address with the new epoch would stay.
            state = _state_of(client, name)
            address = client.sentinel_get_master_addr_by_name(name)
            master = interpret(read_master, address, state)
        except (*CONNECTION_ERRORS, *_ODD_REPLIES, Outage) as error:
            self._failed_at[number] = monotonic()
            self._answered.discard(number)
            self._refused = isinstance(error, AuthenticationError | NoPermissionError)
            # Those that are idle may have gone silent with it, and would cost the time again.
            client.connection_pool.disconnect(inuse_connections=False)
            return None
        self._failed_at.pop(number, None)
        self._answered.add(number)
        return master

    # ---- watching

    def _start(self) -> None:
        """Watch, from the first connection on; again in a new event loop."""
        here = current_loop()
        if self._loop is here or self._closed:
            return
        if self._loop is not None:
            self._begin_anew()
        self._loop = here
        try:
            self._work.start(functools.partial(self._watch, here))
        except RuntimeError:  # no thread can be started now: the next connection tries again
            self._loop = None

    def _goes_on(self, here: object) -> bool:
        return self._loop is here and not self._closed

    def _watch(self, here: object) -> None:
        turn = 0
        while self._goes_on(here):
            turn += 1
            client = self._clients[turn % len(self._clients)]
            try:
                self._watch_at(client, here)
            except Exception as error:
                if not isinstance(error, CONNECTION_ERRORS) and self._goes_on(here):
                    _log.exception("dibs: the subscription to the sentinels failed")
                self._look_quietly("asked")
                self._end.wait(LOOK_EVERY)

    def _watch_at(self, client: Any, here: object) -> None:
        """Until the subscription breaks."""
        subscription = self._subscription = client.pubsub()
        try:
            subscription.subscribe(*CHANNELS)
            while self._goes_on(here):
                self._look_quietly(self._news(subscription, here))
        except GeneratorExit:
            raise  # the event loop was closed: nothing can be awaited
        except BaseException:
            self._unsubscribe(subscription)
            raise
        self._unsubscribe(subscription)

    def _unsubscribe(self, subscription: Any) -> None:
        self._subscription = None
        with contextlib.suppress(*CONNECTION_ERRORS):
            subscription.close()

    def _news(self, subscription: Any, here: object) -> str:
        """Something was published about our service; or it is time to ask anyway."""
        due = monotonic() + LOOK_EVERY
        while self._goes_on(here) and (remaining := due - monotonic()) > 0:
            if concerns(subscription.get_message(timeout=remaining), self._service.name):
                return "announced"
        return "asked"

    def _look_quietly(self, why: str) -> None:
        """Continue after any error: this is the only watcher."""
        if self._closed:
            return
        try:
            self._look(why)
        except Exception:
            _log.exception("dibs: polling the sentinels failed")

    # ---- the end

    def close(self) -> None:
        """Stop watching, close the connections to the sentinels."""
        self._closed = True
        self._end.set()
        subscription = self._subscription
        if subscription is not None and subscription.connection is not None:
            shutdown(subscription.connection)
        self._work.stop()
        self._threads.stop()
        if self._loop is current_loop():
            for client in self._clients:
                client.close()

    def open(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._known = None
        self._connections = weakref.WeakSet()
        self._subscription = None
        self._begin_anew()


_ODD_REPLIES = (*PARSER_ERRORS, AttributeError, LookupError)
"""What redis-py raises if a reply is not that of a sentinel."""


def _state_of(client: Any, name: str) -> dict[str, Any]:
    """Return what a sentinel knows about the master of a service.

    Empty: it does not know the service.
    """
    try:
        return client.sentinel_master(name)
    except NoPermissionError:
        raise
    except ResponseError:
        return {}


def _client(sentinel: Address) -> Any:
    pool = redis.ConnectionPool(connection_class=sentinel.connection_class, **sentinel.options)
    return redis.Redis.from_pool(pool)
