"""Forked children and the embedded server of their parent."""

import os
import signal
import time

import pytest

from dibs import Dibs
from dibs.testing import eventually

from .processes import (
    PATIENT,
    Spawn,
    gone,
    home_of,
    server_of,
)

pytestmark = [
    pytest.mark.only_on("linux", "darwin"),
    pytest.mark.usefixtures("real_interpreters"),
]


def test_forked_child_does_not_close_for_its_parent(spawn: Spawn) -> None:
    """What a child does with the engine it inherited is nothing to the parent."""

    def fork_and_close() -> list[bool]:
        import os

        from dibs._server import embedded

        engine = embedded.start(None)
        pid = os.fork()
        if pid == 0:
            inherited = engine.alive
            engine.close()
            engine.close()
            os._exit(1 if inherited else 0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return [code == 0, engine.alive]

    assert spawn(fork_and_close).result() == [True, True]


def test_forked_child_can_rejoin_and_outlive_its_parent(spawn: Spawn) -> None:
    """A child may have its own hold, on a private server too; then it needs no parent."""

    def rejoin_in_a_child() -> None:
        import os
        import signal

        from dibs._server import embedded

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
        time.sleep(0.3)  # a supervisor that counted wrong would be gone by now
        assert server_of(url) == server
    finally:
        os.kill(int(child), signal.SIGKILL)
    eventually(lambda: gone(server), within=PATIENT)


def test_idle_forked_child_does_not_keep_the_server(spawn: Spawn) -> None:
    """A server ends with its owner, even if a child that never used it lives on."""

    def fork_and_wait() -> None:
        import os
        import signal

        from dibs._server import embedded

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

        from dibs._server import embedded

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


def test_a_forked_child_shares_its_parents_server() -> None:
    """embedded:// after fork: the child has its own hold on the same server."""
    with Dibs("embedded://") as dibs, dibs.hold("user:1", ttl=30):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                results = [dibs.try_hold("user:1", ttl=5) is None, dibs.peek("user:1") is not None]
                os.write(writer, repr(results).encode())
            finally:
                os._exit(0)
        os.close(writer)
        assert os.read(reader, 100) == b"[True, True]"
        os.close(reader)
        os.waitpid(child, 0)
