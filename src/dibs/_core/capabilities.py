"""What a server can do: its engine, its capabilities, and what replaces those that it lacks."""

import hashlib
import math
import pkgutil
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, cast

from ..errors import UsageError
from .causes import code_of_reply
from .request import ClientInfo, ErrorReply, Reply, Request, commands_in, pack, read_client_info

SCRIPTS = (
    "hold_acquire",
    "hold_acquire_fenced",
    "hold_all",
    "hold_release",
    "hold_extend",
    "hold_resume",
    "hold_permit",
    "hold_permit_extend",
    "hold_permit_peek",
    "hold_permit_resume",
    "cache_lock",
    "cache_put",
    "cache_store",
    "cache_tag",
    "cache_unlock",
    "once_complete",
    "once_record",
    "schedule_look",
    "schedule_record",
    "job_fetch",
    "job_wait",
    "throttle",
    "quota",
    "window",
    "stream_begin",
    "stream_resume",
    "stream_append",
    "stream_end",
)


# Not a NamedTuple: its fields are read for every request, and slots are read faster.
@dataclass(frozen=True, slots=True)
class Engine:
    """What a server can do for us. Made by `Handshake`."""

    set_nx_get: bool
    compare_delete: Literal["DELEX", "DELIFEQ", "LUA"]
    tracking: bool = True
    """The server has CLIENT TRACKING; without it, waiters poll."""
    whole_scripts: bool = False
    """Only EVAL is to be used, never EVALSHA."""
    refused: frozenset[str] = frozenset()
    """Commands that this user may not run, or that the server lacks."""

    @property
    def set_ifeq(self) -> bool:
        """Every server that has either compare-and-delete also has `SET … IFEQ`."""
        return self.compare_delete != "LUA"


OLDEST = Engine(set_nx_get=False, compare_delete="LUA")
"""What is assumed of a server that does not say: scripts for everything."""


def common_engine(engines: list[Engine]) -> Engine:
    """Return what all of them can do: a cluster in the middle of an upgrade."""
    first = engines[0].compare_delete
    same = all(engine.compare_delete == first for engine in engines)
    return Engine(
        set_nx_get=all(engine.set_nx_get for engine in engines),
        compare_delete=first if same else "LUA",
        tracking=all(engine.tracking for engine in engines),
        whole_scripts=any(engine.whole_scripts for engine in engines),
        refused=frozenset[str]().union(*[engine.refused for engine in engines]),
    )


@cache
def _script_source(name: str) -> bytes:
    text = pkgutil.get_data("dibs._core", f"lua/{name}.lua")
    assert text is not None
    return text


@cache
def _script_digest(name: str) -> bytes:
    # Not a matter of security: EVALSHA names scripts by their SHA-1.
    return hashlib.sha1(_script_source(name), usedforsecurity=False).hexdigest().encode()


def run_script(name: str, keys: list[bytes], *args: bytes | int) -> bytes:
    """Return a script call as the wire wants it.

    A server that does not know it answers NOSCRIPT.
    """
    return pack("EVALSHA", _script_digest(name), len(keys), *keys, *args)


def run_whole_script(name: str, keys: list[bytes], *args: bytes | int) -> bytes:
    """Run a script by its source, for requests that may have no caller to send them again."""
    return pack("EVAL", _script_source(name), len(keys), *keys, *args)


_BY_DIGEST = re.compile(rb"\*\d+\r\n\$7\r\nEVALSHA\r\n\$40\r\n([0-9a-f]{40})\r\n")


def with_scripts(request: Request) -> Request:
    """Return *request* with the script itself in place of its digest: the answer to a NOSCRIPT.

    EVAL also makes the server remember the script, so the next EVALSHA is understood. SCRIPT LOAD
    is never needed: many proxies and services refuse it.
    """
    match = _BY_DIGEST.match(request.payload)
    name = None if match is None else _names_by_digest().get(match.group(1))
    if match is None or name is None:
        return request
    source = _script_source(name)
    words = request.payload[: request.payload.index(b"\r\n") + 2]
    head = b"%b$4\r\nEVAL\r\n$%d\r\n%b\r\n" % (words, len(source), source)
    payload = head + request.payload[match.end() :]
    return Request(payload, request.replies, request.key, request.until)


def with_scripts_once(requests: list[Request]) -> list[Request]:
    """Return *requests*, each script in the first one that needs it: for one write to a server."""
    sent: set[bytes] = set()
    whole: list[Request] = []
    for request in requests:
        match = _BY_DIGEST.match(request.payload)
        is_first = match is not None and match.group(1) not in sent
        if match is not None:
            sent.add(match.group(1))
        whole.append(with_scripts(request) if is_first else request)
    return whole


@cache
def _names_by_digest() -> dict[bytes, str]:
    return {_script_digest(name): name for name in SCRIPTS}


class ScriptMemory:
    """Remembers whether EVALSHA is worth a try: some proxies answer NOSCRIPT for ever."""

    MISSES = 3
    """So many times within `NEAR` seconds, each time after the server had executed the script."""
    NEAR = 10.0
    LASTS = 600.0
    """For how long scripts are then sent whole, in seconds."""

    def __init__(self) -> None:
        self.whole_until = 0.0
        """0: EVALSHA has always worked."""
        self._misses: dict[bytes, tuple[int, float]] = {}
        """How often within a time, and since when."""
        self._given: dict[bytes, float] = {}
        """When the server has executed the script, and it was not missed since."""

    def send_whole(self, engine: Engine | None, now: float) -> bool:
        """Return True if send scripts whole from the start."""
        return now < self.whole_until or (engine is not None and engine.whole_scripts)

    def lacks(self, request: Request, error: ErrorReply, asked_at: float) -> bool:
        """Return True if the server does not know the script, or no EVALSHA: send it whole."""
        match = _BY_DIGEST.match(request.payload)
        if match is None:
            return False
        if error.code == "NOSCRIPT":
            self._note_missing(match.group(1), asked_at)
            return True
        if "evalsha" in str(error).partition(", with args")[0].lower():
            self.whole_until = asked_at + self.LASTS
            return True
        return False

    def gave(self, request: Request, now: float) -> None:
        """The server has answered *request*, with the script itself in it."""
        match = _BY_DIGEST.match(request.payload)
        if match is not None:
            self._given[match.group(1)] = now

    def _note_missing(self, digest: bytes, asked_at: float) -> None:
        if asked_at <= self._given.get(digest, math.inf):
            return  # it was not given yet, or another caller has noticed that it is missing
        self._given.pop(digest, None)
        count, since = self._misses.get(digest, (0, asked_at))
        count, since = (count + 1, since) if asked_at - since < self.NEAR else (1, asked_at)
        self._misses[digest] = (count, since)
        if count >= self.MISSES:
            self._misses.clear()
            self.whole_until = asked_at + self.LASTS


_LACKING = ("err unknown command", "err syntax error")


def by_script(request: Request, error: ErrorReply) -> Request | None:
    """Return *request* by a script. None: *error* is another one, or there is no script for it.

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
            return run_whole_script("hold_extend", [key], token, ms, token)
        case [b"SET", key, left, b"IFEQ", token, b"GET", b"PX", ms]:
            return run_whole_script("hold_extend", [key], token, ms, left)
        case [b"SET", key, left, b"IFEQ", record, b"PX", ms, b"GET"]:
            return run_whole_script("once_complete", [key], record, left, ms)
        case _:
            return None


# GET is for comparison: a service that knows no GET says nothing. EXPIRETIME came
# with 7.0, like SET NX GET. In both cases of letters: some servers compare names exactly.
_MARKS = ("GET", "EXPIRETIME", "DELEX", "DELIFEQ")
_NAMES = [name for mark in _MARKS for name in (mark, mark.lower())]

ASK = Request(pack("COMMAND", "INFO", *_NAMES), 1, b"")

_PROBE = b"dibs:probe:5b0c1e2f7a93"
"""A key that does not exist."""
# In small letters, unlike every request of ours, so that they can be seen in the traffic.
_PROBES = {
    "GET": pack("get", _PROBE),
    "DEL": pack("del", _PROBE),
    "PTTL": pack("pttl", _PROBE),
    "PEXPIRE": pack("pexpire", _PROBE, 1),
    "EVAL": pack("eval", "return 1", 1, _PROBE),
    "CLIENT TRACKING": pack("client", "tracking", "off"),
    "DELEX": pack("delex", _PROBE, "ifeq", "-"),
    "DELIFEQ": pack("delifeq", _PROBE, "-"),
    "ZRANGE": pack("zrange", _PROBE, 0, 0),
    "ZREM": pack("zrem", _PROBE, "-"),
    "ZREMRANGEBYSCORE": pack("zremrangebyscore", _PROBE, 1, 1),
    "ZSCORE": pack("zscore", _PROBE, "-"),
    "PEXPIREAT": pack("pexpireat", _PROBE, 1),
    "CLIENT INFO": pack("client", "info"),
    # All that is asked for later; there is no such client.
    "CLIENT KILL": pack("client", "kill", "id", 2**63 - 1, "addr", "-", "laddr", "-"),
}
NO_OP = Request(_PROBES["GET"], 1, b"")
"""A request that every server answers and that changes nothing."""
_AFTER_PERMIT = ("ZRANGE", "ZREM", "ZREMRANGEBYSCORE", "ZSCORE", "PEXPIREAT")
"""What is needed once a permit is taken; without the others of its script none is."""
_ALWAYS = ("GET", "DEL", "PTTL", "PEXPIRE", "EVAL", "CLIENT TRACKING", *_AFTER_PERMIT)
_ENDING = ("CLIENT INFO", "CLIENT KILL")
"""What is needed to have a connection ended: a right that few users need to give."""

Use = Literal[
    "renew", "complete", "load", "tag", "fence", "limit", "throttle", "window", "stream"
]  # fmt: skip
_NEEDS: dict[Use, tuple[str, tuple[str, ...]]] = {
    "renew": ("renew a lease", ("EVAL", "GET", "PEXPIRE")),
    "complete": ("keep the outcome of a claim", ("EVAL", "GET")),
    "load": ("cache a value", ("EVAL", "GET", "DEL", "PTTL")),
    "tag": ("cache a value with tags", ("EVAL", "GET", "PEXPIRE")),
    "fence": ("take a key with a fence", ("EVAL", "GET")),
    "throttle": ("count calls", ("EVAL", "GET")),
    "window": ("count calls exactly", ("EVAL", "ZRANGE", "ZREM", "ZREMRANGEBYSCORE", "ZSCORE")),
    "stream": ("share a stream", ("EVAL", "GET", "DEL", "PTTL", "PEXPIRE")),
    "limit": ("take one of several permits of a key", ("EVAL", *_AFTER_PERMIT)),
}
_KEPT_ALIVE: tuple[Use, ...] = ("complete", "load")
"""Claims and loads are renewed."""
_BY_SCRIPT: tuple[Use, ...] = ("load", "tag", "fence", "limit", "throttle", "window", "stream")
"""What no single command of any server does."""
_SEE = 'see "What the server must allow" in docs/reference/targets.md'


def read_engine(reply: Reply) -> Engine:
    """Return what the answer to `ASK` says.

    A server that does not say is taken for the oldest one.
    """
    if isinstance(reply, ErrorReply):
        if reply.code == "NOAUTH" or code_of_reply(str(reply)) is not None:
            raise ConnectionError(str(reply))  # no password was given, or LOADING, BUSY …: not now
        return OLDEST
    entries = cast("list[Any]", reply) if isinstance(reply, list) else []
    if len(entries) != len(_NAMES):
        return OLDEST
    get, expiretime, delex, delifeq = [any(entries[at : at + 2]) for at in range(0, len(_NAMES), 2)]
    if not get:
        return OLDEST
    native = "DELEX" if delex else "DELIFEQ" if delifeq else "LUA"
    return Engine(set_nx_get=expiretime, compare_delete=native)


class ClosedAtScript(ConnectionError):
    """A server that answers other commands closed the connection when it got a script."""


class Handshake:
    """Send `request`, hand its replies to `received`, until that returns what the server can do.

    *plain*: the server closes connections on commands that it does not know (twemproxy): nothing
    is asked that such a proxy might not know.
    """

    def __init__(self, *, plain: bool = False, pushes: bool = True, ending: bool = False) -> None:
        """*pushes*: the connection can receive any: it speaks RESP3.

        *ending*: find out whether the server would end this connection for us.
        """
        self.client: ClientInfo | None = None
        """How the server names the connection. None: it would not end it."""
        self._plain = plain
        self._pushes = pushes
        self._engine = replace(OLDEST, whole_scripts=plain)
        self._asked: tuple[str, ...] = _ALWAYS[:4] if plain else _ALWAYS
        if ending and not plain:
            self._asked += _ENDING
        self._refused: set[str] = set()
        self._is_first = True
        self.request = _probe_request(self._asked, *([] if plain else [ASK]))

    def received(self, replies: list[Reply]) -> Engine | None:
        """The engine; None: there is another `request`. UsageError: it cannot be worked with.

        ConnectionError: the server cannot answer now.
        """
        tried = dict(zip(self._asked, replies[-len(self._asked) :], strict=True))
        info, kill = [tried.pop(name, None) for name in _ENDING]
        if isinstance(kill, int):
            self.client = read_client_info(info)
        self._refused |= {name for name, reply in tried.items() if _is_refused(reply)}
        first, self._is_first = self._is_first, False
        if first and not self._plain:
            self._engine = read_engine(replies[0])
            self._refused |= {"COMMAND INFO"} if isinstance(replies[0], ErrorReply) else set()
        self._asked = self._next_probe() if first else ()
        if self._asked:
            self.request = _probe_request(self._asked)
            return None
        engine = _engine(self._engine, frozenset(self._refused))
        return engine if self._pushes else replace(engine, tracking=False)

    @property
    def is_list(self) -> bool:
        """Return False if a transport gives the reply to `request` as it is, not in a list."""
        return self.request.replies > 1

    def closed(self) -> ClosedAtScript | None:
        """The connection was closed in place of an answer. None: that may have any reason."""
        if self._is_first or not self._plain:
            return None
        return ClosedAtScript("the server closed the connection at a script")

    def _next_probe(self) -> tuple[str, ...]:
        if self._plain:
            return ("EVAL",)
        native = self._engine.compare_delete
        return () if native == "LUA" else (native,)


def _probe_request(names: tuple[str, ...], *before: Request) -> Request:
    payload = b"".join([*[each.payload for each in before], *[_PROBES[name] for name in names]])
    return Request(payload, len(before) + len(names), b"")


def _is_refused(reply: Reply) -> bool:
    """Return True if this user may not run the command, or the server does not know it."""
    if not isinstance(reply, ErrorReply):
        return False
    if reply.code == "NOAUTH":
        raise ConnectionError(str(reply))
    if reply.code in ("MOVED", "ASK", "CROSSSLOT", "NOSCRIPT"):
        return False
    text = str(reply)
    # Of the command, not of the key: the server looks at the command first.
    other_key = reply.code == "NOPERM" and " key" in text and " run " not in text
    return not other_key and code_of_reply(text) is None


def _engine(known: Engine, refused: frozenset[str]) -> Engine:
    """Return what is known and allowed. Raises UsageError if not even a release is."""
    native = known.compare_delete
    if native in refused:
        native = "LUA"
    missing = refused & {"EVAL", "GET", "DEL"} if native == "LUA" else frozenset[str]()
    if missing:
        raise _cannot_work("take a key and release it", missing, refused)
    tracking = known.tracking and "CLIENT TRACKING" not in refused
    return replace(known, compare_delete=native, tracking=tracking, refused=refused)


def must_allow(engine: Engine, use: Use) -> None:
    """Nothing, if the server allows what *use* needs. Raises UsageError if it does not."""
    if use in _KEPT_ALIVE:
        must_allow(engine, "renew")
    if use not in _BY_SCRIPT and engine.set_ifeq:
        return
    doing, commands = _NEEDS[use]
    missing = engine.refused.intersection(commands)
    if missing:
        raise _cannot_work(doing, missing, engine.refused)


def _cannot_work(
    doing: str, missing: frozenset[str], refused: frozenset[str] = frozenset()
) -> UsageError:
    """Return *refused*: among them may be a command that would do instead, or would name one."""
    native = sorted(refused & {"DELEX", "DELIFEQ", "COMMAND INFO"})
    names = " or ".join([" and ".join(sorted(missing)), *native])
    return UsageError(
        f"dibs cannot {doing}: the server does not permit this user to run {names}; {_SEE}"
    )


class Dialect(NamedTuple):
    """How a connection is begun."""

    protocol: int
    plain: bool = False
    """Without a command that a proxy might not know: no HELLO, CLIENT or COMMAND."""
    again: bool = False
    """For the second time: the first one was closed."""


RESP3, RESP3_AGAIN = Dialect(3), Dialect(3, again=True)
RESP2, PLAIN = Dialect(2), Dialect(2, plain=True)
PLAIN_AGAIN = Dialect(2, plain=True, again=True)


class Negotiation:
    """Which dialect to try next: RESP3, or RESP2 for a server that does not know HELLO.

    Nothing is concluded from one connection that closes: a server that crashes does that, too.
    Only where RESP2 works after RESP3 was refused, or closed twice, it is used for a while. And
    where a dialect has worked a while ago, a connection that closes has nothing to do with it.
    """

    LASTS = 60.0
    """For how long new connections do not try RESP3 again, in seconds."""
    REFUSED = 600.0
    """For how long they do not try again what was refused: servers keep a log of that."""
    MOST_AT_SCRIPTS = 3
    """Connections in a row that are closed at a script: then the server permits none.

    Each of them follows two that were closed as well, and a pause: a server that restarts, or
    a program that ends connections in a loop, is unlikely to hit the same request each time.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._known = RESP3
        self.at_scripts = 0
        """Connections in a row that were closed at a script."""
        self._worked: tuple[Dialect, float] = (RESP3, 0.0)
        """The dialect that worked last, and until when that says something."""
        self._trusted: Dialect | None = None
        self._no_ending_until = 0.0
        self._has_worked = False
        self._has_no_alert = False

    def first(self, now: float) -> Dialect:
        """Return what to begin with."""
        worked, until = self._worked
        self._trusted = worked if now < until else None
        return self._known if now < self._until else RESP3

    def after(
        self,
        dialect: Dialect,
        *,
        refused: bool,
        closed: bool,
        at_script: bool = False,
        began: int = MOST_AT_SCRIPTS,
    ) -> Dialect | None:
        """Say what to try after *dialect* has failed: HELLO was refused, or the connection closed.

        *at_script*: it was closed when it got a script. *began*: `at_scripts` when it began to be
        opened; those that are opened, and closed, at the same time count as one. None: nothing, the
        failure has another reason. UsageError: the server permits no scripts.
        """
        if dialect.plain:
            self.at_scripts = min(self.at_scripts, began) + 1 if at_script else 0
        if self.at_scripts >= self.MOST_AT_SCRIPTS:
            raise _cannot_work("take a key", frozenset(("EVAL",)))
        closed = closed and not at_script
        if refused and dialect.protocol == 3:
            return RESP2
        if closed and dialect._replace(again=False) == self._trusted:
            return None if dialect.again else dialect._replace(again=True)
        if closed and dialect != PLAIN_AGAIN:
            return RESP3_AGAIN if dialect == RESP3 else PLAIN_AGAIN if dialect.plain else PLAIN
        self._until = 0.0
        return None

    @property
    def may_have_alert(self) -> bool:
        """Return whether to look for the reason, after the server has closed every connection.

        Not after a connection has worked: then it is an outage, whatever the reason.
        """
        return not self._has_worked and not self._has_no_alert

    def has_no_alert(self) -> None:
        """The server gives no reason. Do not wait for one again."""
        self._has_no_alert = True

    def may_end(self, now: float) -> bool:
        """Return whether to find out if the server would end connections for us."""
        return now >= self._no_ending_until

    def worked(self, dialect: Dialect, now: float, *, ends: bool = True) -> None:
        """A connection was opened so. *ends*: the server would end it for us."""
        if not ends and self.may_end(now):
            self._no_ending_until = now + self.REFUSED
        self.at_scripts = 0
        self._has_worked = True
        dialect = dialect._replace(again=False)
        self._worked = (dialect, now + self.LASTS)
        if dialect.protocol == 2 and now >= self._until:
            self._known, self._until = dialect, now + self.LASTS
