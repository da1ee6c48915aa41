"""Processes that use an embedded server, and what can be asked about it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from dibs._transport import embedded
from dibs.testing import Child

Start = Callable[[str | None], embedded.Engine]
Spawn = Callable[..., Child]
linux = pytest.mark.only_on("linux")  # others do not do this, or do not tell
PATIENT = 20.0  # seconds; the machine may be busy


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
