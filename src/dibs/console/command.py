"""`dibs console`: the console alone, for a server whose application is not asked.

It reads the server and nothing else: hit rates, waiters and outages are known to the processes in
which they happen, and are shown by a console that is mounted there.
"""

import argparse
import contextlib
import hmac
import logging
import os
import re
import secrets
import signal
import sys
from collections.abc import Callable, Generator, Iterable
from socketserver import ThreadingMixIn
from time import monotonic
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from .. import Dibs, DibsError
from .._internal_api import Guard, printable, start_thread
from .application import Console, Environ, StartResponse
from .http import ConsoleResponse, Rules, sentence

_ADDRESS = "127.0.0.1"
_CLOSED = (
    "This address was used before, is older than ten minutes, or is not the one that was printed."
    " Start the console again."
)
_KEY = re.compile(r"[0-9a-f]{64}")


def console_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `dibs console` to *parser*."""
    here = os.environ.get("DIBS_URL")
    parser.add_argument("--url", default=here, help="the server (default: DIBS_URL)")
    parser.add_argument("--namespace", default=os.environ.get("DIBS_NAMESPACE", ""))
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument("--show-keys", action="store_true", help="whole keys, with personal data")
    parser.add_argument("--allow-release", action="store_true", help="keys may be released")


def console(args: argparse.Namespace) -> int:
    """Serve the console until a signal comes. Returns 0, or 2: it could not be started."""
    if not args.url:
        return _report_failure("say which server: --url redis://…, or DIBS_URL")
    # The page itself reports errors; and it must work where DIBS_DISABLED is set.
    logging.getLogger("dibs").addHandler(logging.NullHandler())
    logging.getLogger("dibs").propagate = False
    os.environ.pop("DIBS_DISABLED", None)
    try:
        dibs = Dibs(args.url, namespace=args.namespace, budget=2, connect=5)
    except DibsError as error:
        return _report_failure(str(error))
    with dibs:
        try:
            server = served(dibs, args.port, release=args.allow_release, keys=args.show_keys)
        except OSError as error:
            return _report_failure(f"port {args.port} cannot be used: {error.strerror}")
        except OverflowError:
            return _report_failure(f"port {args.port} cannot be used: it must be 0 to 65535")
        with server, _ended_by_signals(server):
            _say_line(f"dibs console: {server.address}")
            _say_line("The address is good for one browser, within ten minutes. Ctrl-C ends it.")
            server.serve_forever(poll_interval=0.1)
    return 0


class ConsoleServer(ThreadingMixIn, WSGIServer):
    """Serves the console on 127.0.0.1."""

    daemon_threads = True
    address = ""
    """With the one-time token: for one browser."""


def served(dibs: Dibs, port: int, *, release: bool, keys: bool) -> ConsoleServer:
    """Return a server that is bound and not yet serving. Raises OSError if the port is taken."""
    server = ConsoleServer((_ADDRESS, port), _QuietHandler)
    rules = Rules("host", "host" if release else None, "host" if keys else None)
    guarded = OneBrowser(Console(dibs, rules, does_work=False).wsgi, server.server_port)
    server.set_app(guarded)
    server.address = f"http://{_ADDRESS}:{server.server_port}/?token={guarded.token}"
    return server


_TOKEN_FOR = 600.0
"""Seconds after which the token ends, also if nobody has used it."""


class OneBrowser:
    """Lets in one browser: that which came first with the token. All others are refused.

    It is led to a path that nobody else knows. A cookie would go to every server on 127.0.0.1,
    because cookies know no ports.
    """

    def __init__(self, app: Any, port: int, now: Callable[[], float] = monotonic) -> None:
        self.token = secrets.token_hex(32)
        self._app = app
        self._session = secrets.token_hex(32)
        self._now = now
        self._ends_at = now() + _TOKEN_FOR
        self._hosts = {f"{_ADDRESS}:{port}", f"localhost:{port}"}
        self._lock = Guard()
        self._is_used = False

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, ("Server", "dibs")], *more)

        return self._answer_request(environ, start)

    def _answer_request(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        # Another name for this address: a page elsewhere tries to read this one (DNS rebinding).
        if environ.get("HTTP_HOST", "") not in self._hosts:
            return _plain_response(
                sentence(403, "This is not the address of the console."), start_response
            )
        first, slash, path = environ.get("PATH_INFO", "").removeprefix("/").partition("/")
        if slash and _is_same_token(first, self._session):
            below = {**environ, "SCRIPT_NAME": f"/{first}", "PATH_INFO": f"/{path}"}
            return self._app(below, start_response)
        given = parse_qs(environ.get("QUERY_STRING", "")).get("token", [""])[0]
        if environ["REQUEST_METHOD"] == "GET" and self._admit_token(given):
            found = ConsoleResponse(303, more=(("Location", f"/{self._session}/"),))
            return _plain_response(found, start_response)
        return _plain_response(sentence(403, _CLOSED), start_response)

    def _admit_token(self, given: str) -> bool:
        with self._lock:
            is_first = not self._is_used and _is_same_token(given, self.token)
            self._is_used = self._is_used or is_first
            return is_first and self._now() < self._ends_at


def _is_same_token(given: str, secret: str) -> bool:
    return _KEY.fullmatch(given) is not None and hmac.compare_digest(given, secret)


def _plain_response(response: ConsoleResponse, start_response: StartResponse) -> list[bytes]:
    status = {303: "303 See Other", 403: "403 Forbidden"}[response.status]
    start_response(status, response.headers)
    return [response.body]


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: an address has a token in it."""


@contextlib.contextmanager
def _ended_by_signals(server: ConsoleServer) -> Generator[None, None, None]:
    """Ctrl-C and SIGTERM end the server, also before it has begun."""

    def stop(*_: object) -> None:
        start_thread(server.shutdown, "dibs console")

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _say_line(text: str) -> None:
    sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()


def _report_failure(why: str) -> int:
    sys.stderr.write(f"dibs console: {printable(why)}\n")
    return 2
