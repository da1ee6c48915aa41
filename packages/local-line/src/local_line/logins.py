"""Logins: access tokens of users and of the channel, and ID tokens.

Pure: the time is an argument.
"""

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from .accounts import Channel, Person

ISSUER = "https://access.line.me"
USER_TTL, ID_TTL, CODE_TTL = 30 * 24 * 3600, 3600, 600
SHORT_TTL, STATELESS_TTL = 30 * 24 * 3600, 15 * 60
"""How long tokens are valid, in seconds, as at LINE."""


@dataclass(frozen=True)
class Login:
    """What a page gets when a user has logged in, as LIFF hands it out."""

    user_id: str
    access_token: str = field(repr=False)
    id_token: str = field(repr=False)


@dataclass(frozen=True)
class Grant:
    """A login that is in progress: what an authorization code refers to."""

    user_id: str
    redirect_uri: str
    nonce: str | None = None
    liff_id: str | None = None
    """The id of the LIFF app that asked; such a code needs no channel secret."""


@dataclass(frozen=True)
class _Token:
    until: float
    user_id: str | None = None
    key_id: str | None = None


class Logins:
    """All tokens that were issued, except that of the console."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._tokens: dict[str, _Token] = {}
        self._codes: dict[str, tuple[Grant, float]] = {}

    # ---- users

    def grant(self, grant: Grant, now: float) -> str:
        """Issue an authorization code, for ten minutes."""
        code = secrets.token_urlsafe(16)
        self._codes[code] = (grant, now + CODE_TTL)
        return code

    def redeem(self, code: str, redirect_uri: str, now: float) -> Grant | None:
        """Return the login of a code, once. None: it is used, expired, or of another page."""
        grant, until = self._codes.pop(code, (None, 0.0))
        is_good = grant is not None and now < until and grant.redirect_uri == redirect_uri
        return grant if is_good else None

    def log_in(self, person: Person, now: float, *, nonce: str | None = None) -> Login:
        """Log this person in."""
        token = secrets.token_urlsafe(32)
        self._tokens[token] = _Token(now + USER_TTL, person.user_id)
        return Login(person.user_id, token, self._id_token(person, now, nonce))

    def user(self, token: str, now: float) -> str | None:
        """The user of this token. None: it is unknown or has expired."""
        known = self._tokens.get(token)
        return known.user_id if known is not None and now < known.until else None

    def _id_token(self, person: Person, now: float, nonce: str | None) -> str:
        claims: dict[str, Any] = {"iss": ISSUER, "sub": person.user_id}
        claims |= {"aud": self._channel.channel_id, "exp": int(now) + ID_TTL, "iat": int(now)}
        claims |= {"amr": ["linesso"], "name": person.name}
        claims |= {"nonce": nonce} if nonce else {}
        claims |= {"picture": person.picture_url} if person.picture_url else {}
        return self._signed(claims)

    def _signed(self, claims: dict[str, Any]) -> str:
        parts = [{"typ": "JWT", "alg": "HS256"}, claims]
        body = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        return f"{body}.{_encoded(self._signature(body))}"

    def _signature(self, body: str) -> bytes:
        return hmac.digest(self._channel.secret.encode(), body.encode(), hashlib.sha256)

    def claims(self, id_token: str, now: float) -> dict[str, Any]:
        """The claims of an ID token. ValueError: why it is not valid, in LINE's words."""
        body, _, sign = id_token.rpartition(".")
        if not hmac.compare_digest(_encoded(self._signature(body)).encode(), sign.encode()):
            raise ValueError("Invalid IdToken.")
        claims = json.loads(_decoded(body.partition(".")[2]))
        if now >= claims["exp"]:
            raise ValueError("IdToken expired.")
        return claims

    # ---- the channel

    def issue(self, now: float, *, ttl: float, key_id: str | None = None) -> str:
        """Issue an access token of the channel."""
        token = secrets.token_urlsafe(64)
        self._tokens[token] = _Token(now + ttl, None, key_id)
        return token

    def left(self, token: str, now: float) -> float | None:
        """For how long it is valid, a user's or the channel's. None: it is not."""
        known = self._tokens.get(token)
        return known.until - now if known is not None and now < known.until else None

    def is_channels(self, token: str, now: float) -> bool:
        """True: it is a valid token of the channel."""
        known = self._tokens.get(token)
        return known is not None and known.user_id is None and now < known.until

    def key_ids(self, now: float) -> list[str]:
        """The ids of the channel's valid tokens."""
        return [each.key_id for each in self._tokens.values() if each.key_id and now < each.until]

    def revoke(self, token: str) -> None:
        """Revoke a token."""
        self._tokens.pop(token, None)


def issuer_of(assertion: str) -> str | None:
    """The issuer that a JWT names; its signature is not verified. None: it is not a JWT."""
    try:
        _, claims, _ = assertion.split(".")
        issuer = json.loads(_decoded(claims))["iss"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return issuer if isinstance(issuer, str) else None


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
