"""`dibs run`: a program runs while this process holds a key, as with `flock`, on many machines.

Where `flock` and `consul lock` document a behaviour, it is the same, but for three things. A
process that the command leaves behind is ended (with `flock` it keeps the key). The exit code
is that of the command (with `consul lock` only on request, and then 2). A signal ends one that
waits for the key (`consul lock` goes on waiting).
"""

import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname

import pytest

from dibs import Dibs
from dibs.testing import FaultProxy, Server, eventually
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
ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
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


def test_of_fifteen_that_start_at_once_one_runs(start: Start, valkey: Server) -> None:
    """It runs until all others have been refused."""
    words = ("--", "sh", "-c", "echo ran; read line")
    processes = [start(*words, stdin=subprocess.PIPE) for _ in range(15)]
    eventually(lambda: [process.poll() for process in processes].count(75) == 14)
    (first,) = [process for process in processes if process.returncode is None]
    assert (first.communicate("\n")[0], first.returncode, valkey.keys()) == ("ran\n", 0, [])


def test_of_fifteen_that_wait_one_runs_at_a_time(start: Start, tmp_path: Path) -> None:
    """Each makes a folder that must not be there, and removes it."""
    script = f"mkdir {tmp_path}/one && echo ran && rmdir {tmp_path}/one"
    processes = [start("--wait", "10m", "--", "sh", "-c", script) for _ in range(15)]
    assert [(line_of(each), each.wait()) for each in processes] == [("ran", 0)] * 15


def test_a_process_that_is_to_be_left_does_not_keep_the_key(start: Start, valkey: Server) -> None:
    """With --leave: nor does `dibs run` wait for it, it ends with the command."""
    process = start("--leave", "--", "sh", "-c", "sleep 60 >&- 2>&- & echo $!; exit 4")
    pid = int(line_of(process))
    try:
        assert (process.wait(), valkey.keys(), is_running(pid)) == (4, [], True)
    finally:
        os.kill(pid, signal.SIGKILL)


# ---- what the command has started

CHILD = "sh -c 'echo $$; exec sleep 60 >&- 2>&-'"
ORPHAN = f"(setsid {CHILD} &)"
STUBBORN_CHILD = """sh -c 'trap "" TERM; echo $$; while :; do sleep 0.1; done' 2>&-"""


@pytest.mark.only_on("linux")
@pytest.mark.parametrize(
    "child",
    [f"{CHILD} &", f"{ORPHAN};", f"{STUBBORN_CHILD} &"],
    ids=["child", "orphan", "stubborn"],
)
def test_what_the_command_leaves_behind_ends_before_the_key_is_free(
    start: Start, valkey: Server, child: str
) -> None:
    """SIGTERM, and after --grace SIGKILL; the exit code is that of the command."""
    process = start("--grace", "0.3", "--", "sh", "-c", f"{child} read line; exit 4",
                    stdin=subprocess.PIPE)  # fmt: skip
    pid = int(line_of(process))
    process.communicate("\n")
    assert (process.returncode, valkey.keys(), is_running(pid)) == (4, [], False)


@pytest.mark.only_on("linux")
@pytest.mark.parametrize("child", [CHILD, STUBBORN_CHILD, f"{ORPHAN}; sleep 60"],
                         ids=["child", "stubborn", "orphan"])  # fmt: skip
def test_what_a_script_has_started_ends_with_the_lease(
    start: Start, valkey: Server, child: str
) -> None:
    """A shell that waits for its last command but one does not pass on what ends it."""
    process = start("--ttl", "1", "--grace", "0.3", "--", "sh", "-c", f"{child}; true")
    pid = int(line_of(process))
    valkey.client().delete("nightly")
    assert (process.wait(), is_running(pid)) == (70, False)


@pytest.mark.only_on("linux")
@pytest.mark.parametrize("number", ENDING)
def test_what_a_script_has_started_ends_with_a_signal(
    start: Start, valkey: Server, number: signal.Signals
) -> None:
    """The shell dies of it, its foreground command would go on; the next machine would overlap."""
    process = start("--grace", "5", "--", "sh", "-c", f"{CHILD}; true")
    pid = int(line_of(process))
    process.send_signal(number)
    assert (process.wait(), is_running(pid), valkey.keys()) == (128 + number, False, [])


@pytest.mark.only_on("linux")
def test_what_a_script_has_started_dies_with_dibs_run(start: Start) -> None:
    """Killed -9: nobody renews the lease, so nothing may continue under it."""
    process = start("--", "sh", "-c", f"{ORPHAN}; {CHILD}; true")
    pids = [int(line_of(process)) for _ in range(2)]
    assert all(is_running(pid) for pid in pids)
    process.kill()
    eventually(lambda: not any(is_running(pid) for pid in pids))


@pytest.mark.only_on("linux")
def test_no_zombie_stays_while_the_command_runs(start: Start) -> None:
    """As the first process of a container it would have to take the orphans of its command."""
    script = "for i in 1 2 3; do (sh -c 'echo $$' &) ; done; read line"
    process = start("--", "sh", "-c", script, stdin=subprocess.PIPE)
    pids = [int(line_of(process)) for _ in range(3)]
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    process.communicate("\n")
    assert process.returncode == 0


@pytest.mark.only_on("linux")
def test_a_shared_embedded_server_is_not_part_of_the_tree(start: Start, tmp_path: Path) -> None:
    """`dibs run` may have started it; other programs use it, too."""
    url = f"embedded://{tmp_path}"
    process = start("--", "sh", "-c", "echo begun; read line", url=url, stdin=subprocess.PIPE)
    assert line_of(process) == "begun"
    with Dibs(url) as dibs:
        assert dibs.peek("nightly") is not None
        process.communicate("\n")
        assert process.returncode == 0 and dibs.peek("nightly") is None


# ---- signals


@pytest.mark.parametrize("number", [*ENDING, signal.SIGUSR1])
def test_signals_are_passed_on(start: Start, valkey: Server, number: signal.Signals) -> None:
    """The command decides what becomes of it; its exit code, or 128 and the signal."""
    script = f"trap 'echo got it; exit 5' {number:d}; echo ready; while :; do sleep 0.05; done"
    process = start("--", "sh", "-c", script)
    assert line_of(process) == "ready"
    process.send_signal(number)
    assert (line_of(process), process.wait()) == ("got it", 5)
    process = start(*SLEEPING)
    assert line_of(process)
    process.send_signal(number)
    assert (process.wait(), valkey.keys()) == (128 + number, [])


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("words", [(), ("--once", "1h")], ids=["alone", "once"])
def test_a_signal_while_the_key_is_being_taken_leaves_none_behind(
    start: Start, valkey: Server, proxy: FaultProxy, words: tuple[str, ...], number: signal.Signals
) -> None:
    """The server has granted it, and the reply is on its way: nothing runs, the key is free."""
    proxy.hold_replies(match=b"nightly")
    process = start("--budget", "60", *words, "--", "echo", "ran", url=proxy.url)
    eventually(lambda: valkey.keys() == ["nightly"])
    process.send_signal(number)
    eventually(lambda: valkey.keys() == [])
    proxy.deliver()
    assert (process.communicate()[0], process.returncode) == ("", 128 + number)
    assert valkey.keys() == []


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_one_that_waits(start: Start, valkey: Server, number: signal.Signals) -> None:
    """It does not run later, and does not touch the key."""
    valkey.client().set("nightly", "another's")
    before = valkey.commands("set")
    process = start("--wait", "10m", "--", "echo", "ran")
    eventually(lambda: valkey.commands("set") > before)
    process.send_signal(number)
    assert (process.communicate()[0], process.returncode) == ("", 128 + number)
    assert valkey.client().get("nightly") == b"another's"


def test_a_signal_at_the_end_does_not_change_it(
    start: Start, valkey: Server, proxy: FaultProxy
) -> None:
    """The command is over, its key is being freed: its exit code is that of the whole."""
    process = start("--budget", "60", "--", "sh", "-c", "echo begun; read line; exit 3",
                    url=proxy.url, stdin=subprocess.PIPE)  # fmt: skip
    assert line_of(process) == "begun" and process.stdin is not None
    proxy.hold_replies(match=b"nightly")
    process.stdin.write("\n")
    process.stdin.flush()
    eventually(lambda: valkey.keys() == [])
    for number in ENDING:
        process.send_signal(number)
    proxy.deliver()
    assert process.wait() == 3


@pytest.mark.only_on("linux")
@pytest.mark.usefixtures("real_interpreters")  # `setsid` executes it
def test_a_terminal_is_that_of_the_command(valkey: Server) -> None:
    """It can ask a question, and gets one SIGINT for a Ctrl-C, not one more from `dibs run`."""
    script = "trap 'count=x$count' INT; test -t 0 && stty -echo && echo ready; read a; read b; "
    script += "echo $count$b; exit 6"
    ours, theirs = pty.openpty()
    command = [*COMMAND, "run", "nightly", "--", "bash", "-c", script]
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command], env=environment(valkey.url),
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        assert terminal.readline() == b"ready\r\n"
        terminal.write(b"\x03")
        terminal.write(b"first\nsecond\n")
        assert terminal.readline() == b"xsecond\r\n"
        assert (process.wait(), valkey.keys()) == (6, [])  # before the terminal hangs up


@pytest.mark.parametrize("is_at_once", [True, False], ids=["in time", "too late"])
def test_stopped_and_continued(start: Start, valkey: Server, is_at_once: bool) -> None:
    """In time, it continues. After the lease has expired another may have the key: it is ended."""
    process = start("--ttl", "60" if is_at_once else "1", *SLEEPING)
    pid = int(line_of(process))
    process.send_signal(signal.SIGSTOP)
    if not is_at_once:
        eventually(lambda: valkey.client().set("nightly", "another's", nx=True))
    process.send_signal(signal.SIGCONT)
    if is_at_once:
        process.terminate()
    assert process.wait() == (143 if is_at_once else 70) and not is_running(pid)
    assert valkey.client().get("nightly") == (None if is_at_once else b"another's")


def test_a_command_that_is_stopped_keeps_the_key(start: Start, valkey: Server) -> None:
    """It may go on at any time."""
    process = start("--ttl", "1", *SLEEPING)
    pid, client = int(line_of(process)), valkey.client()
    os.kill(pid, signal.SIGSTOP)
    for _ in range(4):  # longer than its ttl
        left = client.pttl("nightly")
        eventually(lambda: client.pttl("nightly") < left)  # noqa: B023
        eventually(lambda: client.pttl("nightly") >= left)  # noqa: B023
    os.kill(pid, signal.SIGCONT)
    process.terminate()
    assert process.wait() == 143


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
    """`nohup dibs run …` continues when its terminal is closed, and so does the command."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start("--", "sh", "-c", "echo begun; read line; echo over", stdin=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert line_of(process) == "begun"
    process.send_signal(signal.SIGHUP)
    assert process.communicate("\n")[0] == "over\n" and process.returncode == 0


# ---- ends


def test_after_a_kill_another_runs_when_the_lease_has_ended(start: Start, valkey: Server) -> None:
    """`--ttl` is how long that takes."""
    process = start("--ttl", "1", *SLEEPING)
    assert line_of(process)
    process.kill()
    done = run_child(valkey.url, "run", "nightly", "--wait", "10m", "--", "echo", "ran")
    assert (done.code, done.out, valkey.keys()) == (0, "ran\n", [])


def test_the_command_dies_with_dibs_run(start: Start, valkey: Server) -> None:
    """Killed -9: the lease is no longer renewed, so nothing may continue under it."""
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


def test_a_cut_connection_is_no_reason_to_end(start: Start, proxy: FaultProxy) -> None:
    """The lease is renewed on the next one."""
    words = ("--ttl", "1", "--", "sh", "-c", "echo begun; read line; exit 3")
    process = start(*words, url=proxy.url, stdin=subprocess.PIPE)
    assert line_of(process) == "begun"
    before = proxy.connections
    proxy.cut()
    eventually(lambda: proxy.connections > before)
    assert (process.communicate("\n")[0], process.returncode) == ("", 3)


def test_the_server_is_gone_at_the_end(start: Start, own_server: Server) -> None:
    """The exit code is that of the command; the key is free when its ttl is over."""
    words = ("--", "sh", "-c", "echo begun; read line; exit 3")
    process = start(*words, url=own_server.url, stdin=subprocess.PIPE)
    assert line_of(process) == "begun"
    own_server.kill()
    assert (process.communicate("\n")[0], process.returncode) == ("", 3)


def test_who_waits_also_waits_for_the_server(
    start: Start, valkey: Server, start_server: Callable[..., Server]
) -> None:
    """Containers start in any order; and a standby outlives a restart of Redis."""
    gone = start_server()
    gone.kill()
    with FaultProxy(gone.port) as proxy:
        process = start("--wait", "10m", "--", "echo", "ran", url=proxy.url)
        assert process.stderr is not None
        assert "waiting for the server" in process.stderr.readline()
        proxy.move_to(valkey.port)
        assert (line_of(process), process.wait()) == ("ran", 0)


def test_without_a_server_nothing_runs() -> None:
    """69: another machine may be running it."""
    done = run_child("redis://127.0.0.1:1", "run", "nightly", "--", "echo", "ran")
    assert (done.code, done.out) == (69, "") and "not run" in done.err


# ---- once


def test_once_is_not_again_after_a_success(valkey: Server) -> None:
    """0: what was wanted is done. Counted from its end."""
    words = ("run", "nightly", "--once", "20h", "--")
    assert run_child(valkey.url, *words, "echo", "ran").out == "ran\n"
    done = run_child(valkey.url, *words, "echo", "ran")
    by = rf"was done by {re.escape(gethostname())}:\d+ at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ;"
    assert (done.code, done.out) == (0, "") and re.search(by, done.err)
    assert 71_000_000 < valkey.client().pttl("nightly") <= 72_000_050


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
    broken, plain = tmp_path / "broken", tmp_path / "plain"
    broken.write_bytes(b"\x7fELF no program")
    plain.write_bytes(b"#!/bin/sh")
    broken.chmod(0o755)
    names = ("no-such-program", "./none", str(broken), str(plain), str(tmp_path))
    codes = [run_child(valkey.url, "run", "nightly", "--", name).code for name in names]
    assert (codes, valkey.keys()) == ([127, 127, 126, 126, 126], [])


def test_a_command_that_a_signal_ends(valkey: Server) -> None:
    """128 and its number, as a shell says it."""
    done = run_child(valkey.url, "run", "nightly", "--", "sh", "-c", "kill -9 $$")
    assert (done.code, valkey.keys()) == (137, [])


def test_the_command_reads_what_is_piped_into_dibs_run(start: Start) -> None:
    """And writes where its caller reads; nothing is added to it."""
    process = start("--", "cat", stdin=subprocess.PIPE)
    assert process.communicate("a\nb") == ("a\nb", "")


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
