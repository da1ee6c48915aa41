"""The facts of a request, before it is decided what it submits."""

import functools
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from .._core.keys import plain_text
from .bodies import LONG_TO_PARSE, Field, LongBody

URLENCODED = "application/x-www-form-urlencoded"


class RequestHeaders(dict[str, str]):
    """The headers of a request, by their names in lower case."""

    repeated: tuple[str, ...] = ()
    """Names that came in several lines, whose values are joined."""


def read_headers(lines: Iterable[tuple[str, str]]) -> RequestHeaders:
    """Return the headers in *lines* of names and values. HTTP/2 may split cookies."""
    headers = RequestHeaders()
    more: dict[str, list[str]] = {}
    for given, value in lines:
        name = given.lower()
        if name in headers:
            more.setdefault(name, [headers[name]]).append(value)
        else:
            headers[name] = value
    if more:  # joined once: there may be as many lines as a client likes
        for name, values in more.items():
            headers[name] = ("; " if name == "cookie" else ", ").join(values)
        headers.repeated = tuple(more)
    return headers


class RequestFacts(NamedTuple):
    """What is known of a request before it is handled."""

    method: str
    route: str
    """The template of the route, for events: it holds no value of this request."""
    path: str
    query: str
    """The query string as it was sent, without the question mark."""
    headers: RequestHeaders
    body: bytes = b""
    """The whole body; empty if it is `long`, or was parsed into `fields`."""
    user: object = None
    """What the application says who submits; None and "": it does not know."""
    user_kind: str = "user"
    """Where `user` comes from, so that names from two sources are never equal."""
    path_fields: Mapping[str, object] = {}
    """The fields of the path, with the values that the endpoint gets."""
    place: str | None = None
    """What the router matched, see `routed_place`; None: not known, the path counts."""
    address: str | None = None
    """The address of the client."""
    long: LongBody | None = None
    """What is known of a body that is too long for memory."""
    fields: list[Field] | None = None
    """The fields and files of a form that the framework has parsed."""
    host: str | None = None
    """The host as the framework has it; None: the Host header."""
    given: Mapping[str, str | None] = {}
    """Of what `by=` selects: the values that the endpoint gets, as text, by their paths."""

    @property
    def is_long_to_parse(self) -> bool:
        """Return True if what it submits is to be read beside the event loop."""
        return len(self.body) > LONG_TO_PARSE

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters."""
        return _media_type(self.headers.get("content-type", ""))

    @property
    def is_json(self) -> bool:
        """Return True if the body is declared as JSON."""
        media_type = self.media_type
        return media_type == "application/json" or media_type.endswith("+json")

    @property
    def is_urlencoded(self) -> bool:
        """Return True if the body is declared as a form without files."""
        return self.media_type == URLENCODED

    @property
    def path_texts(self) -> dict[str, str]:
        """The fields of the path, as text."""
        return {name: value_text(value) for name, value in self.path_fields.items()}

    @property
    def is_compressed(self) -> bool:
        """Return True if the body has a content coding, so its fields cannot be read here."""
        coding = self.headers.get("content-encoding")
        return coding is not None and coding.strip().lower() not in ("", "identity")


@functools.lru_cache(maxsize=256)
def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def endpoint_method(method: str) -> str:
    """Return the method by which an endpoint is known: what it does for HEAD, it does for GET."""
    return "GET" if method == "HEAD" else method


def value_text(value: object) -> str:
    """Return *value* as text: of one field, equal texts are equal values."""
    if isinstance(value, Decimal):
        value = value.normalize()
    text = plain_text(value)
    return str(value) if text is None else text


# ---- what is wrong with a request


class InvalidRequest(NamedTuple):
    """Why a request cannot be guarded: its key is malformed, or it did not arrive as a whole."""

    kind: str
    detail: str
    status: int = 400


INCOMPLETE = InvalidRequest(
    "incomplete", "The request body is incomplete. The request was not processed."
)
TIMED_OUT = InvalidRequest(
    "timeout", "The request body did not arrive in time. The request was not processed.", 408
)
NO_ROOM = InvalidRequest(
    "overloaded", "Too many long requests are being received. Try again soon.", 503
)


def too_large(limit: int) -> InvalidRequest:
    """The body is longer than the policy accepts."""
    return InvalidRequest("too-large", f"The request body exceeds {limit} bytes.", 413)


def ambiguous(what: str) -> InvalidRequest:
    """Return *what* came more than once, so its readers may disagree about it."""
    return InvalidRequest("ambiguous", f"{what} was sent more than once; send it once.")
