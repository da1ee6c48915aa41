"""The image: what is copied into it, what is installed, and how it starts."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from dibs.testing import Server
from dibs.testing.servers import free_port
from tests.apps.postgres import Postgres

from .files import (
    DEPLOY,
    PORT,
    ROOT,
    Json,
    command,
    environment,
    instructions,
    values,
)

pytestmark = pytest.mark.only_on("linux", "darwin")


def copied() -> list[tuple[str, str]]:
    """What is taken from the repository, and where it goes."""
    pairs = [rest.split() for rest in values("COPY") if not rest.startswith("--from")]
    return [(source, target) for source, target in pairs]


def is_sent(path: str) -> bool:
    """Whether `.dockerignore` lets *path* into the build: the last line about it decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, verdict = line.removeprefix("!"), line.startswith("!")
        if any(_fits(each, pattern) for each in _and_parents(path)):
            sent = verdict
    return sent


def _and_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _fits(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatch(path.rpartition("/")[2], pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatch.fnmatch(path, pattern)


def test_what_is_copied_is_there_and_is_sent() -> None:
    """Every file that the image copies exists, and every file in it gets into the build."""
    assert copied()
    for source, _ in copied():
        assert (ROOT / source).exists() and is_sent(source), source
    files = [path for path in (ROOT / "apps/weamind").rglob("*") if path.is_file()]
    for path in files:
        ignored = "__pycache__" in path.parts or path.suffix == ".db"
        assert is_sent(str(path.relative_to(ROOT))) is not ignored, path


@pytest.mark.parametrize(
    "path",
    [".env", "deploy/.env", "apps/weamind/.env", ".git/config", "tests/conftest.py", ".venv/x",
     "apps/playground/main.py", "apps/weamind/bot.db", "requirements/dev.txt"],
)  # fmt: skip
def test_what_is_nobodys_business_is_not_sent(path: str) -> None:
    """Secrets, history, data, and all that the bot does not need."""
    assert not is_sent(path)


def test_the_image_is_slim_pinned_and_without_rights() -> None:
    """A slim Python, hashed wheels, a user who is not root, and no address to load from."""
    assert all(rest.startswith("python:3.13-slim-") for rest in values("FROM"))
    [install] = [rest for rest in values("RUN") if "pip install" in rest]
    assert "--require-hashes" in install and "--only-binary=:all:" in install
    assert values("USER") == ["10001"] and not values("ADD")
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "://" not in (DEPLOY / "Dockerfile").read_text("utf-8")


def test_the_bot_listens_on_the_port_that_others_use(compose: Json) -> None:
    """The bot listens where the health check, Compose and Caddy look for it."""
    assert values("EXPOSE") == [PORT]
    assert json.loads(values("CMD")[0])[-2:] == ["--port", PORT]
    assert f"'127.0.0.1', {PORT}," in values("HEALTHCHECK")[0]
    assert compose["services"]["app"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]


# ----------------------------------------------------------------------------------- the packages


PIN = re.compile(r"^([a-z0-9][\w.-]*)==(\S+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def pins(file: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each package: its version and its hashes."""
    found = PIN.findall((ROOT / "requirements" / file).read_text("utf-8"))
    return {
        name: (version, tuple(re.findall(r"sha256:\w{64}", rest))) for name, version, rest in found
    }


def test_the_packages_are_those_that_are_tested() -> None:
    """The same versions with the same hashes as in the environment of the tests."""
    tested, shipped = pins("dev.txt"), pins("weamind.txt")
    assert len(shipped) > 20
    for name, pin in shipped.items():
        assert pin == tested[name] and pin[1], name


EVERYTHING = """
import importlib, json, pkgutil, sys

class Absent:
    "Packages that the image does not have."
    names = set(json.loads(sys.argv[1]))
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"not in the image: {name}", name=name)

sys.meta_path.insert(0, Absent())
import apps.weamind, psycopg
for each in pkgutil.walk_packages(apps.weamind.__path__, "apps.weamind."):
    # The last is an example for bots that use LINE's SDK.
    if not {"migrations", "__main__", "synchronous"} & set(each.name.split(".")):
        importlib.import_module(each.name)
print(*sys.modules)
"""


def test_no_package_is_missing() -> None:
    """What pyproject.toml asks for is pinned; the bot loads where nothing else is installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [*settings["project"]["dependencies"], *settings["dependency-groups"]["weamind"]]
    names = {re.split(r"[\[><=!~ ;]", each)[0] for each in wanted}
    shipped = {*pins("weamind.txt"), "dibs"}
    assert names <= shipped
    absent = [
        module
        for module, packages in packages_distributions().items()
        if not any(package.lower().replace("_", "-") in shipped for package in packages)
    ]
    assert {"pytest", "linebot", "django", "PIL"} <= set(absent)
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING, json.dumps(absent)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"apps.weamind.cli.serving", "uvicorn", "httpx2"} <= set(done.stdout.split())


# ------------------------------------------------------------------------------ what they run


def as_in_the_image(folder: Path) -> None:
    """*folder* is `/app`: it has what the image copies there, and nothing else."""
    for source, target in copied():
        if target.startswith("/"):
            continue
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.db", ".env")
            shutil.copytree(ROOT / source, folder / target, ignore=ignored)
        else:
            shutil.copy(ROOT / source, folder / target)


def test_the_start_and_the_health_check(
    compose: Json,
    tmp_path: Path,
    valkey: Server,
    postgres: Postgres,
    eventually: Callable[..., Any],
) -> None:
    """Unhealthy, started, healthy, ready on both servers, ended by SIGTERM with 0, unhealthy."""
    as_in_the_image(tmp_path)
    port = free_port()
    env = environment(compose, tmp_path, valkey.url, postgres.new_database())
    start = [*command("ENTRYPOINT", port), *command("CMD", port)]

    def health() -> int:
        done = subprocess.run(
            command("HEALTHCHECK", port), cwd=tmp_path, env=env, capture_output=True
        )
        return done.returncode

    assert health() != 0
    with (tmp_path / "log").open("w") as log:
        bot = subprocess.Popen(start, cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        eventually(lambda: "WeaMind listens at" in (tmp_path / "log").read_text(), within=60)
        assert health() == 0
        ready = httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False, timeout=20)
        assert ready.json() == {"status": "ok", "database": "ok", "redis": "ok"}
        bot.send_signal(signal.SIGTERM)
        assert bot.wait(60) == 0
    finally:
        bot.kill()
        bot.wait()
    assert health() != 0
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"apps", "src", "log"}  # nothing was written: it may be read-only
    assert not list(tmp_path.rglob("__pycache__"))
