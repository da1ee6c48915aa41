"""A real PostgreSQL for the tests of the applications."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dibs.testing import eventually

# A database is made in 0.2 s of CPU, and emptied in 5 ms.
EMPTY = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace
        WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
    LOOP EXECUTE format('DROP SCHEMA %I CASCADE', name); END LOOP;
    EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
    CREATE SCHEMA public AUTHORIZATION pg_database_owner;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$
"""


class Postgres:
    """A PostgreSQL from a wheel: on a Unix socket, in its own folder, removed with the tests.

    The wheel's own `get_server` is not used: for root, it adds a user to the system and makes all
    folders above the data world-readable.
    """

    # A shell watches it: when our end of the pipe is gone, however we ended, it ends the server.
    _WATCHER = '"$@" & read _; kill -INT $!; wait $!'

    def __init__(self, programs: Path, copy_of: Postgres | None = None) -> None:
        """*copy_of*: it is a replica of that one, which runs."""
        self._user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to be root
        self._folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path is short
        self._programs = programs if self._is_open(programs) else self._copied(programs)
        self._numbers = itertools.count(1)
        self._left: list[str] = []
        self._keeper: subprocess.Popen[bytes] | None = None
        if self._user:
            shutil.chown(self._folder, self._user)
        if copy_of is not None:
            source = ["-h", str(copy_of._folder), "-U", "postgres", "-c", "fast"]
            self._run("pg_basebackup", "-D", self._data, "-R", "-N", *source)
            return
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _is_open(self, programs: Path) -> bool:
        """Whether the user who will run them gets there."""
        return self._user is None or all(each.stat().st_mode & 1 for each in programs.parents)

    def _copied(self, programs: Path) -> Path:
        package = programs.parents[1]
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, self._folder / folder.name)
        return self._folder / programs.relative_to(package.parent)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, user=self._user, cwd=self._folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def replica(self) -> Postgres:
        """Another server that repeats what this one does, and takes no writes; to be started."""
        return Postgres(self._programs, self)

    def start(self) -> None:
        """It answers."""
        options = ["-D", self._data, "-k", str(self._folder), "-c", "fsync=off"]
        server = [str(self._programs / "postgres"), *options, "-c", "listen_addresses="]
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", self._WATCHER, "watcher", *server],
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        eventually(self._answers, within=90)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            self.ask("SELECT 1")
            return True
        return False

    def stop(self) -> None:
        """Its process is gone."""
        if self._keeper is not None:
            self._keeper.communicate(timeout=20)
            self._keeper = None

    def crash(self) -> None:
        """Its processes are gone at once, without an orderly end (an immediate shutdown)."""
        os.kill(self._pids()[0], signal.SIGQUIT)
        self.stop()

    @property
    def socket(self) -> str:
        """The path of its Unix socket."""
        return str(self._folder / ".s.PGSQL.5432")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It hangs: connections stay open and are even accepted, nothing answers."""
        pids = self._pids()
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        """The server and all its processes; each is in its own session."""
        main = int(Path(self._data, "postmaster.pid").read_text().split()[0])
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True)
        pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
        return [main, *(pid for pid, parent in pairs if parent == main)]

    def close(self) -> None:
        """Nothing is left of it."""
        self.stop()
        shutil.rmtree(self._folder)

    def ask(self, statement: str, database: str = "postgres") -> list[Any]:
        """Every row of the answer."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def new_database(self) -> str:
        """The URL of an empty one."""
        for name in self._left:
            if not self.ask(f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}'"):
                self._left.remove(name)
                self.ask(EMPTY, name)
                return self.url(name)
        name = f"app_{next(self._numbers)}"
        self.ask(f"CREATE DATABASE {name}")
        return self.url(name)

    def take_back(self, url: str) -> None:
        """A test has ended that had it: emptied when nobody is connected, it is another one's."""
        self._left.append(url.partition("@/")[2].partition("?")[0])
