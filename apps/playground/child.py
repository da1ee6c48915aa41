"""An app in a process of its own, on a free port, which ends with the page however that ends.

The child watches its stdin, which nobody else writes to: when the page is gone, killed or not, the
kernel closes it, and the child ends at once. It has nothing to tidy up: no files, no leases.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from threading import Thread

_START = 20.0
"""The most a child may take to start, in seconds; machines can be busy."""
_END = 2.0
_READY = b"ready\n"


class Child:
    """Runs `uvicorn app`. Its address is known before it is started."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self, environment: Mapping[str, str]) -> None:
        """It answers. OSError: it cannot be started; what it has to say is on stderr."""
        listener = self._listener.fileno()
        with self._listener:  # ours is closed, so that a dead child refuses instead of hanging
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __name__, self._app, str(listener)),
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

    async def aclose(self) -> None:
        """Returns when it is gone. Harmless if it never was there."""
        self._listener.close()
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


# ---- in the child


def main(app: str, listener: int) -> None:
    """Serve *app* there until stdin is closed."""
    Thread(target=_end_with_stdin, daemon=True).start()
    import uvicorn  # only now: who closes stdin during a slow import is heard all the same

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            os.write(1, _READY)

    config = uvicorn.Config(app, log_level="error", access_log=False)
    Server(config).run([socket.socket(fileno=listener)])


def _end_with_stdin() -> None:
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
