"""The workflows run commands that exist, on the Pythons that are promised."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from .files import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def workflow(path: Path) -> dict[str, Any]:
    """The workflow in that file."""
    return yaml.safe_load(path.read_text("utf-8"))


def commands(path: Path) -> list[str]:
    """What its steps run in a shell."""
    jobs = workflow(path)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_is_one_of_this_repository(path: Path) -> None:
    """A target of the Makefile, or a program with the right to be run."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for command in commands(path):
        program, *rest = command.split()
        if program == "make":
            assert rest[0] in targets
        elif "/" in program:
            assert os.access(ROOT / program, os.X_OK)
        else:
            assert shutil.which(program)


def test_every_promised_python_is_tested() -> None:
    """The matrix and the classifiers name the same versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    promised = {each.rpartition(" ")[2] for each in project["classifiers"] if prefix in each}
    matrix = workflow(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert set(matrix["python"]) == promised


@pytest.mark.parametrize(("tag", "code"), [("", 0), ("0", 1)], ids=["the version", "another"])
def test_a_tag_that_is_not_the_version_publishes_nothing(tag: str, code: int) -> None:
    """The step that compares them, run as the workflow runs it."""
    (compare,) = [
        each for each in commands(ROOT / ".github/workflows/release.yml") if "grep" in each
    ]
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/dibs/__init__.py").read_text("utf-8"))
    assert version
    env = {**os.environ, "GITHUB_REF_NAME": f"v{version[1]}{tag}"}
    assert subprocess.run(compare, shell=True, cwd=ROOT, env=env).returncode == code
