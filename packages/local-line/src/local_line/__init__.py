"""A LINE platform on this machine: what bots call, what calls bots, and a phone to hold.

`LocalLine` is the whole of it on a loopback port; `ChatPanel` is the page for the playground.
"""

from .local import LocalLine, served
from .panel import ChatPanel, chat_routes
from .platform import Platform
from .sources import Source

__all__ = ["ChatPanel", "LocalLine", "Platform", "Source", "chat_routes", "served"]
