"""`embedded://`: a server of one process, for its owner only."""

import time
from pathlib import Path

import pytest

from dibs.testing import eventually

from .processes import Start, ask, home_of, linux, process, server_of, supervisor_of

pytestmark = pytest.mark.only_on("linux", "darwin")


def test_private_server_answers(start: Start) -> None:
    """`embedded://` is a server that answers as soon as it has started."""
    assert ask(start(None).url, "PING") is True


def test_private_servers_are_separate(start: Start) -> None:
    """Two private servers share nothing."""
    one, two = start(None), start(None)
    ask(one.url, "SET", "key", "1")
    assert ask(two.url, "EXISTS", "key") == 0


def test_server_is_for_its_owner_only(start: Start) -> None:
    """No port is open, and other users may not enter the directory of the socket."""
    url = start(None).url
    assert ask(url, "CONFIG", "GET", "port") == {"port": "0"}
    assert home_of(url).stat().st_mode & 0o777 == 0o700
    assert (home_of(url) / "valkey.sock").stat().st_mode & 0o777 == 0o700


def test_server_keeps_nothing_and_evicts_nothing(start: Start) -> None:
    """A lease is not written to disk, and never dropped to make room."""
    url = start(None).url
    for name, value in {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}.items():
        assert ask(url, "CONFIG", "GET", name) == {name: value}


def test_engine_tells_its_state(start: Start) -> None:
    """An engine says where it is and whether it runs; closing it twice is no harm."""
    engine = start(None)
    assert repr(engine) == f"<EmbeddedServer {engine.url} alive>"
    engine.close()
    engine.close()
    assert repr(engine) == f"<EmbeddedServer {engine.url} closed or ended>"


@linux
def test_idle_supervisor_sleeps(start: Start) -> None:
    """A supervisor with nothing to do is never woken up."""
    supervisor = supervisor_of(server_of(start(None).url))

    def wakeups() -> list[str]:
        lines = Path(f"/proc/{supervisor}/status").read_text().splitlines()
        return [line for line in lines if line.startswith("voluntary_ctxt_switches")]

    eventually(lambda: process(supervisor)[0] == "S")
    before = wakeups()
    time.sleep(0.5)
    assert wakeups() == before
