"""tests/fork_server.py: what it starts is what a command would have started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import real_interpreters

pytestmark = pytest.mark.only_on("linux")

LOOK = """
import json, os, signal, sys

def stream(it):
    return [it.encoding, it.errors, it.line_buffering, it.mode, it.fileno()]

print(json.dumps({
    "name": __name__, "arguments": sys.argv, "command": sys.orig_argv, "path": sys.path,
    "file": globals().get("__file__"), "folder": os.getcwd(), "variables": dict(os.environ),
    "parent": os.getppid(), "leads": os.getsid(0) == os.getpid(),
    "open": os.listdir("/proc/self/fd"),
    "signals": [repr(signal.getsignal(number)) for number in (2, 13, 15)],
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "streams": [stream(it) for it in (sys.stdin, sys.stdout, sys.stderr)],
    "shown": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
    "read": sys.stdin.read(), "main": sys.modules["__main__"].__dict__ is globals(),
}))
"""


@pytest.fixture
def look(tmp_path: Path) -> str:
    program = tmp_path / "look.py"
    program.write_text(LOOK)
    return str(program)


def both(command: list[str], **options: Any) -> Iterator[subprocess.CompletedProcess[str]]:
    """The outcome of a process that was forked, and of one that was executed."""
    options = {"capture_output": True, "text": True, "check": False} | options
    yield subprocess.run([sys.executable, *command], **options)
    with real_interpreters():
        yield subprocess.run([sys.executable, *command], **options)


@pytest.mark.parametrize("as_module", [False, True])
@pytest.mark.parametrize("session", [False, True])
def test_a_forked_process_sees_what_an_executed_one_sees(
    look: str, as_module: bool, session: bool
) -> None:
    """Its parent, session, folder, variables, arguments, streams, signals, open files."""
    folder = os.path.dirname(look)
    command = ["-m", "look", "a b", ""] if as_module else [look, "a b", ""]
    variables = {"ONLY": "this", "PYTHONPATH": "/nowhere", "PATH": os.environ["PATH"]}
    seen = [
        json.loads(done.stdout)
        for done in both(
            command, input="words", cwd=folder, env=variables, start_new_session=session
        )
    ]
    assert seen[0] == seen[1]
    assert seen[0]["parent"] == os.getpid()


ENDINGS = {
    "nothing": "",
    "a code": "sys.exit(3)",
    "a sentence": "sys.exit('no')",
    "an error": "raise ValueError('no')",
    "an interrupt": "raise KeyboardInterrupt",
    "a signal": "os.kill(os.getpid(), 9)",
    "no reader": "os.close(1)",
    "a thread": "threading.Timer(0.1, print, ['later']).start()",
    "a finalizer": "class Kept:\n def __del__(self): print('freed')\nkept = Kept()",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=list(ENDINGS))
def test_a_forked_process_ends_as_an_executed_one(ending: str, tmp_path: Path) -> None:
    """Its code and what it prints, also at its very end."""
    program = tmp_path / "program.py"
    program.write_text(
        "import atexit, os, sys, threading\nprint('begun')\n"
        f"atexit.register(print, 'at exit')\n{ending}\n"
    )
    forked, executed = both([str(program)])
    assert (forked.returncode, forked.stdout) == (executed.returncode, executed.stdout)
    assert forked.stderr.splitlines()[-1:] == executed.stderr.splitlines()[-1:]


def test_nothing_is_left_of_forked_processes(look: str) -> None:
    """They are reaped, and no descriptor of them stays open."""

    def state() -> tuple[list[str], int]:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        return children, len(os.listdir("/proc/self/fd"))

    subprocess.run([sys.executable, look], input=b"", capture_output=True, check=True)
    before = state()
    for _ in range(3):
        subprocess.run([sys.executable, look], input=b"", capture_output=True, check=True)
    assert state() == before


def test_a_process_is_forked_from_the_server(tmp_path: Path) -> None:
    """A server that does not start would be noticed by nothing but the time that tests take."""
    program = tmp_path / "modules.py"
    program.write_text("import sys; print('dibs._async.client' in sys.modules)")
    forked, executed = both([str(program)])
    assert (forked.stdout, executed.stdout) == ("True\n", "False\n")
