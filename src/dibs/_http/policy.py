"""What is asked of a route: who may submit what how often, and what a second one is told."""

import re
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from .._core.keys import Seconds
from .._core.lease import OutagePolicy
from .._core.once import After, OnError, Terms, make_terms
from ..errors import UsageError
from .facts import check_paths
from .kept import KEPT

KeyUse = Literal["never", "optional", "required"]

_HEADER = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Methods that change nothing: a policy for all methods does not mean them."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How one route, or a group of them, is guarded.

    *route*: `"POST /orders"`, `"PUT,PATCH /orders/{id}"`, `"* /forms/*"` (every method that
    changes something; `*` is anything, `{id}` one part of the path). *window*, *after*, *on_error*,
    *message*, *lease*, *on_outage*: as in `Dibs.claim`. *key*: whether a client names its
    submission itself, in *header*; without it, a submission is *by*: dotted paths such as `user`,
    `path.id`, `query.page`, `header.x-tenant`, `body.cart.id` (default: all of path, query and
    body; the user always counts). *most*: bytes of an answer that are kept for a replay.
    """

    route: str = field(default="", kw_only=False)
    window: Seconds
    after: After = "release"
    on_error: OnError = "release"
    message: str | None = None
    key: KeyUse = "never"
    by: tuple[str, ...] = ()
    header: str = "Idempotency-Key"
    lease: Seconds | None = None
    on_outage: OutagePolicy | None = None
    most: int = 256 * 1024

    def __post_init__(self) -> None:
        if self.key not in ("never", "optional", "required"):
            raise UsageError(f'key is "never", "optional" or "required", not {self.key!r}')
        if self.on_outage not in (None, "open", "closed"):
            raise UsageError(f'on_outage is "open" or "closed", not {self.on_outage!r}')
        if not _HEADER.fullmatch(self.header):
            raise UsageError(f"header must be the name of a header, not {self.header!r}")
        if self.most < 0:
            raise UsageError(f"most is a number of bytes, not {self.most!r}")
        by = (self.by,) if isinstance(self.by, str) else tuple(self.by)
        object.__setattr__(self, "by", by)
        check_paths(by)
        object.__setattr__(self, "_terms", self._make_terms())
        if self.route:
            object.__setattr__(self, "_pattern", _Pattern(self.route))

    def _make_terms(self) -> Terms:
        return make_terms(
            window=self.window,
            lease=self.lease,
            after=self.after,
            on_error=self.on_error,
            message=self.message,
            codec=KEPT,
            type=None,
        )

    @property
    def terms(self) -> Terms:
        """The same, as claims know it."""
        return cast(Terms, object.__getattribute__(self, "_terms"))

    def covers(self, method: str, path: str) -> bool:
        """True: this policy is meant for such a request."""
        return bool(self.route) and self._pattern_of().fits(method, path)

    def parts_of(self, path: str) -> dict[str, str]:
        """The `{fields}` of the route, as they are in *path*."""
        return self._pattern_of().parts_of(path) if self.route else {}

    def _pattern_of(self) -> "_Pattern":
        return cast(_Pattern, object.__getattribute__(self, "_pattern"))

    def at(self, route: str) -> "Policy":
        """The same for another route."""
        return replace(self, route=route)


class _Pattern:
    """`"POST,PUT /orders/{id}"`, ready to be compared."""

    def __init__(self, route: str) -> None:
        methods, space, path = route.partition(" ")
        if not space or not path.startswith("/"):
            raise UsageError(f'a route is "METHOD /path", not {route!r}')
        self._methods = frozenset(methods.upper().split(","))
        try:
            self._path = re.compile(_regex(path), re.DOTALL)
        except re.error as error:
            raise UsageError(f"{route!r} cannot be understood: {error}") from None

    def fits(self, method: str, path: str) -> bool:
        named = method in self._methods or ("*" in self._methods and method not in SAFE)
        return named and self._path.fullmatch(path) is not None

    def parts_of(self, path: str) -> dict[str, str]:
        found = self._path.fullmatch(path)
        return found.groupdict() if found else {}


def _regex(path: str) -> str:
    return "".join([_word(word) for word in re.split(r"(\*|\{\w+\})", path)])


def _word(word: str) -> str:
    if word == "*":
        return ".*"
    if re.fullmatch(r"\{\w+\}", word):
        return f"(?P<{word[1:-1]}>[^/]+)"
    if "{" in word or "}" in word:
        # A converter of some framework: as plain text it would fit no request, and guard none.
        raise UsageError(f"a field of a route is {{name}}; {word!r} is none")
    return re.escape(word)


def find(policies: tuple[Policy, ...], method: str, path: str) -> Policy | None:
    """The first policy that is meant for such a request; None: it is nobody's business."""
    return next((policy for policy in policies if policy.covers(method, path)), None)
