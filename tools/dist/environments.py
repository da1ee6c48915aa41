"""Clean environments with one wheel in it, on the oldest and the newest that it allows."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from .projects import Project

Resolution = Literal["lowest-direct", "highest"]
SMOKE = Path(__file__).with_name("smoke.py")
LONGEST = 600.0
"""What a smoke test may take, in seconds; on an idle machine it is a few."""


def requirement_sets(project: Project) -> Iterator[tuple[str, Resolution, list[str]]]:
    """Each extra, and none, with the oldest and the newest of what it requires."""
    own: list[str] = project.settings["project"]["dependencies"]
    for extra, more in {"": list[str](), **project.extras}.items():
        direct = [each for each in (*own, *more) if not each.startswith(f"{project.name}[")]
        yield extra, "lowest-direct", direct
        yield extra, "highest", direct


class Environment:
    """A virtual environment in a temporary folder, gone at the end of the block."""

    def __init__(self, uv: str) -> None:
        self._uv = str(Path(uv).resolve()) if "/" in uv else uv
        self._folder = tempfile.TemporaryDirectory()
        self.python = str(Path(self._folder.name) / "venv/bin/python")

    def __enter__(self) -> "Environment":
        venv = Path(self.python).parents[1]
        self._run("venv", "--quiet", "--no-project", "--python", sys.executable, str(venv))
        return self

    def __exit__(self, *exception: object) -> None:
        self._folder.cleanup()

    def install(self, wheel: str, links: Path, direct: list[str], resolution: Resolution) -> None:
        """Install a wheel with an extra, and what it requires; what else we build is in *links*.

        Requirements are named once more, because only what is named counts as direct.
        """
        command = ["pip", "install", "--quiet", "--python", self.python, "--only-binary", ":all:"]
        options = ["--resolution", resolution, "--find-links", str(links)]
        self._run(*command, *options, wheel, *direct)

    def add(self, *requirements: str, index: str | None = None) -> None:
        """Install what is named; *index* is asked before the usual registry."""
        first = [] if index is None else ["--index", index]
        self._run("pip", "install", "--quiet", "--python", self.python, *first, *requirements)

    def run(self, program: str) -> str:
        """What went wrong in *program*; nothing, if nothing did."""
        path = Path(self._folder.name) / "program.py"
        path.write_text(program, "utf-8")
        return self._said([self.python, "-I", str(path)])

    def smoke(self, project: Project, extra: str, url: str) -> str:
        """What went wrong in the smoke test; nothing, if nothing did."""
        command = [self.python, "-I", "-W", "ignore::DeprecationWarning", str(SMOKE)]
        arguments = [project.name, extra, url, *(Path(p).name for p in project.packages)]
        return self._said([*command, *arguments])

    def _said(self, command: list[str]) -> str:
        folder = self._folder.name
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return f"it was not done within {LONGEST:g} s"
        return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()

    def versions(self, direct: list[str]) -> str:
        """Which versions of the direct requirements are installed, for people."""
        command = [self._uv, "pip", "freeze", "--quiet", "--python", self.python]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = {re.split(r"[\[><=;~! ]", each)[0] for each in direct}
        found = [line for line in listed.splitlines() if line.partition("==")[0] in names]
        return ", ".join(line.replace("==", " ") for line in found)

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._uv, *arguments], check=True, cwd=self._folder.name)
