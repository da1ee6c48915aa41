"""Requests that come too often: the key of a request, and what its client gets to know."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, Unpack
from urllib.parse import quote

from .._core.keys import Template
from .._core.throttle import ThrottleKeywords, UsageOutcome, check_throttle
from ..errors import UsageError
from .decorators import remember
from .problems import too_often
from .responses import Headers, Response

_PRINTABLE = "".join([chr(each) for each in range(32, 127) if chr(each) not in '"%\\'])
F = TypeVar("F", bound=Callable[..., Any])
ThrottleKey = str | Callable[..., Any]
Cost = int | Callable[..., Any]


class ThrottleAnswer(NamedTuple):
    """What a request that was counted gets."""

    fields: Headers
    """Headers of every response."""
    refusal: Response | None
    """The response in place of the endpoint's; None: run it."""


class Throttle:
    """How often an endpoint may be called, and by whom. UsageError: an option is invalid."""

    def __init__(
        self,
        key: ThrottleKey,
        message: str | None,
        name: str | None,
        options: ThrottleKeywords,
        cost: Cost = 1,
    ) -> None:
        self.key = key
        self.cost = cost
        self.template = Template(key) if isinstance(key, str) else None
        self.options = options
        self.message = message
        shown = key if isinstance(key, str) else getattr(key, "__name__", "throttled")
        if name is None and shown == "<lambda>":
            raise UsageError("a lambda has no name that clients can read: pass name=")
        self.name = shown if name is None else name
        """What events, and the headers, call the key: a template."""
        self._checked = check_throttle(options)
        if not callable(cost):
            self._checked.check_cost(cost)
        self._policy = _printable(self.name)

    def key_of(self, fields: Mapping[str, object], *call: object) -> str | Any:
        """The key of a request, by the fields of its path; or what the function says, given *call*.

        UsageError: a field is missing, or its value cannot be part of a key.
        """
        if self.template is None:
            assert callable(self.key)
            return self.key(*call)
        return self.template((), {name: fields.get(name) for name in self.template.fields})

    def cost_of(self, *call: object) -> int | Any:
        """Return the cost of a request, or what the function says, given *call*."""
        return self.cost(*call) if callable(self.cost) else self.cost

    def answer(self, outcome: UsageOutcome) -> ThrottleAnswer:
        """Return what follows from it."""
        fields = self._fields(outcome)
        if outcome.passed:
            return ThrottleAnswer(fields, None)
        return ThrottleAnswer((), too_often(self._policy, fields, outcome.reset, self.message))

    def _fields(self, outcome: UsageOutcome) -> Headers:
        """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10.

        Without a partition key: it would be the user. Nothing, if the call was not counted.
        """
        if not outcome.guarded:
            return ()
        options = self._checked
        limit = f'"{self._policy}";r={outcome.left};t={max(math.ceil(outcome.reset), 1)}'
        policy = f'"{self._policy}";q={options.limit};w={max(math.ceil(options.per), 1)}'
        return (("ratelimit-policy", policy), ("ratelimit", limit))

    def facts(self) -> tuple[Any, ...]:
        """By which two of them are equal."""
        return self.key, self.cost, self.message, self.name, *sorted(self.options.items(), key=repr)


def _printable(name: str) -> str:
    """Return a string of RFC 9651, which is printable ASCII. Different names stay different."""
    return quote(name, safe=_PRINTABLE)


class Throttled:
    """The decorator `@throttled("sms:{user}", limit=5, per=60)`: refuse what comes too often."""

    def __init__(self, guard: Callable[[Throttle, Callable[..., Any]], Any]) -> None:
        """*guard*: how the framework wraps a view."""
        self._guard = guard

    def __call__(
        self,
        key: ThrottleKey,
        *,
        cost: Cost = 1,
        message: str | None = None,
        name: str | None = None,
        **options: Unpack[ThrottleKeywords],
    ) -> Callable[[F], F]:
        """Refuse a request with a 429 if its key was called too often.

        Args:
            key: A template, whose fields are parameters of the path; or a function that returns
                the key.
            cost: How many units a request uses; or a function as for the key that returns it.
            message: What a refusal says.
            name: What events and the RateLimit fields call the key; default: the template.
            options: Those of `throttle`.

        Raises:
            UsageError: An option is invalid.
        """
        throttle = Throttle(key, message, name, options, cost)

        def decorate(view: Any) -> Any:
            guarded = self._guard(throttle, view)
            remember(view)
            return guarded

        return decorate
