"""The servers behind the page: a private Valkey, its replica, and what can be done to them."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from dibs import AsyncDibs, Unavailable

from .listener import free_port

SLOW = 0.1
"""Seconds between two moments in which a slow server answers; less than the budget of dibs."""
_AWAKE = 0.002
"""Seconds for which it answers then."""
_LOOK = 0.01
_LOOKS = 200
"""How often to check whether the server has ended."""
_START = 5.0
"""How long the server may not answer at the start, in seconds."""
_WITHIN = 10.0
"""Seconds that a switch of masters may take."""
_NAMES = ("A", "B")


class Engine:
    """A Valkey for this page alone, in a private folder; a second one if needed.

    All clients use one path, a link to the socket of the master, like the host name of a managed
    service. However the page ends, the supervisors of the servers kill them (SIGKILL, which also
    ends a stopped process).
    """

    def __init__(self) -> None:
        self._folder = ""
        self._master = 0
        self._frozen: int | None = None
        self._slowing: asyncio.Task[None] | None = None
        self._open = AsyncExitStack()
        self._looker: AsyncDibs
        self._has_replica = False

    @property
    def target(self) -> str:
        """The target for dibs objects; all that share it share the server."""
        return f"embedded://{quote(self._folder)}"

    @property
    def master(self) -> str:
        """Which of the two servers is the master: A, the first one, or B."""
        return _NAMES[self._master]

    @property
    def is_frozen(self) -> bool:
        """True: it was stopped by `freeze`."""
        return self._frozen is not None and self._slowing is None

    def socket(self) -> str:
        """The Unix socket of the master, for plain clients. FileNotFoundError: it has none yet."""
        return str(_socket(Path(self._folder)))

    async def pid_holding(self, key: str) -> int | None:
        """The process that holds *key*; None: it is free. Unavailable: the server is down."""
        holding = await self._looker.peek(key)
        holder = holding and holding.holder
        return int(holder.rpartition(":")[2]) if holder else None

    # ---- what can be done to it

    async def freeze(self) -> None:
        """Stop the master. OSError: it cannot be stopped; redis.RedisError: it does not answer."""
        pid = await self._master_pid()
        os.kill(pid, signal.SIGSTOP)
        self._frozen = pid

    async def thaw(self) -> None:
        """Resume a stopped master."""
        self._thaw()

    async def slow_down(self) -> None:
        """Let the master answer once in SLOW seconds. It raises what `freeze` raises."""
        await self.freeze()
        assert self._frozen is not None
        self._slowing = asyncio.create_task(self._pause(self._frozen))

    async def speed_up(self) -> None:
        """Let the master answer at once again."""
        task, self._slowing = self._slowing, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._thaw()

    async def switch_masters(self) -> None:
        """Make the replica the master, with every key, and the master its replica.

        Clients find their connections closed, and the new master at the same address. OSError,
        redis.RedisError: it failed; then the master is unchanged.
        """
        await self._have_replica()
        old, new = self._master, 1 - self._master
        async with plain_client(self._path(old)) as master, plain_client(self._path(new)) as other:
            try:
                async with asyncio.timeout(_WITHIN):
                    await _follow(other, master)
                    await _promote(other, master)
            except TimeoutError:
                raise OSError(f"the replica was not ready within {_WITHIN:g} s") from None
            finally:
                if await _has_role(other, "master"):  # also if something failed after that
                    await self._move_to(new, master)
                for server in (master, other):
                    await server.config_set("port", 0)

    async def _move_to(self, number: int, old: "redis.asyncio.Redis") -> None:
        """Let clients find the other server at their next connection."""
        self._point_at(number)
        for kind in ("normal", "pubsub"):
            await old.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    async def _have_replica(self) -> None:
        if self._has_replica:
            return
        folder = Path(self._folder) / "b"
        folder.mkdir(exist_ok=True)
        replica = AsyncDibs(f"embedded://{quote(str(folder))}")
        await self._open.enter_async_context(replica)
        await replica.peek("playground:start")
        self._has_replica = True

    async def _pause(self, pid: int) -> None:
        while True:
            await asyncio.sleep(SLOW)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(_AWAKE)
            os.kill(pid, signal.SIGSTOP)

    def _thaw(self) -> None:
        pid, self._frozen = self._frozen, None
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    async def _master_pid(self) -> int:
        # Queried each time: a remembered number might belong to another process by now.
        async with plain_client(self.socket()) as client:
            return int((await client.info("server"))["process_id"])

    # ---- where they are

    def _path(self, number: int) -> str:
        """The socket of server A (0) or B (1) itself."""
        folder = Path(self._folder)
        return str(_socket(folder / "b") if number else _socket(folder).with_name("a.sock"))

    def _point_at(self, number: int) -> None:
        path, link = self.socket(), f"{self._folder}/link"
        os.symlink(self._path(number), link)
        os.replace(link, path)  # no client ever finds nothing there
        self._master = number

    # ---- beginning and end

    async def __aenter__(self) -> "Engine":
        """DibsError: the server cannot be started."""
        self._folder = tempfile.mkdtemp(prefix="dibs-")
        self._master, self._has_replica = 0, False
        async with AsyncExitStack() as opening:
            opening.push_async_callback(self._gone)
            self._looker = await opening.enter_async_context(AsyncDibs(self.target))
            await reach(self._looker)
            path, own = self.socket(), self._path(0)
            os.rename(path, own)
            os.symlink(own, path)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Return when the servers have ended. Their users must have closed before."""
        await self.speed_up()
        await self._open.aclose()

    async def _gone(self) -> None:
        for _ in range(_LOOKS):
            if self._folder_removed():
                return
            await asyncio.sleep(_LOOK)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _folder_removed(self) -> bool:
        """True: the servers have ended, and their supervisors have emptied the folders."""
        try:
            with suppress(FileNotFoundError):
                os.rmdir(f"{self._folder}/b")
            os.rmdir(self._folder)
        except OSError:
            return not os.path.exists(self._folder)
        return True


async def reach(dibs: AsyncDibs) -> None:
    """Wait for a connection.

    Unavailable: none for a while; a busy machine at the start is no outage.
    """
    until = monotonic() + _START
    while True:
        try:
            await dibs.peek("playground:start")
            return
        except Unavailable:
            if monotonic() > until:
                raise
            await asyncio.sleep(_START / 50)


def _socket(folder: Path) -> Path:
    for path in folder.glob("*/valkey.sock"):
        return path
    raise FileNotFoundError("the embedded server has no socket in its folder")


def plain_client(path: str) -> "redis.asyncio.Redis":
    """A plain client that asks once, and waits for a second at most."""
    return redis.asyncio.Redis(
        unix_socket_path=path,
        socket_timeout=1,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )


# ---- replication


async def _follow(replica: "redis.asyncio.Redis", master: "redis.asyncio.Redis") -> None:
    """Let *replica* replicate *master*. Both listen for TCP meanwhile, on this machine only."""
    await master.config_set("repl-diskless-sync-delay", 0)
    for server in (master, replica):
        await server.config_set("bind", "127.0.0.1")
        await server.config_set("port", free_port())
    await replica.replicaof("127.0.0.1", (await master.config_get("port"))["port"])
    await _until(lambda: _is_up(replica))


async def _promote(replica: "redis.asyncio.Redis", master: "redis.asyncio.Redis") -> None:
    """FAILOVER waits until the replica has every write, and then changes the roles."""
    port = (await replica.config_get("port"))["port"]
    await master.execute_command("FAILOVER", "TO", "127.0.0.1", port, "TIMEOUT", 2000)
    await _until(lambda: _has_role(replica, "master"))
    await _until(lambda: _is_up(master))


async def _has_role(server: "redis.asyncio.Redis", role: str) -> bool:
    return (await server.info("replication"))["role"] == role


async def _is_up(replica: "redis.asyncio.Redis") -> bool:
    return (await replica.info("replication")).get("master_link_status") == "up"


async def _until(is_true: Callable[[], Awaitable[bool]]) -> None:
    while not await is_true():  # noqa: ASYNC110 – another process, which has no event for us
        await asyncio.sleep(_LOOK)
