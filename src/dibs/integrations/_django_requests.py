"""What a request of Django, or of Django REST framework, says."""

# pyright: basic
# Django comes without types: what it hands us is unknown.

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http import RawPostDataException
from django.utils.module_loading import import_string

from .._core.fingerprint import fingerprint
from .._http.bodies import declared_length
from .._http.facts import INCOMPLETE, Facts, KeyTrouble, Submission, submission_of, too_large
from .._http.forms import Field, by_name
from .._http.identity import Identity, identify
from .._http.policy import Policy
from .._http.site import Site, make_site
from ._bodies import file_hash
from ._claims import key_lines


def plain_request(request: Any) -> Any:
    """Django's own request, where Django REST framework has put one of its own around it."""
    return getattr(request, "_request", request)


def is_open(policy: Policy, request: Any) -> bool:
    """True: the policy is for requests with a key, and this one has none."""
    return policy.key == "only" and policy.header not in request.headers


def asked_of(
    policy: Policy, name: str, request: Any, identity: Identity
) -> Submission | KeyTrouble:
    """What *request* submits, or what is wrong with it."""
    keys = [request.headers[policy.header]] if policy.header in request.headers else []
    headers = {key.lower(): value for key, value in request.headers.items()}
    body = _body(request, headers, policy.body_limit)
    if isinstance(body, KeyTrouble):
        return body
    site = _site()
    facts = _facts(policy, request, name, site)._replace(
        user=identity.user, client=identity.client, body=body[0], fields=body[1], headers=headers
    )
    submission = submission_of(policy, facts, key_lines(keys), site.secret)
    assert submission is not None  # see is_open
    return submission


def _site() -> Site:
    return make_site(
        str(settings.SECRET_KEY),
        getattr(settings, "DIBS_SERVICE", None) or str(settings.ROOT_URLCONF),
        getattr(settings, "DIBS_SESSION_COOKIE", None),
        per_host=getattr(settings, "DIBS_PER_HOST", False),
    )


def _facts(policy: Policy, request: Any, name: str, site: Site) -> Facts:
    """All but the body, the headers, and who it is."""
    match = request.resolver_match  # a middleware comes before it
    fields = match.kwargs if match else policy.parts_of(request.path_info)
    return Facts(
        method=str(request.method),
        route=name,
        path=request.path_info,
        query=request.META.get("QUERY_STRING", ""),
        headers={},
        body=b"",
        user=None,
        path_fields={key: str(value) for key, value in fields.items()},
        service=site.service,
        host=site.host(request.get_host()) if site.per_host else "",
    )


# ---- the body


def _body(
    request: Any, headers: dict[str, str], limit: int
) -> tuple[bytes, list[Field] | None] | KeyTrouble:
    """The body, or the fields and files of a form; or what is wrong with it."""
    length = declared_length(headers) or 0
    if length > limit:
        _drain(plain_request(request), 2 * limit)
        return too_large(limit)
    found, plain = _read(request, length), plain_request(request)
    size = len(found[0]) if found[1] is None else _counted(plain)
    if size is not None and size < length and hasattr(plain, "environ"):
        return INCOMPLETE  # under ASGI, Django itself sees that the client has left
    return too_large(limit) if size is not None and size > limit else found


def _drain(request: Any, most: int) -> None:
    """Read what nobody wants: a client that still sends would lose its connection."""
    while most > 0 and (piece := request.read(min(most, 65536))):
        most -= len(piece)


def _counted(request: Any) -> int | None:
    """How much of a form's body has arrived: under WSGI, a server may end it without a word."""
    return getattr(getattr(request, "_stream", None), "_pos", None)


def _read(request: Any, length: int) -> tuple[bytes, list[Field] | None]:
    plain = plain_request(request)
    # Django reads forms that are posted and say how long they are, and no others.
    if plain.content_type == "multipart/form-data" and plain.method == "POST" and length:
        return b"", _fields(plain.POST, plain.FILES)
    try:
        return plain.body, None
    except RawPostDataException:
        if not hasattr(request, "_full_data"):
            raise
        # Django REST framework has read it: a permission, or a throttle, wanted to see it.
        files = _fields({}, request.FILES)
        return b"", [["", fingerprint(request.data).decode()], *files]


def _fields(fields: Any, files: Any) -> list[Field]:
    found: list[Field] = [
        [name, value] for name, values in getattr(fields, "lists", dict)() for value in values
    ]
    for name, uploads in files.lists():
        found += [[name, str(file.name or ""), file_hash(file)] for file in uploads]
    return by_name(found)


# ---- who it is


@functools.cache
def _chosen_user(path: str) -> Callable[[Any], Any]:
    return import_string(path)


def who(request: Any) -> Identity:
    """Who submits: DIBS_USER says so, or the user who is logged in, or the request itself."""
    chosen = getattr(settings, "DIBS_USER", None)
    said = _chosen_user(chosen)(request) if chosen else None
    return _identified(request, said, _known(getattr(request, "user", None)))


async def awho(request: Any) -> Identity:
    """The same, where asking the database must not stop the event loop."""
    chosen = getattr(settings, "DIBS_USER", None)
    said = _chosen_user(chosen)(request) if chosen else None
    if isinstance(said, Awaitable):
        said = await said
    ask = getattr(request, "auser", None)
    user = await ask() if not _is_said(said) and ask is not None else None
    return _identified(request, said, _known(user))


def _known(user: Any) -> str | None:
    """The primary key of who is logged in, of whatever type."""
    if user is None or not user.is_authenticated or user.pk is None:
        return None
    return str(user.pk)


def _is_said(said: object) -> bool:
    return said is not None and said != "" and said != b""


def _identified(request: Any, said: object, login: object) -> Identity:
    return identify(
        said if _is_said(said) else login,
        kind="user" if _is_said(said) else "login",
        session=getattr(settings, "DIBS_SESSION_COOKIE", None),
        authorization=request.headers.get("Authorization", ""),
        cookies=request.headers.get("Cookie", ""),
        address=request.META.get("REMOTE_ADDR"),
        agent=request.headers.get("User-Agent", ""),
    )
