"""Duplicate submissions and idempotency keys for Django: a decorator on the view, or a middleware.

    # settings.py
    DIBS_URL = "redis://…"
    DIBS_OPTIONS = {"budget": 0.5}             # optional: what else Dibs is told
    DIBS_USER = "shop.people.tenant_of"        # optional: a function of the request
    DIBS_SERVICE = "shop"                      # optional; default: ROOT_URLCONF
    DIBS_POLICIES = [Policy("POST /orders/", window=86400, after="replay", key="required")]
    MIDDLEWARE = [..., "dibs.integrations.django.DibsMiddleware"]     # after authentication

    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    def order(request): ...

Sync and async views alike. The decorator needs no middleware. Hashes are keyed by SECRET_KEY.
Django REST framework: `dibs.integrations.drf`.
"""

# pyright: basic
# Django comes without types: what it hands us is unknown.

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_and_async_middleware

from .._async.claim import AsyncClaim
from .._async.client import AsyncDibs
from .._http.answers import Answer
from .._http.decorators import Once, PreventDuplicateSubmit
from .._http.policy import Policy, check_routes, find
from .._http.recording import Recording
from .._sync.claim import Claim
from .._sync.client import Dibs
from ..errors import UsageError
from ._claims import aclaimed, aended, applied, claimed, ended
from ._django_requests import asked_of, awho, is_open, plain_request, who

__all__ = ["DibsMiddleware", "Policy", "exempt", "once", "prevent_duplicate_submit"]

View = Callable[..., Any]
_EXEMPT = "dibs_exempt"
_UNSET: Any = object()
_CALLERS_FAULT = (Http404, PermissionDenied, SuspiciousOperation, BadRequest)
"""Django makes a 4xx of these: the caller may mend it and try again."""


# ---- the decorator


def guard(policy: Policy, view: View) -> View:
    """*view*, with a claim around it. It may be a function, or a method of a class."""
    if _is_async(view):
        return _guard_async(policy, view)

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = _request_in(args)
        return _run(policy, _route_of(request), request, lambda: view(*args, **kwargs))

    return guarded


def _is_async(view: Any) -> bool:
    """True: calling it makes something to be awaited. `dispatch` of a class is always plain."""
    owner = getattr(getattr(view, "func", view), "__self__", None)
    return iscoroutinefunction(view) or getattr(owner, "view_is_async", False) is True


def _guard_async(policy: Policy, view: View) -> View:
    @functools.wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = _request_in(args)
        return await _arun(policy, _route_of(request), request, lambda: view(*args, **kwargs))

    return guarded


def _request_in(args: tuple[Any, ...]) -> Any:
    """The request: the first argument of a function, the second one of a method."""
    for each in args[:2]:
        if hasattr(each, "META"):
            return each
    raise UsageError("this view was called without a request")


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)


def exempt(view: View) -> View:
    """Let the middleware leave *view* alone: a function, or a class."""
    setattr(view, _EXEMPT, True)
    return view


# ---- the middleware


@sync_and_async_middleware
def DibsMiddleware(get_response: View) -> View:  # noqa: N802 – named as a class in MIDDLEWARE
    """Guards the routes of DIBS_POLICIES. A request that none is meant for is not touched."""
    policies = tuple(getattr(settings, "DIBS_POLICIES", ()))
    check_routes(policies)

    def middleware(request: Any) -> HttpResponseBase:
        policy = _policy_for(policies, request)
        if policy is None:
            return get_response(request)
        return _run(policy, policy.route, request, lambda: get_response(request))

    async def amiddleware(request: Any) -> HttpResponseBase:
        policy = _policy_for(policies, request)
        if policy is None:
            return await get_response(request)
        return await _arun(policy, policy.route, request, lambda: get_response(request))

    return amiddleware if iscoroutinefunction(get_response) else middleware


def _policy_for(policies: tuple[Policy, ...], request: Any) -> Policy | None:
    """By the path with the script's name, or without it; None: nobody's, or exempt."""
    policy = find(policies, str(request.method), request.path_info, request.path)
    return None if policy is None or _is_exempt(request) else policy


def _is_exempt(request: Any) -> bool:
    """True: the view says so, or its class. A view that is not found is not exempt."""
    try:
        view = resolve(request.path_info, getattr(request, "urlconf", None)).func
    except Resolver404:
        return False
    owners = (view, getattr(view, "view_class", None), getattr(view, "cls", None))
    return any(getattr(each, _EXEMPT, False) for each in owners)


# ---- a view, with a claim around it


def _run(policy: Policy, name: str, request: Any, work: Callable[[], Any]) -> HttpResponseBase:
    if is_open(policy, request):
        return work()
    submission = asked_of(policy, name, request, who(request))
    claim = claimed(_dibs(), policy, name, submission)
    if isinstance(claim, Answer):
        return _response(claim)
    policy = applied(policy, submission)
    response = _worked(claim, work)
    _watch(response, policy, functools.partial(ended, claim), claim.fail)
    return response


def _worked(claim: Claim, work: Callable[[], Any]) -> Any:
    """What the view answers. An exception is raised, and ends the claim."""
    try:
        return work()
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
    if is_open(policy, request):
        return await work()
    submission = asked_of(policy, name, request, await awho(request))
    if not isinstance(plain_request(request), ASGIRequest):
        return await _arun_in_threads(policy, name, submission, work)
    claim = await aclaimed(_made(AsyncDibs), policy, name, submission)
    if isinstance(claim, Answer):
        return _response(claim)
    return await _finished(_aworked(applied(policy, submission), claim, work))


async def _aworked(policy: Policy, claim: AsyncClaim, work: Callable[[], Awaitable[Any]]) -> Any:
    """What the view answers. An exception is raised, and ends the claim."""
    try:
        response = await work()
    except _CALLERS_FAULT:
        claim.release()
        await claim.finish()
        raise
    except BaseException:
        await claim.fail()
        raise
    if _is_later(response):
        loop = asyncio.get_running_loop()
        end = functools.partial(_from_anywhere, loop, aended, claim)
        _watch(
            response, policy, end, functools.partial(_from_anywhere, loop, AsyncClaim.fail, claim)
        )
    else:
        await aended(claim, _recorded(policy, response))
    return response


async def _finished(work: Any) -> Any:
    """The result of *work*, which ends before a client that leaves can cancel it.

    Django cancels the view of a client that has left. Half of the work, or the work of a thread
    that goes on, would be done again by the retry. A second cancellation is obeyed.
    """
    context = contextvars.copy_context()
    task = asyncio.create_task(work, context=context)
    try:
        result = await asyncio.shield(task)
    except asyncio.CancelledError:
        await _patiently(task)
        raise
    for variable, value in context.items():  # as if it had run here
        if variable.get(_UNSET) is not value:
            variable.set(value)
    return result


async def _patiently(task: "asyncio.Task[Any]") -> None:
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
    if task.done() and not task.cancelled():
        task.exception()  # nobody else asks for it


async def _arun_in_threads(
    policy: Policy, name: str, submission: Any, work: Callable[[], Awaitable[Any]]
) -> HttpResponseBase:
    """An async view under WSGI has an event loop of its own, which ends with it: the claim does
    not belong to that.
    """
    claim = await sync_to_async(claimed, thread_sensitive=False)(_dibs(), policy, name, submission)
    if isinstance(claim, Answer):
        return _response(claim)
    try:
        response = await work()
    except BaseException as error:
        if isinstance(error, _CALLERS_FAULT):
            claim.release()
        await sync_to_async(claim.fail, thread_sensitive=False)()
        raise
    end = functools.partial(ended, claim)
    watch = sync_to_async(_watch, thread_sensitive=False)
    await watch(response, applied(policy, submission), end, claim.fail)
    return response


def _from_anywhere(loop: asyncio.AbstractEventLoop, end: Callable[..., Any], *args: Any) -> None:
    """Run *end* in *loop*; from another thread, wait until it is done."""
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    future = asyncio.run_coroutine_threadsafe(end(*args), loop)
    if not is_here:
        with contextlib.suppress(TimeoutError):  # of a loop that is stopping: the lease runs out
            future.result(10)


# ---- the answer


def _is_later(response: Any) -> bool:
    """True: it is made while it is sent, or rendered after the view."""
    return _is_stream(response) or not getattr(response, "is_rendered", True)


def _is_stream(response: Any) -> bool:
    return getattr(response, "streaming", False)


def _watch(
    response: Any, policy: Policy, end: Callable[[Recording], object], fail: Callable[[], object]
) -> None:
    """Let the claim end with the answer: at once, once it is rendered, or when a stream ends."""
    if _is_stream(response):
        response._resource_closers.append(lambda: end(_recorded(policy, response)))
    elif _is_later(response):
        _end_when_rendered(response, lambda: end(_recorded(policy, response)), fail)
    else:
        end(_recorded(policy, response))


def _end_when_rendered(
    response: Any, end: Callable[[], object], fail: Callable[[], object]
) -> None:
    """Templates, and answers of Django REST framework: what they say is known once rendered."""
    render = response.render

    def watched() -> Any:
        try:
            rendered = render()
        except BaseException:
            fail()
            raise
        return rendered

    response.render = watched
    response.add_post_render_callback(lambda _: end())


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


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in answer.headers:
        response[name] = value
    return response


# ---- what is set


_making = threading.Lock()
"""The first requests may come at once; two of a kind would be one too many."""


def _dibs() -> Dibs:
    with _making:
        return _made(Dibs)


@functools.cache
def _made(kind: Callable[..., Any]) -> Any:
    options = getattr(settings, "DIBS_OPTIONS", {})
    return kind(_url(), **{"namespace": getattr(settings, "DIBS_NAMESPACE", ""), **options})


def _url() -> str:
    url = getattr(settings, "DIBS_URL", None)
    if not url:
        raise UsageError("dibs needs DIBS_URL in the Django settings: redis://…")
    return url


def _route_of(request: Any) -> str:
    match = request.resolver_match
    return f"{request.method} /{match.route}" if match else f"{request.method} *"
