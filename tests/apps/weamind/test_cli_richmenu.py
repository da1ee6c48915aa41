"""`richmenu apply | show | remove`: the output and the exit code."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from local_line.local import LocalLine
from local_line.richmenus import check_menu

from apps.weamind.cli.arguments import main
from apps.weamind.cli.richmenu import described
from apps.weamind.richmenu.definition import definition, name
from apps.weamind.richmenu.plan import Menu, State
from tests.apps.weamind.conftest import ACCESS_TOKEN, SECRET
from tests.apps.weamind.test_bot_settings import OURS


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An operator's environment, in an empty folder; where LINE is, the test says."""
    monkeypatch.chdir(tmp_path)
    for setting in OURS:
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.setenv("LINE_CHANNEL_SECRET", SECRET)
    monkeypatch.setenv("LINE_CHANNEL_ACCESS_TOKEN", ACCESS_TOKEN)
    return monkeypatch


async def run(verb: str) -> int:
    """The command, beside the loop in which LINE runs."""
    return await asyncio.to_thread(main, ["richmenu", verb])


async def test_from_nothing_to_nothing(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Applied, applied again, shown, removed, removed again: a line each, and always 0."""
    async with LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line:
        env.setenv("LINE_API_BASE", line.api_base)
        line.menus.create(check_menu(definition() | {"name": "dibs.weamind:0123456789abcdef"}))
        codes = [await run(verb) for verb in ("apply", "apply", "show", "remove", "remove")]
        assert codes == [0] * 5
        assert line.menus.all() == []
    said = capsys.readouterr()
    first, second, shown, counted, buttons, gone, nothing = said.out.splitlines()
    assert first == "Everybody sees the new menu; older ones removed: 1."
    assert second == "The menu is up to date."
    assert shown == "everybody sees: our menu, as it is now"
    assert counted == "menus of ours: 1, of others: 0"
    assert buttons.startswith("buttons: 住家 (action=weather&type=home) · ")
    assert gone == "Removed: 1 menus." and nothing == "There was nothing to remove."
    assert said.err == ""


@pytest.mark.parametrize("verb", ["apply", "show", "remove"])
async def test_a_token_that_line_does_not_know(
    verb: str, env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, 1, and the token is not in it."""
    async with LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line:
        env.setenv("LINE_API_BASE", line.api_base)
        env.setenv("LINE_CHANNEL_ACCESS_TOKEN", "a-token-of-nobody")
        assert await run(verb) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("weamind: LINE answered 401: ")
    assert said.err.count("\n") == 1 and "a-token-of-nobody" not in said.err


async def test_what_is_left_is_said(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The menu was applied, and an older one could not be removed: 1, and what to do."""
    async with LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line:
        env.setenv("LINE_API_BASE", line.api_base)
        line.menus.create(check_menu(definition()))
        line.fail_next("/v2/bot/richmenu/{richMenuId}", status=500)
        assert await run("apply") == 1
        assert await run("apply") == 0
    said = capsys.readouterr()
    assert said.out.startswith("Everybody sees the new menu.\n")
    assert said.err == "weamind: 1 older menus could not be removed: run it again\n"


def test_settings_that_are_missing(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each, and 2."""
    env.delenv("LINE_CHANNEL_SECRET")
    env.setenv("WEATHER_PROVIDER", "crystal-ball")
    assert main(["richmenu", "show"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in lines] == [" LINE_CHANNEL_SECRET", " WEATHER_PROVIDER"]


@pytest.mark.parametrize(
    ("menus", "default", "shown"),
    [
        ([], None, "no menu that was set by the API"),
        ([], "gone", "an unknown menu"),
        ([Menu("1", name())], "1", "our menu, as it is now"),
        ([Menu("1", "dibs.weamind:0123456789abcdef")], "1", "an older menu of ours"),
        ([Menu("1", "x")], "1", "somebody else's menu"),
    ],
)
def test_whose_menu_it_is(menus: list[Menu], default: str | None, shown: str) -> None:
    """The menu that all users see, in words."""
    assert described(State(tuple(menus), default))[0] == f"everybody sees: {shown}"
