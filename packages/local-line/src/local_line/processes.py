"""The processes of a program: which there are, where they listen, and how they end.

Also executed as a file, without the rest of the package: the watcher of `watched`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

GRACE = 5.0
"""Seconds that processes have to end, before they are killed."""
_LOOK = 0.05


@contextmanager
def watched(pid: int, folder: Path) -> Iterator[None]:
    """If this process is killed meanwhile, end the program and remove *folder* all the same."""
    if sys.platform == "win32":
        yield
        return
    words = [sys.executable, "-I", "-S", __file__, str(pid), str(folder)]
    # Its own session: Ctrl-C and a closed terminal are for the others.
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as watch:
        try:
            yield
        finally:
            watch.kill()


def end(pid: int, grace: float) -> None:
    """End that process and its children: `go run` and reloaders do not end theirs."""
    running = family(pid)
    _signal(running, signal.SIGTERM)
    latest = time.monotonic() + grace
    while running := {each for each in running if _is_running(each)}:
        if time.monotonic() > latest:
            _signal(running, signal.SIGKILL)
            return
        time.sleep(_LOOK)


def family(pid: int) -> set[int]:
    """That process and, on Linux, all its descendants."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(pid: int) -> list[int]:
    """The ports on which that process and its children listen; on Linux."""
    inodes = {inode for each in family(pid) for inode in _sockets(each)}
    return sorted(port for inode, port in _listeners() if inode in inodes)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # no /proc on this system
        return sys.platform != "linux"
    return not stat.rpartition(")")[2].lstrip().startswith("Z")


def _signal(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _sockets(pid: int) -> set[str]:
    found: set[str] = set()
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:  # it has just ended, or a file was closed
        pass
    return found


def _listeners() -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for table in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        except OSError:  # no IPv6
            continue
        for row in rows:
            parts = row.split()
            if parts[3] == "0A":
                found.append((parts[9], int(parts[1].rpartition(":")[2], 16)))
    return found


if __name__ == "__main__":
    sys.stdin.read()  # ends with the process at the other side
    end(int(sys.argv[1]), GRACE)
    shutil.rmtree(sys.argv[2], ignore_errors=True)
