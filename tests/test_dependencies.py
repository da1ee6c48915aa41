"""What pyproject.toml allows is what is tested: both ends of each range, and no address in pins."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS: dict[str, list[str]] = SETTINGS["project"]["optional-dependencies"]
FRAMEWORKS = [
    *("arq", "celery", "django", "djangorestframework", "fastapi", "flask", "prometheus-client"),
    *("dramatiq", "rq", "starlette", "taskiq"),
    *("opentelemetry-api", "sentry-sdk", "structlog"),
]
PIN = re.compile(r"^([a-z0-9][\w.-]*)==([\w.]+)", re.MULTILINE)


def pins(file: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / file).read_text("utf-8")))


def numbers(version: str) -> tuple[int, ...]:
    """As many as there are, without the zeros at the end: 6.0 is 6.0.0."""
    found = [int(part) for part in version.split(".")]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def floor(name: str) -> str:
    """The oldest version that an extra, or the library itself, allows."""
    wanted = [*SETTINGS["project"]["dependencies"], *(w for each in EXTRAS.values() for w in each)]
    pattern = re.compile(rf"{name}(?:\[\w+\])?>=([\d.]+)")
    found = {match[1] for match in map(pattern.match, wanted) if match}
    assert len(found) == 1, f"{name}: {found}"
    return found.pop()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_oldest_framework_that_is_allowed_is_tested(name: str) -> None:
    """`make test-frameworks` runs on the very version with which an extra begins."""
    assert numbers(pins("oldest.txt")[name]) == numbers(floor(name))


def test_both_ends_of_redis_are_tested() -> None:
    """`make test-redis` is the floor; the pinned one is of the last major below the limit."""
    assert numbers(pins("redis-oldest.txt")["redis"]) == numbers(floor("redis"))
    [limit] = re.findall(r"redis\[hiredis\]>=[\d.]+,<(\d+)", SETTINGS["project"]["dependencies"][0])
    assert numbers(pins("dev.txt")["redis"])[0] == int(limit) - 1


def test_extras_are_for_the_library_only() -> None:
    """What an application needs is a dependency group: a bot is not installed with `pydibs[…]`."""
    integrations = {path.stem for path in (ROOT / "src/dibs/integrations").glob("[a-z]*")}
    assert set(EXTRAS) <= integrations | {"cli", "embedded", "msgspec", "orjson"}
    assert {"menu", "orders", "weamind", "playground"} <= set(SETTINGS["dependency-groups"])


@pytest.mark.parametrize(
    "path", sorted((ROOT / "requirements").rglob("*.txt")), ids=lambda p: p.name
)
def test_pins_name_no_registry(path: Path) -> None:
    """The user chooses the registry; the pins have hashes and no address."""
    text = path.read_text("utf-8")
    assert "://" not in text
    assert text.count("--hash=sha256:") >= len(PIN.findall(text))
