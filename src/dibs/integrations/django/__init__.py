"""Duplicate submissions and idempotency keys for Django: a decorator on the view, or a middleware.

    # settings.py
    DIBS_URL = "redis://…"
    DIBS_OPTIONS = {"budget": 0.5}             # optional: further arguments of Dibs
    DIBS_USER = "shop.people.tenant_of"        # optional: a function of the request
    DIBS_SERVICE = "shop"                      # optional; default: ROOT_URLCONF
    DIBS_REFUSED = "shop.pages.refused"        # optional: a page in place of the JSON of a refusal
    DIBS_POLICIES = [Policy("POST /orders/", window=86400, after="replay", key="required")]
    MIDDLEWARE = [..., "dibs.integrations.django.DibsMiddleware"]     # after authentication

    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    def order(request): ...

Sync and async views alike. The decorator needs no middleware. Hashes are keyed by SECRET_KEY.
Django REST framework: `dibs.integrations.drf`.
"""

# pyright: basic
# Django has no types.

import asyncio
import contextlib
import contextvars
import functools
import inspect
import json
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from .. import needs

with needs("django"):
    from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
    from django.conf import settings
    from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
    from django.core.handlers.asgi import ASGIRequest
    from django.http import Http404, HttpResponse, HttpResponseBase
    from django.urls import Resolver404, resolve
    from django.utils.decorators import sync_and_async_middleware

from ... import AsyncDibs, Dibs
from ..._http.decorators import Once, PreventDuplicateSubmit, TransactionOpener
from ..._http.facts import InvalidRequest, endpoint_method
from ..._http.policy import Policy, check_routes, mark_guarded, match_policy, outcome_of
from ..._http.problems import busy, is_refusal
from ..._http.responses import Recording, Response
from ..._http.submission import Submission, applied
from ..._http.throttle import Throttle, ThrottleAnswer, Throttled
from ..._internal_api import Guard, open_in_django, signature_of, throttling
from ...errors import Unavailable, UsageError
from .._async import http_claims as async_claims
from .._django_claims import OwnedClaim, own, record_stream
from .._django_requests import (
    asubmission_for,
    auser_of,
    imported,
    is_unguarded,
    marks_of,
    plain_request,
    submission_for,
    user_of,
)
from .._request_transaction import STREAMED, run_within, within_of
from .._sync import http_claims as sync_claims
from .transactions import atomic, fenced, when_committed

if TYPE_CHECKING:
    from ..._internal_api import AsyncClaim, Claim

__all__ = [
    "DibsMiddleware",
    "Policy",
    "atomic",
    "exempt",
    "fenced",
    "once",
    "prevent_duplicate_submit",
    "throttled",
]

View = Callable[..., Any]
_EXEMPT = "dibs_exempt"
_UNSET: Any = object()
_CLIENT_ERRORS = (Http404, PermissionDenied, SuspiciousOperation, BadRequest)


# ---- the decorator


def guard(policy: Policy, view: View, within: TransactionOpener[Any] | None = None) -> View:
    """Return *view*, run under a claim. It may be a function, or a method of a class."""
    if within is not None:
        return _guard_within(policy, view, within)
    if _is_async(view):
        return _guard_async(policy, view)

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = _request_in(args)
        return _run(policy, _route_of(request), request, lambda: view(*args, **kwargs))

    return guarded


def _guard_within(policy: Policy, view: View, within: TransactionOpener[Any]) -> View:
    """Raise UsageError if an async view, or one that has no parameter for the transaction."""
    if _is_async(view):
        raise UsageError(
            "within= is for plain views, as Django's transactions are; call a function with "
            "dibs.once(…, within=…) from an async view, by sync_to_async"
        )
    opened, _, find = within_of(within, policy, signature_of(view), is_async=False)

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request, since = _request_in(args), time.monotonic()

        def rendered(*args: Any, **kwargs: Any) -> Any:
            return _rendered_response(request, view(*args, **kwargs))

        if is_unguarded(policy, request):
            return opened.run(rendered, args, kwargs)
        claimed = _claimed_or_response(policy, _route_of(request), request, find)
        if isinstance(claimed, Response):
            return _answer_with(request, claimed)
        submission, claim = claimed
        given = (submission, since, _recorded_whole, rendered, args, kwargs)
        response = _work_with_claim(claim, lambda: run_within(opened, claim, *given))
        return _answer_with(request, response) if isinstance(response, Response) else response

    return guarded


def _rendered_in_transaction(request: Any, response: Any) -> Any:
    """Render *response* if the view is in a transaction.

    What comes after the COMMIT may fail, and the claim has ended by then.
    """
    return _rendered_response(request, response) if open_in_django() else response


def _rendered_response(request: Any, response: Any) -> Any:
    """Render *response*: templates, and responses of Django REST framework, have no body yet."""
    if getattr(response, "is_rendered", True):
        return response
    view = (getattr(request, "parser_context", None) or {}).get("view")
    if view is not None and not hasattr(response, "accepted_renderer"):
        response = view.finalize_response(request, response, *view.args, **view.kwargs)
    return response.render()


def _is_async(view: Any) -> bool:
    """Return True if calling it returns an awaitable.

    `dispatch` of a class is always a plain function.
    """
    owner = getattr(getattr(view, "func", view), "__self__", None)
    return iscoroutinefunction(view) or getattr(owner, "view_is_async", False) is True


def _guard_async(policy: Policy, view: View) -> View:
    @functools.wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = _request_in(args)
        return await _arun(policy, _route_of(request), request, lambda: view(*args, **kwargs))

    return guarded


def _request_in(args: tuple[Any, ...]) -> Any:
    """Return the request: the first argument of a function, the second one of a method."""
    for each in args[:2]:
        if hasattr(each, "META"):
            return each
    raise UsageError("the view was called without a request")


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)


def _throttled_view(throttle: Throttle, view: View) -> View:
    """Return *view*, counted at each request. A function as the key gets the request."""
    if _is_async(view):
        return _athrottled_view(throttle, view)

    @functools.wraps(view)
    def counted(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = _request_in(args)
        answer = _count_request(
            throttle, throttle.key_of(kwargs, request), throttle.cost_of(request)
        )
        if answer.refusal is not None:
            return _answer_with(request, answer.refusal)
        return _with_fields(answer, view(*args, **kwargs))

    return counted


def _athrottled_view(throttle: Throttle, view: View) -> View:
    @functools.wraps(view)
    async def counted(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = _request_in(args)
        key = throttle.key_of(kwargs, request)
        key = await key if inspect.isawaitable(key) else key
        cost = throttle.cost_of(request)
        cost = await cost if inspect.isawaitable(cost) else cost
        if isinstance(plain_request(request), ASGIRequest):
            answer = await _acount_request(throttle, key, cost)
        else:  # the event loop of one view
            answer = await sync_to_async(_count_request, thread_sensitive=False)(
                throttle, key, cost
            )
        if answer.refusal is not None:
            return await _aanswer_with(request, answer.refusal)
        return _with_fields(answer, await view(*args, **kwargs))

    return counted


def _count_request(throttle: Throttle, key: str, cost: int) -> ThrottleAnswer:
    try:
        outcome = throttling(_dibs(), key, throttle.name, throttle.options, cost)
        return throttle.answer(outcome)
    except Unavailable as error:
        return ThrottleAnswer((), busy(error))


async def _acount_request(throttle: Throttle, key: str, cost: int) -> ThrottleAnswer:
    try:
        dibs = _made(AsyncDibs)
        outcome = await throttling(dibs, key, throttle.name, throttle.options, cost)
        return throttle.answer(outcome)
    except Unavailable as error:
        return ThrottleAnswer((), busy(error))


def _with_fields(answer: ThrottleAnswer, response: Any) -> Any:
    for name, value in answer.fields:
        response[name] = value if name not in response else f"{response[name]}, {value}"
    return response


throttled = Throttled(_throttled_view)


def exempt(view: View) -> View:
    """Exempt *view*, a function or a class, from the middleware."""
    setattr(view, _EXEMPT, True)
    return view


# ---- the middleware


@sync_and_async_middleware
def DibsMiddleware(get_response: View) -> View:  # noqa: N802 – named as a class in MIDDLEWARE
    """Guards the routes of DIBS_POLICIES. All other requests are passed on unchanged."""
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
    """Return the policy for the path, with or without SCRIPT_NAME; None: not guarded, or exempt."""
    policy = match_policy(policies, str(request.method), request.path_info, request.path)
    return None if policy is None or _is_exempt(request) else policy


def _is_exempt(request: Any) -> bool:
    """Return True if the view or its class is exempt. A view that is not found is not exempt."""
    try:
        view = resolve(request.path_info, getattr(request, "urlconf", None)).func
    except Resolver404:
        return False
    owners = (view, getattr(view, "view_class", None), getattr(view, "cls", None))
    return any(getattr(each, _EXEMPT, False) for each in owners)


# ---- running a view under a claim


def _run(policy: Policy, name: str, request: Any, work: Callable[[], Any]) -> HttpResponseBase:
    if is_unguarded(policy, request):
        return work()
    claimed = _claimed_or_response(policy, name, request)
    if isinstance(claimed, Response):
        return _answer_with(request, claimed)
    policy, outcome = claimed[0].policy, claimed[1]
    response = _work_with_claim(outcome, lambda: _rendered_in_transaction(request, work()))
    end = functools.partial(sync_claims.end_claim, outcome, policy)
    _end_with(request, response, OwnedClaim(policy, outcome, end, outcome.fail))
    return response


def _claimed_or_response(
    policy: Policy, name: str, request: Any, find: Any = None
) -> "tuple[Submission, Claim] | Response":
    """Return the claim of a request, or the response in its place. *find*: as in `ClaimRequest`."""
    submission = submission_for(policy, name, request, user_of(request))
    mark_guarded(marks_of(request))
    outcome = sync_claims.claim_request(_dibs(), policy, name, submission, find)
    if isinstance(outcome, Response) or isinstance(submission, InvalidRequest):
        return cast(Response, outcome)
    return submission, outcome


def _work_with_claim(claim: "Claim", work: Callable[[], Any]) -> Any:
    """Return the response of the view. An exception ends the claim."""
    try:
        return work()
    except BaseException as error:
        if _is_client_error(error):
            claim.release()
        claim.fail()
        raise


def _is_client_error(error: BaseException) -> bool:
    """Return whether Django or Django REST framework makes a 4xx of it.

    Then the client may correct the request and try again.
    """
    return isinstance(error, _CLIENT_ERRORS) or 400 <= getattr(error, "status_code", 0) < 500


async def _arun(
    policy: Policy, name: str, request: Any, work: Callable[[], Awaitable[Any]]
) -> HttpResponseBase:
    if is_unguarded(policy, request):
        return await work()
    submission = await asubmission_for(policy, name, request, await auser_of(request))
    mark_guarded(marks_of(request))
    if not isinstance(plain_request(request), ASGIRequest):
        return await _arun_in_threads(policy, name, request, submission, work)
    outcome = await async_claims.claim_request(_made(AsyncDibs), policy, name, submission)
    if isinstance(outcome, Response):
        return await _aanswer_with(request, outcome)
    return await _finished_result(
        _awork_with_claim(applied(policy, submission), outcome, request, work)
    )


async def _awork_with_claim(
    policy: Policy, claim: "AsyncClaim", request: Any, work: Callable[[], Awaitable[Any]]
) -> Any:
    """Return the response of the view. An exception ends the claim."""
    try:
        response = await work()
    except BaseException as error:
        if _is_client_error(error):
            claim.release()
        await claim.fail()
        raise
    if _is_later(response):
        loop = asyncio.get_running_loop()
        end = functools.partial(_run_in_loop, loop, async_claims.end_claim, claim, policy)
        fail = functools.partial(_run_in_loop, loop, claim.fail)
        _end_with(request, response, OwnedClaim(policy, claim, end, fail))
    elif _is_of_exception(response):
        claim.release()
        await claim.fail()
    else:
        await async_claims.end_claim(claim, policy, _recorded_response(policy, response))
    return response


async def _finished_result(work: Any) -> Any:
    """Return the result of *work*, which is not interrupted when the client disconnects.

    Django cancels the view of a client that has disconnected. Work that is half done, or continues
    in a thread, would be done again by a retry. A second cancellation does cancel it.
    """
    context = contextvars.copy_context()
    task = asyncio.create_task(work, context=context)
    try:
        result = await asyncio.shield(task)
    except asyncio.CancelledError:
        await _wait_for(task)
        if task.done() and not task.cancelled() and task.exception() is None:
            # Django has dropped the response: what is made of it later would never be.
            await sync_to_async(task.result().close, thread_sensitive=False)()
        raise
    for variable, value in context.items():  # as if *work* had run in this task
        if variable.get(_UNSET) is not value:
            variable.set(value)
    return result


async def _wait_for(task: "asyncio.Task[Any]") -> None:
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
    if task.done() and not task.cancelled():
        task.exception()  # marks it as retrieved


async def _arun_in_threads(
    policy: Policy, name: str, request: Any, submission: Any, work: Callable[[], Awaitable[Any]]
) -> HttpResponseBase:
    """Claim with a `Dibs` in a thread.

    An async view under WSGI runs in an event loop that ends with the view.
    """
    held = await sync_to_async(sync_claims.claim_request, thread_sensitive=False)(
        _dibs(), policy, name, submission
    )
    if isinstance(held, Response):
        return await _aanswer_with(request, held)
    try:
        response = await work()
    except BaseException as error:
        if _is_client_error(error):
            held.release()
        await sync_to_async(held.fail, thread_sensitive=False)()
        raise
    policy = applied(policy, submission)
    ending = functools.partial(sync_claims.end_claim, held, policy)
    owned = OwnedClaim(policy, held, ending, held.fail)
    if _is_stream(response):
        _end_with(request, response, owned)
    else:
        await sync_to_async(_end_with, thread_sensitive=False)(request, response, owned)
    return response


def _run_in_loop(loop: asyncio.AbstractEventLoop, end: Callable[..., Any], *args: Any) -> None:
    """Run *end* in *loop*; from another thread, wait until it is done."""
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    future = asyncio.run_coroutine_threadsafe(end(*args), loop)
    if not is_here:
        with contextlib.suppress(TimeoutError):  # the loop is stopping: the lease expires
            future.result(10)


# ---- the response


def _is_later(response: Any) -> bool:
    """Return True if the body is made while it is sent, or rendered after the view."""
    return _is_stream(response) or not getattr(response, "is_rendered", True)


def _is_stream(response: Any) -> bool:
    return getattr(response, "streaming", False)


def _end_with(request: Any, response: Any, owned: OwnedClaim) -> None:
    """End the claim with the response: now, once it is rendered, or when its stream ends.

    If the view is in a transaction, as ATOMIC_REQUESTS opens one, with its COMMIT; a response that
    stands for what is rolled back is no success.
    """
    if _is_of_exception(response):
        owned.release()
    elif _is_stream(response):
        own(plain_request(request), owned)
        record_stream(response, owned)
        if open_in_django():
            when_committed(bool, owned.fail)
    elif _is_later(response) and not open_in_django():
        own(plain_request(request), owned)
        _end_when_rendered(response, owned)
    else:
        recording = _recorded_response(owned.policy, response)
        ended = functools.partial(owned.end_by, recording)
        is_success = outcome_of(owned.policy, recording) == "returned"
        when_committed(ended, owned.fail if is_success else ended)


def _is_of_exception(response: Any) -> bool:
    """True: Django REST framework has made it of an exception below 500, and rolled back."""
    return getattr(response, "exception", False) is True and response.status_code < 500


def _end_when_rendered(response: Any, owned: OwnedClaim) -> None:
    """Templates, and responses of Django REST framework, have a body only once rendered."""
    render = response.render

    def rendered() -> Any:
        try:
            page = render()
        except BaseException:
            owned.fail()
            raise
        return page

    response.render = rendered
    response.add_post_render_callback(
        lambda page: owned.end_by(_recorded_response(owned.policy, page))
    )


def _recorded_response(policy: Policy, response: object) -> Recording:
    """Return the response as far as it can be stored; a stream cannot."""
    recording = Recording(policy.record_limit)
    if not isinstance(response, HttpResponseBase):
        recording.begin(500, ())  # Django is about to raise an error for it
        return recording
    recording.begin(response.status_code, response.items())
    if not isinstance(response, HttpResponse):
        recording.discard()
    elif recording.reads_body:
        recording.add(response.content)
    return recording


def _recorded_whole(policy: Policy, response: object) -> Recording:
    """Return the response. Raises UsageError if it is a stream."""
    if _is_stream(response):
        raise UsageError(STREAMED)
    return _recorded_response(policy, response)


def _answer_with(request: Any, response: Response) -> HttpResponseBase:
    """Return the response in place of the view's.

    A replay, a refusal, or the page of DIBS_REFUSED.
    """
    make = _page_maker(response)
    if make is None:
        return _django_response(response)
    make = async_to_sync(make) if iscoroutinefunction(make) else make
    return _rendered_page(make(request, json.loads(response.body)), response)


async def _aanswer_with(request: Any, response: Response) -> HttpResponseBase:
    """Answer in an event loop. A page may query the user: what is not async runs in a thread."""
    make = _page_maker(response)
    if make is None:
        return _django_response(response)
    make = make if iscoroutinefunction(make) else sync_to_async(make)
    page = await make(request, json.loads(response.body))
    return await sync_to_async(_rendered_page)(page, response)


def _page_maker(response: Response) -> View | None:
    """Return the function that makes a page of *response*.

    None: there is none, or it is a replay.
    """
    path = getattr(settings, "DIBS_REFUSED", None)
    return imported(path) if path and is_refusal(response) else None


def _rendered_page(page: Any, refusal: Response) -> HttpResponseBase:
    """Return *page*, rendered, with the headers of *refusal* that it does not set itself.

    None: JSON.
    """
    if page is None:
        return _django_response(refusal)
    if not getattr(page, "is_rendered", True):
        page.render()
    for name, value in refusal.headers:
        if name in ("retry-after", "cache-control", "ratelimit", "ratelimit-policy"):
            page.setdefault(name, value)
    return page


def _django_response(response: Response) -> HttpResponse:
    answer = HttpResponse(response.body, status=response.status)
    del answer["Content-Type"]
    for name, value in response.headers:
        answer[name] = value
    return answer


# ---- settings


_making = Guard()
"""The first requests may arrive in several threads at once; they share one Dibs."""


def _dibs() -> Dibs:
    with _making:
        return _made(Dibs)


def make_dibs(kind: Callable[..., Any]) -> Any:
    """Return a `Dibs` or `AsyncDibs` as the settings say. UsageError: DIBS_URL is missing."""
    options = getattr(settings, "DIBS_OPTIONS", {})
    return kind(
        _configured_url(), **{"namespace": getattr(settings, "DIBS_NAMESPACE", ""), **options}
    )


_made = functools.cache(make_dibs)


def _configured_url() -> str:
    url = getattr(settings, "DIBS_URL", None)
    if not url:
        raise UsageError("the Django setting DIBS_URL is missing: redis://…")
    return url


def _route_of(request: Any) -> str:
    match, method = request.resolver_match, endpoint_method(str(request.method))
    return f"{method} /{match.route}" if match else f"{method} *"
