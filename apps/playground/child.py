"""An app in its own process, on a free port, which ends with the page however that ends.

The child watches its stdin, to which only the page writes. When the page no longer needs it, it
gets a byte; when the page was killed, the kernel closes the pipe without one. Either way it ends at
once. The page removes the child's files, or, if the page was killed, the child does.
"""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread

from .listener import adopt, listen

_START = 60.0
"""How long a child may take to start, in seconds; machines can be busy."""
_FINISH = 20.0
"""How long it may take to finish what it has begun."""
_END = 2.0
_READY = b"ready\n"
_GOODBYE = b"."


class Child:
    """Runs `uvicorn app`. Its address is known before it is started."""

    def __init__(self, app: str, *, folder: str = "") -> None:
        """*folder*: where its files are, if it has any."""
        self._app = app
        self._folder = folder
        self._listener = listen(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """None: it was never started."""
        return self._process.pid if self._process is not None else None

    @property
    def is_gone(self) -> bool:
        """True: it was started, and has ended."""
        return self._process is not None and self._process.returncode is not None

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start it, and wait until it answers.

        OSError: it cannot be started; its output is on stderr.
        """
        listener = self._listener.fileno()
        with self._listener:  # ours is closed, so that a dead child refuses instead of hanging
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __name__, self._app, str(listener), self._folder),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **environment},
                pass_fds=[listener],
                start_new_session=True,  # Ctrl-C is for the page
            )
        assert self._process.stdout is not None
        try:
            said = await asyncio.wait_for(self._process.stdout.readline(), _START)
        except TimeoutError:
            said = b""
        if said != _READY:
            raise OSError(f"{self._app} did not start")

    async def kill(self) -> None:
        """Kill it with SIGKILL, like a machine that crashes, and wait for its end."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def retire(self) -> None:
        """Let it finish its work, and wait for its end."""
        try:
            if self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.terminate()
                await asyncio.wait_for(self._process.wait(), _FINISH)
        except TimeoutError:
            pass
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End it, if it was started, and wait for its end."""
        self._listener.close()
        if self._process is None:
            return
        assert self._process.stdin is not None
        if not self.is_gone:
            self._process.stdin.write(_GOODBYE)
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END)
        except TimeoutError:
            await self.kill()


# ---- in the child


def main(app: str, listener: int, folder: str) -> None:
    """Serve *app* there until a line comes on stdin, or it is closed."""
    Thread(target=_end_with_stdin, args=[folder], daemon=True).start()
    import uvicorn  # only now: who closes stdin during a slow import is noticed all the same

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            os.write(1, _READY)

    config = uvicorn.Config(app, log_level="error", access_log=False)
    Server(config).run([adopt(listener)])


def _end_with_stdin(folder: str) -> None:
    is_goodbye = bool(os.read(0, 1))
    if folder and not is_goodbye:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
