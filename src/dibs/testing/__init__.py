"""Real servers for tests, and faults: start a server, freeze it, cut its connections.

    with Server.start("valkey") as server, FaultProxy(server.port) as proxy:
        proxy.cut_after_request(match=b"SET")
        ...

Nothing is mocked: the servers are real processes, and a proxy drops real bytes.
"""

from .certificates import Certificates
from .faults import CommandFilter, FaultProxy
from .polling import aeventually, eventually
from .processes import Child
from .servers import ENGINES, Engine, Server, ServerFailed, ServerMissing

__all__ = [
    "ENGINES",
    "Certificates",
    "Child",
    "CommandFilter",
    "Engine",
    "FaultProxy",
    "Server",
    "ServerFailed",
    "ServerMissing",
    "aeventually",
    "eventually",
]
