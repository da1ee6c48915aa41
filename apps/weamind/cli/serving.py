"""`serve`: the bot, from its settings to the last event."""

import asyncio
import os
import signal
import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from ..core.config import Settings, SettingsError, read_settings
from ..core.logs import log_to_stderr
from ..core.metrics import metrics
from ..main import Weamind
from .problems import FAILED, MISTAKEN, report_problems

_SHUTDOWN_LIMIT = 5
"""The most that webhooks under way may take at the end, in seconds; events have their own time."""


class Server(uvicorn.Server):
    """uvicorn, which says where it is, and leaves the end to its caller."""

    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"WeaMind listens at {self._address}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own, which raises the signal once more when the server has ended: asyncio
        # would then cancel what is left, events that LINE has had its 200 for.
        self.force_exit, self.should_exit = self.should_exit, True


def serve(host: str, port: int) -> int:
    """The exit code, when it was stopped and the last event is done, or cannot begin."""
    try:
        settings = read_settings()
    except SettingsError as error:
        return report_problems(error.mistakes, MISTAKEN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log_to_stderr(settings.log_level)
    try:
        with listen(host, port) as listener:
            asyncio.run(_serve(listener, settings))
    except SettingsError as error:  # what only turns out at the start: the database
        return report_problems(error.mistakes, FAILED)
    except OSError as error:
        return report_problems([str(error)], FAILED)
    except KeyboardInterrupt:
        pass  # stopped before it could serve, or twice
    return 0


async def _serve(listener: socket.socket, settings: Settings) -> None:
    weamind = Weamind(settings, metrics)
    config = uvicorn.Config(
        Starlette(routes=weamind.routes),
        lifespan="off",  # opened here, where a failure becomes one sentence
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=_SHUTDOWN_LIMIT,
    )
    async with weamind:
        await Server(config, _address(listener)).serve([listener])


def listen(host: str, port: int) -> socket.socket:
    """A socket there. OSError: there can be none; the sentence says why."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except socket.gaierror:
        raise OSError(f"--host: {host} is no address of this machine") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        why = os.strerror(error.errno or 0).lower()
        raise OSError(f"port {port} of {host}: {why}; choose another --host or --port") from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
