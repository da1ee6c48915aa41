"""The options of an application that is guarded: the same for every framework.

`GuardKeywords` declares them for type checkers and editors, `GuardOptions` documents and checks
them. Nothing else lists them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar

from ..errors import UsageError

U = TypeVar("U", bound=Callable[..., Any])


class GuardKeywords(TypedDict, Generic[U], total=False):
    """The keyword arguments of `install` and `DibsMiddleware`; see `GuardOptions`."""

    user: U | None
    session_cookie: str | None
    secret: str | bytes | None
    service: str | None
    per_host: bool


@dataclass(frozen=True, kw_only=True)
class GuardOptions(Generic[U]):
    """How the requests of one application are distinguished. UsageError: an option is empty."""

    user: U | None = None
    """Returns who submits, as a string, bytes, an int or a UUID; None or "": not known. Without it,
    and without a session cookie, the Authorization header identifies the user."""
    session_cookie: str | None = None
    """The name of the cookie whose value identifies the user for as long as a session lasts. Not a
    cookie that is signed anew with each response, as that of Flask's own session."""
    secret: str | bytes | None = None
    """Keys the hashes under which submissions are stored; the same in all processes."""
    service: str | None = None
    """The name of the application: services on one store that differ in it share no submissions."""
    per_host: bool = False
    """True: the same path on another host (by the Host header) is another endpoint."""

    def __post_init__(self) -> None:
        if self.session_cookie == "":
            raise UsageError("session_cookie must be the name of a cookie, or None")
        secret_bytes(self.secret)

    @property
    def key(self) -> bytes:
        """The secret as bytes; empty: none was set."""
        return secret_bytes(self.secret)

    def host(self, header: str) -> str:
        """The host that is part of the key, from the Host header; "" unless `per_host`."""
        if not self.per_host:
            return ""
        name, _, port = header.strip().lower().rpartition(":")
        return name if name and port in ("80", "443") else header.strip().lower()


def with_service(options: GuardKeywords[U], default: str) -> GuardKeywords[U]:
    """*options*; where they name no service, it is *default*."""
    return options if options.get("service") is not None else {**options, "service": default}


def secret_bytes(secret: str | bytes | None) -> bytes:
    """*secret* as bytes; None: none was set. UsageError: it is empty."""
    if secret is None:
        return b""
    if not secret:
        raise UsageError("secret must not be empty; omit it, or set it in every process")
    return secret.encode() if isinstance(secret, str) else secret


def inner_path(path: str, root: str) -> str:
    """*path* without the prefix *root* under which the application is served.

    Servers differ in whether the path that they report begins with the prefix.
    """
    root = root.rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :] or "/"
    return path
