"""Hides what Windows does not have: `python -m tests.cli.like_windows ls`.

Runs the command `dibs` with the words that it gets; with none, it imports every module of dibs that
needs nothing but redis-py. What is hidden from dibs is there for other modules: they are imported
before, together with a dibs that is forgotten.
"""

import asyncio
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "readline", "curses")
FUNCTIONS = (
    "fork", "forkpty", "register_at_fork", "killpg", "setsid", "setpgid", "getpgid", "getpgrp",
    "getuid", "geteuid", "getgid", "getegid", "tcgetpgrp", "tcsetpgrp", "uname", "mkfifo",
    "sched_getaffinity", "pidfd_open", "posix_spawn", "fchmod", "statvfs", "nice", "wait3", "wait4",
)  # fmt: skip
SIGNALS = (
    "SIGKILL", "SIGSTOP", "SIGCONT", "SIGTSTP", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2",
    "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGWINCH", "SIGTTIN", "SIGTTOU",
    "pthread_sigmask", "pthread_kill", "setitimer", "alarm", "sigwait", "siginterrupt",
)  # fmt: skip
SOCKETS = ("AF_UNIX", "SO_REUSEPORT", "SO_PEERCRED", "TCP_USER_TIMEOUT", "MSG_DONTWAIT")
LOOP = ("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler")
NOT_THERE = ("dibs._server.supervisor", "dibs.testing", "dibs.integrations")
"""Refused with a message, or in need of other packages."""


class NamedOtherwise:
    """The module `os`, as dibs sees it: `nt`, and a kill that would send Ctrl-C."""

    name = "nt"

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def kill(self, pid: int, number: int) -> None:
        raise SystemExit(f"os.kill({pid}, {number}) is Ctrl-C for everybody at this console")


def hide() -> None:
    """From here on it is not there."""
    sys.platform = "win32"
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ((os, FUNCTIONS), (signal, SIGNALS), (socket, SOCKETS)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in LOOP:
        setattr(asyncio.BaseEventLoop, name, _missing(name))
        setattr(asyncio.SelectorEventLoop, name, _missing(name))


def _missing(name: str) -> Callable[..., Any]:
    def missing(*args: object) -> Any:
        raise NotImplementedError(name)

    return missing


def import_all() -> None:
    """Every module."""
    import dibs

    for found in pkgutil.walk_packages(dibs.__path__, "dibs."):
        if not found.name.startswith(NOT_THERE) and not found.name.endswith("__main__"):
            import_module(found.name)


def of_dibs() -> list[str]:
    """The modules of dibs that are imported."""
    return [name for name in sys.modules if name == "dibs" or name.startswith("dibs.")]


if __name__ == "__main__":
    import_all()
    for name in of_dibs():
        del sys.modules[name]
    hide()
    import_all()
    for name in of_dibs():
        if getattr(sys.modules[name], "os", None) is os:
            sys.modules[name].os = NamedOtherwise()  # type: ignore[attr-defined]
    if sys.argv[1:]:
        from dibs.cli import main

        sys.exit(main(sys.argv[1:]))
