"""A real proxy that knows neither HELLO nor COMMAND: every verb works, and is guarded."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dibs import Dibs, Event
from dibs.testing import Engine, Server, eventually
from dibs.testing.servers import free_port

from ._async import test_capabilities as tasks
from ._sync import test_capabilities as threads

Start = Callable[[int], str]


@pytest.fixture
def twemproxy(tmp_path: Path) -> Iterator[Start]:
    """Start one in front of a server; its URL."""
    program = shutil.which("nutcracker", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("NOT TESTED: no twemproxy (apt install nutcracker)")
    running: list[subprocess.Popen[bytes]] = []

    def start(server_port: int) -> str:
        port, stats = free_port(), free_port()
        (tmp_path / "proxy.yml").write_text(
            f"dibs:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n"
            f'  hash_tag: "{{}}"\n  redis: true\n  servers:\n  - 127.0.0.1:{server_port}:1\n'
        )
        settings = ["-c", str(tmp_path / "proxy.yml"), "-o", str(tmp_path / "log")]
        own = ["-s", str(stats), "-a", "127.0.0.1", "-p", str(tmp_path / "pid")]
        running.append(subprocess.Popen([program, *settings, *own]))
        eventually(lambda: _listens(port))
        return f"redis://127.0.0.1:{port}"

    yield start
    for each in running:
        each.terminate()
        each.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@pytest.mark.parametrize("engine", ["valkey", "redis7"])
async def test_every_verb_works_through_twemproxy_for_tasks(
    twemproxy: Start, servers: Callable[[Engine], Server], engine: Engine
) -> None:
    """It closes the connection on HELLO, CLIENT and COMMAND."""
    servers(engine).flush()
    url = twemproxy(servers(engine).port)
    for verb in tasks.VERBS.values():
        await tasks.run(verb, url)


@pytest.mark.parametrize("engine", ["valkey", "redis7"])
def test_every_verb_works_through_twemproxy_for_threads(
    twemproxy: Start, servers: Callable[[Engine], Server], engine: Engine
) -> None:
    """The same verbs on pooled connections."""
    servers(engine).flush()
    url = twemproxy(servers(engine).port)
    for verb in threads.VERBS.values():
        threads.run(verb, url)


def test_a_proxy_without_its_server_is_an_outage(twemproxy: Start, own_server: Server) -> None:
    """It answers in the server's place: that is not a mistake in the request."""
    url = twemproxy(own_server.port)
    events: list[Event] = []
    with Dibs(url, budget=5, listeners=[events.append]) as dibs:
        with dibs.hold("job:1", ttl=5) as lease:
            assert lease.guarded
        own_server.kill()
        with dibs.hold("job:1", ttl=5) as lease:
            assert not lease.guarded
    assert {event.cause for event in events if event.kind == "outage"} <= {
        "backend",
        "disconnected",
    }
