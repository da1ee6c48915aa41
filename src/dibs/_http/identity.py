"""Who submits, as far as the application and the request say.

| what is there | who it is |
|---|---|
| `user=` returns something | that |
| the session cookie that the application has named | its value |
| an Authorization header | its value, if it stays the same from one request to the next |
| none of them, but a client's key | nobody in particular: the key and its payload decide |
| none of them, no key | address, cookies and browser together: apart, not proven |

Cookies as a whole are no identity: any of them may change between a request and its retry. What
is not proven can have a submission refused, but never gets an answer that was kept.
"""

from typing import NamedTuple
from uuid import UUID

from ..errors import UsageError

_SIGNED = frozenset(
    ("digest", "hawk", "hmac", "mac", "oauth", "signature", "aws4-hmac-sha256", "negotiate")
)
"""Schemes whose header is another one for each request."""


class Identity(NamedTuple):
    """Who submits."""

    user: str | None
    """Who it is, proven as far as the application proves it; None: not known."""
    client: str | None
    """What tells the unknown apart, without a proof."""


def identify(
    said: object,
    *,
    kind: str = "user",
    session: str | None,
    authorization: str,
    cookies: str,
    address: str | None,
    agent: str,
) -> Identity:
    """Who submits. *said*: by the application; None and "" mean that it does not know.

    *kind*: how it is known, so that one kind of name does not pass for another. UsageError: what
    the application said is no name.
    """
    if name := said if type(said) is str else _name(said):
        return Identity(f"{kind} {name}", None)
    if session is not None and (value := _cookie(cookies, session)):
        return Identity(f"session {value}", None)
    if authorization and authorization.partition(" ")[0].lower() not in _SIGNED:
        return Identity(f"authorization {authorization}", None)
    # With their lengths: a cookie could be filled in with somebody's address.
    parts = (address or "", cookies, agent, authorization)
    return Identity(None, "".join([f"{len(part)}:{part}" for part in parts]))


def _name(said: object) -> str:
    """The name of somebody; "": not known. UsageError: *said* is no name.

    The text of an object is the same for several people, or another one for each request: then
    somebody would get the answer of somebody else, or a retry would be done again.
    """
    if said is None:
        return ""
    if isinstance(said, bytes):  # a header of ASGI
        return said.decode("latin-1")
    if isinstance(said, bool) or not isinstance(said, str | int | UUID):
        kind = type(said).__name__
        raise UsageError(f"user must be a string, bytes, an int, a UUID or None, not a {kind}")
    return str(said)


def _cookie(cookies: str, name: str) -> str:
    for pair in cookies.split(";"):
        found, _, value = pair.partition("=")
        if found.strip() == name and value.strip():
            return value.strip()
    return ""
