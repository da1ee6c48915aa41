"""The container files, read."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from apps.weamind.core.config import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PORT = "8003"
SETTINGS = {name.upper() for name in Settings.model_fields}
NEEDED = {"POSTGRES_PASSWORD", "LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN"}
Json = dict[str, Any]


VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\})")


class Missing(Exception):
    """A variable without which Compose does not begin."""


def interpolated(value: str, env: dict[str, str]) -> str:
    """As Compose does it, for `${X}`, `${X:-default}`, `${X:?message}` and `$$`."""

    def put(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        if given := env.get(found["name"]):
            return given
        if found["kind"] == "?":
            raise Missing(found["name"], found["rest"])
        return found["rest"] or ""

    return VARIABLE.sub(put, value)


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile and what follows it."""
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text)
    return [
        (name, rest.strip())
        for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


def values(instruction: str) -> list[str]:
    return [rest for name, rest in instructions() if name == instruction]


def command(instruction: str, port: int) -> list[str]:
    """The command in that instruction, for this Python and that port."""
    parts = json.loads(values(instruction)[0].partition("CMD ")[2] or values(instruction)[0])
    own = {"python": sys.executable, "0.0.0.0": "127.0.0.1"}
    return [own.get(part, part.replace(PORT, str(port))) for part in parts]


def environment(compose: Json, folder: Path, redis_url: str, database_url: str) -> dict[str, str]:
    """What the container has in its environment; its servers are on this machine."""
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    image = dict(pair.split("=", 1) for pair in values("ENV")[0].split())
    image.pop("PATH")
    filled = dict.fromkeys(NEEDED, "x1") | {"WEATHER_PROVIDER": "sample"}
    environment = {
        name: interpolated(value, filled)
        for name, value in compose["services"]["app"]["environment"].items()
    }
    assert environment["REDIS_URL"] == "redis://redis:6379/0"
    environment |= {"REDIS_URL": redis_url, "DATABASE_URL": database_url}
    image["PYTHONPATH"] = image["PYTHONPATH"].replace("/app", str(folder))
    return clean | image | environment
