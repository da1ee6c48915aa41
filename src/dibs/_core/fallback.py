"""A request for a server that lacks its command: the same by a script.

Requests are made for the server that was there last. Behind the same address there may be an older
one by now: after a failover, or a downgrade.
"""

from .engine import run_whole_script
from .request import ErrorReply, Request, commands_in

_LACKING = ("err unknown command", "err syntax error")


def by_script(request: Request, error: ErrorReply) -> Request | None:
    """The same request by a script. None: *error* is another one, or there is no script for it.

    Its replies are read as those of *request*. Both may have been executed: that is harmless.
    """
    if not str(error).lower().startswith(_LACKING):
        return None
    command, words = next(commands_in(request.payload))
    script = _script_for(words)
    if script is None:
        return None
    payload = script + request.payload[len(command) :]
    return Request(payload, request.replies, request.key, request.until)


def _script_for(words: list[bytes]) -> bytes | None:
    match words:
        case [b"DELIFEQ", key, token] | [b"DELEX", key, b"IFEQ", token]:
            return run_whole_script("hold_release", [key], token)
        case [b"SET", key, token, b"NX", b"GET", b"PX", ms]:
            return run_whole_script("hold_acquire", [key], token, ms)
        case [b"SET", key, token, b"IFEQ", _, b"PX", ms]:
            return run_whole_script("hold_extend", [key], token, ms, b"1")
        case [b"SET", key, left, b"IFEQ", record, b"PX", ms, b"GET"]:
            return run_whole_script("once_complete", [key], record, left, ms)
        case _:
            return None
