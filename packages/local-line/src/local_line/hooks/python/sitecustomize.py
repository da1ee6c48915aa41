"""In a Python bot that `local-line run` has started: LINE's hosts lead to the local LINE.

Python loads this file first, by PYTHONPATH. Most clients look at no proxy and bring their own list
of certificates, so names are resolved here, and the CA is trusted for LINE's hosts alone.
"""

import importlib
import importlib.util
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


def _address(host: Any, port: Any) -> Any:
    if _name(host) in _HOSTS and str(port) in ("443", "https"):
        return "127.0.0.1", int(os.environ["LOCAL_LINE_TLS_PORT"])
    return host, port


def _getaddrinfo(host: Any, port: Any, *args: Any, **named: Any) -> Any:
    return _resolve(*_address(host, port), *args, **named)


def _trust(context: ssl.SSLContext, host: Any) -> None:
    if _name(host) in _HOSTS:
        context.load_verify_locations(os.environ["LOCAL_LINE_CA"])


def _socket(self: Any, *args: Any, **named: Any) -> Any:
    _trust(self, args[4] if len(args) > 4 else named.get("server_hostname"))
    return _wrap_socket(self, *args, **named)


def _bio(self: Any, *args: Any, **named: Any) -> Any:
    _trust(self, args[3] if len(args) > 3 else named.get("server_hostname"))
    return _wrap_bio(self, *args, **named)


class _Uvloop:
    """Waits for the import of uvloop, which resolves names itself."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "uvloop":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec: Any = importlib.util.find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), _lead(module.Loop))
        return spec


def _lead(loop: Any) -> None:
    resolve = loop.getaddrinfo
    loop.getaddrinfo = lambda self, host, port, **named: resolve(
        self, *_address(host, port), **named
    )


if _HOSTS:
    sys.meta_path.insert(0, _Uvloop())  # type: ignore[arg-type]
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
