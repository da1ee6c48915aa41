"""Under which names this machine is asked: a page elsewhere may lead its own name here."""

from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

HOSTS = ("api.line.me", "api-data.line.me", "access.line.me")
"""LINE's own, which are led here."""
_REFUSED = "This host is not known here: use an IP address or localhost, or start it with --host.\n"
_LOCAL = (".localhost", ".internal")
"""Ends of names that nobody can register."""


class KnownHosts:
    """Refuses requests for other hosts: of pages that rebind their name (DNS rebinding).

    An IP address, a name without a dot (localhost, a container), LINE's own hosts, and *named*
    are known. Without it, every page on the internet could read what is served on this machine.
    """

    def __init__(self, app: ASGIApp, named: Collection[str] = ()) -> None:
        self._app = app
        self._named = named

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or as the app does."""
        if scope["type"] == "http" and not self._knows(Headers(scope=scope).getlist("host")):
            await PlainTextResponse(_REFUSED, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, lines: list[str]) -> bool:
        return all(self._is_known(_name(line)) for line in lines)

    def _is_known(self, name: str) -> bool:
        if "." not in name and ":" not in name:
            return True
        return name.endswith(_LOCAL) or name in HOSTS or name in self._named or _is_address(name)


def _name(host: str) -> str:
    """The name or address in a Host line, without its port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
