"""The supervisor: a small process that owns one embedded server and ends it with its last user.

`embedded.py` starts it, with nothing but the standard library and the modules beside this one, and
of those only what loads fast. Every user keeps one connection to the supervisor open; the kernel
closes it however the user ends. The supervisor writes one line to each connection:

    ready               the server answers
    failed: <sentence>  it does not, and will not

A process that has locked the lock file of the folder may start or end a supervisor. The supervisor
locks it in order to end, so a new process finds a supervisor that will answer, or an empty folder.
"""

import fcntl
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from .die_with_parent import die_with_parent
from .process import NoReply, ServerFolder, arguments, ask, last_line, wait_until_ready

_GRACE_PERIOD = 0.2
"""Seconds that a shared server outlives its last user, so that one process can follow another."""
_SHUTDOWN_WITHIN = 1.0
_MAX_USERS = 10_000
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ServerProcess:
    """One server, from the start of its process to its end."""

    def __init__(self, program: str, folder: ServerFolder) -> None:
        self._name = os.path.basename(program)
        self._socket = folder.server_socket
        _end_orphan(self._socket)
        # The server inherits the write end and never uses it: when it ends, we read end-of-file.
        self.exit_pipe, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _exec_server(program, _server_arguments(folder), write_end)
        os.close(write_end)

    def start_failure(self, within: float) -> str | None:
        """Wait until the server answers. Returns None if it does, or why it does not."""
        why = wait_until_ready(self._socket, self._has_ended, within)
        return why and f"{self._name} {why}"

    def kill(self) -> None:
        """Kill the process and wait until it has ended. It keeps nothing on disk."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _has_ended(self) -> bool:
        return bool(select.select([self.exit_pipe], [], [], 0)[0])


def _server_arguments(folder: ServerFolder) -> list[str]:
    return arguments(
        {
            "port": "0",
            "unixsocket": folder.server_socket,
            "unixsocketperm": "700",
            "dir": folder.path,
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
    )


def _exec_server(program: str, arguments: list[str], exit_pipe: int) -> None:
    """Turn this newly forked process into the server. Never returns."""
    try:
        os.set_inheritable(exit_pipe, True)
        die_with_parent(os.getppid())
        # A service manager that stops a whole process group would otherwise end the server while
        # its users are still finishing their work.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        # The server does not start with a locale that is not installed.
        os.execve(program, [os.path.basename(program), *arguments], {**os.environ, "LC_ALL": "C"})
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def _end_orphan(path: str) -> None:
    """End a server whose supervisor was killed; on Linux it has ended with its parent."""
    with suppress(OSError, NoReply):  # a server that ends closes the connection
        ask(path, "SHUTDOWN", "NOSAVE", within=_SHUTDOWN_WITHIN)
    _remove_file(path)


class Supervisor:
    """Counts the connections of users, and ends when there is none left or the server has ended."""

    def __init__(self, listener: socket.socket, folder: ServerFolder) -> None:
        self._listener = listener
        self._folder = folder
        self._socket_id = _file_id(folder.supervisor_socket)
        self._lock: int | None = None
        self._users: dict[int, socket.socket] = {}
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def serve(self, exit_pipe: int, grace_period: float) -> bool:
        """Serve users until the last has left (returns True) or the server has ended (False).

        Returns with the folder locked.
        """
        self._poll.register(exit_pipe, select.POLLIN)
        while True:
            ready = [fd for fd, _ in self._poll.poll(None if self._users else grace_period * 1000)]
            if not ready and self._has_no_users():
                return True
            if exit_pipe in ready:
                self._lock_folder()
                return False
            for fd in ready:
                if fd in self._users:
                    self._read_from_user(fd)
                else:
                    self._accept_all(b"ready\n")

    def refuse(self, sentence: str) -> None:
        """Report a failed start to all users that wait. Returns with the folder locked."""
        self._lock_folder()
        self._accept_all(f"failed: {sentence}\n".encode(errors="replace"))

    def remove_files(self, *, keep_log: bool) -> None:
        """Remove the folder, or all files in it but the log. It is unlocked when we exit."""
        if _file_id(self._folder.supervisor_socket) != self._socket_id:
            return  # the folder was removed, and another supervisor has made it again
        lock_file = os.path.basename(self._folder.lock_file)
        log_files = {os.path.basename(self._folder.log)} if keep_log else set[str]()
        names = set(os.listdir(self._folder.path)) - {lock_file} - log_files
        # The lock file goes last: a process that locks it then sees that it has left the folder.
        for name in (*names, lock_file):
            _remove_file(os.path.join(self._folder.path, name))
        with suppress(OSError):  # the log is kept, or another supervisor is being started in it
            os.rmdir(self._folder.path)

    def _accept_all(self, line: bytes) -> None:
        while user := self._accept_user():
            try:
                user.send(line)
            except OSError:  # it has left already
                user.close()
            else:
                self._users[user.fileno()] = user
                self._poll.register(user, select.POLLIN)

    def _accept_user(self) -> socket.socket | None:
        try:
            user, _ = self._listener.accept()
        except OSError:  # no user waits, or there are too many
            return None
        user.setblocking(False)
        return user

    def _read_from_user(self, fd: int) -> None:
        try:
            has_left = not self._users[fd].recv(64)
        except OSError:
            has_left = True
        if has_left:
            self._poll.unregister(fd)
            self._users.pop(fd).close()

    def _has_no_users(self) -> bool:
        """Lock the folder, and unlock it again if a user has connected meanwhile."""
        self._lock_folder()
        self._accept_all(b"ready\n")
        if self._users and self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return not self._users

    def _lock_folder(self) -> None:
        try:
            self._lock = os.open(self._folder.lock_file, os.O_RDWR)
        except OSError:
            return  # the folder was removed: there is nothing to lock
        fcntl.flock(self._lock, fcntl.LOCK_EX)


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _remove_file(path: str) -> None:
    with suppress(OSError):  # it is not there
        os.unlink(path)


def _become_daemon() -> None:
    """Become a child of init, and ignore signals that are meant for the user's terminal."""
    if os.fork():
        os._exit(0)  # the user waits for this one, so the supervisor never becomes its zombie
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a user may ignore it; then waitpid would fail
    _allow_many_users()


def _allow_many_users() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_USERS if hard == resource.RLIM_INFINITY else min(_MAX_USERS, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _listener_from_stdin() -> socket.socket:
    """Return the listening socket, which we got as our standard input.

    The server must not inherit it.
    """
    listener = socket.socket(fileno=os.dup(0))
    listener.setblocking(False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return listener


def main(program: str, path: str, kind: str, within: str) -> None:
    """Run *program* in the folder *path* for all who connect to the socket on standard input.

    *kind* is "private" or "shared". *within*: the seconds in which the server has to answer.
    """
    _become_daemon()
    folder = ServerFolder(path, is_private=kind == "private")
    supervisor = Supervisor(_listener_from_stdin(), folder)
    server = ServerProcess(program, folder)
    ended_well = False
    try:
        why = server.start_failure(float(within))
        if why is None:
            grace_period = 0.0 if folder.is_private else _GRACE_PERIOD
            ended_well = supervisor.serve(server.exit_pipe, grace_period)
        else:
            supervisor.refuse(f"{why}: {last_line(folder.log)}")
    finally:
        server.kill()
    supervisor.remove_files(keep_log=not ended_well and not folder.is_private)
