"""Who this process is: its name for people, and tokens that nobody else makes."""

import os
import socket
from itertools import count

from ._core.lease import make_token


class Identity:
    """A process, or rather one client in it. A forked child makes another one."""

    def __init__(self) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}"
        """For people."""
        self._name = self.holder.encode()
        self._prefix = os.urandom(9).hex().encode()
        self._numbers = count(1)

    def new_token(self) -> bytes:
        """Proof of ownership, never used before."""
        return make_token(self._prefix, next(self._numbers), self._name)

    def made(self, token: bytes) -> bool:
        """Whether *token* was made here."""
        return token.startswith(self._prefix)
