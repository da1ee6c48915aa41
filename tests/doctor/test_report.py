"""The report: for people in a terminal, for programs as JSON; and the command around it."""

import io
import json
import os
import subprocess
import sys

import pytest

from dibs.cli import main
from dibs.doctor.command import wants_colours
from dibs.doctor.facts import Examination, Finding, ServerFacts, TargetFacts
from dibs.doctor.report import ReportStyle, as_text, findings, report_json
from dibs.testing import Server

from .examining import look

EMPTY = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
FINDING = Finding(
    "eviction", "error", "seen " * 40, "why " * 40, "fix " * 40, ("CONFIG SET x " + "y" * 90,)
)
SERVER = ServerFacts("cache:6379", protocol=3, commands={"get": "allowed"})
FACTS = TargetFacts(Examination("server", "cache:6379"), (SERVER,))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in its own process."""
    command = [sys.executable, "-m", "dibs", "doctor", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**EMPTY, **environment}, check=False
    )


def test_the_command_prints_a_report_and_returns_its_exit_code(own_server: Server) -> None:
    """The server by DIBS_URL, the namespace by DIBS_NAMESPACE; no colours in a pipe."""
    own_server.client().config_set("maxmemory-policy", "allkeys-lru")
    done = run(DIBS_URL=own_server.url, DIBS_NAMESPACE="shop:", FORCE_COLOR="1")
    assert done.returncode == 1
    assert "WARNING eviction" in done.stdout and "namespace 'shop:'" in done.stdout
    assert "CONFIG SET maxmemory-policy noeviction" in done.stdout
    assert "\x1b" not in done.stdout and done.stderr == ""


def test_the_command_prints_json(valkey: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """One object on one line, with the codes and the commands of fixes."""
    code = main(["doctor", "--url", valkey.url, "--json", "--budget", "30"])
    printed = capsys.readouterr().out
    report = json.loads(printed)
    assert code == report["exit"] == 0
    assert printed.count("\n") == 1
    assert report["servers"][0]["version"] and report["probe_key"] == "dibs:probe:5b0c1e2f7a93"
    assert [each["code"] for each in report["findings"]] == ["persistence"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no server: pass --url"),
        (["--url", "nonsense://x"], "unknown target scheme"),
        (["--url", "redis+cluster://h/1"], "a single database"),
        (["--url", "redis://h", "--budget", "0"], "--budget must be"),
        (["--url", "redis://h", "--budget", "nan"], "--budget must be"),
        (["--url", "redis://h:port"], "redis-py cannot read"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exit code 2, and one line on stderr."""
    monkeypatch.delenv("DIBS_URL", raising=False)
    assert main(["doctor", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and said in printed.err and printed.err.count("\n") == 1


def test_credentials_are_in_no_report(own_server: Server) -> None:
    """Neither the password nor the URL with it."""
    own_server.client().config_set("requirepass", "geheim")
    for url in (
        f"redis://:geheim@127.0.0.1:{own_server.port}",
        f"redis://ann:geheim2@127.0.0.1:{own_server.port}",
        f"redis+cluster://:geheim@127.0.0.1:{own_server.port}",
    ):
        facts = look(url)
        found = findings(facts)
        assert "geheim" not in as_text(facts, found, ReportStyle()) + report_json(
            facts, found
        ) + repr(facts)


@pytest.mark.parametrize("width", [50, 80, 100])
def test_lines_fit_the_terminal_but_commands_are_not_broken(width: int) -> None:
    """A command is to be copied."""
    lines = as_text(FACTS, [FINDING], ReportStyle(width)).splitlines()
    assert all(len(line) <= width or "CONFIG SET" in line for line in lines)
    assert any(line.strip() == FINDING.commands[0] for line in lines)


def test_colours_are_for_terminals_that_want_them() -> None:
    """Not in a pipe, not with NO_COLOR, not where the terminal has none."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wants_colours(Terminal(), {"TERM": "xterm"})
    assert not wants_colours(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert not wants_colours(Terminal(), {"TERM": "dumb"})
    assert not wants_colours(io.StringIO(), {"TERM": "xterm"})
    assert "\x1b[31m" in as_text(FACTS, [FINDING], ReportStyle(colours=True))


def test_the_report_says_what_was_touched() -> None:
    """The key on which commands were tried."""
    text = as_text(FACTS, [], ReportStyle(200))
    assert "no finding" in text and "dibs:probe:5b0c1e2f7a93" in text


def test_a_reader_that_closes_the_pipe_is_no_error() -> None:
    """As `| head -1` does."""
    command = f"{sys.executable} -m dibs doctor --url redis://127.0.0.1:1 | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=EMPTY)
    assert done.stderr == ""
