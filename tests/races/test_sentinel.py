"""A Sentinel service that is watched: in a forked child, over TLS, until the end."""

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dibs import AsyncDibs, Dibs
from dibs.testing import Server, eventually
from dibs.testing.processes import Process, ended_with_parent
from dibs.testing.servers import free_port, server_program
from tests.topologies import Sentinel, is_master, sentinel_service

StartServer = Callable[..., Server]


def watchers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "dibs sentinel"]


def test_closing_ends_the_watching(start_server: StartServer, tmp_path: Path) -> None:
    """One thread from the first use on, none before and none afterwards."""
    with Sentinel(tmp_path / "s", start_server()) as sentinel:
        dibs = Dibs(f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0", budget=2)
        assert watchers() == []
        eventually(lambda: guarded(dibs))
        assert watchers() == ["dibs sentinel"]
        dibs.close()
        assert watchers() == []


def guarded(dibs: Dibs) -> bool:
    with dibs.hold("user:1", ttl=5) as lease:
        return lease.guarded


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_that_is_closed_takes_the_watching_along(
    start_server: StartServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the workers of job queues close them: asyncio has nothing to complain about."""
    with sentinel_service(start_server, tmp_path, replicas=0, sentinels=1) as service:
        use_in_two_loops(service.url)
        gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def use_in_two_loops(url: str) -> None:
    dibs = AsyncDibs(url, budget=2, on_outage="closed")

    async def use() -> None:
        async with dibs.hold("user:1", ttl=5):
            await asyncio.sleep(0.2)

    for work in (use, use, dibs.aclose):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(work())
        loop.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_watches_for_itself(start_server: StartServer, tmp_path: Path) -> None:
    """It leaves the old master as its parent does, on its own connections."""
    with sentinel_service(start_server, tmp_path, replicas=1, sentinels=1) as service:
        with Dibs(service.url, budget=2) as dibs:
            assert dibs.try_hold("user:1", ttl=60) is not None
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    assert dibs.try_hold("user:2", ttl=60) is not None
                    service.sentinels[0].failover()
                    successor = service.promoted()
                    eventually(lambda: moved(dibs, "user:3", successor), within=90)
                    code = 0 if is_master(service.master) else 2
                finally:
                    os.write(writing, str(code).encode())
                    os._exit(code)
            os.waitpid(child, 0)
            assert os.read(reading, 9) == b"0"
            successor = service.promoted()
            eventually(lambda: moved(dibs, "user:4", successor), within=90)
        os.close(reading)
        os.close(writing)


def moved(dibs: Dibs, key: str, successor: Server) -> bool:
    with dibs.hold(key, ttl=60):
        return key in successor.keys()


async def test_sentinels_and_master_over_tls(start_server: StartServer, tmp_path: Path) -> None:
    """`ssl=true` for the master, `sentinel_ssl=true` for the sentinels, certificates checked."""
    master = start_server("redis7", tls=True)
    _, _, rest = master.tls_url.partition("://127.0.0.1:")
    port, _, certificate = rest.partition("?ssl_ca_certs=")
    home = Path(certificate).parent
    sentinel_port = free_port()
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"port 0\ntls-port {sentinel_port}\nbind 127.0.0.1\ndir {tmp_path}\n"
        f"tls-cert-file {home}/server.pem\ntls-key-file {home}/server.pem\n"
        f"tls-ca-cert-file {certificate}\ntls-auth-clients no\ntls-replication yes\n"
        f"sentinel monitor main 127.0.0.1 {port} 1\n"
    )
    process = Process(ended_with_parent([str(server_program("redis7")), str(file), "--sentinel"]))
    try:
        options = f"ssl=true&ssl_ca_certs={certificate}"
        options += f"&sentinel_ssl=true&sentinel_ssl_ca_certs={certificate}"
        url = f"redis+sentinel://127.0.0.1:{sentinel_port}/main/0?{options}"
        with Dibs(url, budget=2) as dibs:
            eventually(lambda: guarded(dibs))
        async with AsyncDibs(url, budget=5, on_outage="closed") as dibs:
            async with dibs.hold("user:1", ttl=5) as lease:
                assert lease.guarded
    finally:
        process.kill()
