"""``python -m apps.playground``: serve the page at HOST and PORT until Ctrl-C."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn

from dibs import DibsError

from .listener import listen
from .main import Playground, app, playground

_SHUTDOWN_LIMIT = 3
"""How long pending answers may take at the end, in seconds."""


class Server(uvicorn.Server):
    """uvicorn, which ends at once though streams are open, and with code 0 after a signal."""

    def __init__(self, config: uvicorn.Config, playground: Playground, address: str) -> None:
        super().__init__(config)
        self._playground = playground
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"The dibs playground is at {self._address} – Ctrl-C ends it.", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own, which raises the signal once more when all is done.
        self.force_exit, self.should_exit = self.should_exit, True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._playground.end_requests()
        await super().shutdown(sockets)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 when it was stopped, 1 when it could not start.

    SystemExit: help, or 2.
    """
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Outages are made on purpose here, and shown on the page.
    logging.getLogger("dibs").setLevel(logging.ERROR)
    try:
        playground.hosts.add(options.host)
        with _listen(options.host, options.port) as listener:
            asyncio.run(_serve(listener))
    except (DibsError, OSError, ValueError) as error:
        print(f"The dibs playground cannot start: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass  # before it could serve
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m apps.playground",
        description="A page to see dibs work: hold, once, cached and a LINE bot, on a private "
        "Valkey that is started with it and ends with it. Ctrl-C ends it.",
    )
    address, port = os.environ.get("HOST") or "127.0.0.1", os.environ.get("PORT") or "8000"
    parser.add_argument("--host", default=address, help="default: $HOST, or 127.0.0.1")
    parser.add_argument("--port", default=port, help="0: a free one; default: $PORT, or 8000")
    return parser


async def _serve(listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        lifespan="off",  # opened here, where a failure becomes one sentence
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_LIMIT,
    )
    async with playground:
        await Server(config, playground, _address(listener)).serve([listener])


def _listen(host: str, port: str) -> socket.socket:
    """Open a socket at that address.

    ValueError, OSError: it is not possible; the message says why.
    """
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"PORT must be a number from 0 to 65535, not {port!r}.")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        return listen(found[4][:2], family=found[0])
    except socket.gaierror:
        raise ValueError(f"HOST must be an address of this machine, not {host!r}.") from None
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        another = int(port) % 65535 + 1
        raise OSError(f"port {port} of {host}: {why}. Try PORT={another} make run") from None


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


if __name__ == "__main__":
    sys.exit(main())
