"""What is asked of a route: who may submit what how often, and what a second one is told."""

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from .._core.keys import Seconds, seconds
from .._core.options import After, ClaimOptions, OnError, OutagePolicy
from ..errors import UsageError
from .bodies import LIMIT
from .facts import check_paths
from .kept import KEPT

KeyUse = Literal["never", "optional", "only", "required"]

_HEADER = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_ADDRESS = re.compile(r"[!#-;=?-\[\]-~]+")
SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Methods that change nothing: a policy for all methods does not mean them."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How one route, or a group of them, is guarded.

    *route*: `"POST /orders"`, `"PUT,PATCH /orders/{id}"`, `"* /forms/*"` (every method that
    changes something; `*` is anything, `{id}` one part of the path), less those of *exempt*.
    *window*, *after*, *on_error*, *message*, *wait*, *lease*, *on_outage*: as in `Dibs.claim`.
    *key*: whether a client names its submission itself, in *header*: "never", "optional",
    "required", or "only", which guards nothing that carries no key. Without a key, a submission is
    *by*: dotted paths such as `user`, `path.id`, `query.page`, `header.x-tenant`, `body.cart.id`
    (default: all of path, query and body; the user always counts); and *keyless* and
    *keyless_window* stand in for *after* and *window*. *most*: bytes of an answer that are kept
    for a replay. *body_limit*: bytes of a request. *docs*: the address of a page about all this,
    for refusals.
    """

    route: str = field(default="", kw_only=False)
    window: Seconds
    after: After = "release"
    on_error: OnError = "release"
    message: str | None = None
    key: KeyUse = "never"
    by: tuple[str, ...] = ()
    keyless: After | None = None
    keyless_window: Seconds | None = None
    header: str = "Idempotency-Key"
    exempt: tuple[str, ...] = ()
    wait: Seconds = 0
    lease: Seconds | None = None
    on_outage: OutagePolicy | None = None
    most: int = 256 * 1024
    body_limit: int = LIMIT
    docs: str | None = None
    if TYPE_CHECKING:  # made of the options, and none of them
        _terms: ClaimOptions = field(init=False, repr=False, compare=False)
        _without_key: "tuple[Policy, Policy]" = field(init=False, repr=False, compare=False)
        _pattern: "_Pattern" = field(init=False, repr=False, compare=False)
        _exempt: "tuple[_Pattern, ...]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        for name in ("by", "exempt"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        check_paths(self.by)
        seconds(self.wait, "wait", zero=True)
        object.__setattr__(self, "_terms", self._make_terms())
        object.__setattr__(self, "_without_key", self._make_keyless())
        if self.route:
            object.__setattr__(self, "_pattern", _Pattern(self.route))
        object.__setattr__(self, "_exempt", tuple([_Pattern(route) for route in self.exempt]))

    def _check(self) -> None:
        if self.key not in ("never", "optional", "only", "required"):
            raise UsageError(f'key is "never", "optional", "only" or "required", not {self.key!r}')
        if self.on_outage not in (None, "open", "closed"):
            raise UsageError(f'on_outage is "open" or "closed", not {self.on_outage!r}')
        if not _HEADER.fullmatch(self.header):
            raise UsageError(f"header must be the name of a header, not {self.header!r}")
        for name, number in (("most", self.most), ("body_limit", self.body_limit)):
            if number < 0:
                raise UsageError(f"{name} is a number of bytes, not {number!r}")
        if self.docs is not None and not _ADDRESS.fullmatch(self.docs):
            raise UsageError(f"docs is the address of a page, not {self.docs!r}")
        if (self.keyless or self.keyless_window) is not None and self.key != "optional":
            raise UsageError('keyless and keyless_window need key="optional"')

    def _make_keyless(self) -> "tuple[Policy, Policy]":
        """What guards a request without a key: of somebody who is known, and of anybody else.

        An answer is handed to nobody of whom nothing is known, and who has no key for it either.
        """
        known = self
        if self.keyless is not None or self.keyless_window is not None:
            window = self.window if self.keyless_window is None else self.keyless_window
            after = self.after if self.keyless is None else self.keyless
            plain = replace(self, keyless=None, keyless_window=None)
            known = replace(plain, window=window, after=after)
        if known.after != "replay":
            return known, known
        return known, replace(known, after="hold", keyless=None, keyless_window=None)

    def without_key(self, *, is_known: bool) -> "Policy":
        """The policy for a request that carries no key. *is_known*: it is known who submits."""
        return self._without_key[0 if is_known else 1]

    def _make_terms(self) -> ClaimOptions:
        return ClaimOptions(
            window=self.window,
            lease=self.lease,
            after=self.after,
            on_error=self.on_error,
            message=self.message,
            wait=self.wait,
            codec=KEPT,
            on_outage=self.on_outage,
        )

    @property
    def terms(self) -> ClaimOptions:
        """The same, as claims know it."""
        return self._terms

    def covers(self, method: str, *paths: str) -> bool:
        """True: this policy is meant for such a request. *paths*: each as good as the other."""
        if not self.route or not self._pattern.fits(method, *paths):
            return False
        if not self.exempt:
            return True
        return not any(pattern.fits(method, *paths) for pattern in self._exempt)

    def parts_of(self, path: str) -> dict[str, str]:
        """The `{fields}` of the route, as they are in *path*."""
        return self._pattern.parts_of(path) if self.route else {}

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

    def fits(self, method: str, *paths: str) -> bool:
        if method in self._methods or ("*" in self._methods and method not in SAFE):
            for path in paths:  # no generator: every request passes here
                if self._path.fullmatch(path):
                    return True
        return False

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


def find(policies: tuple[Policy, ...], method: str, *paths: str) -> Policy | None:
    """The first policy that is meant for such a request; None: it is nobody's business.

    *paths*: as the application sees it, and, where a prefix is cut off before, with that as well.
    """
    for policy in policies:
        if policy.covers(method, *paths):
            return policy
    return None


def check_routes(policies: tuple[Policy, ...]) -> None:
    """UsageError: a policy of a middleware is for no route."""
    if any(not policy.route for policy in policies):
        raise UsageError('a policy of the middleware needs a route: Policy("POST /orders", …)')
