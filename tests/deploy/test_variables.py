"""Every variable of the compose file is a setting, and every setting a variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from apps.weamind.core.config import Settings

from .files import (
    DEPLOY,
    NEEDED,
    SETTINGS,
    VARIABLE,
    Json,
    Missing,
    interpolated,
)

pytestmark = pytest.mark.only_on("linux", "darwin")
COMPOSE_ONLY = {"POSTGRES_PASSWORD", "WEAMIND_DOMAIN"}


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def examples() -> dict[str, tuple[str, str, bool]]:
    """Each variable of `.env.example`: its comment, its value, and whether it is commented out."""
    found: dict[str, tuple[str, str, bool]] = {}
    comment: list[str] = []
    for line in (DEPLOY / ".env.example").read_text("utf-8").splitlines():
        if variable := re.fullmatch(r"(#?)([A-Z][A-Z0-9_]*)=(.*)", line):
            found[variable[2]] = (" ".join(comment), variable[3], bool(variable[1]))
            comment = []
        else:
            comment = [*comment, line.removeprefix("#").strip()] if line.startswith("#") else []
    return found


def test_every_variable_is_a_setting_and_every_setting_a_variable(compose: Json) -> None:
    """In the example, in Compose and in the bot: the same names."""
    assert set(examples()) == SETTINGS | COMPOSE_ONLY
    assert set(compose["services"]["app"]["environment"]) == SETTINGS
    used = {found["name"] for each in strings(compose) for found in VARIABLE.finditer(each)}
    assert used - {None} == {name for name, (_, _, is_out) in examples().items() if not is_out}
    # What Compose knows itself must not be asked for twice.
    assert {name for name, (*_, is_out) in examples().items() if is_out} == SETTINGS - used


def test_each_is_handed_over_under_its_own_name(compose: Json) -> None:
    """No setting gets another one's value."""
    for name, value in compose["services"]["app"]["environment"].items():
        if name not in ("REDIS_URL", "DATABASE_URL"):
            assert [found["name"] for found in VARIABLE.finditer(value)] == [name]


def test_every_variable_is_explained_and_none_has_a_value() -> None:
    """The comment of an optional one begins with its default; no secret can be copied."""
    for name, (comment, value, _) in examples().items():
        assert len(comment) > 20 and value == "", name
        field = Settings.model_fields.get(name.lower())
        if field is not None and not field.is_required() and field.default is not None:
            default = field.default
            shown = str(default).lower() if isinstance(default, bool) else str(default)
            first = comment.split()[0].rstrip(".,:")
            assert first == shown.removesuffix(".0"), name


def test_what_is_needed_is_asked_for(compose: Json) -> None:
    """Without one of the three, Compose does not begin, and says where it belongs."""
    filled = dict.fromkeys(NEEDED, "x1")
    environment = compose["services"]["app"]["environment"].values()
    for value in environment:
        interpolated(value, filled)
    for name in NEEDED:
        with pytest.raises(Missing, match=r"deploy/\.env"):
            for value in environment:
                interpolated(value, {k: v for k, v in filled.items() if k != name})
