"""Run a command that is killed when the process that started it ends.

As a script: `python -I -S die_with_parent.py PARENT PROGRAM ARGUMENT...` becomes the program. (The
`preexec_fn` of subprocess could do the same, but it is not safe in a process with threads.)
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that the kernel sends to this process when its parent ends."""


def die_with_parent(parent: int) -> None:
    """On Linux: have this process killed when its parent, the process *parent*, ends.

    Exits at once if the parent has ended already. Does nothing on other systems. The setting
    survives exec. The kernel kills this process when the *thread* that started it ends, so that
    has to be the parent's main thread.
    """
    if sys.platform != "linux":
        return
    try:
        import ctypes
    except ImportError:  # a Python that was built without it: as on other systems
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(127)


def ended_with_parent(command: list[str]) -> list[str]:
    """Return a command that runs *command* and, on Linux, is killed when this process ends.

    In any thread but the main one, *command* is returned as it is: the kernel would kill it when
    that thread ends.
    """
    import threading  # not at the top: the script starts sooner without it

    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return command
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and so would the program
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:  # a script without its first line, for one
        sys.stderr.write(f"{sys.argv[2]}: {error.strerror}\n")
        os._exit(126)
