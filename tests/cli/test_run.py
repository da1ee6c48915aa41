"""`dibs run`: a program runs while this process holds a key, as with `flock`, on many machines."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dibs import Dibs
from dibs.testing import Server, eventually
from tests.cli.program import COMMAND, environment, run_child

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(valkey: Server) -> Iterator[Start]:
    """Start `dibs run nightly` with more words."""
    with ExitStack() as running:

        def start(
            *words: str, url: str = valkey.url, stdin: int = subprocess.DEVNULL
        ) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [*COMMAND, "run", "nightly", *words], env=environment(url), text=True,
                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            running.enter_context(process)
            running.callback(process.kill)
            return process

        yield start


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_running(pid: int) -> bool:
    """False: it is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


SLEEPING = ("--", "sh", "-c", "echo $$; exec sleep 60")
"""Prints its process id."""
STUBBORN = ("--", "sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done")


# ---- one at a time


@pytest.mark.parametrize("code", [0, 3, 75])
def test_run_ends_with_the_exit_code_of_its_command(valkey: Server, code: int) -> None:
    """And the key is free afterwards."""
    done = run_child(valkey.url, "run", "nightly", "--", "sh", "-c", f"echo did it; exit {code}")
    assert (done.code, done.out, valkey.keys()) == (code, "did it\n", [])


def test_a_second_one_does_not_run(valkey: Server, start: Start) -> None:
    """75, or 0 with --skip; it says who has the key."""
    start(*SLEEPING).stdout.readline()  # type: ignore[union-attr]
    for words, code in (((), 75), (("--skip",), 0), (("--wait", "0.1"), 75)):
        done = run_child(valkey.url, "run", "nightly", *words, "--", "echo", "ran")
        assert (done.code, done.out) == (code, "") and ":" in done.err and "has it" in done.err


def test_who_waits_runs_when_the_first_has_ended(valkey: Server, start: Start) -> None:
    """As long as it was asked to wait."""
    with Dibs(valkey.url, budget=5) as dibs:
        lease = dibs.try_hold("nightly", ttl=60)
        assert lease is not None
        second = start("--wait", "5m", "--", "echo", "ran")
        lease.release()
        assert (line_of(second), second.wait()) == ("ran", 0)


def test_of_many_that_wait_one_runs_at_a_time(start: Start, tmp_path: Path) -> None:
    """Each makes a folder that must not be there, and removes it."""
    script = f"mkdir {tmp_path}/one && sleep 0.05 && rmdir {tmp_path}/one"
    processes = [start("--wait", "10m", "--", "sh", "-c", script) for _ in range(6)]
    assert [process.wait() for process in processes] == [0] * 6


# ---- ends


def test_signals_are_passed_on(start: Start, valkey: Server) -> None:
    """The command decides what becomes of it; its exit code, or 128 and the signal."""
    script = "trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    process = start("--", "sh", "-c", script)
    assert line_of(process) == "ready"
    process.send_signal(signal.SIGUSR1)
    assert (line_of(process), process.wait()) == ("got it", 5)
    process = start(*SLEEPING)
    assert line_of(process)
    process.terminate()
    assert (process.wait(), valkey.keys()) == (143, [])


@pytest.mark.only_on("linux")
def test_signals_are_ignored_by_the_command_as_by_its_caller(valkey: Server) -> None:
    """Or one that writes into a closed pipe never ends, and `nohup` keeps nothing alive."""
    ignored = ("sh", "-c", "grep SigIgn /proc/self/status")
    known = (1 << 31) - 1  # not the two behind them: which are ignored is glibc's own affair
    for caller in ((), ("nohup",)):
        done, plain = (
            subprocess.run(
                [*caller, *words, *ignored], env=environment(valkey.url), text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
            ).stdout
            for words in ((*COMMAND, "run", "nightly", "--"), ())
        )  # fmt: skip
        assert int(done.split()[1], 16) & known == int(plain.split()[1], 16) & known


@pytest.mark.usefixtures("real_interpreters")  # a fork does not inherit what the test ignores
def test_a_signal_that_is_ignored_is_not_passed_on(start: Start, valkey: Server) -> None:
    """`nohup dibs run …` goes on when its terminal is closed, and so does the command."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start("--", "sh", "-c", "echo begun; read line; echo over", stdin=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert line_of(process) == "begun"
    process.send_signal(signal.SIGHUP)
    assert process.communicate("\n")[0] == "over\n" and process.returncode == 0


def test_the_command_dies_with_dibs_run(start: Start, valkey: Server) -> None:
    """Killed -9: nobody renews the lease, so nothing may go on under it."""
    process = start(*SLEEPING)
    pid = int(line_of(process))
    assert is_running(pid)
    process.kill()
    eventually(lambda: not is_running(pid))
    assert valkey.client().pttl("nightly") > 0


@pytest.mark.parametrize("words", [SLEEPING, STUBBORN], ids=["obedient", "stubborn"])
def test_the_command_ends_when_the_lease_is_lost(
    start: Start, valkey: Server, words: tuple[str, ...]
) -> None:
    """Another program deleted the key: SIGTERM, and after a grace SIGKILL."""
    process = start("--ttl", "1s", "--grace", "0.3", *words)
    pid = int(line_of(process))
    valkey.client().set("nightly", "another's")
    assert process.wait() == 70 and not is_running(pid)
    assert process.stderr is not None and "lost" in process.stderr.read()
    assert valkey.client().get("nightly") == b"another's"


def test_the_command_ends_when_the_server_is_gone(start: Start, own_server: Server) -> None:
    """By the clock of this machine: elsewhere the key is free by then."""
    process = start("--ttl", "1", *SLEEPING, url=own_server.url)
    pid = int(line_of(process))
    own_server.kill()
    assert process.wait() == 70 and not is_running(pid)


def test_without_a_server_nothing_runs() -> None:
    """69: somebody else may be running it."""
    done = run_child("redis://127.0.0.1:1", "run", "nightly", "--", "echo", "ran")
    assert (done.code, done.out) == (69, "") and "not run" in done.err


# ---- once


def test_once_is_not_again_after_a_success(valkey: Server) -> None:
    """0: what was wanted is done. Counted from its end."""
    words = ("run", "nightly", "--once", "20h", "--")
    assert run_child(valkey.url, *words, "echo", "ran").out == "ran\n"
    done = run_child(valkey.url, *words, "echo", "ran")
    assert (done.code, done.out) == (0, "") and "was done" in done.err
    assert 71_000_000 < valkey.client().pttl("nightly") <= 72_000_000


def test_once_says_that_a_success_could_not_be_recorded(start: Start, own_server: Server) -> None:
    """The server is gone at the end: the next run is not kept from doing it again."""
    words = ("--once", "1h", "--", "sh", "-c", "echo begun; read line")
    process = start(*words, url=own_server.url, stdin=subprocess.PIPE)
    assert line_of(process) == "begun"
    own_server.kill()
    said = process.communicate("\n")[1]
    assert process.returncode == 0 and "not recorded" in said


def test_once_is_again_after_a_failure(valkey: Server, start: Start) -> None:
    """Also if a signal ended it, or its lease was lost."""
    words = ("run", "nightly", "--once", "20h", "--")
    assert run_child(valkey.url, *words, "false").code == 1
    process = start("--once", "20h", *SLEEPING)
    assert line_of(process)
    assert run_child(valkey.url, *words, "echo", "ran").code == 75
    process.terminate()
    assert process.wait() == 143
    process = start("--once", "20h", "--ttl", "1", *SLEEPING)
    assert line_of(process)
    valkey.client().delete("nightly")
    assert process.wait() == 70
    assert run_child(valkey.url, *words, "echo", "ran").out == "ran\n"


# ---- mistakes


def test_a_command_that_cannot_be_run(valkey: Server, tmp_path: Path) -> None:
    """As a shell says it; the key is not taken for it, or free again."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF no program")
    broken.chmod(0o755)
    codes = [
        run_child(valkey.url, "run", "nightly", "--", name).code
        for name in ("no-such-program", str(broken))
    ]
    assert (codes, valkey.keys()) == ([127, 126], [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nightly"], "COMMAND"),
        (["nightly", "--ttl", "soon", "--", "true"], "20h"),
        (["nightly", "--wait", "1", "--skip", "--", "true"], "not allowed with"),
        (["nightly", "--ttl", "0", "--", "true"], "ttl"),
        (["", "--", "true"], "key"),
    ],
)
def test_wrong_words_are_a_usage_error(valkey: Server, words: list[str], said: str) -> None:
    """2, before anything is run."""
    done = run_child(valkey.url, "run", *words)
    assert done.code == 2 and said in done.err


def test_the_environment_and_the_folder_are_those_of_the_caller(valkey: Server) -> None:
    """It is the command that the caller would have run."""
    done = run_child(valkey.url, "run", "nightly", "--", "sh", "-c", "echo $PWD $HOME")
    assert done.out.split() == [os.getcwd(), os.environ["HOME"]]
