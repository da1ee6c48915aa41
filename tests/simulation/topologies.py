"""Several servers: a Sentinel service whose master changes, a cluster whose slots move."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dibs._core.cluster_slots import SLOTS, slot_of

from .network import Host
from .server import Server
from .system import CLOCK
from .wire import ErrorReply, Replies

if TYPE_CHECKING:
    from .world import World

PORT = 6379
SERVICE = "service"
_NODES = ("server", "second")
_SENTINELS = ("sentinel-1", "sentinel-2", "sentinel-3")


class Topology:
    """One server, at one address."""

    url = "redis://server/0"
    names: tuple[str, ...] = ("server",)

    def __init__(self, world: "World") -> None:
        self.world = world
        self.hosts = [self._host(name) for name in self.names]
        """Those that have keys."""

    def _host(self, name: str) -> Host:
        world = self.world
        server = Server(world.plan.engine, CLOCK.wall, may_kill=world.plan.may_kill)
        server.observe = world.observe
        host = world.network.hosts[name] = Host(server)
        return host

    @property
    def masters(self) -> list[Server]:
        """The servers whose keys count."""
        return [host.server for host in self.hosts]


# ---- Sentinel


class Sentinel(Server):
    """A sentinel: where the master is, asked or published."""

    def __init__(self, world: "World", service: "SentinelService") -> None:
        super().__init__(world.plan.engine, CLOCK.wall)
        self._service = service

    def _run(self, name: str, words: list[bytes]) -> Any:
        if name == "SUBSCRIBE":
            self._session.is_subscribed = True
            return Replies(self._subscribed(words[1:]))
        if name != "SENTINEL":
            return super()._run(name, words)
        service = self._service
        master = [service.master.encode(), b"%d" % PORT]
        if words[1].upper() == b"GET-MASTER-ADDR-BY-NAME":
            return master
        if words[1].upper() != b"MASTER":
            raise ErrorReply("ERR unknown subcommand")
        facts = {
            b"name": SERVICE.encode(), b"ip": master[0], b"port": master[1], b"flags": b"master",
            b"config-epoch": b"%d" % service.epoch,
        }  # fmt: skip
        is_resp3 = self._session.protocol >= 3
        return facts if is_resp3 else [word for pair in facts.items() for word in pair]

    def _subscribed(self, channels: list[bytes]) -> list[Any]:
        return [[b"subscribe", channel, number + 1] for number, channel in enumerate(channels)]

    def publish(self) -> None:
        """The master is another one."""
        facts = f"{SERVICE} before 1 {self._service.master} {PORT}".encode()
        for session in list(self.sessions.values()):
            session.publish([b"message", b"+switch-master", facts])


class SentinelService(Topology):
    """Two servers, one of which is the master, and three sentinels."""

    url = f"redis+sentinel://{','.join(_SENTINELS)}/{SERVICE}/0"
    names = _NODES

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.master, self.epoch = _NODES[0], 1
        self._is_switching = False
        self.hosts[1].server.is_replica = True
        self._sentinels = [Sentinel(world, self) for _ in _SENTINELS]
        for name, sentinel in zip(_SENTINELS, self._sentinels, strict=True):
            world.network.hosts[name] = Host(sentinel)

    @property
    def masters(self) -> list[Server]:
        return [host.server for host in self.hosts if not host.server.is_replica][:1]

    def switch(self, unseen: float) -> None:
        """The replica takes over. *unseen*: what was written for so many seconds before is lost,
        and the old master serves its clients for as long afterwards; 0: none of that."""
        if self._is_switching:
            return
        self._is_switching = True
        old, new = [host.server for host in self.hosts]
        if old.is_replica:
            old, new = new, old
        state, since = old.keys.copied(), CLOCK.now
        if unseen:
            self.world.later(unseen, self._promote, old, new, state, since)
        else:
            self._promote(old, new, state, None)

    def _promote(self, old: Server, new: Server, state: Any, since: float | None) -> None:
        new.become(state)
        new.is_replica = False
        self.master = _NODES[1] if new is self.hosts[1].server else _NODES[0]
        self.epoch += 1
        self.world.note("master", self.master)
        for sentinel in self._sentinels:
            sentinel.publish()
        if since is None:
            self._demote(old)
        else:
            unseen = CLOCK.now - since
            self.world.lost_data(since, after=unseen)  # the old one still grants, and will lose it
            self.world.later(unseen, self._demote, old, since)

    def _demote(self, old: Server, since: float | None = None) -> None:
        """Sentinel makes it a replica, and closes its connections."""
        old.is_replica = True
        old.become(self.masters[0].keys.copied())
        self._is_switching = False
        if since is not None:
            self.world.lost_data(since)


# ---- a cluster


class Cluster(Topology):
    """Two nodes, each with half of the slots at first."""

    url = f"redis+cluster://{','.join(_NODES)}"
    names = _NODES

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._owners: dict[int, int] = {}
        """The node of slots that have moved."""
        self._moving: dict[int, int] = {}
        """Where slots are moving to."""
        for number, host in enumerate(self.hosts):
            host.server.redirect = self._redirection(number)
            host.server.slots = self._slots

    def _owner(self, slot: int) -> int:
        return self._owners.get(slot, int(slot >= SLOTS // 2))

    def _redirection(self, node: int) -> Callable[[list[bytes], bool], str | None]:
        def redirect(keys: list[bytes], is_asking: bool) -> str | None:
            """As real nodes do, in this order."""
            slot, *others = {slot_of(key) for key in keys}
            if others:
                return "CROSSSLOT Keys in request don't hash to the same slot"
            owner, target = self._owner(slot), self._moving.get(slot)
            here = [key for key in keys if self.hosts[node].server.keys.live(key) is not None]
            is_split = len(keys) > 1 and len(here) < len(keys)
            if owner == node:
                if target is None or len(here) == len(keys):
                    return None
                return f"TRYAGAIN {slot}" if here else f"ASK {slot} {_NODES[target]}:{PORT}"
            if target == node and is_asking:
                return f"TRYAGAIN {slot}" if is_split else None
            return f"MOVED {slot} {_NODES[owner]}:{PORT}"

        return redirect

    def _slots(self) -> list[Any]:
        points = sorted({0, SLOTS // 2, *self._owners, *(slot + 1 for slot in self._owners)})
        ends = [point - 1 for point in points[1:]] + [SLOTS - 1]
        return [
            [start, end, [_NODES[node].encode(), PORT, b"%040d" % node]]
            for start, end in zip(points, ends, strict=True)
            if start <= end
            for node in [self._owner(start)]
        ]

    def move(self, key: bytes, seconds: float) -> None:
        """Move the slot of *key* to the other node, its keys in the middle of that time."""
        slot = slot_of(key)
        if slot in self._moving:
            return
        target = self._moving[slot] = 1 - self._owner(slot)
        self.world.note("moves", slot, _NODES[target])
        self.world.later(seconds / 2, self._migrate, slot, target)
        self.world.later(seconds, self._moved, slot, target)

    def _migrate(self, slot: int, target: int) -> None:
        """MIGRATE of every key that is still there."""
        source, there = self.hosts[1 - target].server.keys, self.hosts[target].server.keys
        source.sweep()
        for key in [key for key in source.values if slot_of(key) == slot]:
            there.put(key, source.values[key])
            if key in source.expiries:
                there.expire_at(key, source.expiries[key])
            source.remove(key)

    def _moved(self, slot: int, target: int) -> None:
        self._migrate(slot, target)
        del self._moving[slot]
        self._owners[slot] = target
        self.world.note("moved", slot, _NODES[target])


TOPOLOGIES = {"single": Topology, "sentinel": SentinelService, "cluster": Cluster}
