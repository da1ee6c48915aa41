"""The simulated server answers as the real ones: random commands and scripts on both."""

import itertools
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import hiredis
import pytest

from dibs._core.request import pack
from dibs.testing import Server as RealServer
from tests.conditions import is_installed

from .explorer import script
from .server import ENGINES, REDIS8, Engine, Server, Session
from .wire import ErrorReply

K, LOCK, FENCE, LAST = b"k", b"lock:{k}", b"fence:{k}", b"last"
KEYS = (K, LOCK, b"z", b"other")
TOKENS = tuple(b"%018x-%d@p:1" % (number, number) for number in range(3))
VALUES = (*TOKENS, b"dibs1 json - 1 0.1\n7", b"dibs1 done x", b"dibs1 ~ " + TOKENS[0], b"0" * 16)
LIVES = (20_000, 200_000, 2_000_000)
LONGER = itertools.count(0, 2)
"""More milliseconds for each: what begins later ends later, also if both begin in one millisecond
on one of the two servers."""
"""Milliseconds; far enough apart that a slow machine confuses none of them."""


TIMES = re.compile(rb"(?<=~)\d+|(?<= )\d{16}(?=@)|(?<=^a{5})[0-9a-f]{11}$")
"""In a lease that was handed over, in a lock, in the version of a tag."""


class Real:
    """A connection to a real server."""

    def __init__(self, server: RealServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=self)
        self.pushes = list[list[Any]]()
        self.ask(b"HELLO", b"3")

    def ask(self, *words: bytes | int) -> Any:
        """The reply; what the server pushes meanwhile is kept."""
        self._socket.sendall(pack(*words))
        while True:
            reply = self._reader.gets()
            if reply is self:
                self._reader.feed(self._socket.recv(65536))
            elif type(reply) is hiredis.PushNotification:
                self.pushes.append(list(reply))
            else:
                return reply

    def close(self) -> None:
        """End it."""
        self._socket.close()


class Simulated:
    """A connection to a simulated one, over the same bytes."""

    def __init__(self, server: Server) -> None:
        self._reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=self)
        self._session = Session(server, "10.0.0.1:1", self._reader.feed, lambda: None)
        self.pushes = list[list[Any]]()
        self.ask(b"HELLO", b"3")

    def ask(self, *words: bytes | int) -> Any:
        """The reply; what the server pushes meanwhile is kept."""
        self._session.receive(pack(*words))
        answer: Any = self
        while (reply := self._reader.gets()) is not self:
            if type(reply) is hiredis.PushNotification:
                self.pushes.append(list(reply))
            else:
                answer = reply
        return answer


def drawn(random: Random) -> tuple[bytes | int, ...]:
    """A command, or a script of dibs, with arguments that often meet."""
    key, other, life = random.choice(KEYS), random.choice(KEYS), random.choice(LIVES)
    life += next(LONGER)
    value, token = random.choice(VALUES), random.choice(TOKENS)
    secret = token.partition(b"@")[0]
    score, mark = random.choice((b"1", b"2.5", b"30000")), b"dibs1 ~ " + token
    return random.choice(
        (
            ("SET", key, value),
            ("SET", key, value, "NX", "PX", life),
            ("SET", key, token, "NX", "GET", "PX", life),
            ("SET", key, token, "IFEQ", value, "PX", life),
            ("SET", key, value, "IFEQ", token, "PX", life, "GET"),
            ("SET", key, value, "XX", "KEEPTTL"),
            ("SET", key, value, "PX", 0),
            ("GET", key), ("GETRANGE", key, 0, random.choice((-1, 3, 100))), ("STRLEN", key),
            ("MGET", key, other), ("EXISTS", key, other), ("TYPE", key),
            ("DEL", key), ("DEL", key, other), ("UNLINK", key), ("DELIFEQ", key, token),
            ("DELEX", key, "IFEQ", token),
            ("PTTL", key), ("PEXPIRETIME", key), ("PERSIST", key),
            ("PEXPIRE", key, life), ("PEXPIRE", key, life, random.choice(("GT", "LT", "NX", "XX"))),
            ("PEXPIRE", key, -1), ("PEXPIRE", key, "x"),
            ("PEXPIREAT", key, int((time.time() + life / 1000) * 1000)),
            ("ZADD", b"z", score, token), ("ZADD", b"z", "NX", score, token),
            ("ZADD", b"z", "GT", score, token), ("ZADD", key, score, token),
            ("ZREM", b"z", token, value), ("ZREMRANGEBYSCORE", b"z", "-inf", score),
            ("ZCARD", key), ("ZCOUNT", b"z", f"({score.decode()}", "+inf"), ("ZSCORE", b"z", token),
            ("ZRANGE", b"z", 0, -1), ("ZRANGE", b"z", -1, -1, "WITHSCORES"), ("ZRANGE", key, 0, 0),
            ("ZRANGEBYSCORE", b"z", "-inf", "+inf", "WITHSCORES", "LIMIT", 0, 2),
            ("NOSUCH", key), ("GET",), ("SET", key), ("EVALSHA", "0" * 40, 0), ("CLIENT", "ID"),
            ("COMMAND", "INFO", "GET", "DELIFEQ", "DELEX", "EXPIRETIME", "NOSUCH"),
            ("CLIENT", "KILL", "ID", 2**63 - 1, "ADDR", "1.1.1.1:1", "LADDR", "1.1.1.1:1"),
            script("hold_acquire", [key], token, life),
            script("hold_acquire_fenced", [key, FENCE], token, life, 3_600_000),
            script("hold_extend", [key], token, life), script("hold_release", [key], token),
            script("hold_resume", [key], secret, b"f" * 18 + b"-9", b"q:2", life, 0),
            script("hold_permit", [b"z"], token, life, 2),
            script("hold_permit", [key, FENCE, b"fences:{k}"], token, life, 2, 3_600_000),
            script("hold_permit_extend", [b"z"], token, life), script("hold_permit_peek", [b"z"]),
            script("hold_permit_resume", [b"z"], token, b"f" * 18 + b"-9", b"detached", life, 0,
                   random.choice((b"give", b"take"))),
            script("hold_permit_resume", [b"z"], b"f" * 18 + b"-9", token, b"", life, 0, b"undo"),
            script("once_complete", [key], token, value, life),
            script("once_record", [key], token, value, life, random.choice((0, -1)), b"1"),
            script("schedule_look", [LAST]),
            script("schedule_record", [LAST, b"z", key], random.choice((1000, 2000)), b"p", life,
                   10**15, token, random.choice((0, life))),
            script("inspect_release", [key], secret + b"@"),
            script("cache_lock", [K, LOCK], token, life, random.choice((0, 50_000)),
                   random.choice((b"0", b"1", b"dibs1 json")), mark, 3_600_000, 33_000),
            script("cache_store", [K, LOCK], token, value, life),
            script("cache_unlock", [K, LOCK], token, mark, random.choice((b"0", b"30000"))),
            script("cache_invalidate", [K, LOCK]), script("cache_put", [K, LOCK], value, life),
            script("cache_tag", [other], b"a" * 16, life),
        )
    )  # fmt: skip


STATES = ("usual", "usual", "full", "replica")


def become(state: str, server: RealServer, simulated: Server) -> str:
    """Have both servers take writes, refuse those that need memory, or all of them."""
    client = server.client()
    client.config_set("maxmemory", 1 if state == "full" else 0)
    client.execute_command(
        "REPLICAOF", *(("127.0.0.1", 1) if state == "replica" else ("NO", "ONE"))
    )
    simulated.is_full, simulated.is_replica = state == "full", state == "replica"
    return state


def seen(connection: "Real | Simulated", request: tuple[bytes | int, ...]) -> Any:
    """The reply to *request*, without what differs by nature."""
    reply = connection.ask(*request)
    if request[0] == "COMMAND":
        return [each is not None for each in reply]
    return "an id" if request == ("CLIENT", "ID") else plain(reply)


def plain(reply: Any) -> Any:
    """*reply* without exact times and the text of errors."""
    match reply:
        case ErrorReply():
            # "ERR …" of a script has more words before it; Redis 6 has the code among them.
            inner = re.search(r": -([A-Z]+) ", str(reply))
            return f"error {reply.code} {inner[1] if inner else ''}"
        case bool():
            return reply
        case int() if reply > 10**9:
            return "a moment"
        case int() if reply > 5_000:
            return ("about", min((*LIVES, 3_600_000), key=lambda life: abs(life - reply)))
        case float():
            return plain(int(reply)) if reply > 5_000 else reply
        case bytes() if reply.isdigit() and len(reply) > 4 and len(reply) != 16:
            return plain(int(reply))
        case bytes():
            return TIMES.sub(b"<time>", reply)
        case list():
            return [plain(each) for each in reply]
        case _:
            return reply


INSTALLED = [*ENGINES, *([REDIS8] if is_installed("redis8") else [])]


@pytest.mark.parametrize("engine", INSTALLED, ids=lambda engine: engine.name)
@pytest.mark.parametrize("seed", range(8))
def test_the_simulated_server_answers_as_the_real_one(
    servers: Callable[[str], RealServer], engine: Engine, seed: int
) -> None:
    """The same commands, on two connections, one of which asks to be notified of changes."""
    server = servers(engine.name)
    server.flush()
    if engine is REDIS8 and server.version < (8, 4):
        engine = replace(REDIS8, compares="")
    random, simulated = Random(f"{engine.name}/{seed}"), Server(engine, time.time)
    real, copy = [Real(server), Real(server)], [Simulated(simulated), Simulated(simulated)]
    done = list[Any]()
    try:
        for _ in range(400):
            words, which = drawn(random), random.choice((0, 1))
            if random.random() < 0.02:
                words = (b"FLUSHALL",)
            if random.random() < 0.05:
                done.append(become(random.choice(STATES), server, simulated))
            requests: list[tuple[bytes | int, ...]] = [words]
            if (
                which == 0
                and random.random() < 0.3
                and words[0] in ("GET", "PTTL", "EXISTS", "ZRANGE")
            ):
                requests = [
                    ("CLIENT", "TRACKING", "ON", "OPTIN"),
                    ("CLIENT", "CACHING", "YES"),
                    words,
                ]
            for request in requests:
                done.append(request)
                answers = [seen(each[which], request) for each in (real, copy)]
                assert answers[0] == answers[1], done[-3:]
    finally:
        become("usual", server, simulated)
    for each in (*real, *copy):
        each.ask(b"PING")
    assert _told(real[0].pushes) == _told(copy[0].pushes)
    for connection in real:
        connection.close()


def _told(pushes: list[list[Any]]) -> list[Any]:
    """The keys that were reported; those of one command in any order."""
    keys = [keys for _, keys in pushes]
    return sorted(str(key) for each in keys for key in (each or [b"all"]))


def test_an_expired_key_is_gone_and_reported() -> None:
    """Without a request for it, once the server has swept."""
    now = [1000.0]
    server = Server(ENGINES[0], lambda: now[0])
    client = Simulated(server)
    client.ask("CLIENT", "TRACKING", "ON", "OPTIN")
    client.ask("SET", "k", "v", "PX", 500)
    client.ask("CLIENT", "CACHING", "YES")
    assert client.ask("PTTL", "k") == 500
    now[0] += 0.5
    assert client.ask("EXISTS", "k") == 1, "it lasts to the end of its last millisecond"
    now[0] += 0.001
    server.keys.sweep()
    client.ask("PING")
    assert client.pushes == [[b"invalidate", [b"k"]]]
    assert client.ask("GET", "k") is None


def test_a_killed_client_executes_nothing_more() -> None:
    """By id and both addresses, from the server's own words; not by the id alone of another."""
    server = Server(ENGINES[0], time.time)
    old, new = Simulated(server), Simulated(server)
    told = dict(each.split("=", 1) for each in old.ask("CLIENT", "INFO").decode().split())
    kill = ("CLIENT", "KILL", "ID", told["id"], "ADDR", told["addr"], "LADDR")
    assert new.ask(*kill, "10.9.9.9:6379") == 0
    assert new.ask(*kill, told["laddr"]) == 1
    assert old._session.is_open is False


def test_redis_8_4_compares_and_deletes_by_delex() -> None:
    """As its documentation says; there is no such server in the packages that tests can install."""
    server = Server(REDIS8, time.time)
    client = Simulated(server)
    client.ask("SET", "k", "mine", "PX", 5000)
    assert client.ask("DELEX", "k", "IFEQ", "yours") == 0 and client.ask("GET", "k") == b"mine"
    assert client.ask("SET", "k", "new", "IFEQ", "yours") is None
    assert client.ask("SET", "k", "new", "IFEQ", "mine", "GET") == b"mine"
    assert client.ask("DELEX", "k", "IFEQ", "new") == 1 and client.ask("EXISTS", "k") == 0
    assert isinstance(client.ask("DELIFEQ", "k", "new"), ErrorReply)
