"""The options of every verb, each declared and checked once."""

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Required, TypeVar, cast

from ..errors import UsageError
from .codec import Codec, head_of, make_codec
from .codec_converters import JsonValue
from .codec_types import LaterType
from .keys import Seconds, milliseconds, patience, seconds
from .keywords import TypedDict, refuse_unknown, unknown_option
from .signatures import signature_of

OutagePolicy = Literal["open", "closed"]
OnLate = Literal["ignore", "raise"]
After = Literal["release", "hold", "replay"]
OnError = Literal["release", "hold"]
OnCancel = Literal["continue", "stop"]
Work = Literal["submission", "job", "run"]
"""What ends: only a submission counts as done whose lease was lost."""

MOST_PERMITS = 100_000
"""The most that `limit` may say."""
LEASE = 10.0
"""How long a claim outlives a crash at most, in seconds, if the caller does not say."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What all calls of one client have in common."""

    namespace: str
    on_outage: OutagePolicy
    is_disabled: bool = False

    def policy(self, on_outage: OutagePolicy | None) -> OutagePolicy:
        """Return what this call asks for, or else the policy of the client.

        Raises UsageError if no policy.
        """
        if on_outage is None:
            return self.on_outage
        policy = checked_policy(on_outage)
        return "open" if self.is_disabled else policy

    def never_disabled(self) -> "Settings":
        """Return the settings for leaders and schedules.

        "closed" stays, also if dibs is disabled.
        """
        return Settings(self.namespace, self.on_outage)


def is_disabled(setting: str) -> bool:
    """Return what DIBS_DISABLED says. Raises UsageError if it is neither yes nor no."""
    value = setting.strip().lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("", "0", "false", "no", "off"):
        return False
    raise UsageError("DIBS_DISABLED must be 1 or 0 (or true, false, yes, no, on, off), or unset")


def checked_policy(policy: OutagePolicy) -> OutagePolicy:
    """Return *policy*. Raises UsageError if there is no such one."""
    if policy not in ("open", "closed"):  # callers without a type checker
        raise UsageError(f'on_outage must be "open" or "closed", not {policy!r}')
    return policy


# ---- hold


class LeaseKeywords(TypedDict, total=False):
    """Options of every verb that takes a lease."""

    ttl: Required[Seconds]
    """How long the server keeps the key, unless it is released or renewed before."""
    wait: Seconds
    """Maximum seconds to wait for the key; its release wakes the caller. 0: do not wait. inf: for
    ever."""
    limit: int | None
    """How many may hold the key at once, each with a separate lease. None: one."""
    at_least: Seconds
    """How long the key stays taken after it was acquired, even if it is released earlier."""
    fence: bool
    """Request a fence: a number that grows with every lease of the key."""
    on_outage: OutagePolicy | None
    """"open" proceeds unguarded, "closed" raises Unavailable. None: the policy of the client."""


class TryHoldKeywords(LeaseKeywords, closed=True):
    """Options of `try_hold`."""


class HoldKeywords(LeaseKeywords, total=False, closed=True):
    """Options of `hold` and `exclusive`."""

    renew: bool
    """Renew the lease. An async body whose lease is lost is cancelled, LeaseLost raised."""
    max_hold: Seconds | None
    """With *renew*: for how long at most."""
    on_late: OnLate | None
    """"raise" raises LeaseLost if the body ends well, but after its lease was lost; "ignore" does
    not. None: "raise" inside a transaction, before its commit; else "ignore"."""


class HoldOptions:
    """How a key is held. UsageError: an option is invalid."""

    def __init__(
        self,
        settings: Settings,
        *,
        ttl: Seconds,
        wait: Seconds = 0,
        renew: bool = False,
        max_hold: Seconds | None = None,
        limit: int | None = None,
        at_least: Seconds = 0,
        fence: bool = False,
        on_late: OnLate | None = None,
        on_outage: OutagePolicy | None = None,
    ) -> None:
        self.ttl: Final = seconds(ttl, "ttl")
        self.ttl_ms: Final = milliseconds(self.ttl)
        self.wait: Final = patience(wait)
        self.waiting_prefix: Final = f"{settings.namespace}waiting:".encode() if self.wait else b""
        """What the key begins with in which those who wait are noted."""
        self.limit: Final = None if limit is None else _checked_limit(limit)
        self.renew: Final = renew
        self.renew_after: Final = self.ttl / 3
        """Seconds from one renewal to the next."""
        self.max_hold: Final = _max_hold(max_hold, self.ttl, renew=renew)
        self.fence_prefix: Final = f"{settings.namespace}fence:".encode() if fence else None
        """What the key that counts the fences begins with; None: no fence is asked for."""
        self.is_usual: Final = self.fence_prefix is None and limit is None
        """A key is taken by SET; else by a script."""
        self.on_outage: Final = settings.policy(on_outage)
        self.at_least: Final = _at_least(at_least, self.ttl) if at_least else 0.0
        if on_late not in ("ignore", "raise", None):  # callers without a type checker
            raise UsageError(f'on_late must be "ignore" or "raise", not {on_late!r}')
        self.on_late: Final[OnLate | None] = on_late

    def waiting(self, wait: float) -> "HoldOptions":
        """Return the same, with another `wait` of more than 0."""
        options = copy.copy(self)
        vars(options)["wait"] = wait
        return options


def _checked_limit(limit: object) -> int:
    if type(limit) is not int or not 1 <= limit <= MOST_PERMITS:
        raise UsageError(f"limit must be a number from 1 to {MOST_PERMITS}, not {limit!r}")
    return limit


def check_hold(verb: str, options: HoldKeywords) -> None:
    """Raise UsageError if an option of *verb* is invalid, TypeError if it has no such option."""
    refuse_unknown(verb, options, HoldKeywords)
    HoldOptions(Settings("", "open"), **options)


def _max_hold(max_hold: Seconds | None, ttl: float, *, renew: bool) -> float | None:
    if max_hold is None:
        return None
    longest = seconds(max_hold, "max_hold")
    if not renew:
        raise UsageError("max_hold needs renew=True")
    if longest < ttl:
        raise UsageError(f"max_hold ({longest:g} s) must not be shorter than ttl ({ttl:g} s)")
    return longest


def _at_least(at_least: Seconds, ttl: float) -> float:
    least = seconds(at_least, "at_least", zero=True)
    if least > ttl:
        raise UsageError(f"at_least ({least:g} s) must not be longer than ttl ({ttl:g} s)")
    return least


# ---- once


class RecordKeywords(TypedDict, total=False):
    """Options of `claim` and `once`, but for the type of the result."""

    window: Required[Seconds]
    """How long another submission counts as a duplicate after the end of the first."""
    after: After
    """What a success leaves for the window: "release" nothing, "hold" the key,
    "replay" the result, which duplicates get."""
    on_error: OnError
    """What an exception leaves behind: "release" nothing, "hold" the key."""
    message: str | None
    """The message of Duplicate."""
    lease: Seconds | None
    """How long a crash blocks the key. None: for the window, but 10 s at most."""
    wait: Seconds
    """How long a duplicate waits for the end of one that is running. Then it gets its result
    ("replay"), or takes over if that one left nothing."""
    codec: object
    """How a result is encoded: "json", "orjson", "msgspec", "bytes", "pickle", each with "+zlib";
    or an object of your own."""
    on_outage: OutagePolicy | None
    """"open" proceeds unguarded, "closed" raises Unavailable. None: the policy of the client."""


class UntypedClaimKeywords(RecordKeywords, closed=True):
    """Options of `claim` and `once` where the type of the result is known."""


class ClaimKeywords(RecordKeywords, total=False, closed=True):
    """Options of `claim` and `once`."""

    type: Any
    """What a result is decoded into."""


class _Coded:
    """Options with a codec; where its type exists later, they get it at the first use."""

    codec: Codec
    head: bytes
    """How all begins that we can read."""
    _later: tuple[object, LaterType]

    def _encode_by(self, codec: object, of: Any) -> None:
        if isinstance(of, LaterType):
            make_codec(codec, JsonValue)  # or a UsageError now
            self._later = codec, of
        else:
            self.codec = make_codec(codec, of)
            self.head = head_of(self.codec)

    def __getattr__(self, name: str) -> Any:
        if name not in ("codec", "head"):
            raise AttributeError(name)
        codec, of = self._later
        self._encode_by(codec, of.found())
        return getattr(self, name)


class ClaimOptions(_Coded):
    """What a claim means. UsageError: an option is invalid."""

    def __init__(
        self,
        work: Work = "submission",
        *,
        window: Seconds,
        after: After = "release",
        on_error: OnError = "release",
        message: str | None = None,
        lease: Seconds | None = None,
        wait: Seconds = 0,
        codec: object = "json",
        type: Any = None,
        on_outage: OutagePolicy | None = None,
    ) -> None:
        """*work*: for integrations; a job is not done if its lease was lost."""
        if after not in ("release", "hold", "replay"):
            raise UsageError(f'after must be "release", "hold" or "replay", not {after!r}')
        if on_error not in ("release", "hold"):
            raise UsageError(f'on_error must be "release" or "hold", not {on_error!r}')
        self.after: Final[After] = after
        self.on_error: Final[OnError] = on_error
        self.message: Final = message
        self.work: Final[Work] = work
        self._encode_by(codec, type)
        self.window: Final = seconds(window, "window")
        # A crash must not block the key for longer than the window, or 1 s for a shorter one.
        usual = min(max(self.window, 1.0), LEASE)
        self.lease: Final = usual if lease is None else seconds(lease, "lease")
        self.wait: Final = patience(wait)
        self.on_outage: Final = None if on_outage is None else checked_policy(on_outage)


def continues_when_cancelled(on_cancel: OnCancel | None, after: After) -> bool:
    """Return whether a call goes on when its caller is cancelled.

    Raises UsageError if no such answer.
    """
    if on_cancel not in (None, "continue", "stop"):
        raise UsageError(f'on_cancel must be "continue" or "stop", not {on_cancel!r}')
    return after != "release" if on_cancel is None else on_cancel == "continue"


def holding_of(settings: Settings, claim: ClaimOptions) -> HoldOptions:
    """Return how the key of a claim is held while it runs."""
    return HoldOptions(
        settings, ttl=claim.lease, wait=claim.wait, renew=True, on_outage=claim.on_outage
    )


# ---- signatures, and options that are made once

F = TypeVar("F", bound=Callable[..., Any])
Made = TypeVar("Made")


def takes(keywords: Any, options: type) -> Callable[[F], F]:
    """Let a function with `**keywords` say at run time what its parameters are.

    `help()` and documentation tools then show each option, with its default. Type checkers and
    editors read *keywords*, a TypedDict, themselves.
    """

    def decorate(function: F) -> F:
        own = signature_of(function)
        known = signature_of(options).parameters
        added = [known[name] for name in keywords.__annotations__]
        listed = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        at = sum(each.kind is not each.KEYWORD_ONLY for each in listed)
        listed[at:at] = added
        function.__signature__ = own.replace(parameters=listed)  # type: ignore[attr-defined]
        return function

    return decorate


class Remembered(Generic[Made]):
    """Options by the keywords of a call, made and checked once for each combination."""

    def __init__(self, verb: Callable[..., Any], make: Callable[..., Made]) -> None:
        self._verb = verb
        self._make = make
        # By type as well: True equals 1, and is no ttl.
        self.remembered = functools.lru_cache(maxsize=256, typed=True)(self._checked_keywords)
        """TypeError: also where a keyword cannot be remembered. Calling the object tells."""

    def __call__(self, keywords: Any) -> Made:
        """Raise UsageError if an option is invalid.

        Raises TypeError if the verb has no such option.
        """
        try:
            return self.remembered(**keywords)
        except TypeError:  # perhaps only because something in it cannot be remembered
            pass
        return self._checked_keywords(**keywords)

    def _checked_keywords(self, **keywords: Any) -> Made:
        known, required = _keywords_of(self._verb)
        for name in keywords.keys() - known:
            raise unknown_option(self._verb.__name__, name, known)
        for name in required - keywords.keys():
            message = f"missing 1 required keyword-only argument: {name!r}"
            raise TypeError(f"{self._verb.__name__}() {message}")
        return self._make(**keywords)


@functools.cache
def _keywords_of(verb: Callable[..., Any]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keywords that *verb* knows, and those that it needs."""
    parameters = signature_of(verb).parameters.values()
    known = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    needed = [each.name for each in known if each.default is each.empty]
    return frozenset([each.name for each in known]), frozenset(needed)


class CacheKeywords(TypedDict, total=False, closed=True):
    """Options of `cached` and `get_or_load`."""

    ttl: Required[Seconds]
    """How long a value is fresh."""
    jitter: float
    """The fraction of the ttl by which a value may live longer or shorter, at random."""
    min_ttl: Seconds
    """The shortest ttl with *jitter*."""
    lock_ttl: Seconds
    """How long a crash of the process that loads keeps others from loading."""
    wait: Seconds | None
    """How long to wait for a load in another process; then an own load. None: as long as it lasts.
    """
    poll: Seconds
    """How often to check for the end of another load, where the server cannot notify."""
    stale: Seconds
    """How long past its ttl a value may be served, while one refreshes it or while loads fail."""
    stale_after: Seconds | None
    """How long to wait for a fresh value before a stale one is served. None: until a load fails."""
    early: float
    """Probabilistic refresh before expiry (XFetch): the slower the load, the earlier. 0: never."""
    negative_ttl: Seconds | Mapping[type[Exception], Seconds]
    """How long a failed load is remembered. 0: not at all. By type: `{NotFound: 30}`."""
    keep: Callable[[Any], bool | Seconds | None] | None
    """Called with the result: True, seconds or False to store it, for how long, or not."""
    load_timeout: Seconds
    """The longest a load may take."""
    local: Seconds | bool
    """Also keep values in memory, which the server invalidates: True, or at most so long."""
    codec: object
    """How a value is encoded: "json", "orjson", "msgspec", "bytes", "pickle", each with "+zlib";
    or an object of your own."""
    type: Any
    """What a value is decoded into. For a function: its return annotation, if not given."""
    on_outage: OutagePolicy | None
    """"open" loads unguarded, "closed" raises Unavailable. None: the policy of the client."""


class CacheOptions(_Coded):
    """How a value is kept. UsageError: an option is invalid."""

    def __init__(
        self,
        settings: Settings,
        *,
        ttl: Seconds,
        jitter: float = 0.0,
        min_ttl: Seconds = 0,
        lock_ttl: Seconds = 3,
        wait: Seconds | None = None,
        poll: Seconds = 0.08,
        stale: Seconds = 0,
        stale_after: Seconds | None = 0,
        early: float = 0.0,
        negative_ttl: Seconds | Mapping[type[Exception], Seconds] = 0,
        keep: Callable[[Any], bool | Seconds | None] | None = None,
        load_timeout: Seconds = 30,
        local: Seconds | bool = False,
        codec: object = "json",
        type: Any = None,
        on_outage: OutagePolicy | None = None,
    ) -> None:
        self.on_outage: Final = settings.policy(on_outage)
        self.ttl: Final = seconds(ttl, "ttl")
        if not 0 <= jitter < 1:
            raise UsageError(
                f"jitter must be a fraction of the ttl, at least 0 and below 1, not {jitter!r}"
            )
        if early < 0:
            raise UsageError(f"early must be 0 (off) or more (usually 1), not {early!r}")
        self._encode_by(codec, type)
        self.jitter: Final = float(jitter)
        self.min_ttl: Final = seconds(min_ttl, "min_ttl", zero=True)
        self.lock_ttl: Final = seconds(lock_ttl, "lock_ttl")
        self.wait: Final = (
            math.inf if wait in (None, math.inf) else seconds(wait, "wait", zero=True)
        )
        self.poll: Final = seconds(poll, "poll")
        self.stale: Final = seconds(stale, "stale", zero=True)
        self.load_timeout: Final = seconds(load_timeout, "load_timeout")
        self.stale_after: Final = _stale_after(stale_after, self.stale, self.load_timeout)
        """How long to wait for a fresh value before a stale one is served; 0: not at all."""
        self.early: Final = float(early)
        self.negative_ttls: Final = _negative_ttls(negative_ttl)
        """How long a failure is remembered, by the type of its exception."""
        self.keep: Final = keep
        self.local: Final = math.inf if local is True else seconds(local or 0, "local", zero=True)
        self.life: Final = max(self.ttl * (1 + self.jitter), self.min_ttl) + self.stale
        """How long the server keeps a value at most."""
        most = max(self.load_timeout, self.lock_ttl)
        self.lock: Final = HoldOptions(
            settings, ttl=self.lock_ttl, renew=True, max_hold=most, on_outage=on_outage
        )
        """How the lock of a load is held: renewed, but not past the load's time."""

    def kept(self, value: Any) -> float | None:
        """Return how long to keep *value*, before jitter; None: not at all.

        Raises UsageError if `keep` is odd.
        """
        if self.keep is None:
            return self.ttl
        answer = self.keep(value)
        if answer is True:
            return self.ttl
        if answer is None or answer is False:
            return None
        return seconds(answer, "what keep returns", zero=True) or None

    def remembers(self, error: BaseException) -> float:
        """Return how long a load that failed so is remembered; 0: not at all."""
        for kind, ttl in self.negative_ttls:
            if isinstance(error, kind):
                return ttl
        return 0.0


def _stale_after(given: Seconds | None, stale: float, most: float) -> float:
    if given is not None and seconds(given, "stale_after", zero=True) == 0:
        return 0.0
    if not stale:
        raise UsageError("stale_after needs stale: how old a value may be that is served at last")
    return most if given is None else min(seconds(given, "stale_after"), most)


def _negative_ttls(given: Any) -> tuple[tuple[type[BaseException], float], ...]:
    """Return the pairs of a type and a ttl, in order.

    Raises UsageError if no seconds, no types of exceptions.
    """
    if not isinstance(given, Mapping):
        return ((Exception, seconds(given, "negative_ttl", zero=True)),)
    pairs: list[tuple[type[BaseException], float]] = []
    for kind, ttl in cast("Mapping[Any, Any]", given).items():
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise UsageError(f"negative_ttl must map types of exceptions to seconds, not {kind!r}")
        pairs.append((kind, seconds(ttl, "negative_ttl", zero=True)))
    return tuple(pairs)


def template_first(verb: F) -> F:
    """Let *verb* say what is missing, where other libraries take the key by name."""

    @functools.wraps(verb)
    def checked(client: Any, *args: Any, **options: Any) -> Any:
        if not args and "template" not in options:
            message = (
                f'the key template is the first argument: {verb.__name__}("menu:{{id}}", ttl=60)'
            )
            raise UsageError(message)
        return verb(client, *args, **options)

    return cast("F", checked)
