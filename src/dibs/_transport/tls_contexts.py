"""TLS contexts: made once for each set of options, and anew if one of their files has changed.

redis-py makes one for every connection. That takes 0.1 s or more, mostly for the certificates of
the system, and an event loop stands still meanwhile. Certificates that are renewed while a program
runs are still found: before each connection the files are looked at, not read.
"""

import contextlib
import os
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any

from . import redis_internals
from .tls_problems import UnreadableFile

_MOST = 32
"""Contexts that are kept; the oldest goes first."""
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

Key = tuple[object, ...]
State = tuple[tuple[int, int, int] | None, ...]
"""When each file was changed, its size and its number; None: it is not there."""

_contexts: dict[Key, tuple[State, ssl.SSLContext]] = {}


def share_context(connection: Any, options: Mapping[str, Any]) -> None:
    """Have *connection*, which is not open yet, use the context of others with these *options*.

    UnreadableFile: there is none yet, and a file for it cannot be read.
    """
    if not redis_internals.uses_tls(connection):
        return
    chosen = sorted((name, repr(each)) for name, each in options.items() if name[:4] == "ssl_")
    key = (redis_internals.is_async(connection), *chosen)
    state = _state(options)
    known_state, context = _contexts.get(key, (None, None))
    if known_state != state:
        context = None
        check_files(options)
    with contextlib.suppress(OSError, ValueError):  # redis-py raises it again when it connects
        redis_internals.use_context(connection, context, partial(_keep, key, state))


def check_files(options: Mapping[str, Any]) -> None:
    """UnreadableFile: one of the files for TLS cannot be read.

    The error of OpenSSL does not tell which one, nor whether it was the file or the connection.
    """
    for name in _FILES:
        try:
            open(options.get(name) or os.devnull, "rb").close()
        except OSError as error:
            raise UnreadableFile(name, options[name], error) from None


def _keep(key: Key, state: State, context: ssl.SSLContext) -> None:
    _contexts[key] = (state, context)
    while len(_contexts) > _MOST:
        with contextlib.suppress(RuntimeError, KeyError):  # other threads are at it as well
            del _contexts[next(iter(_contexts))]


def _state(options: Mapping[str, Any]) -> State:
    """Of the files that these options name, and of the certificates of the system."""
    of_system = ssl.get_default_verify_paths().cafile
    return tuple([_look(options.get(name)) for name in _FILES] + [_look(of_system)])


def _look(path: Any) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, TypeError, ValueError):  # not there, or not a path
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
