"""Which requests are guarded, and how: the options of an application, and the policy of a route."""

import functools
import re
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, TypeVar, cast

from .._core.claim import How
from .._core.keys import Seconds, seconds
from .._core.keywords import TypedDict, refuse_unknown
from .._core.options import After, ClaimOptions, OnError, OutagePolicy
from ..errors import UsageError
from .bodies import BODY_LIMIT, BODY_TIMEOUT, SPOOL_LIMIT, Spool, spool_of
from .responses import RESPONSE_CODEC, Recording, Response

U = TypeVar("U", bound=Callable[..., Any])


class GuardKeywords(TypedDict, Generic[U], total=False, closed=True):
    """The keyword arguments of `install` and `DibsMiddleware`."""

    user: U | None
    """Returns who submits, as a string, bytes, an int or a UUID; None or "": not known. Without it,
    and without a session cookie, the Authorization header identifies the user."""
    session_cookie: str | None
    """The name of the cookie whose value identifies the user for as long as a session lasts. Not a
    cookie that is signed again with each response, as that of Flask's own session."""
    secret: str | bytes | None
    """Keys the hashes under which submissions are stored; the same in all processes."""
    service: str | None
    """The name of the application: services on one store that differ in it share no submissions."""
    per_host: bool
    """True: the same path on another host (by the Host header) is another endpoint."""
    spool_limit: int
    """How many bytes of long bodies (above 1 MiB) the process holds at a time; further ones get a
    503."""


@dataclass(frozen=True, kw_only=True)
class GuardOptions(Generic[U]):
    """How the requests of one application are distinguished. UsageError: an option is empty."""

    user: U | None = None
    session_cookie: str | None = None
    secret: str | bytes | None = None
    service: str | None = None
    per_host: bool = False
    spool_limit: int = SPOOL_LIMIT

    def __post_init__(self) -> None:
        if self.spool_limit < 0:
            raise UsageError(f"spool_limit must be a number of bytes, not {self.spool_limit!r}")
        if self.session_cookie == "":
            raise UsageError("session_cookie must be the name of a cookie, or None")
        secret_bytes(self.secret)

    @functools.cached_property
    def spool(self) -> Spool:
        """The room for long bodies."""
        return spool_of(self.spool_limit)

    @functools.cached_property
    def key(self) -> bytes:
        """The secret as bytes; empty: none was set."""
        return secret_bytes(self.secret)

    def host(self, header: str) -> str | None:
        """Return the host that is part of the key, from the Host header; "" unless `per_host`.

        None: it has other signs than a host. To some readers the host in `x@shop` is `shop`, and
        one host would be many.
        """
        if not self.per_host:
            return ""
        host = header.strip().lower()
        if host and not _HOST.fullmatch(host):
            return None
        name, _, port = host.rpartition(":")
        return name if name and port in ("80", "443") else host


def guard_options(verb: str, options: GuardKeywords[U], *others: str) -> GuardOptions[U]:
    """Return the options of *verb*, which has *others*, too.

    UsageError: one is invalid. TypeError: there is no such one.
    """
    refuse_unknown(verb, options, GuardKeywords, *others)
    return GuardOptions(**options)


def with_service(options: GuardKeywords[U], default: str) -> GuardKeywords[U]:
    """Return *options*; where they name no service, it is *default*."""
    return options if options.get("service") is not None else {**options, "service": default}


def secret_bytes(secret: str | bytes | None) -> bytes:
    """Return *secret* as bytes; None: none was set. Raises UsageError if it is empty."""
    if secret is None:
        return b""
    if not secret:
        raise UsageError("secret must not be empty; omit it, or set it in every process")
    return secret.encode() if isinstance(secret, str) else secret


def inner_path(path: str, root: str) -> str:
    """Return *path* without the prefix *root* under which the application is served.

    Servers differ in whether the path that they report begins with the prefix.
    """
    root = root.rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :] or "/"
    return path


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SLASHES = re.compile("/{2,}")
_HOST = re.compile(
    r"(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?", re.ASCII
)


def has_control_characters(path: str) -> bool:
    """Return True if routers may disagree about what it matches."""
    return _CONTROL.search(path) is not None


def canonical_path(path: str) -> str:
    """*path* without what some routers ignore: slashes after another one, control characters.

    So nothing that reaches an endpoint passes its guard.
    """
    if "//" not in path and path.isprintable():
        return path
    return _CONTROL.sub("", _SLASHES.sub("/", path))


def without_end(path: str) -> str:
    """*path* without slashes at its end, which some routers ignore, and some redirect."""
    return path.rstrip("/") or "/" if path[-1:] == "/" else path


KeyUse = Literal["never", "optional", "only", "required"]
OnDisconnect = Literal["finish", "release"]

_HEADER = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_URL = re.compile(r"[!#-;=?-\[\]-~]+")
_ROOTS = ("user", "path", "query", "header", "body")
_LATER = (408, 423, 425, 429)
"""Come back later: never a final answer."""
_NOT_FINAL = (400, 401, 403, 406, 407, 412, 416, 417, 422, 428, *_LATER)
"""Correct the request or its conditions, log in, or come back later: the work was not done."""
_FROM_ROUTER = (404, 405, 413, 415)
"""Responses of routers to requests that no endpoint has handled."""
_GUARDED = "dibs.guarded"
SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Methods that change nothing: a policy for all methods does not include them."""


class PolicyKeywords(TypedDict, total=False, closed=True):
    """The keyword arguments of `once`: the options of a `Policy`, all but its routes."""

    window: Required[Seconds]
    after: After
    on_error: OnError
    message: str | None
    key: KeyUse
    by: Iterable[str]
    keyless: After | None
    keyless_window: Seconds | None
    header: str
    wait: Seconds
    lease: Seconds | None
    on_outage: OutagePolicy | None
    store: Iterable[int] | Literal["all"] | None
    on_disconnect: OnDisconnect
    most: int
    not_replayed: Iterable[str]
    body_limit: int
    body_timeout: Seconds
    docs: str | None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How one route, or a group of routes, is guarded.

    Raises:
        UsageError: An option is invalid.
    """

    route: str = field(default="", kw_only=False)
    """`"POST /orders"`, `"PUT,PATCH /orders/{id}"` or `"* /forms/*"`: methods (`*`: all that change
    something) and a path, in which `{id}` is one segment and `*` is anything. For middlewares; a
    decorator knows its route."""
    window: Seconds
    """How long a submission counts as a duplicate, in seconds."""
    after: After = "release"
    """What a success leaves behind: "release" nothing, "hold" the key for the rest of the window,
    "replay" the response, which duplicates get."""
    on_error: OnError = "release"
    """What a failure (an exception or a 5xx) leaves behind: "release" nothing, "hold" the key."""
    message: str | None = None
    """The `detail` and `message` of a refusal, for the user."""
    key: KeyUse = "never"
    """Whether clients send a key: "never", "optional", "required", or "only", which guards nothing
    but requests with a key."""
    by: tuple[str, ...] = ()
    """What identifies a submission without a key: dotted paths such as `user`, `path.id`,
    `query.page`, `header.x-tenant`, `body.cart.id`. The user always counts. Default: path, query
    and body as a whole."""
    keyless: After | None = None
    """With key="optional": `after` for requests without a key."""
    keyless_window: Seconds | None = None
    """With key="optional": `window` for requests without a key."""
    header: str = "Idempotency-Key"
    """The header in which clients send their key."""
    exempt: tuple[str, ...] = ()
    """Routes that are not guarded although `route` includes them."""
    wait: Seconds = 0
    """How long a duplicate waits for the first request to end, in seconds. With key="optional", a
    request without a key waits only if it may get the stored response."""
    lease: Seconds | None = None
    """After how many seconds without renewal the key is free again, if the process dies."""
    on_outage: OutagePolicy | None = None
    """While Redis is unavailable: "open" runs requests unguarded, "closed" answers 503. Default: as
    the Dibs says."""
    store: tuple[int, ...] | Literal["all"] | None = None
    """With after="replay": the 4xx statuses whose responses are stored. Default: all but those that
    ask for another request (400, 422), for a login or for patience. "all": the first response,
    whatever it is, also a 5xx. Never stored: a response that asks for patience, a refusal of dibs.
    """
    on_disconnect: OnDisconnect = "finish"
    """What follows if the client leaves a stream: "finish" leaves behind what a success does, and
    reads a response that is stored to its end; "release" ends it as a failure, which stops the
    stream."""
    most: int = 256 * 1024
    """The largest response body that is stored for replays, in bytes."""
    not_replayed: tuple[str, ...] = ()
    """Headers of your responses that belong to one session, or to one moment, and are not replayed.
    Always so: cookies, credentials, CSRF and access tokens, traces, rate limits, CORS."""
    body_limit: int = BODY_LIMIT
    """The largest request body that is accepted, in bytes."""
    body_timeout: Seconds = BODY_TIMEOUT
    """How long a request body may take to arrive, in seconds, under ASGI; under WSGI the server
    limits it."""
    docs: str | None = None
    """The URL of your documentation of this behaviour; refusals link to it."""
    if TYPE_CHECKING:  # derived from the options
        _claim_options: ClaimOptions = field(init=False, repr=False, compare=False)
        _header_name: bytes = field(init=False, repr=False, compare=False)
        _without_key: "tuple[Policy, Policy]" = field(init=False, repr=False, compare=False)
        _pattern: "_Pattern" = field(init=False, repr=False, compare=False)
        _exempt: "tuple[_Pattern, ...]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("by", "exempt", "not_replayed"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        self._check()
        if self.store is not None and self.store != "all":
            object.__setattr__(self, "store", tuple(self.store))
            _check_statuses(self.store)
        _check_paths(self.by)
        seconds(self.wait, "wait", zero=True)
        object.__setattr__(self, "body_timeout", seconds(self.body_timeout, "body_timeout"))
        object.__setattr__(self, "_claim_options", self._make_claim_options())
        object.__setattr__(self, "_header_name", self.header.lower().encode("ascii"))
        object.__setattr__(self, "_without_key", self._make_keyless())
        if self.route:
            object.__setattr__(self, "_pattern", _Pattern(self.route))
        object.__setattr__(self, "_exempt", tuple([_Pattern(route) for route in self.exempt]))

    def _check(self) -> None:
        if self.key not in ("never", "optional", "only", "required"):
            uses = '"never", "optional", "only" or "required"'
            raise UsageError(f"key must be {uses}, not {self.key!r}")
        if self.on_outage not in (None, "open", "closed"):
            raise UsageError(f'on_outage must be "open" or "closed", not {self.on_outage!r}')
        if self.on_disconnect not in ("finish", "release"):
            raise UsageError(
                f'on_disconnect must be "finish" or "release", not {self.on_disconnect!r}'
            )
        if not _HEADER.fullmatch(self.header):
            raise UsageError(f"header must be the name of a header, not {self.header!r}")
        for name in self.not_replayed:
            if not _HEADER.fullmatch(name):
                raise UsageError(f"not_replayed must be names of headers, not {name!r}")
        for name, number in (("most", self.most), ("body_limit", self.body_limit)):
            if number < 0:
                raise UsageError(f"{name} must be a number of bytes, not {number!r}")
        if self.docs is not None and not _URL.fullmatch(self.docs):
            raise UsageError(f"docs must be a URL, not {self.docs!r}")
        if (self.keyless or self.keyless_window) is not None and self.key != "optional":
            raise UsageError('keyless and keyless_window need key="optional"')

    def _make_keyless(self) -> "tuple[Policy, Policy]":
        """The policies for requests without a key: of an identified user, and of any other client.

        A client that is not identified and has no key never gets a stored response.
        """
        known = self
        if self.keyless is not None or self.keyless_window is not None:
            window = self.window if self.keyless_window is None else self.keyless_window
            after = self.after if self.keyless is None else self.keyless
            plain = replace(self, keyless=None, keyless_window=None)
            known = replace(plain, window=window, after=after)
        if known.after != "replay":
            quick = known._not_waiting()
            return quick, quick
        unknown = replace(known, after="hold", keyless=None, keyless_window=None)
        return known, unknown._not_waiting()

    def _not_waiting(self) -> "Policy":
        """Return the policy for requests without a key, if those with a key are guarded as well.

        A double click has no response to wait for, and is refused at once.
        """
        return replace(self, wait=0) if self.wait and self.key == "optional" else self

    def _make_claim_options(self) -> ClaimOptions:
        return ClaimOptions(
            window=self.window,
            lease=self.lease,
            after=self.after,
            on_error=self.on_error,
            message=self.message,
            wait=self.wait,
            codec=RESPONSE_CODEC,
            on_outage=self.on_outage,
        )

    @property
    def claim_options(self) -> ClaimOptions:
        """The options of a claim under this policy."""
        return self._claim_options

    @property
    def all_claim_options(self) -> list[ClaimOptions]:
        """The options of every request under this policy, with a key and without."""
        keyed = [] if self.key == "never" else [self]
        keyless = self._without_key if self.key in ("never", "optional") else ()
        return [each.claim_options for each in (*keyed, *keyless)]

    @property
    def body_seconds(self) -> float:
        """Return how long a request body may take to arrive."""
        return cast(float, self.body_timeout)

    @property
    def header_name(self) -> bytes:
        """The name of the key's header in lower case, as ASGI has it."""
        return self._header_name

    @property
    def record_limit(self) -> int | None:
        """How many bytes of a response body are recorded, or None if responses are not stored."""
        return self.most if self.after == "replay" else None

    def stored(self, response: Response) -> Response:
        """Return *response* as it is stored: without the headers of `not_replayed`."""
        if not self.not_replayed:
            return response
        names = {name.lower() for name in self.not_replayed}
        return response._replace(headers=tuple([h for h in response.headers if h[0] not in names]))

    def without_key(self, *, is_known: bool) -> "Policy":
        """Return the policy for a request without a key, whose user may be known."""
        return self._without_key[0 if is_known else 1]

    def covers(self, method: str, *paths: str) -> bool:
        """Return whether this policy guards such a request.

        *paths* are alternatives of one path.
        """
        if not self.route or not self._pattern.fits(method, *paths):
            return False
        if not self.exempt:
            return True
        return not any(pattern.fits(method, *paths) for pattern in self._exempt)

    def path_fields(self, method: str, *paths: str) -> dict[str, str]:
        """Return the values of the `{fields}` of the route in the path that it matches."""
        if self.route and "{" in self.route:
            for path in map(canonical_path, paths):
                if self.covers(method, path):
                    return self._pattern.path_fields(path)
        return {}

    def without_responses(self) -> "Policy":
        """Return this policy for HEAD, whose responses have no body, as those of GET have."""
        if self.after != "replay":
            return self
        return replace(self, after="hold", keyless=None, keyless_window=None)

    def at(self, route: str) -> "Policy":
        """Return this policy for another route."""
        return replace(self, route=route)

    def outcome(self, status: int, *, is_later: bool = False) -> How:
        """Return how a response with *status* ends the claim.

        A 5xx ends it like an exception, unless `store` is "all". After a 4xx the client may correct
        the request and try again; but where responses are stored, a final 4xx is stored as well:
        the same request gets the same one.

        Args:
            is_later: The response says that nothing was done, and asks for a later attempt.
        """
        if status < 400:
            return "returned"
        if is_later or status in _LATER:
            return "released"
        if self.after == "replay" and self.store == "all":
            return "returned"
        if status >= 500:
            return "raised"
        if self.after != "replay":
            return "released"
        return "returned" if self._is_final(status) else "released"

    def _is_final(self, status: int) -> bool:
        """Return whether a 4xx is stored.

        A middleware, which is a policy with a route, cannot know whether an endpoint exists at all.
        """
        if isinstance(self.store, tuple):
            return status in self.store
        return status not in _NOT_FINAL and not (self.route and status in _FROM_ROUTER)


def _check_statuses(statuses: tuple[object, ...]) -> None:
    """Raise UsageError if a status of `store` that is not a 4xx, or never final."""
    for status in statuses:
        if not isinstance(status, int) or not 400 <= status < 500:
            raise UsageError(f"store: {status!r} is not a 4xx; 2xx and 3xx are always stored")
        if status in _LATER:
            raise UsageError(f"store: {status} asks for a later attempt, and is never stored")


def _check_paths(paths: tuple[str, ...]) -> None:
    """Raise UsageError if a path of `by` begins with something that a request does not have."""
    for path in paths:
        if path.partition(".")[0] not in _ROOTS:
            raise UsageError(f"by: {path!r} must begin with one of {', '.join(_ROOTS)}")
        if "" in path.split(".") or path == "header":
            raise UsageError(f"by: {path!r} is incomplete; write body.cart.id, header.x-tenant …")


class _Pattern:
    """`"POST,PUT /orders/{id}"`, compiled."""

    def __init__(self, route: str) -> None:
        methods, space, path = route.partition(" ")
        if not space or not path.startswith("/"):
            raise UsageError(f'a route must be "METHOD /path", not {route!r}')
        named = set(methods.upper().split(","))
        # Frameworks run the endpoint of GET for HEAD.
        self._methods = frozenset({*named, "HEAD"} if "GET" in named else named)
        try:
            self._path = re.compile(_regex(without_end(path)) + "/?", re.DOTALL)
        except re.error as error:
            raise UsageError(f"invalid route {route!r}: {error}") from None

    def fits(self, method: str, *paths: str) -> bool:
        if method in self._methods or ("*" in self._methods and method not in SAFE):
            for path in paths:  # not a generator: this runs for every request
                if self._path.fullmatch(path):
                    return True
        return False

    def path_fields(self, path: str) -> dict[str, str]:
        match = self._path.fullmatch(path)
        return match.groupdict() if match else {}


def _regex(path: str) -> str:
    """Return the pattern of a route.

    Of a text between two `*`, its first occurrence will do: to try all of them, in a path that a
    client made for that, would take seconds. With a field, which one counts makes a difference.
    """
    first, *others = [_words(text) for text in path.split("*")]
    if any("(?P<" in text for text in others):
        return ".*".join([first, *others])
    between = [f"(?>.*?{text})" for text in others[:-1]]
    return "".join([first, *between, *[".*" + last for last in others[-1:]]])


def _words(text: str) -> str:
    return "".join([_word(word) for word in re.split(r"(\{\w+\})", text)])


def _word(word: str) -> str:
    if re.fullmatch(r"\{\w+\}", word):
        return f"(?P<{word[1:-1]}>[^/]+)"
    if "{" in word or "}" in word:
        # A converter of some framework: as plain text it would match no request, and guard none.
        raise UsageError(f"a field of a route must be {{name}}, not {word!r}")
    return re.escape(word)


def match_policy(policies: tuple[Policy, ...], method: str, *paths: str) -> Policy | None:
    """Return the first policy that guards such a request; None: it is not guarded.

    *paths*: as the application sees it and, where the server removes a prefix, with that prefix.
    """
    for path in paths:
        if "//" in path or not path.isprintable():
            paths = tuple(map(canonical_path, paths))
            break
    for policy in policies:
        if policy.covers(method, *paths):
            return policy
    return None


def check_routes(policies: tuple[Policy, ...]) -> None:
    """Raise UsageError if a policy of a middleware has no route."""
    if any(not policy.route for policy in policies):
        raise UsageError('a policy of a middleware needs a route: Policy("POST /orders", …)')


def mark_guarded(marks: MutableMapping[str, Any]) -> None:
    """Raise UsageError if another guard has claimed this request; the second would refuse it.

    *marks*: what all guards of one request see: its scope, or its environment.
    """
    if marks.get(_GUARDED):
        rule = "use a decorator or a policy of a middleware, and exempt the route from the other"
        raise UsageError(f"this request is guarded already: {rule}")
    marks[_GUARDED] = True


def unmark_guarded(marks: MutableMapping[str, Any]) -> None:
    """The request has ended; a server or a middleware may use its scope again."""
    marks.pop(_GUARDED, None)


def outcome_of(policy: Policy, recording: Recording) -> How:
    """Return how a request with such a response has ended."""
    if recording.is_redirect_to_itself:
        return "released"
    is_later = recording.status >= 400 and recording.is_later
    return policy.outcome(recording.status, is_later=is_later)
