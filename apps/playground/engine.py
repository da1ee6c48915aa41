"""The server behind the page: a private Valkey that can be stopped for a few seconds."""

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import redis.asyncio

OUTAGE = 5.0
"""How long `pause` stops the server, in seconds."""
_LOOKS = 200
"""How often to look whether the server is gone, every 10 ms."""


class Engine:
    """A Valkey for this page alone, in a folder that nobody else knows.

    It is started by the first dibs object that uses `target`. Whichever way the page ends, the
    supervisor of the server kills it (SIGKILL, which ends a stopped process, too).
    """

    def __init__(self) -> None:
        self._folder = ""
        self._stopped: int | None = None
        self._until = 0.0

    @property
    def target(self) -> str:
        """What dibs objects are made with; all that share it share the server."""
        return f"embedded://{quote(self._folder)}"

    @property
    def out_for(self) -> float:
        """Seconds that the server still stays stopped; 0.0: it is not."""
        return max(self._until - monotonic(), 0.0)

    async def pause(self) -> bool:
        """Stop the server for OUTAGE seconds. False: it is stopped already.

        OSError: its process cannot be found or stopped; redis.RedisError: it does not answer.
        """
        if self.out_for or self._stopped is not None:
            return False
        self._until = monotonic() + OUTAGE
        try:
            pid = await self._server_pid()
            os.kill(pid, signal.SIGSTOP)
        except BaseException:
            self._until = 0.0
            raise
        self._stopped = pid
        asyncio.get_running_loop().call_later(self.out_for, self.resume)
        return True

    def resume(self) -> None:
        """Let a stopped server go on. Harmless at any other time."""
        pid, self._stopped, self._until = self._stopped, None, 0.0
        if pid is not None:
            os.kill(pid, signal.SIGCONT)

    async def _server_pid(self) -> int:
        # Asked anew each time: a number that was remembered might be another process by now.
        async with redis.asyncio.Redis(unix_socket_path=self.socket(), socket_timeout=1) as client:
            return int((await client.info("server"))["process_id"])

    def socket(self) -> str:
        """The Unix socket of the server, for plain clients. FileNotFoundError: it has none yet."""
        for path in Path(self._folder).glob("*/valkey.sock"):
            return str(path)
        raise FileNotFoundError("the embedded server has no socket in its folder")

    async def __aenter__(self) -> "Engine":
        self._folder = tempfile.mkdtemp(prefix="dibs-")
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Returns when the server is gone. Those who use it must have closed before."""
        self.resume()
        for _ in range(_LOOKS):
            if self._folder_removed():
                return
            await asyncio.sleep(0.01)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _folder_removed(self) -> bool:
        """True: the server has ended. Its supervisor empties the folder then."""
        try:
            os.rmdir(self._folder)
        except OSError:
            return not os.path.exists(self._folder)
        return True
