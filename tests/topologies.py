"""Clusters and sentinels of real servers, for tests."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import redis
from redis.crc import key_slot

from dibs.testing import Server, eventually
from dibs.testing.processes import Process, ended_with_parent
from dibs.testing.servers import free_port, server_program

StartServer = Callable[..., Server]
SLOTS = 16384


def start_cluster(
    start_server: StartServer, nodes: int = 3, config: Sequence[str] = ()
) -> list[Server]:
    """A cluster of Valkeys without replicas; every node knows every slot."""
    config = ("--cluster-enabled", "yes", *config)
    servers = [start_server("valkey", config=config) for _ in range(nodes)]
    share = SLOTS // nodes
    for number, server in enumerate(servers):
        last = SLOTS - 1 if number == nodes - 1 else (number + 1) * share - 1
        server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        server.client().execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for server in servers[1:]:
        servers[0].client().execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
    for server in servers:
        eventually(lambda server=server: _knows_all(server, nodes), within=90)
    return servers


def start_replicated_cluster(
    start_server: StartServer, *, node_timeout_ms: int = 2000
) -> tuple[list[Server], list[Server]]:
    """Three masters and, in the same order, a replica of each."""
    config = ("--cluster-node-timeout", str(node_timeout_ms), "--repl-diskless-sync-delay", "0")
    masters = start_cluster(start_server, config=config)
    config = ("--cluster-enabled", "yes", *config)
    replicas = [start_server("valkey", config=config) for _ in masters]
    for replica in replicas:
        masters[0].client().execute_command("CLUSTER", "MEET", "127.0.0.1", replica.port)
    for server in (*masters, *replicas):
        eventually(lambda server=server: _knows_all(server, 6), within=90)
    for master, replica in zip(masters, replicas, strict=True):
        replica.client().execute_command("CLUSTER", "REPLICATE", node_id(master))
    for replica in replicas:
        eventually(lambda replica=replica: is_in_sync(replica), within=90)
    return masters, replicas


def node_id(server: Server) -> str:
    """How the other nodes of a cluster call this one."""
    return server.client().execute_command("CLUSTER", "MYID").decode()


def is_in_sync(replica: Server) -> bool:
    """True: it has a copy of all that its master has."""
    info = replica.client().info("replication")
    return info["role"] == "slave" and info["master_link_status"] == "up"


def is_master(server: Server) -> bool:
    """True: it believes that it is the master."""
    return server.client().info("replication")["role"] == "master"


def take_over(replica: Server) -> None:
    """Let it have the slots of its master at once: an election takes seconds."""
    replica.client().execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
    eventually(lambda: is_master(replica), within=90)


def _knows_all(server: Server, nodes: int) -> bool:
    info = str(server.client().execute_command("CLUSTER", "INFO"))
    return "cluster_state:ok" in info and f"cluster_known_nodes:{nodes}" in info


def move_slot(slot: int, source: Server, target: Server, *others: Server) -> None:
    """Hand an empty slot from one node to another."""
    open_slot(slot, source, target)  # so that the target's word counts more than older gossip
    for server in (target, source, *others):
        server.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", node_id(target))


def open_slot(slot: int, source: Server, target: Server) -> None:
    """Begin to move a slot: from now on the source answers ASK for keys that it does not have."""
    target.client().execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
    source.client().execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(target))


def migrate_keys(slot: int, source: Server, target: Server) -> int:
    """Hand over the keys of an open slot, one by one as redis-cli does. How many there were."""
    moved = 0
    while keys := source.client().execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
        for key in keys:
            source.client().execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            moved += 1
    return moved


def reshard(
    slots: Sequence[int],
    source: Server,
    target: Server,
    *others: Server,
    pause: Callable[[], object] = lambda: None,
) -> None:
    """Move slots with their keys; *pause* is called after each."""
    for slot in slots:
        open_slot(slot, source, target)
        migrate_keys(slot, source, target)
        move_slot(slot, source, target, *others)
        pause()


def slot_of(key: str) -> int:
    """The slot of a key."""
    return key_slot(key.encode())


class Sentinel:
    """A sentinel that watches one master under the name `main`."""

    def __init__(
        self,
        folder: Path,
        master: Server,
        *,
        quorum: int = 1,
        down_after_ms: int = 500,
        config: str = "",
    ) -> None:
        self.port = free_port()
        folder.mkdir(exist_ok=True)
        file = folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds main {down_after_ms}\n"
            "sentinel failover-timeout main 3000\n"
            f"{config}"
        )
        self._process = Process(
            ended_with_parent([str(server_program("valkey")), str(file), "--sentinel"])
        )
        self._client: redis.Redis | None = None

    def __enter__(self) -> "Sentinel":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._client is not None:
            self._client.close()

    def client(self) -> redis.Redis:
        """A client for looking from outside."""
        if self._client is None:
            self._client = redis.Redis(port=self.port, socket_timeout=2)
        return self._client

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def freeze(self) -> None:
        """Stop it (SIGSTOP): connecting works, nothing answers."""
        self._process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._process.thaw()

    def master_port(self) -> int:
        """Where it says that the master is."""
        return int(self.client().sentinel_get_master_addr_by_name("main")[1])

    def sees(self, replicas: int, sentinels: int) -> bool:
        """True: it knows that many replicas and other sentinels."""
        with suppress(redis.RedisError, OSError):
            state = self.client().sentinel_master("main")
            known = state["num-slaves"], state["num-other-sentinels"]
            return known == (replicas, sentinels) and state["is_master"]
        return False

    def failover(self) -> None:
        """Have a replica promoted though the master is well."""

        def begin() -> bool:
            # NOGOODSLAVE: it has not looked at its replicas for a while.
            with suppress(redis.ResponseError):
                return bool(self.client().execute_command("SENTINEL", "FAILOVER", "main"))
            return False

        eventually(begin, within=90)


class Service:
    """A master with replicas, and sentinels that watch it under the name `main`."""

    def __init__(
        self, master: Server, replicas: list[Server], sentinels: list[Sentinel], credentials: str
    ) -> None:
        self.master = master
        self.replicas = replicas
        self.sentinels = sentinels
        self._credentials = credentials

    @property
    def servers(self) -> list[Server]:
        """All of them, the first master first."""
        return [self.master, *self.replicas]

    @property
    def url(self) -> str:
        """The target."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{self._credentials}{hosts}/main/0"

    def promoted(self) -> Server:
        """The replica that has become the master. AssertionError: none has, in time."""

        def find_promoted() -> Server | None:
            return next((each for each in self.replicas if is_master(each)), None)

        server = eventually(find_promoted, within=90)
        assert server is not None
        return server


@contextmanager
def sentinel_service(
    start_server: StartServer,
    folder: Path,
    *,
    replicas: int = 2,
    sentinels: int = 3,
    down_after_ms: int = 500,
    config: Sequence[str] = (),
    sentinel_config: str = "",
    credentials: str = "",
) -> Iterator[Service]:
    """A master, its replicas, and sentinels that know all of them and each other."""
    config = ("--repl-diskless-sync-delay", "0", *config)
    master = start_server("valkey", config=config)
    copies = [
        start_server("valkey", config=(*config, "--replicaof", f"127.0.0.1 {master.port}"))
        for _ in range(replicas)
    ]
    for copy in copies:
        eventually(lambda copy=copy: is_in_sync(copy), within=90)
    with ExitStack() as stack:
        watching = [
            stack.enter_context(
                Sentinel(
                    folder / f"sentinel-{number}",
                    master,
                    quorum=sentinels // 2 + 1,
                    down_after_ms=down_after_ms,
                    config=sentinel_config,
                )
            )
            for number in range(sentinels)
        ]
        if not sentinel_config:
            for each in watching:
                eventually(lambda each=each: each.sees(replicas, sentinels - 1), within=60)
        yield Service(master, copies, watching, credentials)
