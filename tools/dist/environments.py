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
        self._python = str(Path(self._folder.name) / "venv/bin/python")

    def __enter__(self) -> "Environment":
        venv = Path(self._python).parents[1]
        self._run("venv", "--quiet", "--no-project", "--python", sys.executable, str(venv))
        return self

    def __exit__(self, *exception: object) -> None:
        self._folder.cleanup()

    def install(self, wheel: str, links: Path, direct: list[str], resolution: Resolution) -> None:
        """Install a wheel with an extra, and what it requires; what else we build is in *links*.

        Requirements are named once more, because only what is named counts as direct.
        """
        command = ["pip", "install", "--quiet", "--python", self._python, "--only-binary", ":all:"]
        options = ["--resolution", resolution, "--find-links", str(links)]
        self._run(*command, *options, wheel, *direct)

    def smoke(self, project: Project, extra: str, url: str) -> str:
        """What went wrong in the smoke test; nothing, if nothing did."""
        command = [self._python, "-I", "-W", "ignore::DeprecationWarning", str(SMOKE)]
        arguments = [project.name, extra, url, *(Path(p).name for p in project.packages)]
        try:
            done = subprocess.run(
                [*command, *arguments],
                cwd=self._folder.name,
                capture_output=True,
                text=True,
                timeout=LONGEST,
            )
        except subprocess.TimeoutExpired:
            return f"the smoke test was not done within {LONGEST:g} s"
        return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()

    def versions(self, direct: list[str]) -> str:
        """Which versions of the direct requirements are installed, for people."""
        command = [self._uv, "pip", "freeze", "--quiet", "--python", self._python]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = {re.split(r"[\[><=;~! ]", each)[0] for each in direct}
        found = [line for line in listed.splitlines() if line.partition("==")[0] in names]
        return ", ".join(line.replace("==", " ") for line in found)

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._uv, *arguments], check=True, cwd=self._folder.name)
