"""Run a command, and end all that it has started when it ends. Linux only.

As a script, `python -I -S command_tree.py PARENT REPORTS GRACE PROGRAM ARGUMENT...` is a process
between `dibs run` and the command. Orphans of the command become its children instead of those of
init, so that it can find and end them, and so that none stays a zombie where `dibs run` is the
first process of a container. It imports nothing of dibs: it stays as long as the command runs.

It tells the file descriptor REPORTS the process id of the command, and its exit code (as
`subprocess` has it) when it has ended. Then it ends what is left of the tree, and itself. It takes
no signals but the two below; the command starts with those that `dibs run` has got.
"""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that the kernel sends to this process when its parent ends."""
_PR_SET_CHILD_SUBREAPER = 36
"""… makes this process the parent of every orphan among its descendants."""
KILL_ALL: int = getattr(signal, "SIGRTMIN", 0) + 1
"""The signal of `dibs run`, or of the kernel when that ends: kill all that is left, now."""
_CHECK_EVERY = 0.05
"""Seconds between two looks at which processes are left."""


def command_tree(command: list[str], reports: int, grace: float) -> list[str]:
    """Return what to run in the place of *command*. Its exit code is told to *reports*."""
    options = [str(os.getpid()), str(reports), str(grace)]
    return [sys.executable, "-I", "-S", __file__, *options, *command]


def can_own_tree() -> bool:
    """Return whether this system and this installation can run a command by `command_tree`."""
    is_frozen = getattr(sys, "frozen", False)  # then the executable is not Python
    if sys.platform != "linux" or is_frozen or not os.path.isfile(__file__):
        return False
    return importlib.util.find_spec("_ctypes") is not None  # some are built without it


class CommandTree:
    """The command, and every process that it has started."""

    def __init__(self, parent: int, reports: int, grace: float) -> None:
        self._reports = reports
        self._grace = grace
        self._must_kill = False
        self._signals = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        """What was blocked before, and is for the command."""
        _control_process(_PR_SET_CHILD_SUBREAPER, 1)
        _control_process(_PR_SET_PDEATHSIG, KILL_ALL)
        if os.getppid() != parent:  # it ended before the kernel knew
            os._exit(127)

    def run(self, command: list[str]) -> None:
        """Run *command* to its end, and end what is left of its processes."""
        self._main = os.fork()
        if self._main == 0:
            os.close(self._reports)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._signals)
            _replace_process(command)
        self._report_exit(self._main)
        self._wait_for_main()
        self._end_others()

    def _report_exit(self, number: int) -> None:
        try:
            os.write(self._reports, b"%d\n" % number)
        except OSError:  # dibs run has ended
            self._must_kill = True

    def _wait_for_main(self) -> None:
        while (code := self._reap_children()) is None:
            self._wait_for_signal(None)
            if self._must_kill:
                _send_signal(signal.SIGKILL, descendants())
        self._report_exit(code)

    def _end_others(self) -> None:
        """End what the command has left behind: SIGTERM, and SIGKILL after the time of grace."""
        until, told = time.monotonic() + self._grace, set[int]()
        while left := set(descendants()):
            if self._must_kill or time.monotonic() >= until:
                _send_signal(signal.SIGKILL, left)
            else:
                _send_signal(signal.SIGTERM, left - told)
                told |= left
            self._wait_for_signal(_CHECK_EVERY)
            self._reap_children()

    def _wait_for_signal(self, timeout: float | None) -> None:
        """Wait for the end of a child or for KILL_ALL, for at most *timeout* seconds."""
        wanted = (signal.SIGCHLD, KILL_ALL)
        if timeout is None:
            received = signal.sigwait(wanted)
        else:
            info = signal.sigtimedwait(wanted, timeout)
            received = 0 if info is None else info.si_signo
        self._must_kill = self._must_kill or received == KILL_ALL

    def _reap_children(self) -> int | None:
        """Take the exit codes of children that have ended; return that of the command."""
        found = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == self._main:
                found = os.waitstatus_to_exitcode(status)


def _control_process(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _replace_process(command: list[str]) -> None:
    """Replace this process by *command*, which is killed if its parent is."""
    _control_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and so would the program
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(command[0], command)
    except OSError as error:  # a script without its first line, for one
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(126)


def descendants() -> Iterator[int]:
    """Return the processes that this one, or one of its descendants, has started and that run."""
    children: dict[int, list[int]] = {}
    ended: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):  # it has ended meanwhile
                continue
            children.setdefault(int(parent), []).append(int(name))
            if state in b"ZX":
                ended.add(int(name))
    ahead = [os.getpid()]
    while ahead:
        for pid in children.get(ahead.pop(), ()):
            ahead.append(pid)
            if pid not in ended:
                yield pid


def _send_signal(number: int, pids: "Iterator[int] | set[int]") -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    CommandTree(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run(sys.argv[4:])
