"""Connections that were left with requests on them: the server ends them before a repeat.

A server may execute what was written on such a connection long after the same request was repeated
on another one: a packet is late, or the server was stopped. `CLIENT KILL`, written before the
repeat, makes that impossible. What the server has executed of the old connection by then came
first, as with any request that is sent twice; nothing of it comes later.

A connection is named as the server names it, by id, address and local address together: after a
restart the same id belongs to another client.
"""

import re

from .request import ClientInfo, ErrorReply, Reply, Request, pack

_INFO = re.compile(rb"id=(\d+) addr=(\S+) laddr=(\S+)(?: |$)")
_MOST = 1000
"""Connections that are remembered; the oldest goes first."""
_ELSEWHERE = 60.0
"""Seconds after which a connection to another server is forgotten."""


def read_client_info(reply: Reply) -> ClientInfo | None:
    """What CLIENT INFO says. None: nothing by which a connection could be ended."""
    text = reply.encode() if isinstance(reply, str) else reply
    found = _INFO.search(text) if isinstance(text, bytes) else None
    return None if found is None else ClientInfo(*found.groups())


def can_end(old: ClientInfo | None, new: ClientInfo | None) -> bool:
    """Whether the server can be asked on connection *new* to end *old*.

    Only where both reach the same server: elsewhere, "there is no such client" proves nothing.
    """
    return old is not None and new is not None and old.laddr == new.laddr


def kill_request(clients: list[ClientInfo]) -> Request:
    """End these connections. The replies are read by `Abandoned.ended`."""
    words = [("ID", each.id, "ADDR", each.addr, "LADDR", each.laddr) for each in clients]
    payload = b"".join([pack("CLIENT", "KILL", *each) for each in words])
    return Request(payload, len(clients), b"")


class Abandoned:
    """The connections to one server that were left with requests on them, and may still be open."""

    def __init__(self) -> None:
        self.clients: dict[ClientInfo, float] = {}
        """Each with the time at which it was left. Read without a lock: empty, as a rule."""

    def add(self, client: ClientInfo | None, now: float, *, is_open: bool = False) -> None:
        """*client* is left. *is_open*: the server has not ended it, so it has not restarted.

        After a restart, the id of a connection by Unix socket is another's, with the same address.
        """
        if client is None or (client.is_unix and not is_open):
            return
        self.clients[client] = now
        if len(self.clients) > _MOST:
            self.clients.pop(next(iter(self.clients)), None)

    def due_on(self, new: ClientInfo | None, now: float) -> list[ClientInfo]:
        """Those that are to be ended before anything else is asked on connection *new*."""
        due: list[ClientInfo] = []
        for client, since in list(self.clients.items()):
            if can_end(client, new):
                due.append(client)
            elif now - since > _ELSEWHERE:
                self.clients.pop(client, None)
            if client.is_unix:  # tried once: later it might be another's
                self.clients.pop(client, None)
        return due

    def ended(self, clients: list[ClientInfo], replies: list[Reply]) -> None:
        """The server's *replies* to `kill_request`: ended now, or gone before."""
        for client, reply in zip(clients, replies, strict=True):
            if not isinstance(reply, ErrorReply):
                self.clients.pop(client, None)
