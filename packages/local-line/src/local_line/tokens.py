"""Short-lived tokens that work once: for replies, for retries, for linking accounts."""

import secrets
from dataclasses import dataclass
from typing import Any

LONGEST = 20 * 60.0
"""Seconds after its event from which no redelivery can make a reply token usable again."""
_DAY = 24 * 3600.0


@dataclass
class _ReplyToken:
    chat_id: str
    issued_at: float
    until: float
    is_used: bool = False


class ReplyTokens:
    """The reply tokens that were issued."""

    def __init__(self, *, ttl: float) -> None:
        self.ttl = ttl
        self._tokens: dict[str, _ReplyToken] = {}

    def issue(self, token: str, chat_id: str, now: float) -> None:
        """Let *token* be used once from *now* on, until it expires."""
        self._forget_old(now)
        self._tokens[token] = _ReplyToken(chat_id, now, now + self.ttl)

    def renew(self, token: str, now: float) -> None:
        """After a redelivery: valid as at first, unless it was used or is too old."""
        known = self._tokens.get(token)
        if known is not None:
            known.until = min(now + self.ttl, known.issued_at + LONGEST)

    def spend(self, token: str, now: float) -> str | None:
        """Use up a token and return its chat. None: it is unknown, used or expired."""
        known = self._tokens.get(token)
        if known is None or known.is_used or now > known.until:
            return None
        known.is_used = True
        return known.chat_id

    def _forget_old(self, now: float) -> None:
        """Drop old tokens. An unknown token gets the same answer as a used one."""
        for token, known in list(self._tokens.items()):
            if now <= known.issued_at + LONGEST:
                break  # they are in the order of their age
            del self._tokens[token]


@dataclass(frozen=True)
class Accepted:
    """A call that was accepted under a retry key."""

    request_id: str
    sent: list[dict[str, Any]]
    at: float


class RetryKeys:
    """The retry keys of the last 24 hours with an accepted call."""

    def __init__(self) -> None:
        self._accepted: dict[str, Accepted] = {}

    def find(self, key: str, now: float) -> Accepted | None:
        """The call that was accepted under *key*, in any spelling. None: none yet, or long ago."""
        accepted = self._accepted.get(key.lower())
        return accepted if accepted is not None and now < accepted.at + _DAY else None

    def accept(self, key: str, accepted: Accepted) -> None:
        """Record that *key* is used."""
        self._accepted[key.lower()] = accepted


_LINKED = 600.0
"""How long a link token is valid, in seconds."""


class LinkTokens:
    """The tokens that link a user's other account to the one at LINE."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[str, float]] = {}

    def issue(self, user_id: str, now: float) -> str:
        """Issue a token for this user."""
        token = secrets.token_urlsafe(24)
        self._tokens[token] = (user_id, now + _LINKED)
        return token

    def spend(self, token: str, now: float) -> str | None:
        """Use up a token and return its user. None: it is unknown, used or expired."""
        user_id, until = self._tokens.pop(token, ("", 0.0))
        return user_id if now <= until and user_id else None
