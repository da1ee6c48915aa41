"""Who this process is: its name for people, and tokens that nobody else makes."""

from ._core.lease import token_maker
from ._system import gethostname, getpid, urandom


class Identity:
    """A process, or rather one client in it. A forked child makes another one."""

    def __init__(self) -> None:
        self.holder = f"{gethostname()}:{getpid()}"
        """For people."""
        self._prefix = urandom(9).hex().encode()
        self.waiter = b"%b@%b" % (self._prefix[:12], self.holder.encode())
        """What it is called where it waits; no part of a token that proves anything."""
        self.new_token = token_maker(self._prefix, self.holder.encode())
        """Proof of ownership, never used before."""

    def made(self, token: bytes) -> bool:
        """Whether *token* was made here."""
        return token.startswith(self._prefix)
