"""Who this process is: its name for people, and the source of its tokens."""

import os
import socket

from ._core.lease import TokenSource


class Identity:
    """A process, or rather one client in it. A forked child makes another one."""

    def __init__(self) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}"
        """For people."""
        self.tokens = TokenSource(os.urandom(9).hex().encode(), self.holder.encode())
