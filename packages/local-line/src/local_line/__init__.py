"""LINE's Messaging API on this machine: what bots call, what calls bots, and a phone to hold.

`LocalLine` is the whole of it on a loopback port, for asyncio; `BlockingLine` the same for
programs without a loop. `python -m local_line` starts it in front of a bot of any language.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import create_api
    from .blocking import BlockingLine
    from .contents import Content
    from .hosts import KnownHosts
    from .local import LocalLine, served
    from .panel import ChatPanel
    from .platform import Platform
    from .routes import chat_routes
    from .sources import Source

__all__ = [
    "BlockingLine",
    "ChatPanel",
    "Content",
    "KnownHosts",
    "LocalLine",
    "Platform",
    "Source",
    "chat_routes",
    "create_api",
    "served",
]

_HOMES = {
    "BlockingLine": "blocking",
    "ChatPanel": "panel",
    "Content": "contents",
    "KnownHosts": "hosts",
    "LocalLine": "local",
    "Platform": "platform",
    "Source": "sources",
    "chat_routes": "routes",
    "create_api": "api",
    "served": "local",
}


def __getattr__(name: str) -> Any:
    """Loaded at first use: pytest imports this package in every project that has it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
