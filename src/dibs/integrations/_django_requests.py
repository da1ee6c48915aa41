"""Reading a request of Django, or of Django REST framework."""

# pyright: basic
# Django has no types.

import asyncio
import functools
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from django.conf import settings
from django.http import RawPostDataException
from django.urls import Resolver404, resolve
from django.utils.module_loading import import_string

from .._http.bodies import (
    SPOOL_LIMIT,
    Field,
    LongBody,
    declared_length,
    drain,
    file_hash,
    form_fields,
)
from .._http.facts import (
    INCOMPLETE,
    InvalidRequest,
    RequestFacts,
    RequestHeaders,
    read_headers,
    too_large,
)
from .._http.policy import GuardOptions, Policy
from .._http.submission import Submission, routed_place, split_key_lines, submission_of
from .._internal_api import fingerprint
from .wsgi import RequestBody


def plain_request(request: Any) -> Any:
    """Django's own request, where Django REST framework has wrapped it."""
    return getattr(request, "_request", request)


def marks_of(request: Any) -> Any:
    """Return what all guards of a request see: the scope of ASGI, or the environment of WSGI."""
    plain = plain_request(request)
    return getattr(plain, "scope", plain.META)


def is_unguarded(policy: Policy, request: Any) -> bool:
    """Return True if the policy guards requests with a key only, and this one has none."""
    return policy.key == "only" and policy.header not in request.headers


def submission_for(
    policy: Policy, name: str, request: Any, user: "SaidUser"
) -> Submission | InvalidRequest:
    """Return what *request* submits, or what is wrong with it."""
    options = _guard_options()
    facts = _facts_or_error(policy, name, request, user, options)
    return (
        facts if isinstance(facts, InvalidRequest) else _decided_submission(policy, facts, options)
    )


async def asubmission_for(
    policy: Policy, name: str, request: Any, user: "SaidUser"
) -> Submission | InvalidRequest:
    """As `submission_for`, beside the event loop if the body takes long to parse."""
    options = _guard_options()
    facts = _facts_or_error(policy, name, request, user, options)
    if isinstance(facts, RequestFacts) and facts.is_long_to_parse:
        return await asyncio.to_thread(_decided_submission, policy, facts, options)
    return (
        facts if isinstance(facts, InvalidRequest) else _decided_submission(policy, facts, options)
    )


def _decided_submission(
    policy: Policy, facts: RequestFacts, options: GuardOptions[Any]
) -> Submission | InvalidRequest:
    text = facts.headers.get(policy.header.lower())
    keys = [] if text is None else split_key_lines([text])
    submission = submission_of(policy, facts, keys, options)
    assert submission is not None  # see is_unguarded
    return submission


def _facts_or_error(
    policy: Policy, name: str, request: Any, user: "SaidUser", options: GuardOptions[Any]
) -> RequestFacts | InvalidRequest:
    headers = read_headers(request.headers.items())
    body = _request_body(request, headers, policy.body_limit)
    if isinstance(body, InvalidRequest):
        return body
    facts = _request_facts(policy, request, name, options)
    return facts._replace(headers=headers, **user._asdict(), **body._asdict())


def _guard_options() -> GuardOptions[Callable[[Any], Any]]:
    user = getattr(settings, "DIBS_USER", None)
    return GuardOptions(
        user=imported(user) if user else None,
        secret=str(settings.SECRET_KEY),
        service=getattr(settings, "DIBS_SERVICE", None) or str(settings.ROOT_URLCONF),
        session_cookie=getattr(settings, "DIBS_SESSION_COOKIE", None),
        per_host=getattr(settings, "DIBS_PER_HOST", False),
        spool_limit=getattr(settings, "DIBS_SPOOL_LIMIT", SPOOL_LIMIT),
    )


@functools.cache
def imported(path: str) -> Callable[..., Any]:
    """Return the function that a setting names by its dotted path."""
    return import_string(path)


def _request_facts(
    policy: Policy, request: Any, name: str, options: GuardOptions[Any]
) -> RequestFacts:
    """Return all facts but the body, the headers, and the user."""
    match = _matched_route(request)
    fields = {} if match is None else _fields_of(match)
    named = policy.path_fields(str(request.method), request.path_info, request.path)
    return RequestFacts(
        method=str(request.method),
        route=name,
        path=request.path_info,
        query=request.META.get("QUERY_STRING", ""),
        headers=RequestHeaders(),
        address=request.META.get("REMOTE_ADDR"),
        path_fields={**named, **fields},
        place=None if match is None else routed_place(f"/{match.route}", fields),
        host=request.get_host() if options.per_host else "",
    )


def _matched_route(request: Any) -> Any:
    """Return what the router has matched, or will match: a middleware runs before it.

    None: nothing.
    """
    if request.resolver_match is not None:
        return request.resolver_match
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Resolver404:
        return None


def _fields_of(match: Any) -> dict[str, Any]:
    """Not `kwargs`: a middleware may have taken the tenant out of them."""
    unnamed = {str(number): value for number, value in enumerate(match.args)}
    return {**unnamed, **(match.captured_kwargs or {})}


# ---- the body


class _Body(NamedTuple):
    """What a request has in it, as `RequestFacts` name it."""

    body: bytes
    fields: list[Field] | None = None
    long: LongBody | None = None


def _request_body(request: Any, headers: dict[str, str], limit: int) -> _Body | InvalidRequest:
    """Return the body, or the fields and files of a form; or what is wrong with it."""
    length = declared_length(headers) or 0
    if length > limit:
        drain(plain_request(request).read, 2 * limit)
        return too_large(limit)
    plain = plain_request(request)
    if _is_streamed(plain, length):
        return _spooled_body(plain, headers, limit)
    body = _read_body(request, length)
    size = len(body.body) if body.fields is None else _counted_bytes(plain)
    if size is not None and size < length and hasattr(plain, "environ"):
        return INCOMPLETE  # under ASGI, Django itself notices that the client has left
    return too_large(limit) if size is not None and size > limit else body


def _is_streamed(request: Any, length: int) -> bool:
    """True: the body is longer than Django holds in memory, so the view reads it as a stream."""
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    is_form = request.content_type in ("multipart/form-data", "application/x-www-form-urlencoded")
    is_read = request._read_started or hasattr(request, "_request_body")
    return most is not None and length > most and not is_form and not is_read


def _spooled_body(request: Any, headers: dict[str, str], limit: int) -> _Body | InvalidRequest:
    """Hash the body, and let the view read it again."""
    source, body = request._stream, RequestBody(_guard_options().spool, is_terminated=True)
    invalid = body.read(request, headers, limit)
    weakref.finalize(request, body.close)
    if getattr(source, "seekable", bool)():  # under ASGI it is a file already
        source.seek(0)
        body.close()
    else:
        request._stream = body.file
    request._read_started = False
    return _Body(body.data, None, body.long) if invalid is None else invalid


def _counted_bytes(request: Any) -> int | None:
    """Return how much of a form has arrived: under WSGI, a server may end it without an error."""
    return getattr(getattr(request, "_stream", None), "_pos", None)


def _read_body(request: Any, length: int) -> _Body:
    plain = plain_request(request)
    # Django parses only forms that are sent by POST and declare their length.
    if plain.content_type == "multipart/form-data" and plain.method == "POST" and length:
        return _Body(b"", _form_fields(plain.POST, plain.FILES))
    try:
        return _Body(plain.body)
    except RawPostDataException:
        if not hasattr(request, "_full_data"):
            raise
        # Django REST framework has read it: for a permission, or for a throttle.
        files = _form_fields({}, request.FILES)
        return _Body(b"", [["", fingerprint(request.data).decode()], *files])


def _form_fields(fields: Any, files: Any) -> list[Field]:
    values = [(name, value) for name, each in getattr(fields, "lists", dict)() for value in each]
    uploads = [
        (name, str(file.name or ""), file_hash(file))
        for name, each in files.lists()
        for file in each
    ]
    return form_fields(values, uploads)


# ---- who submits


class SaidUser(NamedTuple):
    """Who the application says submits, as `RequestFacts` name it."""

    user: object
    user_kind: str


def user_of(request: Any) -> SaidUser:
    """Return what DIBS_USER returns, or the user who is logged in, or None."""
    options = _guard_options()
    user = options.user(request) if options.user is not None else None
    return _said_user(user, None if _is_set(user) else getattr(request, "user", None))


async def auser_of(request: Any) -> SaidUser:
    """As `user_of`, without blocking the event loop by a query."""
    options = _guard_options()
    user = options.user(request) if options.user is not None else None
    if isinstance(user, Awaitable):
        user = await user
    ask = getattr(request, "auser", None)
    return _said_user(user, await ask() if not _is_set(user) and ask is not None else None)


def _said_user(user: object, login: Any) -> SaidUser:
    return SaidUser(user, "user") if _is_set(user) else SaidUser(_primary_key(login), "login")


def _primary_key(user: Any) -> str | None:
    """Return the primary key of the logged-in user, of any type."""
    if user is None or not user.is_authenticated or user.pk is None:
        return None
    return str(user.pk)


def _is_set(user: object) -> bool:
    return user is not None and user != "" and user != b""
