"""Runs Lua scripts as a server does: `redis.call`, and the conversions between Lua and replies."""

from collections.abc import Callable
from functools import cache
from typing import Any

import lupa.lua51 as lua

from .wire import OK, ErrorReply, Status, number_text

Call = Callable[[list[bytes]], Any]
"""Executes one command. ErrorReply: raised."""

_WRAPPED = b"return function(KEYS, ARGV, redis) %s\nend"


@cache
def _machine() -> Any:
    return lua.LuaRuntime(encoding=None, unpack_returned_tuples=True)


@cache
def _compiled(source: bytes) -> Any:
    return _machine().execute(_WRAPPED % source)


def run(source: bytes, keys: list[bytes], arguments: list[bytes], call: Call) -> Any:
    """The reply of a script. ErrorReply, raised: a command in it has failed."""
    table = _machine().table_from

    def protected(*words: Any) -> Any:
        try:
            return _to_lua(call([_word(each) for each in words]))
        except ErrorReply as error:
            return table({b"err": str(error).encode()})

    redis = {
        b"pcall": protected,
        b"call": lambda *words: _to_lua(call([_word(each) for each in words])),
        b"error_reply": lambda text: table({b"err": text}),
        b"status_reply": lambda text: table({b"ok": text}),
        b"replicate_commands": lambda: True,
    }
    return _from_lua(_compiled(source)(table(keys), table(arguments), table(redis)))


def _word(value: Any) -> bytes:
    match value:
        case bytes():
            return value
        case bool():
            raise ErrorReply("ERR Lua redis lib command arguments must be strings or integers")
        case int():
            return b"%d" % value
        case float():
            return b"%d" % value if value.is_integer() else b"%.17g" % value
        case _:
            raise ErrorReply("ERR Lua redis lib command arguments must be strings or integers")


def _to_lua(reply: Any) -> Any:
    match reply:
        case None:
            return False
        case Status():
            return _machine().table_from({b"ok": reply.encode()})
        case float():
            return number_text(reply)
        case list():
            return _machine().table_from([_to_lua(each) for each in reply])
        case _:
            return reply


def _from_lua(value: Any) -> Any:
    match value:
        case None | False:
            return None
        case True:
            return 1
        case float():
            return int(value)
        case int() | bytes():
            return value
        case _:
            return _from_table(value)


def _from_table(value: Any) -> Any:
    if value[b"err"] is not None:
        return ErrorReply(value[b"err"].decode())
    if value[b"ok"] is not None:
        return OK if value[b"ok"] == b"OK" else Status(value[b"ok"].decode())
    replies = list[Any]()
    while (each := value[len(replies) + 1]) is not None:
        replies.append(_from_lua(each))
    return replies
