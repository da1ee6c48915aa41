"""The keeper: a small process that owns one valkey-server and ends it when nobody is left.

`embedded.py` runs this file as a script and never imports it: the standard library only, and of
that only what loads fast. Every user holds one connection, its lifeline; the kernel closes it
however the user dies, so nobody has to say goodbye. A lifeline hears one line, then nothing more:

    ready               the server answers
    failed: <sentence>  it does not, and will not

Whoever holds `keeper.lock` may change who keeps this home. The keeper takes it to end, so a
newcomer finds either a keeper that will answer or a clean home.
"""

import fcntl
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

GRACE = 0.2
"""Seconds a shared server outlives its last user, so that one process can follow another."""
_PING_EVERY_MS = 3
_ANSWER_WITHIN = 1.0
_MOST_USERS = 10_000
_POLITE_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Server:
    """One valkey-server, from the start of its process to its end."""

    def __init__(self, binary: str, home: str) -> None:
        self._socket = os.path.join(home, "valkey.sock")
        _end_orphan(self._socket)
        # The server inherits the other end and never uses it: ours reads end-of-file at its death.
        self.pulse, theirs = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _become(binary, _arguments(home, self._socket), theirs)
        os.close(theirs)

    def failure(self, patience: float) -> str | None:
        """Wait until the server answers. None: it does; else why it does not."""
        until = time.monotonic() + patience
        beat = select.poll()
        beat.register(self.pulse, select.POLLIN)
        while not _ask(self._socket, b"PING\r\n").startswith(b"+PONG"):
            if beat.poll(_PING_EVERY_MS):
                return "valkey-server ended at once"
            if time.monotonic() > until:
                return f"valkey-server did not answer within {patience:g} s"
        return None

    def end(self) -> None:
        """The process is gone when this returns. It keeps nothing on disk, so nothing is lost."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _arguments(home: str, path: str) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "700",
        "dir": home,
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    pairs = [(f"--{name}", value) for name, value in options.items()]
    return ["valkey-server", *(word for pair in pairs for word in pair)]


def _become(binary: str, arguments: list[str], pulse: int) -> None:
    """Turn this freshly forked process into the server. Never returns."""
    try:
        os.set_inheritable(pulse, True)
        _die_with(os.getppid())
        # A service manager that stops a whole group would otherwise take the server away
        # from users who are still finishing their work.
        signal.pthread_sigmask(signal.SIG_BLOCK, _POLITE_SIGNALS)
        # A locale that is not installed would stop the server from starting.
        os.execve(binary, arguments, {**os.environ, "LC_ALL": "C"})
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def _die_with(keeper: int) -> None:
    """On Linux, this process is killed when *keeper* ends. Elsewhere, see `_end_orphan`."""
    if sys.platform == "linux":
        try:
            import ctypes
        except ImportError:  # a Python built without it: no worse than elsewhere
            return
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != keeper:  # it ended before the kernel was told
            os._exit(127)


def _end_orphan(path: str) -> None:
    """A server whose keeper was killed, where the kernel does not end it for us, is ended here."""
    _ask(path, b"SHUTDOWN NOSAVE\r\n")  # the answer is end-of-file, or nobody is there
    _remove(path)


def _ask(path: str, command: bytes) -> bytes:
    """The beginning of the server's answer; empty: nobody there, or no answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_WITHIN)
        try:
            connection.connect(path)
            connection.sendall(command)
            return connection.recv(64)
        except OSError:
            return b""


class Keeper:
    """Counts the lifelines, and says when there is nobody left to keep the server for."""

    def __init__(self, listener: socket.socket, home: str) -> None:
        self._listener = listener
        self._home = home
        self._mark = _identity(os.path.join(home, "keeper.sock"))
        self._lock: int | None = None
        self._users: dict[int, socket.socket] = {}
        self._watch = select.poll()
        self._watch.register(listener, select.POLLIN)

    def serve(self, pulse: int, grace: float) -> bool:
        """Returns with the lock held. True: the last user has left; False: the server has ended."""
        self._watch.register(pulse, select.POLLIN)
        while True:
            ready = [fd for fd, _ in self._watch.poll(None if self._users else grace * 1000)]
            if not ready and self._may_leave():
                return True
            if pulse in ready:
                self._take_lock()
                return False
            for fd in ready:
                if fd in self._users:
                    self._hear(fd)
                else:
                    self._welcome(b"ready\n")

    def refuse(self, sentence: str) -> None:
        """Tell everybody who waits. Returns with the lock held: the next one starts afresh."""
        self._take_lock()
        self._welcome(f"failed: {sentence}\n".encode(errors="replace"))

    def clear(self, *, log: bool) -> None:
        """Leave nothing behind, except the log if not *log*. The lock is given back by ending."""
        if _identity(os.path.join(self._home, "keeper.sock")) != self._mark:
            return  # our home was removed and made again under us: it is somebody else's now
        names = set(os.listdir(self._home)) - {"keeper.lock"} - (set() if log else {"valkey.log"})
        # The lock goes last: who gets it then sees that it is no longer the one in the folder.
        for name in (*names, "keeper.lock"):
            _remove(os.path.join(self._home, name))
        with suppress(OSError):  # the log is to stay, or somebody has already begun anew in it
            os.rmdir(self._home)

    def _welcome(self, line: bytes) -> None:
        while user := self._next_user():
            try:
                user.send(line)
            except OSError:  # gone before we could answer
                user.close()
            else:
                self._users[user.fileno()] = user
                self._watch.register(user, select.POLLIN)

    def _next_user(self) -> socket.socket | None:
        try:
            user, _ = self._listener.accept()
        except OSError:  # nobody waits, or there are too many of them already
            return None
        user.setblocking(False)
        return user

    def _hear(self, fd: int) -> None:
        try:
            gone = not self._users[fd].recv(64)
        except OSError:
            gone = True
        if gone:
            self._watch.unregister(fd)
            self._users.pop(fd).close()

    def _may_leave(self) -> bool:
        self._take_lock()
        self._welcome(b"ready\n")  # whoever came in before we had the lock
        if self._users and self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return not self._users

    def _take_lock(self) -> None:
        try:
            self._lock = os.open(os.path.join(self._home, "keeper.lock"), os.O_RDWR)
        except OSError:
            return  # our home was removed under us: there is nothing to guard
        fcntl.flock(self._lock, fcntl.LOCK_EX)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove(path: str) -> None:
    with suppress(OSError):  # it is not there, and that is what we want
        os.unlink(path)


def _last_line(log: str) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


def _settle() -> None:
    """Become nobody's child, deaf to what is meant for the owner's terminal or service."""
    if os.fork():
        os._exit(0)  # the owner waits for this one, so the keeper can never be its zombie
    for number in _POLITE_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an owner may ignore it; we must not
    _allow_many_users()


def _allow_many_users() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_USERS if hard == resource.RLIM_INFINITY else min(_MOST_USERS, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _given_listener() -> socket.socket:
    """The socket that we were given as our standard input, where the server will not find it."""
    listener = socket.socket(fileno=os.dup(0))
    listener.setblocking(False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return listener


def main(binary: str, home: str, *, patience: float, private: bool) -> None:
    """Keep a server for whoever connects to our listener; end with nothing left behind."""
    keeper = Keeper(_given_listener(), home)
    server = Server(binary, home)
    well = False
    try:
        why = server.failure(patience)
        if why is None:
            well = keeper.serve(server.pulse, 0.0 if private else GRACE)
        else:
            keeper.refuse(f"{why}: {_last_line(os.path.join(home, 'valkey.log'))}")
    finally:
        server.end()
    keeper.clear(log=well or private)


if __name__ == "__main__":
    _settle()
    _binary, _home, _patience, _kind = sys.argv[1:]
    main(_binary, _home, patience=float(_patience), private=_kind == "private")
