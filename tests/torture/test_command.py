"""`python -m dibs_torture`: tables, exit codes, and messages that help."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from dibs_torture import CASES, App
from dibs_torture.__main__ import main

from tests.torture.middlewares import CorrectMiddleware


def faithful(app: App) -> App:
    return CorrectMiddleware(app)


def test_the_command_prints_a_table_and_says_yes(capsys: pytest.CaptureFixture[str]) -> None:
    """A middleware that keeps its promises: a table, and exit status 0."""
    adapter = "tests.torture.middlewares:SMALL"
    assert main([f"{__name__}:faithful", "--adapter", adapter, "--case", "open_route"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["case", f"{__name__}:faithful"]
    assert lines[1].split() == ["open_route", "passed"]
    assert lines[2].split() == ["passed", "1"]


def test_the_command_says_no_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    """A broken promise: exit status 1, and what was seen; two middlewares share a table."""
    options = ["--case", "quoted_key", "--case", "open_route", "--within", "20"]
    assert main(["tests.torture.middlewares:bare", f"{__name__}:faithful", *options]) == 1
    said = capsys.readouterr().out
    assert re.search(r"^quoted_key +FAILED +passed$", said, re.MULTILINE)
    assert "FAILED  quoted_key: the retry ran the app again" in said


def test_the_command_knows_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    """`dibs` is a name that the command knows; it starts a server for it."""
    assert main(["dibs", "--case", "missing_key", "--within", "20"]) == 0
    assert f"dibs {version('pydibs')}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "known: dibs, idemkit, asgi-idempotency-header"),
        (["no.such:thing"], "no.such:thing cannot be imported"),
        (["dibs", "--case", "no_such_case"], "no such case: no_such_case"),
        (["idemkit"], "pip install idemkit"),
        (["asgi-idempotency-header"], "pip install asgi-idempotency-header"),
        ([], "name what to try"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A target that cannot be tried: exit status 2, and a sentence that helps."""
    monkeypatch.setitem(sys.modules, "idemkit", None)
    monkeypatch.setitem(sys.modules, "idempotency_header_middleware", None)
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_the_command_lists_its_cases() -> None:
    """`python -m dibs_torture --list` works, and names every case with its promise."""
    command = [sys.executable, "-m", "dibs_torture", "--list"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"{case.name}: {case.promise}" for case in CASES]
