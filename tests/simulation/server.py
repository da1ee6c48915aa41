"""A server in memory: the commands that dibs sends, its Lua scripts, client tracking.

It answers as Valkey 9, Redis 8.4, Redis 7 or Redis 6 do; `test_server.py` compares it with them.
Time is an argument, and every command is one step: what happens between two is decided elsewhere.
"""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from . import scripts
from .keyspace import Keyspace, Value
from .wire import (
    OK,
    ErrorReply,
    Status,
    encode,
    encode_message,
    encode_push,
    number_text,
    read_commands,
)

FULL = "OOM command not allowed when used memory > 'maxmemory'."
READ_ONLY = "READONLY You can't write against a read only replica."
_SYNTAX = "ERR syntax error"
_FIRST_ID = 3
"""The id of the first client after a start, as on real servers."""


@dataclass(frozen=True)
class Engine:
    """Which program it is."""

    name: str
    version: str
    compares: Literal["DELIFEQ", "DELEX", ""]
    """The command by which it compares and deletes; with one, it has `SET … IFEQ` as well."""
    is_recent: bool
    """It has what came with 7.0: `SET NX GET`, EXPIRETIME, `PEXPIRE … GT`."""


VALKEY = Engine("valkey", "9.1.2", compares="DELIFEQ", is_recent=True)
REDIS8 = Engine("redis8", "8.4.0", compares="DELEX", is_recent=True)
REDIS7 = Engine("redis7", "7.0.15", compares="", is_recent=True)
REDIS6 = Engine("redis6", "6.2.14", compares="", is_recent=False)
ENGINES = (VALKEY, REDIS7, REDIS6)


class Session:
    """What the server knows of one connection."""

    def __init__(
        self,
        server: "Server",
        address: str,
        send: Callable[[bytes], None],
        end: Callable[[], None],
    ) -> None:
        """*send*: bytes to the client. *end*: called when the server closes the connection."""
        self.server = server
        self.id = server.new_id()
        self.address = address
        self.protocol = 2
        self.is_tracking = self.is_opt_in = False
        self.is_caching = False
        """The next command registers what it reads."""
        self.is_asking = False
        """The next command may be about a slot that the node takes over."""
        self.is_subscribed = False
        self.is_open = True
        self._send = send
        self._end = end
        self._buffer = b""
        self._pushes = list[bytes]()
        self._is_answering = False
        server.sessions[self.id] = self

    def receive(self, data: bytes) -> None:
        """Execute the commands in *data*, and answer them in one write."""
        commands, self._buffer = read_commands(self._buffer + data)
        answers = list[bytes]()
        self._is_answering = True
        for words in commands:
            reply = self.server.execute(words, self)
            if not self.is_open:
                return
            answers += [encode(reply, self.protocol), *self._pushes]
            self._pushes.clear()
        self._is_answering = False
        if answers:
            self._send(b"".join(answers))

    def invalidate(self, keys: list[bytes] | None) -> None:
        """Say that *keys* have changed; None: all may have."""
        if self.protocol < 3 or not self.is_open:
            return
        push = encode_push(b"invalidate", keys)
        if self._is_answering:
            self._pushes.append(push)
        else:
            self._send(push)

    def publish(self, words: list[Any]) -> None:
        """Send a message, if it has subscribed."""
        if self.is_subscribed and self.is_open:
            self._send(encode_message(words, self.protocol))

    def close(self) -> None:
        """The server executes nothing more of it."""
        if self.is_open:
            self.forget()
            self._end()

    def forget(self) -> None:
        """The connection has ended at the other side."""
        self.is_open = False
        if self.server.sessions.get(self.id) is self:  # the ids begin again after a restart
            del self.server.sessions[self.id]


class Server:
    """One server. *clock*: its wall clock, in seconds since the epoch."""

    address = "10.1.0.1:6379"

    def __init__(
        self, engine: Engine, clock: Callable[[], float], *, may_kill: bool = True
    ) -> None:
        """*may_kill*: the user has the right to CLIENT KILL."""
        self.engine = engine
        self.may_kill = may_kill
        self.refusal: str | None = None
        """What every command about keys is answered with: LOADING, BUSY …"""
        self.is_full = self.is_replica = False
        self.redirect: Callable[[list[bytes], bool], str | None] | None = None
        """In a cluster: what a command about those keys is answered with; None: it is executed.
        True: the client has sent ASKING before it."""
        self.slots: Callable[[], list[Any]] | None = None
        """In a cluster: the reply to CLUSTER SLOTS."""
        self.executed = 0
        self.observe: Callable[[Session | None, list[bytes], Any], None] | None = None
        """Called with each command that a client has sent, and the reply."""
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self.keys = Keyspace(self._milliseconds, self._changed)
        self.sessions: dict[int, Session] = {}
        self._scripts: dict[bytes, bytes] = {}
        self._tracked: dict[bytes, dict[int, Session]] = {}
        self._last_id = _FIRST_ID - 1
        self._caller: Session | None = None
        """Whose command is executed, also by a script of it."""
        self._is_registering = False

    def new_id(self) -> int:
        """The id of the next client."""
        self._last_id += 1
        return self._last_id

    def _milliseconds(self) -> int:
        return int(self._clock() * 1000)

    # ---- faults

    def restart(self) -> None:
        """Start again with nothing: no keys, no scripts, no clients."""
        for session in list(self.sessions.values()):
            session.close()
        self._begin()

    def become(self, state: tuple[dict[bytes, Value], dict[bytes, int]]) -> None:
        """Be a replica that has *state*, from now on."""
        self.restart()
        self.keys.restore(*state)

    def forget_scripts(self) -> None:
        """As `SCRIPT FLUSH`."""
        self._scripts.clear()

    # ---- executing

    def execute(self, words: list[bytes], session: Session | None = None) -> Any:
        """The reply to one command of a client; an error is returned."""
        self.executed += 1
        name = words[0].upper().decode()
        self._caller = session
        if session is not None:
            self._is_registering = session.is_tracking and (
                session.is_caching or not session.is_opt_in
            )
            session.is_caching = False
        try:
            self._check_slot(name, words)
            reply = self._run(name, words)
        except ErrorReply as error:
            reply = error
        finally:
            self._caller, self._is_registering = None, False
        if self.observe is not None:
            self.observe(session, words, reply)
        return reply

    def _run(self, name: str, words: list[bytes]) -> Any:
        command = _COMMANDS.get(name)
        if command is None or (name in _NEWER and not _NEWER[name](self.engine)):
            raise ErrorReply(f"ERR unknown command '{name}', with args beginning with: ")
        if name not in _WITHOUT_KEYS and self.refusal is not None:
            raise ErrorReply(self.refusal)
        try:
            if name in _WRITING:
                self._check_write(name, command, words)
            return command(self, *words[1:])
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise ErrorReply(
                f"ERR wrong number of arguments for '{name.lower()}' command"
            ) from None

    def _check_write(self, name: str, command: Callable[..., Any], words: list[bytes]) -> None:
        """ErrorReply: the server takes no writes, or none that need memory."""
        if self.is_replica or self.is_full:  # a wrong number of arguments comes before that
            inspect.signature(command).bind(self, *words[1:])
            if name.startswith("PEXPIRE") and len(words) > 3 and not self.engine.is_recent:
                raise TypeError("one argument too many")
        # A script that has written continues: real servers never stop it in the middle.
        is_refused = self.is_full and name in _GROWING and not self._has_written
        if self.is_replica or is_refused:
            refusal = READ_ONLY if self.is_replica else FULL
            is_wrapped = self._is_in_script and not self.engine.is_recent
            raise ErrorReply(f"@user_script: 1: -{refusal}" if is_wrapped else refusal)
        self._has_written = self._is_in_script

    def _check_slot(self, name: str, words: list[bytes]) -> None:
        """ErrorReply: another node of the cluster has these keys."""
        session = self._caller
        if self.redirect is None or session is None or name == "ASKING":
            return
        is_asking, session.is_asking = session.is_asking, False
        if name not in _WITHOUT_KEYS and (keys := _keys_of(name, words)):
            redirection = self.redirect(keys, is_asking)
            if redirection is not None:
                raise ErrorReply(redirection)

    def _call(self, words: list[bytes]) -> Any:
        """A command of a script."""
        reply = self._run(words[0].upper().decode(), words)
        if isinstance(reply, ErrorReply):
            raise reply
        return reply

    def _read(self, *keys: bytes) -> None:
        """A command that only reads: its keys are tracked, if the client asked for that."""
        if self._is_registering and self._caller is not None:
            for key in keys:
                self._tracked.setdefault(key, {})[self._caller.id] = self._caller

    def _changed(self, key: bytes) -> None:
        for session in self._tracked.pop(key, {}).values():
            session.invalidate([key])

    # ---- connections

    def hello(self, *words: bytes) -> Any:
        """HELLO."""
        session = self._session
        if words:
            session.protocol = int(words[0])
        return {
            b"server": b"redis", b"version": self.engine.version.encode(),
            b"proto": session.protocol, b"id": session.id,
            b"mode": b"standalone" if self.slots is None else b"cluster",
            b"role": b"replica" if self.is_replica else b"master", b"modules": [],
        }  # fmt: skip

    @property
    def _session(self) -> Session:
        assert self._caller is not None, "this command needs a connection"
        return self._caller

    def client(self, what: bytes, *words: bytes) -> Any:
        """CLIENT …"""
        match what.upper():
            case b"TRACKING":
                return self._track(words)
            case b"CACHING":
                self._session.is_caching = words[0].upper() == b"YES"
                return OK
            case b"ID":
                return self._session.id
            case b"INFO":
                return _described(self._session).encode()
            case b"KILL":
                return self._kill(words)
            case b"SETINFO" if self.engine not in (VALKEY, REDIS8):
                raise ErrorReply(
                    "ERR Unknown subcommand or wrong number of arguments for 'SETINFO'"
                )
            case b"SETINFO" | b"SETNAME" | b"NO-EVICT":
                return OK
            case _:
                raise ErrorReply("ERR unknown subcommand")

    def _track(self, words: tuple[bytes, ...]) -> Status:
        session = self._session
        options = [each.upper() for each in words]
        if options[0] == b"ON" and session.protocol < 3:
            raise ErrorReply("ERR Client tracking can be enabled only in RESP3 mode")
        session.is_tracking, session.is_opt_in = options[0] == b"ON", b"OPTIN" in options
        return OK

    def _kill(self, words: tuple[bytes, ...]) -> int:
        if not self.may_kill:
            raise ErrorReply(
                "NOPERM User default has no permissions to run the 'client|kill' command"
            )
        wanted = {words[at].upper(): words[at + 1] for at in range(0, len(words) - 1, 2)}
        if not wanted or len(words) % 2 or not wanted.keys() <= {b"ID", b"ADDR", b"LADDR"}:
            raise ErrorReply(_SYNTAX)
        number = None
        if b"ID" in wanted:
            number = _integer(wanted[b"ID"])
        address, local = wanted.get(b"ADDR"), wanted.get(b"LADDR")
        found = [
            session
            for session in self.sessions.values()
            if number in (None, session.id)
            and address in (None, session.address.encode())
            and local in (None, self.address.encode())
            and session is not self._caller
        ]
        for session in found:
            session.close()
        return len(found)

    def command(self, what: bytes, *names: bytes) -> Any:
        """COMMAND INFO."""
        if what.upper() != b"INFO":
            raise ErrorReply("ERR unknown subcommand")
        return [[name.lower(), 2] if self._knows(name) else None for name in names]

    def _knows(self, name: bytes) -> bool:
        word = name.upper().decode()
        return word in _COMMANDS and (word not in _NEWER or _NEWER[word](self.engine))

    def ping(self) -> Any:
        """PING."""
        return Status("PONG")

    def select(self, _number: bytes) -> Any:
        """SELECT."""
        return OK

    def role(self) -> Any:
        """ROLE."""
        return [b"slave", b"", 0, b"connected", 0] if self.is_replica else [b"master", 0, []]

    def asking(self) -> Any:
        """ASKING."""
        self._session.is_asking = True
        return OK

    def cluster(self, what: bytes) -> Any:
        """CLUSTER SLOTS."""
        if what.upper() != b"SLOTS" or self.slots is None:
            raise ErrorReply("ERR This instance has cluster support disabled")
        return self.slots()

    def time(self) -> Any:
        """TIME."""
        microseconds = int(self._clock() * 1e6)
        return [b"%d" % (microseconds // 10**6), b"%d" % (microseconds % 10**6)]

    # ---- strings

    def get(self, key: bytes) -> Any:
        """GET."""
        self._read(key)
        return self.keys.string(key)

    def getrange(self, key: bytes, start: bytes, end: bytes) -> Any:
        """GETRANGE."""
        self._read(key)
        value = self.keys.string(key) or b""
        first, last = _bounds(int(start), int(end), len(value))
        return value[first : last + 1]

    def strlen(self, key: bytes) -> Any:
        """STRLEN."""
        self._read(key)
        return len(self.keys.string(key) or b"")

    def setrange(self, key: bytes, start: bytes, piece: bytes) -> Any:
        """SETRANGE."""
        value, at = self.keys.string(key), _integer(start)
        if piece:
            before = (value or b"").ljust(at, b"\0")
            self.keys.put(key, before[:at] + piece + before[at + len(piece) :], keep_expiry=True)
        return max(len(value or b""), at + len(piece)) if piece else len(value or b"")

    def mget(self, *keys: bytes) -> Any:
        """MGET."""
        self._read(*keys)
        values = [self.keys.live(key) for key in keys]
        return [value if isinstance(value, bytes) else None for value in values]

    def exists(self, *keys: bytes) -> Any:
        """EXISTS."""
        self._read(*keys)
        return sum(self.keys.live(key) is not None for key in keys)

    def set(self, key: bytes, value: bytes, *words: bytes) -> Any:
        """SET with NX, XX, GET, IFEQ, PX, EX, KEEPTTL."""
        options = self._set_options(words)
        wants_old = "GET" in options
        compared = options.get("IFEQ")
        old = self.keys.string(key) if wants_old or compared is not None else self.keys.live(key)
        is_refused = (
            ("NX" in options and old is not None)
            or ("XX" in options and old is None)
            or (compared is not None and old != compared)
        )
        if not is_refused:
            self.keys.put(key, value, keep_expiry="KEEPTTL" in options)
            if "PX" in options:
                self.keys.expire_at(key, self._milliseconds() + options["PX"])
        if wants_old:
            return old
        return None if is_refused else OK

    def _set_options(self, words: tuple[bytes, ...]) -> dict[str, Any]:
        options, rest = dict[str, Any](), list(words)
        while rest:
            word = rest.pop(0).upper().decode()
            if word in ("PX", "EX") and rest:
                options["PX"] = _positive(rest.pop(0)) * (1 if word == "PX" else 1000)
            elif word == "IFEQ" and rest and self.engine.compares:
                options["IFEQ"] = rest.pop(0)
            elif word in ("NX", "XX", "GET", "KEEPTTL"):
                options[word] = True
            else:
                raise ErrorReply(_SYNTAX)
        clash = {"NX", "XX", "IFEQ"} & options.keys()
        nx_get = {"NX", "GET"} <= options.keys() and not self.engine.is_recent
        if len(clash) > 1 or nx_get or {"PX", "KEEPTTL"} <= options.keys():
            raise ErrorReply(_SYNTAX)
        return options

    def delete(self, *keys: bytes) -> Any:
        """DEL, UNLINK."""
        if not keys:
            raise TypeError("missing argument")
        return sum(self.keys.live(key) is not None and self.keys.remove(key) for key in keys)

    def delifeq(self, key: bytes, value: bytes) -> Any:
        """DELIFEQ."""
        return int(self.keys.string(key) == value and self.keys.remove(key))

    def delex(self, key: bytes, *words: bytes) -> Any:
        """DELEX with IFEQ."""
        if words and (len(words) != 2 or words[0].upper() != b"IFEQ"):
            raise ErrorReply(_SYNTAX)
        return self.delifeq(key, words[1]) if words else self.delete(key)

    # ---- expiry

    def pttl(self, key: bytes) -> Any:
        """PTTL."""
        self._read(key)
        return self.keys.remaining(key)

    def pexpiretime(self, key: bytes) -> Any:
        """PEXPIRETIME."""
        self._read(key)
        remaining = self.keys.remaining(key)
        return remaining if remaining < 0 else self.keys.expiries[key]

    def expiretime(self, key: bytes) -> Any:
        """EXPIRETIME."""
        moment = self.pexpiretime(key)
        return moment if moment < 0 else (moment + 500) // 1000

    def pexpire(self, key: bytes, milliseconds: bytes, *options: bytes) -> Any:
        """PEXPIRE."""
        return self._expire(key, self._milliseconds() + _integer(milliseconds), options)

    def pexpireat(self, key: bytes, moment: bytes, *options: bytes) -> Any:
        """PEXPIREAT."""
        return self._expire(key, _integer(moment), options)

    def _expire(self, key: bytes, moment: int, words: tuple[bytes, ...]) -> int:
        options = {word.upper() for word in words}
        if not options <= {b"NX", b"XX", b"GT", b"LT"} or (options and not self.engine.is_recent):
            raise ErrorReply("ERR Unsupported option")
        if self.keys.live(key) is None:
            return 0
        now = self.keys.expiries.get(key)
        is_refused = (
            (b"NX" in options and now is not None)
            or (b"XX" in options and now is None)
            or (b"GT" in options and (now is None or moment <= now))
            or (b"LT" in options and now is not None and moment >= now)
        )
        if is_refused:
            return 0
        self.keys.expire_at(key, moment)
        return 1

    def persist(self, key: bytes) -> Any:
        """PERSIST."""
        if self.keys.live(key) is None or key not in self.keys.expiries:
            return 0
        self.keys.put(key, self.keys.values[key])
        return 1

    # ---- sorted sets

    def _ranked(self, key: bytes) -> list[tuple[bytes, float]]:
        return sorted(self.keys.sorted_set(key).items(), key=lambda pair: (pair[1], pair[0]))

    def zadd(self, key: bytes, *words: bytes) -> Any:
        """ZADD with NX, XX, GT, LT."""
        rest = list(words)
        options = set[bytes]()
        while rest and rest[0].upper() in (b"NX", b"XX", b"GT", b"LT"):
            options.add(rest.pop(0).upper())
        if not rest or len(rest) % 2:
            raise ErrorReply(_SYNTAX)
        members = dict(self.keys.sorted_set(key))
        before = dict(members)
        for at in range(0, len(rest), 2):
            score, member = float(rest[at]), rest[at + 1]
            now = members.get(member)
            is_refused = (
                (b"NX" in options and now is not None)
                or (b"XX" in options and now is None)
                or (b"GT" in options and now is not None and score <= now)
                or (b"LT" in options and now is not None and score >= now)
            )
            if not is_refused:
                members[member] = score
        if members != before:
            self.keys.put(key, members, keep_expiry=True)
        return len(members) - len(before)

    def zrem(self, key: bytes, *members: bytes) -> Any:
        """ZREM."""
        return self._without(key, lambda member, _: member in members)

    def zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> Any:
        """ZREMRANGEBYSCORE."""
        is_between = _between(low, high)
        return self._without(key, lambda _, score: is_between(score))

    def _without(self, key: bytes, is_gone: Callable[[bytes, float], bool]) -> int:
        members = self.keys.sorted_set(key)
        left = {member: score for member, score in members.items() if not is_gone(member, score)}
        if len(left) != len(members):
            self.keys.put(key, left, keep_expiry=True)
        return len(members) - len(left)

    def zcard(self, key: bytes) -> Any:
        """ZCARD."""
        self._read(key)
        return len(self.keys.sorted_set(key))

    def zcount(self, key: bytes, low: bytes, high: bytes) -> Any:
        """ZCOUNT."""
        self._read(key)
        return sum(map(_between(low, high), self.keys.sorted_set(key).values()))

    def zscore(self, key: bytes, member: bytes) -> Any:
        """ZSCORE."""
        self._read(key)
        return self.keys.sorted_set(key).get(member)

    def zrange(self, key: bytes, start: bytes, end: bytes, *words: bytes) -> Any:
        """ZRANGE by rank."""
        self._read(key)
        pairs = self._ranked(key)
        first, last = _bounds(_integer(start), _integer(end), len(pairs))
        return self._scored(pairs[first : last + 1], words)

    def zrangebyscore(self, key: bytes, low: bytes, high: bytes, *words: bytes) -> Any:
        """ZRANGEBYSCORE with WITHSCORES and LIMIT."""
        self._read(key)
        is_between = _between(low, high)
        pairs = [pair for pair in self._ranked(key) if is_between(pair[1])]
        options = [word.upper() for word in words]
        if b"LIMIT" in options:
            at = options.index(b"LIMIT")
            offset, count = int(options[at + 1]), int(options[at + 2])
            pairs = pairs[offset : offset + count if count >= 0 else None]
        return self._scored(pairs, tuple(options))

    def _scored(self, pairs: list[tuple[bytes, float]], words: tuple[bytes, ...]) -> Any:
        if b"WITHSCORES" not in [word.upper() for word in words]:
            return [member for member, _ in pairs]
        # Pairs in RESP3; a script always gets them flat.
        if self._caller is not None and self._caller.protocol >= 3 and not self._is_in_script:
            return [[member, score] for member, score in pairs]
        return [word for member, score in pairs for word in (member, number_text(score))]

    # ---- scripts

    _is_in_script = _has_written = False

    def eval(self, source: bytes, *words: bytes) -> Any:
        """EVAL."""
        self._scripts[hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()] = source
        return self._evaluate(source, words)

    def evalsha(self, digest: bytes, *words: bytes) -> Any:
        """EVALSHA."""
        source = self._scripts.get(digest)
        if source is None:
            raise ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
        return self._evaluate(source, words)

    def script(self, what: bytes, *_words: bytes) -> Any:
        """SCRIPT FLUSH."""
        if what.upper() != b"FLUSH":
            raise ErrorReply("ERR unknown subcommand")
        self.forget_scripts()
        return OK

    def _evaluate(self, source: bytes, words: tuple[bytes, ...]) -> Any:
        count = int(words[0])
        keys, arguments = list(words[1 : count + 1]), list(words[count + 1 :])
        self._is_in_script, self._has_written = True, False
        try:
            return scripts.run(source, keys, arguments, self._call)
        except ErrorReply as error:
            if self.engine.is_recent:
                raise
            digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
            said = f"ERR Error running script (call to f_{digest}): @user_script:1: {error}"
            raise ErrorReply(said) from None
        finally:
            self._is_in_script = self._has_written = False

    # ---- the whole server

    def flushall(self) -> Any:
        """FLUSHALL."""
        self._tracked.clear()
        self.keys.restore({}, {})
        for session in self.sessions.values():
            if session.is_tracking:
                session.invalidate(None)
        return OK

    def dbsize(self) -> Any:
        """DBSIZE."""
        self.keys.sweep()
        return len(self.keys.values)

    def type(self, key: bytes) -> Any:
        """TYPE."""
        value = self.keys.live(key)
        return Status("none" if value is None else "zset" if isinstance(value, dict) else "string")


def _described(session: Session) -> str:
    return (
        f"id={session.id} addr={session.address} laddr={session.server.address} fd=8 name= age=0 "
        f"idle=0 flags=N db=0 resp={session.protocol} cmd=client|info user=default\n"
    )


def _integer(word: bytes) -> int:
    try:
        return int(word)
    except ValueError:
        raise ErrorReply("ERR value is not an integer or out of range") from None


def _positive(word: bytes) -> int:
    number = _integer(word)
    if number <= 0:
        raise ErrorReply("ERR invalid expire time in 'set' command")
    return number


def _bounds(start: int, end: int, size: int) -> tuple[int, int]:
    """The first and the last index, where negative ones count from the end."""
    first = max(start + size, 0) if start < 0 else start
    return first, end + size if end < 0 else end


def _between(low: bytes, high: bytes) -> Callable[[float], bool]:
    def limit(word: bytes) -> tuple[float, bool]:
        return float(word.lstrip(b"(")), word.startswith(b"(")

    (least, above), (most, below) = limit(low), limit(high)
    return lambda score: (
        (score > least if above else score >= least) and (score < most if below else score <= most)
    )


_COMMANDS: dict[str, Callable[..., Any]] = {
    "HELLO": Server.hello, "CLIENT": Server.client, "COMMAND": Server.command,
    "PING": Server.ping, "SELECT": Server.select, "TIME": Server.time, "ROLE": Server.role,
    "CLUSTER": Server.cluster, "ASKING": Server.asking,
    "GET": Server.get, "GETRANGE": Server.getrange, "SETRANGE": Server.setrange,
    "STRLEN": Server.strlen, "MGET": Server.mget,
    "EXISTS": Server.exists, "SET": Server.set, "DEL": Server.delete, "UNLINK": Server.delete,
    "DELIFEQ": Server.delifeq, "DELEX": Server.delex,
    "PTTL": Server.pttl, "PEXPIRETIME": Server.pexpiretime, "EXPIRETIME": Server.expiretime,
    "PEXPIRE": Server.pexpire, "PEXPIREAT": Server.pexpireat, "PERSIST": Server.persist,
    "ZADD": Server.zadd, "ZREM": Server.zrem, "ZREMRANGEBYSCORE": Server.zremrangebyscore,
    "ZCARD": Server.zcard, "ZCOUNT": Server.zcount, "ZSCORE": Server.zscore,
    "ZRANGE": Server.zrange, "ZRANGEBYSCORE": Server.zrangebyscore,
    "EVAL": Server.eval, "EVALSHA": Server.evalsha, "SCRIPT": Server.script,
    "FLUSHALL": Server.flushall, "DBSIZE": Server.dbsize, "TYPE": Server.type,
}  # fmt: skip
_NEWER: dict[str, Callable[[Engine], bool]] = {
    "DELIFEQ": lambda engine: engine.compares == "DELIFEQ",
    "DELEX": lambda engine: engine.compares == "DELEX",
    "EXPIRETIME": lambda engine: engine.is_recent,
    "PEXPIRETIME": lambda engine: engine.is_recent,
}
_WITHOUT_KEYS = {"HELLO", "CLIENT", "COMMAND", "PING", "SELECT", "ROLE", "CLUSTER", "ASKING"}
_GROWING = {"SET", "SETRANGE", "ZADD"}
"""What a full server refuses."""
_WRITING = {
    *_GROWING, "DEL", "UNLINK", "DELIFEQ", "DELEX", "PEXPIRE", "PEXPIREAT", "PERSIST",
    "ZREM", "ZREMRANGEBYSCORE", "FLUSHALL",
}  # fmt: skip
"""What a replica refuses."""
_KEYLESS = {"TIME", "SCRIPT", "FLUSHALL", "DBSIZE"}
_ONLY_KEYS = {"MGET", "EXISTS", "DEL", "UNLINK"}


def _keys_of(name: str, words: list[bytes]) -> list[bytes]:
    """The keys of a command."""
    if name in _KEYLESS:
        return []
    if name in ("EVAL", "EVALSHA"):
        return words[3 : 3 + int(words[2])]
    return words[1:] if name in _ONLY_KEYS else words[1:2]
