"""Owners, supervisors and servers that end or are killed: nothing is left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dibs._server import embedded
from dibs.testing import eventually

from .processes import (
    PATIENT,
    Spawn,
    Start,
    ask,
    found,
    gone,
    home_of,
    linux,
    server_of,
    supervisor_of,
    use,
)

pytestmark = [
    pytest.mark.only_on("linux", "darwin"),
    pytest.mark.usefixtures("real_interpreters"),
]


def test_killed_owner_leaves_nothing(spawn: Spawn) -> None:
    """SIGKILL of the owner ends server and supervisor, and removes the directory."""
    owner = spawn(use, None)
    [(url, server)] = found(owner)
    supervisor = supervisor_of(server)
    owner.kill()
    eventually(lambda: gone(server, supervisor), within=PATIENT)
    assert not home_of(url).exists()


@linux
def test_killed_supervisor_leaves_no_server(start: Start) -> None:
    """SIGKILL of the supervisor ends the server; a rejoin starts another one at the same place."""
    engine = start(None)
    server = server_of(engine.url)
    os.kill(supervisor_of(server), signal.SIGKILL)
    eventually(lambda: gone(server), within=PATIENT)
    eventually(lambda: not engine.alive)
    again = engine.rejoin()
    assert again.url == engine.url
    assert ask(again.url, "PING") is True
    again.close()


def test_server_that_ends_is_noticed_and_can_be_rejoined(start: Start, tmp_path: Path) -> None:
    """A server that ended by itself is not alive; the next rejoin or start brings another."""
    engine = start(str(tmp_path))
    os.kill(server_of(engine.url), signal.SIGKILL)
    eventually(lambda: not engine.alive, within=PATIENT)
    again = engine.rejoin()
    assert server_of(again.url) == server_of(start(str(tmp_path)).url)
    again.close()


def test_polite_signals_do_not_end_it(start: Start) -> None:
    """A stop signal for the whole service is for the users; the server waits until they leave."""
    engine = start(None)
    server = server_of(engine.url)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(supervisor_of(server), number)
        os.kill(server, number)
    time.sleep(0.3)  # Valkey looks at its signals ten times a second
    assert server_of(engine.url) == server
    assert engine.alive


def test_remains_of_a_crash_do_not_matter(start: Start, tmp_path: Path) -> None:
    """The files of a machine that crashed are not mistaken for a server."""
    home = tmp_path / ".dibs"
    home.mkdir(mode=0o700)
    for name in ("supervisor.sock", "valkey.sock"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(home / name))
    for name in ("supervisor.lock", "valkey.log", "temp-1.rdb"):
        (home / name).write_text("old")
    assert ask(start(str(tmp_path)).url, "PING") is True


def test_folder_removed_under_a_server_is_free_again(start: Start, tmp_path: Path) -> None:
    """Who comes after `rm -r` gets a new server, and the old supervisor leaves that one alone."""
    old = start(str(tmp_path))
    server = server_of(old.url)
    supervisor = supervisor_of(server)
    for file in home_of(old.url).iterdir():
        file.unlink()
    home_of(old.url).rmdir()
    new = start(str(tmp_path))
    old.close()
    eventually(lambda: gone(server, supervisor), within=PATIENT)
    assert ask(new.url, "PING") is True


def test_exit_without_close_is_quiet() -> None:
    """An owner that forgets to close leaves nothing behind and gets no message."""
    code = "from dibs._server import embedded; engine = embedded.start(None); print(engine.url)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    owner = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", code],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert owner.stderr == ""
    eventually(lambda: not home_of(owner.stdout.strip()).exists(), within=PATIENT)


def test_forgotten_engine_is_a_closed_one(recwarn: pytest.WarningsRecorder) -> None:
    """An engine without references ends its server, without a ResourceWarning."""
    url = embedded.start(None).url
    eventually(lambda: not home_of(url).exists(), within=PATIENT)
    assert not recwarn.list


def test_owner_without_standard_streams_can_start(spawn: Spawn, tmp_path: Path) -> None:
    """A daemon that closed its standard streams gets a server like any other process."""

    def start_with_nothing_open(answer: str) -> None:
        import os
        from pathlib import Path

        from dibs._server import embedded

        for stream in (0, 1, 2):
            os.close(stream)
        Path(answer).write_text(str(embedded.start(None).alive))

    spawn(start_with_nothing_open, str(tmp_path / "answer")).lines()
    assert (tmp_path / "answer").read_text() == "True"


def test_closed_servers_leave_no_zombies(spawn: Spawn) -> None:
    """A process that started and closed servers has no children left, dead or alive."""

    def children_after_three_servers() -> str:
        import os
        import time

        from dibs._server import embedded

        for _ in range(3):
            engine = embedded.start(None)
            engine.close()
            while os.path.exists(engine.url.removeprefix("unix://")):
                time.sleep(0.01)
        try:
            return str(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            return "none"

    assert spawn(children_after_three_servers).result() == "none"
