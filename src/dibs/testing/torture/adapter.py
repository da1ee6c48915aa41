"""What the suite is told about a middleware, and which cases make no sense for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from ...errors import UsageError

After = Literal["replay", "hold", "release"]
Failure = Literal["release", "hold"]
Hook = Callable[[], Awaitable[None]]
Need = Literal[
    "key", "required key", "memory", "replay", "retry", "prompt refusal", "unguarded post", "store"
]


class Store(Protocol):
    """The store behind the middleware, free to be hurt; a `dibs.testing.Server` is one."""

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
    unguarded: str | None = "POST /unguarded"
    """A request that is not, with a body; sent without a key. None: there is no such thing."""
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

    def __post_init__(self) -> None:
        for name in ("guarded", "open", "unguarded"):
            _check_route(name, getattr(self, name))
        _check_choice("after", self.after, get_args(After))
        _check_choice("on_error", self.on_error, get_args(Failure))
        for name in ("within", "big", "oversized"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be more than 0")
        if not self.running:
            raise UsageError("running must name the statuses that refuse a duplicate")

    def lacks(self, need: Need) -> str | None:
        """Return why a case with this need makes no sense here, or None if it does."""
        present, reason = self._needs()[need]
        return None if present else reason

    def _needs(self) -> dict[Need, tuple[bool, str]]:
        keyed = self.header is not None
        return {
            "key": (keyed, "there is no client key"),
            "required key": (keyed and self.required, "a key is not required"),
            "memory": (self.after != "release", "a success leaves nothing behind"),
            "replay": (self.after == "replay", "it does not replay"),
            "retry": (self.on_error == "release", "a failure keeps the key"),
            "prompt refusal": (not self.waits, "duplicates wait instead of being refused"),
            "unguarded post": (self.unguarded is not None, "every such request is guarded"),
            "store": (self.store is not None, "no store to stop was given"),
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
