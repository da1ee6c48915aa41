"""Python processes for tests without the start of an interpreter, which is half of a run's time.

`install()` lets `subprocess.Popen` hand some commands to a server: a Python that has imported the
libraries and dibs, and forks. The process is a real one: a child of the one that asked (it can be
waited for, stopped, killed), with its own session, streams, signals, environment, folder and
arguments, also in the list of `ps`.

Handed over are `python -m module`, `python file.py`, and what begins with die_with_parent.py,
which all processes of `dibs.testing` do. A plain `python -c` is a real interpreter: tests start it
to see what an import or an interpreter does. So is everything in `with real_interpreters():`.

On Linux only; on other systems every command is executed as ever.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import io
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

# Nothing that reads the environment or the clock when it is imported: no prometheus_client.
BASE = (
    "asyncio", "redis.asyncio", "hiredis", "dibs._async.client", "dibs._sync.client",
    "dibs._transport.multiplexed", "dibs._transport.pooled", "dibs.cli.program",
)  # fmt: skip
LIBRARIES = (
    "uvicorn.main", "uvicorn.lifespan.on", "uvicorn.logging", "uvloop", "websockets",
    "uvicorn.protocols.http.httptools_impl", "uvicorn.loops.auto",
    "uvicorn.protocols.websockets.auto", "fastapi", "httpx", "jinja2",
    "sqlalchemy.ext.asyncio", "psycopg", "django.core.handlers.asgi",
    "django.core.handlers.wsgi", "django.core.management", "django.db.models",
    "django.db.migrations.executor", "flask", "gunicorn.app.wsgiapp", "linebot.v3.messaging",
    "linebot.v3.webhooks",
)  # fmt: skip
NEED_THE_BASE = re.compile(r"dibs(\.\w+)*$")
NEED_LIBRARIES = re.compile(r"uvicorn|fastapi|starlette|django|flask|gunicorn|linebot|httpx|apps")
"""Modules, and words in the source of a function."""
ALSO_START_PROCESSES = ("apps.playground",)
"""Modules with a server for their own processes."""

MOST_BYTES = 150_000
"""Of a request: a datagram is not longer."""

ARGUMENTS = 16_384
"""Bytes kept for the arguments that `ps` shows."""

# What an interpreter reads when it starts, and cannot be changed in one that runs.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TZ", "COVERAGE_")
SET_CHILD_SUBREAPER, SET_PDEATHSIG = 36, 1

_execute = subprocess.Popen._execute_child  # pyright: ignore[reportAttributeAccessIssue]
_signature = inspect.signature(_execute)
_prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_only_real = False


@contextlib.contextmanager
def real_interpreters() -> Iterator[None]:
    """Every command is executed."""
    global _only_real
    before, _only_real = _only_real, True
    try:
        yield
    finally:
        _only_real = before


# ------------------------------------------------------------------------- in the one that asks


class Client:
    """The server of this process: started when it is first needed, ended with this process."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._connection = connection
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, request: dict[str, Any], fds: list[int]) -> int | None:
        """The process id, or None: the command has to be executed."""
        message = json.dumps(request).encode()
        if os.getpid() != self._owner or len(message) > MOST_BYTES:  # or a fork of the owner
            return None
        with self._lock:
            if self._connection is None:
                if request["words"][0] != sys.executable:  # not worth the start
                    return None
                self._connection, self._server = _started()
            try:
                return self._ask(self._connection, message, fds)
            except OSError:  # it was killed, with everything else
                return None

    def _ask(self, connection: socket.socket, message: bytes, fds: list[int]) -> int | None:
        # The child's first parent ends, and the kernel gives it to the nearest process above
        # that wants orphans. For this moment that is this one.
        _prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(connection, [message], fds)
            return int(connection.recv(64)) or None
        finally:
            _prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def close(self) -> None:
        """Let the server end."""
        with self._lock:
            if self._connection is not None and os.getpid() == self._owner:
                self._connection.close()
            if self._server is not None and os.getpid() == self._owner:
                self._server.wait()


def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with its, real_interpreters():
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(its.fileno()), " " * ARGUMENTS],
            cwd=Path(__file__).parents[1],  # not from this folder: it has a `typing` of its own
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
    return ours, server


def install(client: Client | None = None) -> Client | None:
    """Hand commands of this process over, if the system can."""
    if _prctl is None:
        return None
    client = client or Client()

    def execute(popen: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        options = _signature.bind(popen, *args, **kwargs).arguments
        request = None if _only_real else _request(options)
        pid = request and client.start(request, _fds(options))
        if not pid:
            return _execute(popen, *args, **kwargs)
        popen.pid = pid
        popen._child_created = True  # pyright: ignore[reportAttributeAccessIssue]
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        return popen._close_pipe_fds(*(options[end] for end in ends))  # pyright: ignore[reportAttributeAccessIssue]

    subprocess.Popen._execute_child = execute  # pyright: ignore[reportAttributeAccessIssue]
    return client


def _fds(options: dict[str, Any]) -> list[int]:
    streams = (options["p2cread"], options["c2pwrite"], options["errwrite"])
    own = [number if fd == -1 else fd for number, fd in enumerate(streams)]
    return [*own, *options["pass_fds"]]


def _request(options: dict[str, Any]) -> dict[str, Any] | None:
    """What the server has to know, or None: this is not for it."""
    args, env = options["args"], options["env"]
    usual = (
        isinstance(args, list | tuple)
        and options["executable"] is None
        and options["preexec_fn"] is None
        and options["close_fds"]
        and not options["shell"]
        and (options["gid"], options["gids"], options["uid"]) == (None, None, None)
        and options["umask"] == options["process_group"] == -1
    )
    if not usual:
        return None
    environment = dict(os.environ if env is None else env)
    words = [os.fsdecode(word) for word in args]
    parent, words = _without_watch(words)
    if not (_can_run(words, watched=parent is not None) and _can_be(environment)):
        return None
    folder = os.path.abspath(options["cwd"] or ".")
    if not os.path.isdir(folder):
        return None
    return {
        "words": words,
        "libraries": _needs_libraries(words),
        "parent": parent,
        "folder": folder,
        "environment": environment,
        "asked_by": os.getpid(),
        "session": bool(options["start_new_session"]),
        "fds": list(options["pass_fds"]),
    }


def _without_watch(words: list[str]) -> tuple[int | None, list[str]]:
    """The process with which it has to end, and the command behind die_with_parent.py."""
    if words[:3] == [sys.executable, "-I", "-S"] and words[3].endswith("/die_with_parent.py"):
        return int(words[4]), words[5:]
    return None, words


def _can_run(words: list[str], *, watched: bool) -> bool:
    if words[0] != sys.executable:
        return watched
    if len(words) < 2:
        return False
    return words[1] == "-m" or words[1].endswith(".py") or (words[1] == "-c" and watched)


def _needs_libraries(words: list[str]) -> bool:
    if words[0] != sys.executable:
        return False
    if words[1] == "-c":
        return NEED_LIBRARIES.search(words[2]) is not None
    return words[1] != "-m" or not NEED_THE_BASE.match(words[2])


def _can_be(environment: dict[str, str]) -> bool:
    """Whether it says to an interpreter what it said to this one."""
    free = ("PYTHONPATH", "PYTHONUNBUFFERED")

    def at_start(variables: Any) -> dict[str, str]:
        wanted = (name for name in variables if name.startswith(AT_START) and name not in free)
        return {name: variables[name] for name in wanted}

    return at_start(environment) == at_start(os.environ)


# ------------------------------------------------------------------------------- in the server


def serve(connection: socket.socket) -> Callable[[], object]:
    """Fork for each request. Returns in each new process: what it has to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    whole = False
    while True:
        message, fds, *_ = socket.recv_fds(connection, MOST_BYTES + 1, 64)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if request["libraries"] and not whole:
            _import(LIBRARIES)
            whole = True
        pid = _forked(request, connection)
        if pid == 0:
            return functools.partial(_become, request, fds)
        for fd in fds:
            os.close(fd)
        connection.send(str(pid).encode())


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # another environment has others
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _forked(request: dict[str, Any], connection: socket.socket) -> int:
    """0 in the new process, and its id here. It has become a child of the one that asked."""
    ours, its = os.pipe()
    between = os.fork()
    if between:
        os.close(its)
        with open(ours, "rb") as pipe:
            pid = int(pipe.read() or 0)
        os.waitpid(between, 0)
        return pid
    os.close(ours)
    connection.close()
    between = os.getpid()
    if pid := os.fork():
        os.write(its, str(pid).encode())
        os._exit(0)
    os.close(its)
    while os.getppid() == between:
        time.sleep(0.0005)
    return 0


def _become(request: dict[str, Any], fds: list[int]) -> object:
    """The process that was asked for; returns when its program ends."""
    words: list[str] = request["words"]
    if request["session"]:
        os.setsid()
    _take(fds, [0, 1, 2, *request["fds"]])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["parent"] is not None:
        _prctl(SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != request["parent"]:
            os._exit(127)
    if words[0] != sys.executable:
        _exec(words)
    if words[1] == "-m" and words[2] in ALSO_START_PROCESSES:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            ours.close()
            return serve(its)()
        its.close()
        install(Client(ours))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _show(words)
    _open_streams()
    return _run(words[1:])


def _take(fds: list[int], numbers: list[int]) -> None:
    """Have the fds under these numbers, and no others."""
    beyond = max([*fds, *numbers]) + 1
    for place, fd in enumerate(fds):
        os.dup2(fd, beyond + place)
    for place, number in enumerate(numbers):
        os.dup2(beyond + place, number)
    kept = sorted(numbers)
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def _exec(words: list[str]) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"{words[0]}: {error}\n".encode())
    os._exit(127)


def _show(words: list[str]) -> None:
    """Let `ps` show the command, in the memory of this one's arguments."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


def _open_streams() -> None:
    """As an interpreter opens them when it starts."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode = "r" if number == 0 else "w"
        before: io.TextIOWrapper = getattr(sys, f"__{name}__")
        raw = open(number, f"{mode}b", 0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            raw,
            encoding=before.encoding,
            errors=before.errors,
            newline=None if number == 0 else "\n",
            line_buffering=number == 2 or raw.isatty(),
            write_through=unbuffered,
        )
        stream.mode = mode  # pyright: ignore[reportAttributeAccessIssue]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(words: list[str]) -> object:
    """As `python *words` does."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    sys.orig_argv[:] = [sys.executable, *words]
    if words[0] == "-m":
        sys.argv[:] = ["-m", *words[2:]]
        _find_in(os.getcwd())
        return runpy._run_module_as_main(words[1])  # pyright: ignore[reportAttributeAccessIssue]
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        _find_in("")
        code = compile(words[1], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv[:] = words
        _find_in(os.path.dirname(os.path.realpath(words[0])))
        main.__file__ = words[0]
        code = compile(Path(words[0]).read_bytes(), words[0], "exec", dont_inherit=True)
    return exec(code, vars(main))


def _find_in(folder: str) -> None:
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys([folder, *filter(None, named), *sys.path[1:]])
    importlib.invalidate_caches()


def _end(code: object) -> NoReturn:
    """As an interpreter ends, without taking every library apart: that is 0.1 s of work."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    vars(sys.modules["__main__"]).clear()
    gc.collect()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        sys.exit(code)  # the interpreter has words and a code for it
    os._exit((code or 0) & 0xFF)


def main() -> None:
    """Serve; in each new process, do what was asked for."""
    _import(BASE)
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        program()
    except SystemExit as ended:
        _end(ended.code)
    _end(0)


if __name__ == "__main__":
    sys.path[0] = ""  # not the folder of this file
    main()
