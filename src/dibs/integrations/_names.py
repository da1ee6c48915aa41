"""Names as attributes of metrics: as many as there are calls in the code, and no more."""

from .._interface import fork_safe_lock
from ..errors import UsageError

OTHER = "other"
"""All names beyond the limit."""
LONGEST = 200


class Names:
    """The first *most* names as they are, cut to 200 characters; all further ones as "other"."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise UsageError(f"most_names must be at least 1, not {most}")
        self._most = most
        self._lock = fork_safe_lock()
        self._known: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, name: str) -> str:
        """What *name* is called."""
        return self._known.get(name) or self._admit(name)

    def _admit(self, name: str) -> str:
        with self._lock:
            if name not in self._known and len(self._known) < self._most:
                self._known[name] = printable(name)
            return self._known.get(name, OTHER)


def printable(name: str) -> str:
    """*name* as valid text, 200 characters at most."""
    return name[:LONGEST].encode("utf-8", "replace").decode() or OTHER
