"""What the suite needs to know of a middleware, and which cases make no sense for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, get_args

from .asgi import Headers, Wrap
from .errors import UsageError

After = Literal["replay", "hold", "release"]
Failure = Literal["release", "hold"]
Keyless = Literal["run", "guard"]
Comparison = Literal["bytes", "content"]
Hook = Callable[[], Awaitable[None]]
Need = Literal[
    "key", "required key", "keyless runs", "keyless guarded", "memory", "replay", "retry",
    "prompt refusal", "unguarded post", "second path", "second method", "by content",
    "users", "lease", "window", "store", "shared store", "contents", "full store", "other service",
]  # fmt: skip

ANN: Headers = [(b"authorization", b"Bearer ann")]
BOB: Headers = [(b"authorization", b"Bearer bob")]


class Stored(NamedTuple):
    """Something in the store: under which key, with what in it, for how many seconds."""

    key: bytes
    value: bytes
    ttl: float | None
    """None: it does not expire."""


class Store(Protocol):
    """The store behind the middleware, to be stopped; a `dibs.testing.Server` is one."""

    def freeze(self) -> None:
        """Make it hang: connections stay open, nothing answers."""

    def thaw(self) -> None:
        """Let it go on after `freeze`."""

    def kill(self) -> None:
        """End it: connections are refused."""

    def restart(self) -> None:
        """Bring it back after `kill`."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """How to talk to one middleware, and how to read its answers.

    The defaults describe a middleware that guards `POST /guarded`, demands an `Idempotency-Key`
    and replays. Raises UsageError for what cannot be meant.
    """

    header: str | None = "Idempotency-Key"
    """Which header carries the key; None: there is no client key, the same request is the same."""
    required: bool = True
    """Whether a guarded request without a key is an error."""
    guarded: str = "POST /guarded"
    """A request that is guarded."""
    open: str = "GET /open"
    """A request that is not, without a body."""
    also_guarded: str | None = None
    """Another request that is guarded, to another path. None: there is only one."""
    also_method: str | None = None
    """The request that is guarded, with another method. None: there is only one."""
    compares: Comparison = "bytes"
    """How payloads in JSON are compared: by their bytes, or by what they contain."""
    unguarded: str | None = "POST /unguarded"
    """A request that is not, with a body; sent without a key. None: there is no such thing."""
    keyless: Keyless = "run"
    """Where a key is not required: what happens to a request without one. It runs each time, or
    is guarded by its content."""
    users: tuple[Headers, Headers] | None = (ANN, BOB)
    """Headers that show who submits, of two users. None: it does not distinguish users."""
    after: After = "replay"
    """What a success leaves behind: the answer, the key alone (duplicates are refused), nothing."""
    on_error: Failure = "release"
    """What a failure leaves behind: nothing, or the key."""
    waits: bool = False
    """Whether a duplicate waits for the one that runs, instead of being refused at once."""
    running: tuple[int, ...] = (409, 423, 429)
    """The statuses that refuse a duplicate."""
    mismatch: tuple[int, ...] = (422, 409, 400)
    """The statuses that refuse a key which was used with another payload."""
    malformed: tuple[int, ...] = (400,)
    """The statuses that refuse a missing or a bad key."""
    replay_headers: tuple[str, ...] = ("Idempotent-Replayed", "Idempotency-Replayed")
    """A replay carries one of these; empty: replays are not marked."""
    big: int = 3 * 2**20
    """How many bytes are a big request."""
    oversized: int = 4 * 2**20
    """How many bytes are more of an answer than it stores."""
    lease: float | None = None
    """Seconds after which the claim of a process that died ends. None: not known."""
    window: float | None = None
    """Seconds for which a result is known. None: not known."""
    within: float = 10.0
    """How many seconds anything may take; only what goes wrong takes that long."""
    exempt: Mapping[str, str] = field(default_factory=dict[str, str])
    """Cases that are not for this middleware, by name, and why."""
    startup: Hook | None = None
    """Awaited before each case, before the app is wrapped."""
    shutdown: Hook | None = None
    """Awaited after each case, after the end of the wrapped app's lifespan."""
    store: Store | None = None
    """The store behind it, for the cases in which it fails."""
    contents: Callable[[], Iterable[Stored]] | None = None
    """All that is in the store, for the cases that look into it."""
    full: Callable[[bool], object] | None = None
    """True: makes the store refuse every write that needs more memory. False: makes room again."""
    other_service: Wrap | None = None
    """The middleware as another application on the same store has it."""

    def __post_init__(self) -> None:
        for name in ("guarded", "also_guarded", "also_method", "open", "unguarded"):
            _check_route(name, getattr(self, name))
        _check_choice("after", self.after, get_args(After))
        _check_choice("on_error", self.on_error, get_args(Failure))
        _check_choice("keyless", self.keyless, get_args(Keyless))
        _check_choice("compares", self.compares, get_args(Comparison))
        for name in ("within", "big", "oversized", "lease", "window"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise UsageError(f"{name} must be more than 0")
        if not self.running:
            raise UsageError("running must name the statuses that refuse a duplicate")

    def lacks(self, need: Need) -> str | None:
        """Return why a case with this need makes no sense here, or None if it does."""
        present, reason = self._needs()[need]
        return None if present else reason

    def _needs(self) -> dict[Need, tuple[bool, str]]:
        return self._needs_of_requests() | self._needs_of_stores()

    def _needs_of_requests(self) -> dict[Need, tuple[bool, str]]:
        keyed = self.header is not None
        optional = keyed and not self.required
        return {
            "key": (keyed, "there is no client key"),
            "required key": (keyed and self.required, "a key is not required"),
            "keyless runs": (optional and self.keyless == "run", "what has no key is not run"),
            "keyless guarded": (optional and self.keyless == "guard", "what has no key is open"),
            "memory": (self.after != "release", "a success leaves nothing behind"),
            "replay": (self.after == "replay", "it does not replay"),
            "retry": (self.on_error == "release", "a failure keeps the key"),
            "prompt refusal": (not self.waits, "duplicates wait instead of being refused"),
            "unguarded post": (self.unguarded is not None, "every such request is guarded"),
            "second path": (self.also_guarded is not None, "one path is guarded"),
            "second method": (self.also_method is not None, "one method is guarded"),
            "by content": (self.compares == "content", "payloads are compared by their bytes"),
            "users": (self.users is not None, "it does not distinguish users"),
        }

    def _needs_of_stores(self) -> dict[Need, tuple[bool, str]]:
        return {
            "lease": (self.lease is not None, "it is not known how long a claim lives"),
            "window": (self.window is not None, "it is not known how long a result is kept"),
            "store": (self.store is not None, "no store to stop was given"),
            "shared store": (self.store is not None, "no store that processes share was given"),
            "contents": (self.contents is not None, "its store cannot be looked into"),
            "full store": (self.full is not None, "no store to fill was given"),
            "other service": (self.other_service is not None, "no other application was given"),
        }


def _check_route(name: str, route: str | None) -> None:
    if route is None:
        return
    method, _, path = route.partition(" ")
    if not method.isupper() or not path.startswith("/"):
        raise UsageError(f'{name} must look like "POST /path", not {route!r}')


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
