"""`embedded://folder`: a server that is shared by all who name the folder."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dibs.testing import eventually

from .processes import (
    PATIENT,
    Spawn,
    Start,
    ask,
    found,
    gone,
    leave,
    server_of,
    supervisor_of,
    use,
)

fcntl = pytest.importorskip("fcntl", reason="the server is for Linux and macOS")
pytestmark = pytest.mark.only_on("linux", "darwin")


def test_folder_is_shared_by_processes_that_start_at_once(spawn: Spawn, tmp_path: Path) -> None:
    """All processes that name a folder get the same server, however close the race."""
    users = [spawn(use, str(tmp_path)) for _ in range(6)]
    servers = set(found(*users))
    assert len(servers) == 1
    for user in users:
        leave(user)
    eventually(lambda: gone(*(pid for _, pid in servers)), within=PATIENT)


def test_folder_is_shared_within_a_process(start: Start, tmp_path: Path) -> None:
    """Threads that start at once share a server, and so do two spellings of one folder."""
    folders = [str(tmp_path), f"{tmp_path}/x/..", f"{tmp_path}/", str(tmp_path)]
    with ThreadPoolExecutor(len(folders)) as threads:
        servers = set(threads.map(lambda folder: server_of(start(folder).url), folders))
    assert len(servers) == 1


def test_last_user_ends_it_and_the_first_does_not(
    start: Start, spawn: Spawn, tmp_path: Path
) -> None:
    """A shared server lives as long as it has users, and leaves an empty folder."""
    one, two = start(str(tmp_path)), spawn(use, str(tmp_path))
    [(_, server)] = found(two)
    supervisor = supervisor_of(server)
    one.close()
    time.sleep(0.5)  # more than the grace: had the supervisor counted wrong, it would be over
    assert server_of(one.url) == server
    leave(two)
    eventually(lambda: gone(server, supervisor), within=PATIENT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 150, "a b%41#ü?'"], ids=["long", "odd"])
def test_folder_may_have_any_name(start: Start, spawn: Spawn, tmp_path: Path, name: str) -> None:
    """A path that is too long for a socket works, and so does one that a URL must quote."""
    folder = str(tmp_path / name / name)
    user = spawn(use, folder)
    [(url, server)] = found(user)
    assert (url, server) == (start(folder).url, server_of(url))
    leave(user)


def test_private_server_needs_no_short_temporary_directory(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TMPDIR whose path is too long for a socket is not used."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 150)))
    (tmp_path / ("x" * 150)).mkdir()
    assert ask(start(None).url, "PING") is True
    assert list((tmp_path / ("x" * 150)).iterdir()) == []


def test_folder_can_be_used_again_after_its_server_ended(start: Start, tmp_path: Path) -> None:
    """Who comes right after a server has ended gets another one, twenty times in a row."""
    for _ in range(20):
        engine = start(str(tmp_path))
        server = server_of(engine.url)
        engine.close()
        eventually(lambda server=server: gone(server), within=PATIENT)


def test_users_come_and_go(start: Start, spawn: Spawn, tmp_path: Path) -> None:
    """Many processes that start and leave as they like always find a server that answers."""

    def come_and_go(folder: str) -> None:
        import random
        import time

        import redis

        from dibs._server import embedded

        for _ in range(10):
            engine = embedded.start(folder)
            with redis.Redis.from_url(engine.url) as client:
                client.ping()
            engine.close()
            time.sleep(random.choice([0, 0.2, 0.21, 0.25]))  # around the end of the grace

    users = [spawn(come_and_go, str(tmp_path)) for _ in range(4)]
    assert [user.lines(within=60) for user in users] == [[]] * 4
    start(str(tmp_path))


def test_who_comes_before_the_supervisor_has_the_lock_keeps_it(
    start: Start, tmp_path: Path
) -> None:
    """A supervisor that was about to end continues for a user that came in meanwhile."""
    engine = start(str(tmp_path))
    server = server_of(engine.url)
    home = tmp_path / ".dibs"
    with (home / "supervisor.lock").open() as lock, socket.socket(socket.AF_UNIX) as late:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as every newcomer does
        engine.close()
        time.sleep(
            0.5
        )  # more than the grace: the supervisor wants to leave, and waits for the lock
        late.connect(str(home / "supervisor.sock"))
        fcntl.flock(lock, fcntl.LOCK_UN)
        late.settimeout(PATIENT)
        assert late.recv(64) == b"ready\n"
        assert server_of(engine.url) == server


def test_lock_that_its_supervisor_removed_is_no_lock(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited for the lock of a supervisor that left takes the lock that others will see."""
    flock = fcntl.flock
    lock = tmp_path / ".dibs" / "supervisor.lock"

    def flock_of_a_leaving_supervisor(file: int, how: int) -> None:
        monkeypatch.undo()
        lock.unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock_of_a_leaving_supervisor)
    start(str(tmp_path))
    assert lock.exists()
