"""In a Python bot that `local-line run` has started: LINE's hosts lead to the local LINE.

Python loads this file first, by PYTHONPATH. Most clients look at no proxy and bring their own list
of certificates, so names are resolved here, and the CA is trusted for LINE's hosts alone.
"""

import importlib
import os
import socket
import ssl
import sys
from typing import Any

_HOSTS = frozenset(os.environ.get("LOCAL_LINE_HOSTS", "").split())
_resolve = socket.getaddrinfo
_wrap_socket, _wrap_bio = ssl.SSLContext.wrap_socket, ssl.SSLContext.wrap_bio


def _name(host: Any) -> Any:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else host


def _getaddrinfo(host: Any, port: Any, *args: Any, **named: Any) -> Any:
    if _name(host) in _HOSTS and str(port) in ("443", "https"):
        host, port = "127.0.0.1", int(os.environ["LOCAL_LINE_TLS_PORT"])
    return _resolve(host, port, *args, **named)


def _trust(context: ssl.SSLContext, host: Any) -> None:
    if _name(host) in _HOSTS:
        context.load_verify_locations(os.environ["LOCAL_LINE_CA"])


def _socket(self: Any, *args: Any, **named: Any) -> Any:
    _trust(self, args[4] if len(args) > 4 else named.get("server_hostname"))
    return _wrap_socket(self, *args, **named)


def _bio(self: Any, *args: Any, **named: Any) -> Any:
    _trust(self, args[3] if len(args) > 3 else named.get("server_hostname"))
    return _wrap_bio(self, *args, **named)


if _HOSTS:
    socket.getaddrinfo = _getaddrinfo
    ssl.SSLContext.wrap_socket = _socket  # type: ignore[method-assign]
    ssl.SSLContext.wrap_bio = _bio  # type: ignore[method-assign]

# Another sitecustomize, which this one hides, is loaded all the same.
_here = os.path.dirname(os.path.abspath(__file__))
_path, _self = sys.path[:], sys.modules.pop("sitecustomize", None)
sys.path[:] = [each for each in sys.path if os.path.abspath(each) != _here]
try:
    importlib.import_module("sitecustomize")
except ImportError:
    if _self is not None:
        sys.modules["sitecustomize"] = _self
sys.path[:] = _path
