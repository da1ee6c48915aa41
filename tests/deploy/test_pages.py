"""The pages about running it: every command on them exists."""

from __future__ import annotations

import re

import pytest

from apps.weamind.cli.arguments import main

from .files import (
    DEPLOY,
    ROOT,
    Json,
)

pytestmark = pytest.mark.only_on("linux", "darwin")


PAGES = [
    ROOT / "apps/weamind/OPERATING.md",
    DEPLOY / "README.md",
    DEPLOY / "compose.yml",
    DEPLOY / "Dockerfile",
]
OURS = re.compile(
    r"(?:python -m apps\.weamind|run --rm app|--env-file \S+ weamind) +([a-z]+(?: [a-z]+)?)"
)


def commands() -> list[tuple[str, ...]]:
    """Every command of the bot that the pages tell a reader to type."""
    written = "\n".join(page.read_text("utf-8") for page in PAGES)
    typed = {found[1] for found in OURS.finditer(written)}
    named = set(re.findall(r"`(richmenu [a-z]+)`", written))
    return sorted(tuple(each.split()) for each in typed | named)


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_that_is_written_exists(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a `--help`."""
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0 and "usage:" in capsys.readouterr().out


def test_the_pages_have_all_commands() -> None:
    """Each of them is mentioned."""
    assert set(commands()) >= {
        ("serve",),
        ("doctor",),
        ("richmenu", "apply"),
        ("richmenu", "show"),
        ("richmenu", "remove"),
    }


def test_what_the_pages_tell_compose_to_do(compose: Json) -> None:
    """Files, services and profiles that are named are there."""
    for page in PAGES[:2]:
        written = page.read_text("utf-8")
        for file in re.findall(r"docker compose -f (\S+)", written):
            assert (ROOT / file).is_file(), file
        for service in re.findall(r"(?:run --rm|logs) (\w+)", written):
            assert service in compose["services"], service
        for profile in re.findall(r"--profile (\w+)", written):
            assert any(profile in s.get("profiles", ()) for s in compose["services"].values())
