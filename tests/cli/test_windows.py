"""The command where there are neither signals nor forks: what it cannot do, it says."""

import subprocess
import sys

import pytest

from tests.cli.conftest import Shop
from tests.cli.program import Done, environment


def run_there(url: str, *words: str) -> Done:
    """The program as a child, in which what Windows does not have is hidden."""
    command = [sys.executable, "-m", "tests.cli.like_windows", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(url))
    return Done(done.returncode, done.stdout, done.stderr)


def test_every_module_is_imported_without_what_only_posix_has() -> None:
    """All but those that need a server of their own."""
    assert run_there("redis://127.0.0.1:1") == Done(0, "")


def test_why_does_not_send_ctrl_c_to_the_holder(shop: Shop) -> None:
    """There `os.kill(pid, 0)` is a signal; whether the process runs is not known."""
    done = run_there(shop.url, "why", "job:nightly", "--namespace", "shop:", "--json")
    assert (done.code, done.err) == (0, ""), done
    assert done.json["keys"][0]["alive"] == "unknown"


@pytest.mark.parametrize(
    "words", [("ls",), ("peek", "job:nightly"), ("release", "job:nightly", "--force", "--yes")]
)
def test_what_needs_only_the_server_works(shop: Shop, words: tuple[str, ...]) -> None:
    """Lists, looks and releases."""
    done = run_there(shop.url, *words, "--namespace", "shop:")
    assert done.code == 0, done.err
    assert done.out


def test_run_says_what_it_needs(shop: Shop) -> None:
    """A sentence, not a traceback; the command is not started."""
    done = run_there(shop.url, "run", "nightly", "--", sys.executable, "-c", "print('started')")
    assert done.code == 2 and done.out == ""
    assert done.err == (
        "dibs run nightly: signals and process ids are needed: use Linux, macOS or WSL\n"
    )
