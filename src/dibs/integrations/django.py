"""Duplicate submissions and idempotency keys for Django: a decorator on the view, or a middleware.

    # settings.py
    DIBS_URL = "redis://…"
    DIBS_OPTIONS = {"budget": 0.5}             # optional: what else Dibs is told
    DIBS_USER = "shop.people.tenant_of"        # optional: a function of the request
    DIBS_POLICIES = [Policy("POST /orders/", window=86400, after="replay", key="required")]
    MIDDLEWARE = [..., "dibs.integrations.django.DibsMiddleware"]     # after authentication

    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    def order(request): ...

Sync and async views alike. The decorator needs no middleware. Hashes are keyed by SECRET_KEY.
"""

# pyright: basic
# Django comes without types: what it hands us is unknown.

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from django.utils.module_loading import import_string

from .._async.claim import AsyncClaim
from .._async.dibs import AsyncDibs
from .._http.answers import Answer
from .._http.decorators import Once, PreventDuplicateSubmit
from .._http.facts import Facts, KeyTrouble, Submission, submission_of
from .._http.policy import Policy, find
from .._http.recording import Recording
from .._sync.claim import Claim
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
    if _is_async(view):
        return _guard_async(policy, view)

    @functools.wraps(view)
    def guarded(request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return _run(policy, _route_of(request), request, lambda: view(request, *args, **kwargs))

    return guarded


def _is_async(view: Any) -> bool:
    """True: calling it makes something to be awaited. `dispatch` of a class is always plain."""
    owner = getattr(getattr(view, "func", view), "__self__", None)
    return inspect.iscoroutinefunction(view) or getattr(owner, "view_is_async", False) is True


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


def _run(policy: Policy, name: str, request: Any, work: Callable[[], Any]) -> HttpResponseBase:
    claim = claimed(_dibs(), policy, name, _submission(policy, name, request, _who(request)))
    if isinstance(claim, Answer):
        return _response(claim)
    response, recording = _worked(policy, claim, work)
    end = functools.partial(ended, claim, recording)
    _ = _at_its_end(response, end) if _is_stream(response) else end()
    return response


def _worked(policy: Policy, claim: Claim, work: Callable[[], Any]) -> tuple[Any, Recording]:
    """What the view answers. An exception is raised, and ends the claim."""
    try:
        response = work()
        if _wants_rendering(policy, response):
            response.render()
        return response, _recorded(policy, response)
    except _CALLERS_FAULT:
        claim.release()
        claim.finish()
        raise
    except BaseException:
        claim.fail()
        raise


async def _arun(
    policy: Policy, name: str, request: Any, work: Callable[[], Awaitable[Any]]
) -> HttpResponseBase:
    submission = _submission(policy, name, request, await _awho(request))
    async with _adibs(request) as dibs:
        claim = await aclaimed(dibs, policy, name, submission)
        if isinstance(claim, Answer):
            return _response(claim)
        response, recording = await _aworked(policy, claim, work)
        if _is_stream(response) and isinstance(request, ASGIRequest):
            loop = asyncio.get_running_loop()
            _at_its_end(response, functools.partial(_soon, loop, claim, recording))
        else:
            await aended(claim, recording)
        return response


async def _aworked(
    policy: Policy, claim: AsyncClaim, work: Callable[[], Awaitable[Any]]
) -> tuple[Any, Recording]:
    """What the view answers. An exception is raised, and ends the claim."""
    try:
        response = await work()
        if _wants_rendering(policy, response):
            await sync_to_async(response.render)()  # a template may ask the database
        return response, _recorded(policy, response)
    except _CALLERS_FAULT:
        claim.release()
        await claim.finish()
        raise
    except BaseException:
        await claim.fail()
        raise


def _soon(loop: asyncio.AbstractEventLoop, claim: AsyncClaim, recording: Recording) -> None:
    asyncio.run_coroutine_threadsafe(aended(claim, recording), loop)


def _is_stream(response: Any) -> bool:
    return getattr(response, "streaming", False)


def _at_its_end(response: Any, end: Callable[[], object]) -> None:
    """Call *end* when a stream has come to its end, or its client has left."""
    response._resource_closers.append(end)


# ---- what is set


_making = threading.Lock()
"""The first requests may come at once; two of a kind would be one too many."""


def _dibs() -> Dibs:
    with _making:
        return _made(Dibs)


@contextlib.asynccontextmanager
async def _adibs(request: Any) -> AsyncIterator[AsyncDibs]:
    """That of the event loop. Under WSGI each view has a loop of its own, and needs its own."""
    if isinstance(request, ASGIRequest):
        yield _made(AsyncDibs)
    else:
        async with _made.__wrapped__(AsyncDibs) as dibs:
            yield dibs


@functools.cache
def _made(kind: Callable[..., Any]) -> Any:
    options = getattr(settings, "DIBS_OPTIONS", {})
    return kind(_url(), **{"namespace": getattr(settings, "DIBS_NAMESPACE", ""), **options})


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
    facts = _facts(policy, request, name, None if who is None else str(who))
    return submission_of(policy, facts, key_lines(keys), str(settings.SECRET_KEY).encode())


def _facts(policy: Policy, request: Any, name: str, user: str | None) -> Facts:
    headers = {key.lower(): value for key, value in request.headers.items()}
    match = request.resolver_match  # a middleware comes before it
    fields = match.kwargs if match else policy.parts_of(request.path)
    return Facts(
        method=str(request.method),
        route=name,
        path=request.path,
        query=request.META.get("QUERY_STRING", ""),
        headers=headers,
        body=_body(request, headers),
        user=user,
        path_fields={key: str(value) for key, value in fields.items()},
    )


def _body(request: Any, headers: dict[str, str]) -> bytes:
    """The body; of a form with files, its text fields: uploads are no part of a key."""
    # Django reads forms that are posted, and no others.
    if request.content_type != "multipart/form-data" or request.method != "POST":
        return request.body
    headers["content-type"] = "application/x-www-form-urlencoded"
    fields = [(name, value) for name, values in request.POST.lists() for value in values]
    return urlencode(fields, errors="surrogatepass").encode()


def _route_of(request: Any) -> str:
    match = request.resolver_match
    return f"{request.method} /{match.route}" if match else f"{request.method} *"


def _who(request: Any) -> object:
    """Who submits: DIBS_USER says so, or the user who is logged in, or the request itself."""
    chosen = getattr(settings, "DIBS_USER", None)
    if chosen:
        return _chosen_user(chosen)(request)
    user = getattr(request, "user", None)
    return _known(user) or _stranger(request)


async def _awho(request: Any) -> object:
    """The same, where asking the database must not stop the event loop."""
    chosen = getattr(settings, "DIBS_USER", None)
    if chosen:
        who = _chosen_user(chosen)(request)
        return await who if isinstance(who, Awaitable) else who
    ask = getattr(request, "auser", None)
    user = await ask() if ask is not None else None
    return _known(user) or _stranger(request)


def _known(user: Any) -> str | None:
    return f"user {user.pk}" if user is not None and user.is_authenticated else None


def _stranger(request: Any) -> str | None:
    """As far as the request itself tells, and from what: else a header could be filled in with
    somebody's number or address.
    """
    for name in ("Authorization", "Cookie"):
        if request.headers.get(name):
            return f"{name.lower()} {request.headers[name]}"
    address = request.META.get("REMOTE_ADDR")
    return f"address {address}" if address else None


# ---- the answer


def _recorded(policy: Policy, response: object) -> Recording:
    """The answer, as far as it can be kept: a stream is left alone."""
    recording = Recording(policy)
    if not isinstance(response, HttpResponseBase):
        recording.begin(500, ())  # Django is about to say what is wrong with it
        return recording
    recording.begin(response.status_code, tuple(response.items()))
    if not isinstance(response, HttpResponse):
        recording.give_up()
    elif policy.after == "replay":
        recording.add(response.content)
    return recording


def _wants_rendering(policy: Policy, response: Any) -> bool:
    """True: a TemplateResponse, which has no content before Django renders it, later."""
    return policy.after == "replay" and not getattr(response, "is_rendered", True)


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in answer.headers:
        response[name] = value
    return response
