"""For tests that want a real server: start one, hurt it, and look at it from outside.

    with Server.start("valkey") as server, FaultProxy(server.port) as proxy:
        proxy.cut_after_request(match=b"SET")
        ...

Nothing here is an imitation: the servers are real processes, the faults real bytes that go missing.
"""

from .certificates import Certificates
from .children import Child
from .engines import ENGINES, Engine, ServerMissing
from .faults import FaultProxy
from .filters import CommandFilter
from .patience import aeventually, eventually
from .servers import Server, ServerFailed

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
