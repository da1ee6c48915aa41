"""The options of `cached` and `get_or_load`: declared, documented and checked here."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Required, TypedDict, TypeVar, cast

from ..errors import UsageError
from .codec import head_of, make_codec
from .keys import Seconds, seconds
from .options import HoldOptions, OutagePolicy, Settings

F = TypeVar("F", bound=Callable[..., Any])


class CacheKeywords(TypedDict, total=False):
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


class CacheOptions:
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
        self.codec: Final = make_codec(codec, type)
        self.head: Final = head_of(self.codec)
        """How the frames begin that we can read."""
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
        """How the lock of a load is held: kept alive, but not past the load's time."""

    def kept(self, value: Any) -> float | None:
        """How long to keep *value*, before jitter; None: not at all. UsageError: `keep` is odd."""
        if self.keep is None:
            return self.ttl
        said = self.keep(value)
        if said is True:
            return self.ttl
        if said is None or said is False:
            return None
        return seconds(said, "what keep returns", zero=True) or None

    def remembers(self, error: BaseException) -> float:
        """How long a load that failed so is remembered; 0: not at all."""
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
    """Pairs of a type and a ttl, in order. UsageError: no seconds, no types of exceptions."""
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
            said = f'the key template is the first argument: {verb.__name__}("menu:{{id}}", ttl=60)'
            raise UsageError(said)
        return verb(client, *args, **options)

    return cast("F", checked)
