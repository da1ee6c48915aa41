"""What `dibs doctor` may use of dibs beside its public API.

With it a single server is asked over a separate connection, without a client: the target that a
URL names, a connection, requests and replies, what the engine can do, and what an error means.
These are imports of the transport, which `_internal_api` does without. A test checks that the
doctor imports nothing else. Nothing here is for applications.
"""

from ._core.capabilities import ASK, OLDEST, RESP2, Dialect, Engine, Negotiation, read_engine
from ._core.causes import code_of_reply
from ._core.connection import DEFAULT_BUDGET
from ._core.keys import SLOTS, checked_namespace, expand, printable
from ._core.request import ErrorReply, Reply, Request, pack
from ._core.schedule import MOST_APART_MS
from ._server.embedded import start as start_embedded
from ._transport.connection_errors import (
    CONNECTION_ERRORS,
    cause_of,
    check_files,
    is_closed_by_server,
    is_hello_refused,
    read_alert,
    reason_of,
    settings_error,
    tls_problem,
)
from ._transport.pool import ThreadConnection
from ._transport.redis_internals import close_failed_socket, connected_socket
from ._transport.targets import (
    Address,
    Cluster,
    Embedded,
    SentinelService,
    Target,
    parse_address,
    parse_target,
)

__all__ = [
    "ASK",
    "CONNECTION_ERRORS",
    "DEFAULT_BUDGET",
    "MOST_APART_MS",
    "OLDEST",
    "RESP2",
    "SLOTS",
    "Address",
    "Cluster",
    "Dialect",
    "Embedded",
    "Engine",
    "ErrorReply",
    "Negotiation",
    "Reply",
    "Request",
    "SentinelService",
    "Target",
    "ThreadConnection",
    "cause_of",
    "check_files",
    "checked_namespace",
    "close_failed_socket",
    "code_of_reply",
    "connected_socket",
    "expand",
    "is_closed_by_server",
    "is_hello_refused",
    "pack",
    "parse_address",
    "parse_target",
    "printable",
    "read_alert",
    "read_engine",
    "reason_of",
    "settings_error",
    "start_embedded",
    "tls_problem",
]  # fmt: skip
