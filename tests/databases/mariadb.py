"""A real MariaDB for tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dibs.testing import eventually


class MariaDB:
    """A MariaDB of the system: on a Unix socket, in its own folder, removed with the tests."""

    # A shell watches it: when our end of the pipe is gone, however we ended, it ends the server.
    _WATCHER = '"$@" & read _; kill -TERM $!; wait $!'

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="my-", dir="/tmp"))
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self._folder, self._user)
        self._numbers = itertools.count(1)
        self._keeper: subprocess.Popen[bytes] | None = None
        data = str(self._folder / "data")
        made = subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}",
             "--auth-root-authentication-method=normal"],
            user=self._user, cwd=self._folder, capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr
        self._command = [
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={self.socket}",
            "--skip-networking", f"--pid-file={self._folder}/pid",
            f"--log-error={self._folder}/log", "--innodb-log-file-size=4M",
            "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M",
        ]  # fmt: skip

    @staticmethod
    def is_installed() -> bool:
        return bool(shutil.which("mariadbd") and shutil.which("mariadb-install-db"))

    @property
    def socket(self) -> str:
        return str(self._folder / "socket")

    def start(self) -> None:
        """It answers."""
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", self._WATCHER, "watcher", *self._command],
            user=self._user, cwd=self._folder, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        eventually(self._answers, within=90)

    def _answers(self) -> bool:
        # Not by pymysql: without a server it leaves its socket open.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def close(self) -> None:
        """Nothing is left of it."""
        if self._keeper is not None:
            self._keeper.communicate(timeout=30)
        shutil.rmtree(self._folder)

    def ask(self, statement: str, database: str | None = None) -> list[Any]:
        """Every row of the answer."""
        import pymysql

        connection = pymysql.connect(
            unix_socket=self.socket, user="root", database=database, autocommit=True
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def new_database(self) -> str:
        """The name of an empty one."""
        name = f"app_{next(self._numbers)}"
        self.ask(f"CREATE DATABASE {name}")
        return name
