"""Each recipe for `dibs run` in docs/command-line.md, executed as cron, make and others do."""

import json
import os
import re
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dibs.testing import Server
from tests.cli.program import environment

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
ROW = re.compile(r"^\| (?P<where>[^|]+?) \| `(?P<how>[^|]+)` \|$", re.M)
TABLE = PAGE.read_text("utf-8").partition("| where | how |\n")[2].partition("\n\n")[0]
RECIPES = {found["where"].split()[0].rstrip(":"): found["how"] for found in ROW.finditer(TABLE)}
SHOP = """
from celery import Celery
app = Celery(broker="memory://")
app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": 3600}}
"""


@pytest.fixture
def env(valkey: Server, tmp_path: Path) -> dict[str, str]:
    """Where recipes find `dibs`, and programs that write their arguments into the file `ran`."""
    for name in ("alembic", "deploy.sh", "backup.sh"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/ran"\n')
        (tmp_path / name).chmod(0o755)
    path = [str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]
    return environment(valkey.url, {"PATH": os.pathsep.join(path)})


def recipe(where: str, folder: Path) -> str:
    """With the programs of this test."""
    how = RECIPES[where].replace("/srv/backup.sh", f"{folder}/backup.sh")
    return how.replace("/usr/bin/dibs", str(Path(sys.executable).parent / "dibs"))


def command_of(where: str, folder: Path) -> list[str]:
    """What the program of that name would execute."""
    how = recipe(where, folder)
    if where == "crontab":
        return ["sh", "-c", how.split(maxsplit=5)[5]]
    if where == "service":  # systemd has no shell
        return shlex.split(how.removeprefix("ExecStart="))
    if where == "container":
        return json.loads(how.removeprefix("CMD "))
    assert where == "step"
    return ["sh", "-e", "-c", how.removeprefix("run: ")]


@pytest.mark.parametrize(
    ("where", "ran"),
    [
        ("crontab", ["backup.sh "]),  # once in 20 hours, on any machine
        ("service", ["backup.sh "]),
        ("container", ["alembic upgrade head"] * 2),
        ("step", ["deploy.sh "] * 2),
    ],
)
def test_a_recipe_on_two_machines(
    tmp_path: Path, env: dict[str, str], where: str, ran: list[str]
) -> None:
    """Both end well."""
    command = command_of(where, tmp_path)
    machines = [subprocess.Popen(command, cwd=tmp_path, env=env) for _ in range(2)]
    assert [machine.wait() for machine in machines] == [0, 0]
    assert (tmp_path / "ran").read_text().splitlines() == ran


@pytest.fixture
def beats(tmp_path: Path, env: dict[str, str]) -> Iterator[list["subprocess.Popen[str]"]]:
    """The recipe on two machines."""
    (tmp_path / "shop.py").write_text(SHOP)
    command = ["sh", "-c", "exec " + recipe("Celery", tmp_path)]
    with ExitStack() as running:
        beats: list[subprocess.Popen[str]] = []
        for name in ("a", "b"):
            (folder := tmp_path / name).mkdir()  # beat writes a file where it runs
            beat = subprocess.Popen(
                command, cwd=folder, env={**env, "PYTHONPATH": str(tmp_path)}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            running.enter_context(beat)
            running.callback(beat.kill)
            beats.append(beat)
        yield beats


def test_one_celery_beat_runs_and_another_takes_over(
    beats: list["subprocess.Popen[str]"], valkey: Server
) -> None:
    """The beat gets the SIGTERM of its `dibs run`, and ends as it does without."""
    readable, _, _ = select.select(
        [beat.stdout for beat in beats if beat.stdout is not None], [], []
    )
    first, second = sorted(beats, key=lambda beat: beat.stdout not in readable)
    assert first.stdout is not None and second.stdout is not None
    assert "celery beat" in first.stdout.readline()
    first.terminate()
    first.wait()
    assert "celery beat" in second.stdout.readline()
    assert valkey.keys() == ["beat"]
