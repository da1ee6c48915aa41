"""Clusters and sentinels of real servers, for tests."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from dibs.testing import Server, eventually
from dibs.testing.engines import find
from dibs.testing.servers import free_port

StartServer = Callable[..., Server]
SLOTS = 16384


def start_cluster(start_server: StartServer, nodes: int = 3) -> list[Server]:
    """A cluster of Valkeys without replicas; every node knows every slot."""
    servers = [start_server("valkey", config=("--cluster-enabled", "yes")) for _ in range(nodes)]
    share = SLOTS // nodes
    for number, server in enumerate(servers):
        last = SLOTS - 1 if number == nodes - 1 else (number + 1) * share - 1
        server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        server.client().execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for server in servers[1:]:
        servers[0].client().execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
    for server in servers:
        eventually(lambda server=server: _knows_all(server, nodes), within=30)
    return servers


def _knows_all(server: Server, nodes: int) -> bool:
    info = str(server.client().execute_command("CLUSTER", "INFO"))
    return "cluster_state:ok" in info and f"cluster_known_nodes:{nodes}" in info


def move_slot(slot: int, source: Server, target: Server, *others: Server) -> None:
    """Hand an empty slot from one node to another."""
    node_id = target.client().execute_command("CLUSTER", "MYID").decode()
    for server in (target, source, *others):
        server.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", node_id)


class Sentinel:
    """A sentinel that watches one master under the name `main`."""

    def __init__(self, folder: Path, master: Server) -> None:
        self.port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 3000\n"
        )
        self._process = subprocess.Popen(
            [find("valkey"), str(config), "--sentinel"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> "Sentinel":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
