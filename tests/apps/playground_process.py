"""The playground in its own process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx

from dibs.testing import eventually
from dibs.testing.servers import free_port

ROOT = Path(__file__).parents[2]


class Playground:
    """`python -m apps.playground` in its own session and temporary folder."""

    def __init__(self, folder: str, port: int) -> None:
        self.folder = folder
        environment = {**os.environ, "TMPDIR": folder, "PORT": str(port), "HOST": "127.0.0.1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apps.playground"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", self.line)
        self.url = found[0] if found else ""

    @contextmanager
    def visitor(self) -> Iterator[httpx.Client]:
        """A visitor who has opened the page."""
        with httpx.Client(base_url=self.url, timeout=20, trust_env=False) as client:
            assert client.get("/").status_code == 200
            yield client

    def servers(self) -> list[str]:
        """The embedded servers of this playground, as the system sees them."""
        listed = subprocess.run(["ps", "-axo", "args"], check=True, capture_output=True, text=True)
        lines = listed.stdout.splitlines()
        return [line for line in lines if "valkey-server" in line and self.folder in line]

    def end(self, number: signal.Signals) -> tuple[int, str, float]:
        """Exit code, everything it said since its first line, and how long it took."""
        asked = time.monotonic()
        self.process.send_signal(number)
        said = "".join(self.process.communicate())
        return self.process.returncode, said, time.monotonic() - asked

    def close(self) -> None:
        """Gone, however the test went."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def running(port: int | None = None) -> Iterator[Playground]:
    # Not pytest's tmp_path: a Unix socket has a short path.
    folder = tempfile.mkdtemp(prefix="pg-", dir="/tmp")
    playground = Playground(folder, free_port() if port is None else port)
    try:
        yield playground
    finally:
        playground.close()
        eventually(lambda: not playground.servers())
        shutil.rmtree(folder, ignore_errors=True)
