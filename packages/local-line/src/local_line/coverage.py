"""Which calls of LINE's Python SDK are served: a table, read off the SDK that is installed.

`python -m local_line.coverage` prints it in Markdown.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from .api import api_routes
from .platform import Platform

_PARTS = ("messaging", "audience", "insight", "liff", "module", "moduleattach", "oauth", "shop")
_CALL = re.compile(r"call_api\(\s*'([^']+)',\s*'([A-Z]+)'")
_REFUSED = ("/bot/pnp/push", "/pnp/templated/push", "/control/", "/channel/detach", "/v2/bot/list")
_REFUSED += ("/module/auth/", "/shop/v3/", "/membership/")
"""What LINE answers accounts without a permission, and so does this."""


class SdkCall(NamedTuple):
    """One method of the SDK, and the route that it calls."""

    client: str
    name: str
    method: str
    path: str

    @property
    def shape(self) -> tuple[str, str]:
        """The route without the names of its parameters."""
        return self.method, shape_of(self.path)


def shape_of(path: str) -> str:
    """`/v2/bot/profile/{}`."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def sdk_calls() -> list[SdkCall]:
    """Every call of the SDK, in the order of its modules. ImportError: it is not installed."""
    return [call for part in _PARTS for call in _calls_of(part)]


def _calls_of(part: str) -> Iterator[SdkCall]:
    package = import_module(f"linebot.v3.{part}.api")
    for found in iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        for name, client in vars(module).items():
            is_own = inspect.isclass(client) and client.__module__ == module.__name__
            if is_own and not name.startswith("Async"):
                yield from _calls_in(name, client)


def _calls_in(client: str, known: type) -> Iterator[SdkCall]:
    for name, function in vars(known).items():
        if name.endswith("_with_http_info") and (found := _CALL.search(_source(function))):
            yield SdkCall(client, name.removesuffix("_with_http_info"), found[2], found[1])


def _source(function: object) -> str:
    return inspect.getsource(inspect.unwrap(function))  # pyright: ignore[reportArgumentType]


def served_shapes() -> set[tuple[str, str]]:
    """The routes of the platform."""
    platform = Platform(secret="-", access_token="-")
    return {(each.method, shape_of(each.path)) for each in api_routes(platform)}


def table() -> str:
    """In Markdown: each call, its route, and how it is answered."""
    served = served_shapes()
    lines = ["| client | call | route | served |", "|---|---|---|---|"]
    for call in sdk_calls():
        how = "no: 404" if call.shape not in served else _how(call.path)
        lines.append(f"| `{call.client}` | `{call.name}` | `{call.method} {call.path}` | {how} |")
    return "\n".join(lines)


def _how(path: str) -> str:
    if "/membership/" in path:
        return "as for an account without memberships"
    return "403, as for most accounts" if any(part in path for part in _REFUSED) else "yes"


if __name__ == "__main__":
    print(table())
