"""First connections of requests that were repeated on a second one."""

import contextlib
from collections import OrderedDict

from .._core.request import Request
from .faults import BELOW
from .wire import Wire

_MOST = 64


class Ghosts:
    """A repeated request may still be on its way on its first connection, and would take the key
    after its release: so the release follows it there, too."""

    def __init__(self) -> None:
        self._wires: OrderedDict[bytes, Wire] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._wires)

    def keep(self, key: bytes, wire: Wire) -> None:
        """Keep *wire* until the key is released. The oldest goes, if there are many."""
        self._wires[key] = wire
        while len(self._wires) > _MOST:
            with contextlib.suppress(KeyError):
                self._wires.popitem(last=False)[1].close()

    def lay(self, request: Request) -> None:
        """The key is released: say so on its first connection as well, and close that."""
        wire = self._wires.pop(request.key, None)
        if wire is not None:
            with contextlib.suppress(*BELOW):
                wire.write(request)
            wire.close()

    def close(self) -> None:
        """Close them all."""
        while self._wires:
            with contextlib.suppress(KeyError):
                self._wires.popitem()[1].close()
