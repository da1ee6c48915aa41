"""What all requests of one application have in common: its name, its secret, its session."""

from typing import NamedTuple

from ..errors import UsageError


class Site(NamedTuple):
    """An application, as its guard knows it."""

    secret: bytes = b""
    """Keys the hashes under which submissions are stored."""
    service: str = ""
    """Its name: two services on one store do not share submissions."""
    per_host: bool = False
    """True: the same path on another host is another place."""
    session_cookie: str | None = None
    """The cookie whose value says who somebody is, for as long as the session lasts."""

    def host(self, header: str) -> str:
        """Which host counts, by the Host header; nothing, where hosts do not count."""
        if not self.per_host:
            return ""
        name, _, port = header.strip().lower().rpartition(":")
        return name if name and port in ("80", "443") else header.strip().lower()


def make_site(
    secret: str | bytes | None, service: str, session_cookie: str | None, *, per_host: bool
) -> Site:
    """The options of an application, checked. UsageError: the secret was set to nothing."""
    if session_cookie == "":
        raise UsageError("session_cookie is the name of a cookie; leave it out if there is none")
    return Site(checked_secret(secret), service, per_host, session_cookie)


def checked_secret(secret: str | bytes | None) -> bytes:
    """*secret* as bytes; None: none was set. UsageError: it was set to nothing."""
    if secret is None:
        return b""
    if not secret:
        raise UsageError("secret must not be empty; leave it out, or set it in every process")
    return secret.encode() if isinstance(secret, str) else secret


def inner_path(path: str, root: str) -> str:
    """*path* as the application sees it: without the prefix under which it is served.

    Servers differ in whether the path that they tell begins with the prefix.
    """
    root = root.rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :] or "/"
    return path
