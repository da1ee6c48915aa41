"""The workflows run commands that exist, on the Pythons that are promised."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.dist import tagged
from tools.dist.projects import files_of, projects, release_tag

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
        elif program == "python":
            assert rest[0] == "-m" and (ROOT / f"{rest[1].replace('.', '/')}.py").exists()
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
    others = {each["python"] for each in matrix["include"] if "python" in each} - promised
    assert all(each.get("may-fail") for each in matrix["include"] if each.get("python") in others)


def test_every_action_is_pinned_to_a_commit() -> None:
    """A tag or a branch can be moved by whoever owns it; the version stands beside the hash."""
    pinned = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    for path in WORKFLOWS:
        used = [line for line in path.read_text("utf-8").splitlines() if "uses:" in line]
        assert used and all(pinned.search(line) for line in used), path.name


def test_no_linter_finds_anything_in_the_workflows() -> None:
    """zizmor: rights, credentials that stay, templates in shells, unpinned actions and images."""
    zizmor = Path(sys.executable).with_name("zizmor")
    assert zizmor.exists(), "make setup installs it"
    command = [str(zizmor), "--offline", "--no-progress", "--min-severity", "low", ".github"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("tag", "code"),
    [("v{}", 0), ("v{}0", 1), ("dibs-torture-v{}", 1), ("{}", 1)],
    ids=["the version", "another version", "another's version", "no tag"],
)
def test_a_tag_that_is_not_the_version_publishes_nothing(tag: str, code: int) -> None:
    """The step that compares them, run as the workflow runs it."""
    compare = next(
        each for each in commands(ROOT / ".github/workflows/release.yml") if "tagged" in each
    )
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/dibs/__init__.py").read_text("utf-8"))
    assert version
    name = tag.format(version[1] if tag.startswith("v") else "99.0")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "GITHUB_REF_NAME": name}
    assert subprocess.run(compare, shell=True, cwd=ROOT, env=env).returncode == code


def test_only_the_tagged_distribution_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry refuses another file under a version that it has: the others are not uploaded."""
    for project in projects():
        for path in files_of(project):
            (tmp_path / path.name).write_bytes(b"")
    monkeypatch.setattr(tagged, "DIST", tmp_path)
    monkeypatch.setattr(
        tagged, "files_of", lambda each: [tmp_path / p.name for p in files_of(each)]
    )
    library = projects()[0]
    assert tagged.main(release_tag(library)) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in files_of(library)}
