"""Embedded servers: a real Valkey, shared by its users and ended with the last of them.

    start(None)        a private server, in a new temporary directory
    start("/folder")   one server for all processes on this machine that name that folder

The server belongs to a supervisor process (`supervisor.py`). A user of the server is an open
connection to the supervisor. However a process ends, the kernel closes its connections; when the
last one is closed, the supervisor ends the server.
"""

import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from .._core.causes import cause_for
from .._locks import Guard
from ..errors import Unavailable, UsageError
from .process import ServerFolder, last_line
from .program import find_server

_START_WITHIN = 10.0
"""Seconds that a server may take to start."""
_ATTEMPTS = 5
"""How many supervisors in a row may end without a status line before we give up."""
_MAX_SOCKET_PATH = 100
"""Bytes. The kernel's limit is 104 on macOS and 108 on Linux, with the closing NUL."""
_LOCK_EVERY = 0.005
_BACKLOG = 4096

# Imports the supervisor without `dibs` itself, which would load much more than it needs. Appended
# to the path, so that no module of the standard library is hidden.
_RUN_SUPERVISOR = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from _server.supervisor import main; main(*sys.argv[2:])"
)
_PACKAGE = str(Path(__file__).parents[1])

# A child that is forked while another thread starts a server would inherit the lock file and the
# listening socket, and never close them. So a fork waits for this lock.
_fork_lock = Guard()
_connections: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


class EmbeddedServer:
    """A running server that this process uses. Made by `start`.

    The process stops using it by `close`, when the object is garbage collected, and at exit.
    """

    def __init__(self, folder: ServerFolder, connection: socket.socket) -> None:
        self._folder = folder
        self._connection = connection
        self._close_connection = weakref.finalize(self, _close_connection, connection, os.getpid())

    def __repr__(self) -> str:
        return f"<EmbeddedServer {self.url} {'alive' if self.alive else 'closed or ended'}>"

    @property
    def url(self) -> str:
        """Return what a Redis client connects to; it stays the same after `rejoin`."""
        return "unix://" + quote(self._folder.server_socket)

    @property
    def alive(self) -> bool:
        """Return False if it was closed here, or the server or its supervisor has ended.

        One system call.
        """
        try:
            return bool(self._connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Stop using the server, which ends with its last user. Never fails.

        In a forked child it changes nothing for the parent. Python closes the connections that a
        child inherits at the fork anyway.
        """
        self._close_connection()

    def rejoin(self) -> "EmbeddedServer":
        """Return this process's own use of the same server, started again if it has ended.

        For a forked child, and when `alive` is False. Raises what `start` raises.
        """
        return _connect_to_supervisor(self._folder)


def start(folder: str | None) -> EmbeddedServer:
    """Return the running server of *folder*, or a private one. Takes about 0.1 s.

    UsageError: there is no program, not for this platform, or the folder cannot be used.
    Unavailable: the server does not start; the message ends with the last line of its log.
    """
    find_server()
    if folder is not None:
        return _connect_to_supervisor(_shared_folder(folder))
    private = _private_folder()
    try:
        return _connect_to_supervisor(private)
    except BaseException:
        shutil.rmtree(private.path, ignore_errors=True)
        raise


def _connect_to_supervisor(folder: ServerFolder) -> EmbeddedServer:
    """Connect to the supervisor of *folder*, started if there is none, and wait for its status."""
    deadline = time.monotonic() + _START_WITHIN + 1  # the supervisor gives up first, and knows why
    for _ in range(_ATTEMPTS):
        connection = _connect_or_start(folder, deadline)
        status = _read_status(connection, deadline)
        if status == "ready":
            return EmbeddedServer(folder, connection)
        connection.close()
        if status:
            raise _unavailable_because(status.removeprefix("failed: "))
    why = last_line(folder.log)
    raise _unavailable_because(f"its supervisor ended {_ATTEMPTS} times in a row: {why}")


def _connect_or_start(folder: ServerFolder, deadline: float) -> socket.socket:
    try:
        with _exclusive_start(folder, deadline):
            connection = _running_supervisor(folder) or _start_supervisor(folder)
            _connections.add(connection)
            return connection
    except OSError as error:
        raise UsageError(f"embedded: {folder.path} cannot be used: {error.strerror}") from error


def _read_status(connection: socket.socket, deadline: float) -> str:
    """Return the line that the supervisor writes; empty: it ended without one."""
    received = b""
    try:
        while not received.endswith(b"\n"):
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = connection.recv(4096)
            if not chunk:
                return ""
            received += chunk
    except ConnectionError:
        return ""
    except TimeoutError:
        return f"its supervisor did not answer within {_START_WITHIN:g} s"
    except BaseException:
        connection.close()
        raise
    connection.setblocking(False)
    return received.decode().strip()


def _close_connection(connection: socket.socket, owner: int) -> None:
    """Close *connection*; in the process that opened it, shut it down as well.

    A child that is forked during a close has a copy of the socket that is never closed.
    """
    if os.getpid() == owner:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _unavailable_because(why: str) -> Unavailable:
    return Unavailable(cause_for("embedded", why), name="the embedded server")


# --- locking a folder ------------------------------------------------------------------------


@contextmanager
def _exclusive_start(folder: ServerFolder, deadline: float) -> Generator[None, None, None]:
    """No other thread or process starts or ends the supervisor of *folder* meanwhile."""
    while True:
        with _fork_lock:
            lock = _try_lock(folder)
            if lock is not None:
                try:
                    yield
                finally:
                    os.close(lock)
                return
        if time.monotonic() > deadline:
            raise _unavailable_because(f"{folder.lock_file} is locked by a process that is stopped")
        time.sleep(_LOCK_EVERY)


def _try_lock(folder: ServerFolder) -> int | None:
    """Return the lock file of *folder*, open and locked. None: another process has locked it."""
    import fcntl  # Windows has none, and its users get a UsageError, not an ImportError

    parent = os.path.dirname(folder.path)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    if not folder.is_private:
        _check_path(parent)
    try:
        _make_directory(folder.path)
        lock = os.open(folder.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:  # a supervisor has just removed the directory
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A supervisor that ended may have removed the file that we locked: others make a new one.
        if os.path.samestat(os.fstat(lock), os.stat(folder.lock_file)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def _make_directory(path: str) -> None:
    """Make the directory *path*.

    Raises UsageError if it is another user's, or others may enter it.
    """
    with suppress(FileExistsError):
        os.mkdir(path, mode=0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise UsageError(f"embedded: {path} must be a directory that you own")
    if status.st_mode & 0o077:
        raise UsageError(f"embedded: {path} is accessible to others; chmod 700 it, or remove it")


def _check_path(path: str) -> None:
    """Raise UsageError if another user could put another directory in the place of one in *path*.

    Connections, also later ones, would go to a server of that user.
    """
    real = Path(os.path.realpath(path))
    for each in (real, *real.parents):
        status = os.stat(each)
        if status.st_uid not in (0, os.geteuid()):
            raise UsageError(f"embedded: {each} belongs to another user; {_ELSEWHERE}")
        if _may_be_written(status) and not status.st_mode & stat.S_ISVTX:
            raise UsageError(f"embedded: others may write to {each}; {_ELSEWHERE}, or chmod it")


_ELSEWHERE = "name a folder of yours, such as one in your home directory or in /var/lib"


def _may_be_written(status: os.stat_result) -> bool:
    """Return whether others than its owner and root may write to a directory."""
    by_group = bool(status.st_mode & stat.S_IWGRP) and not _is_alone(status)
    return by_group or bool(status.st_mode & stat.S_IWOTH)


def _is_alone(status: os.stat_result) -> bool:
    """Whether the group of a directory has nobody but its owner, as the one named like a user."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    names = {group.gr_name, *group.gr_mem}
    return owner.pw_gid == group.gr_gid and names == {owner.pw_name}


# --- the supervisor --------------------------------------------------------------------------


def _running_supervisor(folder: ServerFolder) -> socket.socket | None:
    """Return a connection to the supervisor of *folder*; None: none is running."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_START_WITHIN)
        connection.connect(folder.supervisor_socket)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def _start_supervisor(folder: ServerFolder) -> socket.socket:
    """Return a connection to a new supervisor.

    We listen for it, so it can be connected to at once.
    """
    listener = _listening_socket(folder.supervisor_socket)
    with listener, open(folder.log, "wb", opener=_open_log) as log:
        connection = _running_supervisor(folder)
        assert connection is not None, "we are listening, and the folder is locked"
        try:
            _run_supervisor(folder, listener.fileno(), log.fileno())
        except BaseException:
            connection.close()
            raise
    return connection


def _listening_socket(path: str) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(path)  # of a supervisor that was killed, or of a machine that crashed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _open_log(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_APPEND, 0o600)


def _run_supervisor(folder: ServerFolder, listener: int, log: int) -> None:
    """Start the supervisor. It forks to become a daemon, so the process started here ends soon."""
    kind = "private" if folder.is_private else "shared"
    arguments = (find_server(), folder.path, kind, str(_START_WITHIN))
    launcher = subprocess.Popen(
        [_supervisor_python(), "-I", "-S", "-c", _RUN_SUPERVISOR, _PACKAGE, *arguments],
        stdin=listener,
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,  # Ctrl-C in a terminal is for the user of the server
    )
    launcher.wait()


def _supervisor_python() -> str:
    """Return a Python for the supervisor.

    In an application server `sys.executable` may be that server.
    """
    frozen = getattr(sys, "frozen", False)  # then it is the application, which would start again
    candidates = [] if frozen else [sys.executable, os.path.join(sys.prefix, "bin", "python3")]
    for path in candidates:
        is_python = os.path.basename(path or "").lower().startswith(("python", "pypy"))
        if is_python and os.access(path, os.X_OK):
            return path
    raise UsageError("embedded: no Python interpreter was found to run the supervisor")


# --- folders ---------------------------------------------------------------------------------


def _private_folder() -> ServerFolder:
    try:
        path = tempfile.mkdtemp(prefix="dibs-")
        if not _path_fits(path):
            os.rmdir(path)
            path = tempfile.mkdtemp(prefix="dibs-", dir=_short_root())
    except OSError as error:
        raise UsageError(f"embedded: no temporary directory can be created: {error}") from error
    return ServerFolder(path, is_private=True)


def _shared_folder(named: str) -> ServerFolder:
    # A directory in it: the folder may be open to others, or contain files with our names.
    path = os.path.join(os.path.realpath(named), ".dibs")
    if not _path_fits(path):
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        path = os.path.join(_short_root(), f"dibs-{os.geteuid()}-{digest}")
    return ServerFolder(path, is_private=False)


def _path_fits(path: str) -> bool:
    folder = ServerFolder(path, is_private=True)
    return len(os.fsencode(folder.supervisor_socket)) <= _MAX_SOCKET_PATH


def _short_root() -> str:
    # Not TMPDIR if possible: processes that share a folder may have different ones.
    return "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else tempfile.gettempdir()


# --- forks -----------------------------------------------------------------------------------


def _close_inherited() -> None:
    """In a forked child: connections that it inherits must not keep a server running."""
    for connection in list(_connections):
        connection.close()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_fork_lock.acquire,
        after_in_parent=_fork_lock.release,
        after_in_child=_close_inherited,
    )
