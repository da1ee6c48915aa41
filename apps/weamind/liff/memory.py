"""The users of tokens, for a short while: hashes of tokens only, and a bounded number of them."""

import hashlib

LONGEST = 300.0
"""Seconds after which LINE is asked again: a revoked token works no longer than that."""
MOST = 1000


class TokenMemory:
    """Tokens that LINE has verified. The time is an argument."""

    def __init__(self, *, longest: float = LONGEST, most: int = MOST) -> None:
        self._longest = longest
        self._most = most
        self._known: dict[bytes, tuple[str, float]] = {}

    def __repr__(self) -> str:
        return f"<TokenMemory {len(self._known)} of {self._most}>"

    def keep(self, token: str, user_id: str, expires_in: float, now: float) -> None:
        """Remember whose token it is, until LINE should be asked again; the oldest is dropped."""
        key = _hashed(token)
        self._known.pop(key, None)
        while len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[key] = user_id, now + min(expires_in, self._longest)

    def user_of(self, token: str, now: float) -> str | None:
        """The user of a token. None: LINE has to be asked."""
        key = _hashed(token)
        user_id, until = self._known.get(key, (None, now))
        if now < until:
            return user_id
        self._known.pop(key, None)
        return None


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
