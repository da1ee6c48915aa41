"""Duplicate submissions and idempotency keys for Django: a decorator on the view, or a middleware.

    # settings.py
    DIBS_URL = "redis://…"
    DIBS_USER = "shop.people.tenant_of"        # optional: a function of the request
    DIBS_POLICIES = [Policy("POST /orders/", window=86400, after="replay", key="required")]
    MIDDLEWARE = [..., "dibs.integrations.django.DibsMiddleware"]     # after authentication

    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    def order(request): ...

Sync and async views alike. The decorator needs no middleware. Hashes are keyed by SECRET_KEY.
"""

# pyright: basic
# Django comes without types: what it hands us is unknown.

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import urlencode

from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpResponse, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from django.utils.module_loading import import_string

from .._async.dibs import AsyncDibs
from .._http.answers import Answer
from .._http.decorators import Once, PreventDuplicateSubmit
from .._http.facts import Facts, KeyTrouble, Submission, submission_of
from .._http.policy import Policy, find
from .._http.recording import Recording
from .._sync.dibs import Dibs
from ..errors import UsageError
from ._claims import aclaimed, aended, claimed, ended, key_lines

__all__ = ["DibsMiddleware", "Policy", "once", "prevent_duplicate_submit"]

View = Callable[..., Any]
_CALLERS_FAULT = (Http404, PermissionDenied, SuspiciousOperation, BadRequest)
"""Django makes a 4xx of these: the caller may mend it and try again."""


# ---- the decorator


def guard(policy: Policy, view: View) -> View:
    """*view*, with a claim around it."""
    if inspect.iscoroutinefunction(view):
        return _guard_async(policy, view)

    @functools.wraps(view)
    def guarded(request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return _run(policy, _route_of(request), request, lambda: view(request, *args, **kwargs))

    return guarded


def _guard_async(policy: Policy, view: View) -> View:
    @functools.wraps(view)
    async def guarded(request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        def work() -> Any:
            return view(request, *args, **kwargs)

        return await _arun(policy, _route_of(request), request, work)

    return guarded


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)


# ---- the middleware


@sync_and_async_middleware
def DibsMiddleware(get_response: View) -> View:  # noqa: N802 – named as a class in MIDDLEWARE
    """Guards the routes of DIBS_POLICIES. A request that none is meant for is not touched."""
    policies = tuple(getattr(settings, "DIBS_POLICIES", ()))
    if any(not policy.route for policy in policies):
        raise UsageError('each of DIBS_POLICIES needs a route: Policy("POST /orders/", …)')

    def middleware(request: Any) -> HttpResponseBase:
        policy = find(policies, str(request.method), request.path)
        if policy is None:
            return get_response(request)
        return _run(policy, policy.route, request, lambda: get_response(request))

    async def amiddleware(request: Any) -> HttpResponseBase:
        policy = find(policies, str(request.method), request.path)
        if policy is None:
            return await get_response(request)
        return await _arun(policy, policy.route, request, lambda: get_response(request))

    return amiddleware if inspect.iscoroutinefunction(get_response) else middleware


# ---- a view, with a claim around it


def _run(
    policy: Policy, name: str, request: Any, work: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    claim = claimed(_dibs(), policy, name, _submission(policy, name, request, _who(request)))
    if isinstance(claim, Answer):
        return _response(claim)
    try:
        response = work()
        ended(claim, _recorded(policy, response))
        return response
    except _CALLERS_FAULT:
        claim.release()
        claim.finish()
        raise
    finally:
        claim.fail()  # if it is still open: the view raised


async def _arun(
    policy: Policy, name: str, request: Any, work: Callable[[], Awaitable[Any]]
) -> HttpResponseBase:
    who = await _awho(request)
    claim = await aclaimed(_adibs(), policy, name, _submission(policy, name, request, who))
    if isinstance(claim, Answer):
        return _response(claim)
    try:
        response = await work()
        await aended(claim, _recorded(policy, response))
        return response
    except _CALLERS_FAULT:
        claim.release()
        await claim.finish()
        raise
    finally:
        await claim.fail()  # if it is still open: the view raised, or was cancelled


# ---- what is set


@functools.cache
def _dibs() -> Dibs:
    return Dibs(_url(), namespace=getattr(settings, "DIBS_NAMESPACE", ""))


@functools.cache
def _adibs() -> AsyncDibs:
    return AsyncDibs(_url(), namespace=getattr(settings, "DIBS_NAMESPACE", ""))


def _url() -> str:
    url = getattr(settings, "DIBS_URL", None)
    if not url:
        raise UsageError("dibs needs DIBS_URL in the Django settings: redis://…")
    return url


@functools.cache
def _chosen_user(path: str) -> Callable[[Any], Any]:
    return import_string(path)


# ---- what a request says


def _submission(policy: Policy, name: str, request: Any, who: object) -> Submission | KeyTrouble:
    keys = [request.headers[policy.header]] if policy.header in request.headers else []
    facts = _facts(request, name, None if who is None else str(who))
    return submission_of(policy, facts, key_lines(keys), str(settings.SECRET_KEY).encode())


def _facts(request: Any, name: str, user: str | None) -> Facts:
    headers = {key.lower(): value for key, value in request.headers.items()}
    match = request.resolver_match
    return Facts(
        method=str(request.method),
        route=name,
        path=request.path,
        query=request.META.get("QUERY_STRING", ""),
        headers=headers,
        body=_body(request, headers),
        user=user,
        path_fields={key: str(value) for key, value in (match.kwargs if match else {}).items()},
    )


def _body(request: Any, headers: dict[str, str]) -> bytes:
    """The body; of a form, its text fields: uploads are no part of a submission's key."""
    if request.content_type not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        return request.body
    headers["content-type"] = "application/x-www-form-urlencoded"
    fields = [(name, value) for name, values in request.POST.lists() for value in values]
    return urlencode(sorted(fields), errors="surrogatepass").encode()


def _route_of(request: Any) -> str:
    match = request.resolver_match
    return f"{request.method} /{match.route}" if match else f"{request.method} *"


def _who(request: Any) -> object:
    """Who submits: DIBS_USER says so, or the user who is logged in, or the request itself."""
    chosen = getattr(settings, "DIBS_USER", None)
    if chosen:
        return _chosen_user(chosen)(request)
    user = getattr(request, "user", None)
    return user.pk if user is not None and user.is_authenticated else _stranger(request)


async def _awho(request: Any) -> object:
    """The same, where asking the database must not stop the event loop."""
    chosen = getattr(settings, "DIBS_USER", None)
    if chosen:
        who = _chosen_user(chosen)(request)
        return await who if isinstance(who, Awaitable) else who
    ask = getattr(request, "auser", None)
    user = await ask() if ask is not None else None
    return user.pk if user is not None and user.is_authenticated else _stranger(request)


def _stranger(request: Any) -> str | None:
    headers = request.headers
    address = request.META.get("REMOTE_ADDR")
    return headers.get("Authorization") or headers.get("Cookie") or address


# ---- the answer


def _recorded(policy: Policy, response: HttpResponseBase) -> Recording:
    """The answer, as far as it can be kept: a stream is left alone."""
    recording = Recording(policy)
    recording.begin(response.status_code, tuple(response.items()))
    if isinstance(response, HttpResponse):
        if policy.after == "replay":
            _render(response)
            recording.add(response.content)
    else:
        recording.give_up()
    return recording


def _render(response: HttpResponse) -> None:
    """A TemplateResponse has no content before it is rendered, which Django does later."""
    if not getattr(response, "is_rendered", True):
        cast(Any, response).render()


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in answer.headers:
        response[name] = value
    return response
