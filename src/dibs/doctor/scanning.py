"""Looking at keys: a bounded SCAN that counts, and keeps no key."""

import re
from collections import Counter
from time import monotonic

from .._diagnostics import Address, ErrorReply
from .asking import Session, refusal, session, text
from .facts import Asked, KeyFacts
from .server import STEP_LIMIT

COUNT, MOST, LIMIT = 500, 50_000, 1.0
"""Keys for each SCAN and in all, and for how many seconds at most."""
_TYPES_EACH = 100
"""Of so many keys of each SCAN the type is asked."""
_OURS = ("string", "zset", "none")
"""The types of leases, claims and values; of permits; and of a key that has expired meanwhile."""

_COMPANIONS = (
    re.compile(rb"^(.*?)(?:fences?|lock):\{\1", re.DOTALL),
    re.compile(rb"^(.+?)(?:fences?|lock):\1", re.DOTALL),
    re.compile(rb"^(.*?)once:[0-9a-f]{32}$", re.DOTALL),
    re.compile(rb"^(.*?)scheduled-last:", re.DOTALL),
)


def namespace_in(key: bytes) -> bytes | None:
    """The namespace of a companion key of dibs. None: it is another key."""
    found = next((match for each in _COMPANIONS if (match := each.match(key))), None)
    return None if found is None else found.group(1)


class KeyScanner:
    """Counts the keys of one server; `facts` may be read at any time."""

    def __init__(self, address: Address, asked: Asked) -> None:
        self.unknown: str | None = None
        self._address = address
        self._mine = asked.namespace.encode()
        self._seen = self._under = 0
        self._total: int | None = None
        self._types = Counter[str]()
        self._namespaces: set[bytes] = set()

    @property
    def facts(self) -> KeyFacts:
        """What has been seen so far."""
        foreign = {name: count for name, count in [*self._types.items()] if name not in _OURS}
        names = [each.decode(errors="replace") for each in [*self._namespaces]]
        return KeyFacts(self._seen, self._total, self._under, foreign, frozenset(names))

    def run(self) -> None:
        """Look at keys until all, enough or the time is over. Raises nothing."""
        try:
            with session(self._address, STEP_LIMIT) as opened:
                if opened.dialect.plain:
                    self.unknown = "a proxy does not know SCAN"
                else:
                    self._scan(opened)
        except Exception:
            self.unknown = "a server could not be asked"

    def _scan(self, opened: Session) -> None:
        [size, cursor] = opened.ask(("DBSIZE",), ("SCAN", 0, "COUNT", COUNT))
        self._total = size if isinstance(size, int) else None
        end = monotonic() + LIMIT
        while True:
            if isinstance(cursor, ErrorReply) or not isinstance(cursor, list):
                self.unknown = refusal(cursor, "SCAN") or "SCAN was not answered as usual"
                return
            position, keys = cursor
            self._look_at(opened, [key for key in keys if isinstance(key, bytes)])  # type: ignore[union-attr]
            if text(position) == "0" or self._seen >= MOST or monotonic() > end:
                return
            [cursor] = opened.ask(("SCAN", text(position), "COUNT", COUNT))

    def _look_at(self, opened: Session, keys: list[bytes]) -> None:
        self._seen += len(keys)
        self._namespaces |= {found for key in keys if (found := namespace_in(key)) is not None}
        mine = [key for key in keys if key.startswith(self._mine)]
        self._under += len(mine)
        some = mine[:_TYPES_EACH]
        if some:
            replies = opened.ask(*[("TYPE", key) for key in some])
            self._types.update(text(reply) for reply in replies if text(reply))
