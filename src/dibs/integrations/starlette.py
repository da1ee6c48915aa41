"""Duplicate submissions and idempotency keys for Starlette: a decorator on the endpoint.

    install(app, AsyncDibs("redis://…"))

    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    async def order(request): ...

The endpoint is claimed after authentication, and the claim ends with the last piece of the
response, before that is sent. FastAPI: `dibs.integrations.fastapi`.
"""

import asyncio
import functools
import inspect
import time
from collections.abc import Callable
from typing import Annotated, Any, Unpack, cast, get_args, get_origin

from . import needs

with needs("starlette"):
    from anyio import CapacityLimiter
    from anyio.to_thread import run_sync
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import UploadFile
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request

from .. import AsyncDibs
from .._http.bodies import Field, SpooledSize, file_hash, form_fields
from .._http.decorators import Once, PreventDuplicateSubmit, TransactionOpener, check_registered
from .._http.facts import (
    INCOMPLETE,
    NO_ROOM,
    TIMED_OUT,
    InvalidRequest,
    RequestFacts,
    RequestHeaders,
    endpoint_method,
    too_large,
)
from .._http.policy import (
    GuardKeywords,
    GuardOptions,
    Policy,
    guard_options,
    mark_guarded,
    unmark_guarded,
)
from .._http.problems import busy, refusal_response
from .._http.responses import Response
from .._http.submission import Submission, routed_place
from .._http.throttle import Throttle, Throttled
from .._internal_api import NotOurs, key_of, signature_of, throttling
from ..errors import Unavailable, UsageError
from ._async.http_claims import claim_request
from ._fastapi_values import given_values
from ._request_transaction import OpenTransaction, left_of, table_response, within_of
from ._response_end import (
    App,
    Message,
    Receive,
    Recorder,
    RequestEnd,
    RequestLeases,
    Scope,
    Send,
)
from ._starlette_routes import (
    GUARD,
    Refused,
    answer,
    check_routes_of,
    found_by,
    is_dependency,
    mark_within,
    path_fields_of,
    policy_for,
    refused,
    route_of,
    template_of,
    with_fields,
    with_headers_of,
)
from .asgi import (
    client_address,
    closing,
    decided,
    headers_of,
    keep_headers,
    keys_of,
    mount_of,
    path_of,
    query_of,
    resolved,
    send_response,
)

__all__ = ["Policy", "Refused", "install", "once", "prevent_duplicate_submit", "throttled"]

User = Callable[[Request], Any]


def install(app: Starlette, dibs: AsyncDibs | str, **options: Unpack[GuardKeywords[User]]) -> None:
    """Guard the decorated endpoints of *app*.

    Args:
        dibs: An AsyncDibs, which you close, or a URL.
        user: Called with the request; may be async.
        **options: `GuardKeywords`.

    Raises:
        UsageError: An option is invalid, or *app* is running already.
    """
    if app.middleware_stack is not None:
        raise UsageError("call install(app, dibs) before the app serves its first request")
    # Inside of all others, in whatever order they are added: the response is stored as the endpoint
    # made it, and a replay passes compression, CORS and sessions again.
    checked = guard_options("install", options)
    app.user_middleware.append(Middleware(cast(Any, _Middleware), dibs=dibs, options=checked))


# ---- the endpoint


def guard(
    policy: Policy, function: Callable[..., Any], within: TransactionOpener[Any] | None = None
) -> Callable[..., Any]:
    """Return *function*, run under a claim. It needs no `request` parameter."""
    _check(function)
    # A plain function may have been wrapped around an async one.
    is_async = _is_async(function) or _is_async(inspect.unwrap(function))
    call = function if is_async else functools.partial(run_in_threadpool, function)
    signature = _resolved_signature(function)
    opened: _Within | None = None
    if within is not None:
        opened = _Within(within, policy, function, signature, is_async=is_async)
        signature = opened.signature
    signature, name, is_added = _with_request(signature)

    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        request = _find_request(args, kwargs, name, remove=is_added)
        guard = _guard_of(request)
        if opened is not None and is_dependency(request.scope, guarded):
            raise UsageError("within= is for the endpoint, not for its dependencies")
        given = given_values(policy.by, request, guarded, kwargs) if policy.by else {}
        find = None if opened is None else opened.find
        response = await guard.claim(policy, request, given, find)
        if response is None and opened is None:
            return await resolved(call(*args, **kwargs))
        if response is None and opened is not None:
            response, result = await guard.run_within(opened, args, kwargs)
            if response is None:
                return result
        assert response is not None
        await request.close()  # the files of a form, which will not be read
        if is_dependency(request.scope, guarded):
            raise refused(request, response)  # a dependency cannot return a response
        return answer(request, response)

    shown: Any = guarded
    shown.__signature__ = signature
    if opened is not None:
        mark_within(shown, opened.find)
    return shown


def _throttled_function(throttle: Throttle, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function*, counted at each request."""
    _check(function)
    is_async = _is_async(function) or _is_async(inspect.unwrap(function))
    call = function if is_async else functools.partial(run_in_threadpool, function)
    signature, name, is_added = _with_request(_resolved_signature(function))

    @functools.wraps(function)
    async def counted(*args: Any, **kwargs: Any) -> Any:
        request = _find_request(args, kwargs, name, remove=is_added)
        key = cast(str, await resolved(throttle.key_of(request.path_params, request)))
        refusal_response = await count(request, throttle, key)
        if refusal_response is None:
            return await resolved(call(*args, **kwargs))
        return answer(request, refusal_response)

    shown: Any = counted
    shown.__signature__ = signature
    return shown


async def count(request: Request, throttle: Throttle, key: str) -> Response | None:
    """Count a request. Returns the refusal; None: run it."""
    guard = _guard_of(request)
    try:
        cost = cast(int, await resolved(throttle.cost_of(request)))
        outcome = await throttling(guard.dibs, key, throttle.name, throttle.options, cost)
    except Unavailable as error:
        return busy(error)
    counted = throttle.answer(outcome)
    guard.fields.extend(counted.fields)
    return counted.refusal


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)
throttled = Throttled(_throttled_function)


class _Within:
    """`within=` of an endpoint.

    An async endpoint gets a transaction for asyncio. A plain one gets a transaction for threads,
    and both run in a thread.
    """

    def __init__(
        self,
        opener: TransactionOpener[Any],
        policy: Policy,
        function: Callable[..., Any],
        signature: inspect.Signature,
        *,
        is_async: bool,
    ) -> None:
        runner = within_of(opener, policy, signature, is_async=is_async)
        self.opening, self.signature, self._find = runner
        self.function = function
        self.call: Any = _call_and_await if is_async else run_in_threadpool
        self.end: Any = _call_and_await if is_async else _ended_in_thread
        """How a transaction is ended."""

    def begin(self, claim: Any, records: Any, args: Any, kwargs: Any, wait: float) -> Any:
        """Return the work, whose transaction is open; or why it is not ours."""
        given = (claim, records, self.function, args, kwargs, wait)
        return self.call(self.opening.begin, *given)

    def find(self, key: bytes) -> Any:
        """What was committed under *key*, to be awaited."""
        return self.end(self._find, key)

    def run(self, args: Any, kwargs: Any) -> Any:
        """Return what the endpoint returns for a request that is not guarded."""
        return self.call(self.opening.run, self.function, args, kwargs)


async def _call_and_await(function: Callable[..., Any], *args: Any) -> Any:
    return await function(*args)


async def _ended_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    # Not one of the threads for endpoints: those may all be waiting for the connection that is
    # released here.
    return await run_sync(function, *args, limiter=CapacityLimiter(1))


def _check(function: Callable[..., Any]) -> None:
    """Raise UsageError if *function* cannot be guarded."""
    if inspect.isclass(function):
        raise UsageError("decorate the methods of an endpoint class, not the class")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError("a generator cannot be guarded; return a StreamingResponse instead")


def _is_async(function: Any) -> bool:
    """Return True if calling it returns an awaitable; it may be an object with `__call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004 – its code is what we want to see
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _with_request(signature: inspect.Signature) -> tuple[inspect.Signature, str, bool]:
    """The signature with a parameter for the request, its name, and whether it was added here."""
    for name, parameter in signature.parameters.items():
        if _is_request(name, parameter.annotation):
            return signature, name, False
    added = inspect.Parameter("dibs_request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    others = list(signature.parameters.values())
    last = len(others) - (others[-1].kind is inspect.Parameter.VAR_KEYWORD) if others else 0
    parameters = [*others[:last], added, *others[last:]]
    return signature.replace(parameters=parameters), "dibs_request", True


def _is_request(name: str, kind: Any) -> bool:
    """Return True if this parameter is the request. A body may be named "request", too."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if inspect.isclass(kind):
        return issubclass(kind, Request) or (kind is inspect.Parameter.empty and name == "request")
    return isinstance(kind, str) and name == "request"


def _resolved_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with annotations as types: text would be evaluated in this module."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # names that exist for type checkers only
        return signature_of(function)


def _find_request(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, *, remove: bool
) -> Request:
    given = kwargs.pop(name, None) if remove else kwargs.get(name)
    for each in (given, *args):
        if isinstance(each, Request):
            return cast(Request, each)
    raise UsageError("the endpoint was called without a request")


def _guard_of(request: Request) -> "_RequestGuard":
    guard = request.scope.get(GUARD)
    if guard is None:
        raise UsageError("call install(app, dibs) once, when the app is created")
    return guard


async def known_response(request: Request) -> Response | None:
    """Return the response to a request whose key was used before; None: it is new."""
    return await _guard_of(request).known_response(request)


def leases_of(request: Request) -> RequestLeases:
    """Return the leases of this request. Raises UsageError if `install` was not called."""
    return _guard_of(request).leases(request)


# ---- the middleware


class _Middleware:
    """Gives each request a guard, from which its endpoint may take a claim."""

    def __init__(self, app: App, *, dibs: AsyncDibs | str, options: GuardOptions[User]) -> None:
        self._app = app
        self._url = dibs if isinstance(dibs, str) else None
        self.dibs = AsyncDibs(dibs) if isinstance(dibs, str) else dibs
        self.options = options
        self._is_checked = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_checked:
            await self._check(scope, receive, send)
        if scope["type"] == "http":
            keep_headers(scope)
            guard = scope[GUARD] = _RequestGuard(self, scope, receive, send)
            await guard.run(self._app)
        elif scope["type"] == "lifespan" and self._url is not None:
            await self._app(scope, receive, closing(send, self._close_client))
        else:
            await self._app(scope, receive, send)

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raise UsageError if a route leads past its guard; a server that starts then ends."""
        try:
            check_routes_of(scope["app"])
        except UsageError as error:
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        self._is_checked = True

    async def _close_client(self) -> None:
        """Close the AsyncDibs that was made from a URL. The application may start again."""
        assert self._url is not None
        old, self.dibs = self.dibs, AsyncDibs(self._url)
        await old.aclose()


class _RequestGuard:
    """Claims one request when its endpoint is called, and records its response from then on."""

    __slots__ = (
        "_end",
        "_form_of",
        "_is_matched",
        "_is_read",
        "_is_started",
        "_leases",
        "_middleware",
        "_policy",
        "_receive",
        "_recorder",
        "_scope",
        "_send",
        "_since",
        "_size_of",
        "_spooled",
        "_submitted",
        "_unread",
        "_until",
        "fields",
        "refusal",
    )  # fmt: skip

    def __init__(self, middleware: _Middleware, scope: Scope, receive: Receive, send: Send) -> None:
        self._middleware = middleware
        self._scope = scope
        self._receive = receive
        self._send = send
        self._recorder: Recorder | None = None
        self._submitted: Submission | None = None
        self._since = 0.0
        """When it was submitted."""
        self._form_of: Request | None = None
        """The request whose form was read here, and is closed here."""
        self._leases: RequestLeases | None = None
        self._end: RequestEnd | None = None
        """None: nothing ends with the response."""
        self._is_started = False
        self._size_of = 0
        self._is_matched = False
        self._policy: Policy | None = None
        """The policy that limits the body; None: there is none, or the route is not known yet."""
        self._is_read = False
        """True: the body has ended."""
        self._until: float | None = None
        """When the body must have arrived; None: it was not asked for."""
        self._spooled = SpooledSize(middleware.options.spool)
        self._unread: tuple[Policy, InvalidRequest] | None = None
        """The policy of a body that was not read, and why, until that is answered."""
        self.refusal: Response | None = None
        """The refusal of which the application makes a page."""
        self.fields: list[tuple[str, str]] = []
        """Headers that are added to the response."""

    @property
    def dibs(self) -> AsyncDibs:
        """The client of the application."""
        return self._middleware.dibs

    # ---- claims and leases

    def leases(self, request: Request) -> RequestLeases:
        """Return the leases that this request holds until its response ends."""
        if self._leases is None:
            self._leases = self._end_of(request).leases = RequestLeases(self._middleware.dibs)
        return self._leases

    def _end_of(self, request: Request) -> RequestEnd:
        """Return what ends with the response. Called in the task of FastAPI's endpoint."""
        if self._end is None:
            opener = asyncio.current_task()
            self._end = RequestEnd(request.scope, self._receive, self._pass_on, opener)
        return self._end

    async def claim(
        self, policy: Policy, request: Request, given: dict[str, str | None], find: Any
    ) -> Response | None:
        """Claim the request. Returns the response in place of the endpoint's; None: run it.

        *given*: values that the endpoint gets, see `RequestFacts`. *find*: as in `ClaimRequest`.
        """
        name = f"{endpoint_method(request.method)} {route_of(request)}"
        submission = await self._submission_of(policy, request, name, given)
        if submission is None:
            return None
        mark_guarded(request.scope)
        self._since = time.monotonic()
        outcome = await claim_request(self._middleware.dibs, policy, name, submission, find)
        if isinstance(outcome, Response) or isinstance(submission, InvalidRequest):
            return cast(Response, outcome)
        self._submitted = submission
        self._recorder = Recorder(submission.policy, outcome)
        self._end_of(request).recorder = self._recorder
        return None

    async def known_response(self, request: Request) -> Response | None:
        """Return the response to a request whose key was used before; None: it is new.

        For what would refuse it before its endpoint, and the guard of that, are called.
        """
        policy = policy_for(request.scope)
        if policy is None or policy.key == "never":
            return None
        name = f"{endpoint_method(request.method)} {route_of(request)}"
        submission = await self._submission_of(policy, request, name, {})
        if submission is None or isinstance(submission, InvalidRequest) or not submission.by_client:
            return None
        find = found_by(request.scope.get("endpoint"))
        outcome = await claim_request(self._middleware.dibs, policy, name, submission, find)
        if isinstance(outcome, Response):
            return outcome
        recorded = None if find is None else await find(key_of(outcome))
        if recorded is None:
            await outcome.end("released")
            return None
        answer = outcome.recording().answered(recorded)
        await outcome.end("returned")
        return table_response(submission.policy, submission, answer)

    async def run_within(
        self, within: _Within, args: Any, kwargs: Any
    ) -> tuple[Response | None, Any]:
        """Run the endpoint in a transaction, which stays open until it has a response.

        Returns the response to a duplicate; None: what the endpoint has returned.
        """
        recorder, submission = self._recorder, self._submitted
        if recorder is None or submission is None:
            return None, await within.run(args, kwargs)
        records = recorder.claim.recording()
        wait = left_of(submission, self._since)
        recorder.is_rolled_back = True  # unless nothing is raised
        work = await within.begin(recorder.claim, records, args, kwargs, wait)
        if isinstance(work, NotOurs):
            response = table_response(submission.policy, submission, records.answer(work))
            await recorder.claim.end("returned")
            assert self._end is not None
            self._end.recorder = self._recorder = None
            return response, None
        recorder.is_rolled_back = False
        recorder.transaction = OpenTransaction(work, within.end)
        return None, work.result

    async def _submission_of(
        self, policy: Policy, request: Request, name: str, given: dict[str, str | None]
    ) -> Submission | InvalidRequest | None:
        options, keys = self._middleware.options, keys_of(policy, request.scope)
        if policy.key == "only" and not keys:
            return None
        user = await resolved(options.user(request)) if options.user is not None else None
        headers = headers_of(request.scope)
        self._form_of = request
        self._is_matched, self._policy = True, policy
        body = await _body_of(request, headers, policy.body_limit)
        if self._unread is not None:
            self._unread, body = None, self._unread[1]
        if isinstance(body, InvalidRequest):
            return body
        facts = _facts_of(request, name, headers, user)
        facts = facts._replace(body=body[0], fields=body[1], given=given)
        return await decided(policy, facts, keys, options)

    # ---- the application

    async def run(self, app: App) -> None:
        """Run the application. Raises what it raises, which ends its claim."""
        try:
            try:
                await app(self._scope, self.receive, self.send)
                if self._end is not None:
                    await self._end.finish()
            except BaseException as error:
                if self._leases is not None:
                    await self._leases.leave(error)
                if self._unread is None or self._is_started or not isinstance(error, Exception):
                    raise
                await self._refuse_body(*self._unread)
            if self._leases is not None:
                await self._leases.leave(None)
        finally:
            unmark_guarded(self._scope)
            self._spooled.close()
            if self._recorder is not None:
                await self._recorder.close()
            if self._form_of is not None:
                await self._form_of.close()

    async def receive(self) -> Message:
        """Return a piece of the body.

        If the body of a guarded endpoint is too long or too slow, it is dropped with the rest, and
        the application sees that the client has left.
        """
        if self._unread is not None:
            return {"type": "http.disconnect"}
        if not self._is_matched and "endpoint" in self._scope:
            self._is_matched, self._policy = True, self._policy_of_route()
        receive, policy = (self._receive if self._end is None else self._end.receive), self._policy
        if policy is None or self._is_read:
            message = await receive()
            self._size_of += len(message.get("body", b""))
            return message
        if not self._size_of:  # before its first piece it costs nothing
            return await self._limited_piece(policy, receive)
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + policy.body_seconds
        try:
            async with asyncio.timeout_at(self._until):
                return await self._limited_piece(policy, receive)
        except TimeoutError:
            self._unread = self._unread or (policy, TIMED_OUT)
            return {"type": "http.disconnect"}

    async def _limited_piece(self, policy: Policy, receive: Receive) -> Message:
        """Return a piece of the body; http.disconnect: there is too much of it."""
        message = await receive()
        self._size_of += len(message.get("body", b""))
        self._is_read = not message.get("more_body")
        if self._size_of > policy.body_limit:
            self._unread = policy, too_large(policy.body_limit)
        elif not self._spooled.grow(self._size_of):
            self._unread = policy, NO_ROOM
        else:
            return message
        # A client that is answered while it sends would lose its connection, and the response.
        while message.get("more_body") and self._size_of <= 2 * policy.body_limit:
            message = await self._receive()
            self._size_of += len(message.get("body", b""))
        return {"type": "http.disconnect"}

    def _policy_of_route(self) -> Policy | None:
        """FastAPI reads the body before it calls the endpoint, and its guard."""
        policy = policy_for(self._scope)
        if policy is not None and policy.key == "only" and not keys_of(policy, self._scope):
            return None
        return policy

    # ---- the response

    async def send(self, message: Message) -> None:
        """Pass on. Raises UsageError if the guard was passed by.

        Raises LeaseLost if it is too late.
        """
        if message["type"] == "http.response.start":
            check_registered((self._scope.get("endpoint"),))  # its route may be new
            if self._leases is not None:
                self._leases.check()
            if self.refusal is not None:
                message = with_headers_of(self.refusal, message)
            if self.fields:
                message = with_fields(self.fields, message)
        if self._unread is not None and not self._is_started:
            await self._refuse_body(*self._unread)
        if self._unread is None:
            await self._guarded_send(message)

    async def _refuse_body(self, policy: Policy, why: InvalidRequest) -> None:
        """Refuse a body that was not read, in place of what the application says about it."""
        refused = refusal_response(policy, why, by_client=True)
        await send_response(refused, self._guarded_send)

    async def _guarded_send(self, message: Message) -> None:
        await (self._pass_on if self._end is None else self._end.send)(message)

    async def _pass_on(self, message: Message) -> None:
        self._is_started = True
        await self._send(message)


def _facts_of(request: Request, name: str, headers: RequestHeaders, user: object) -> RequestFacts:
    """Return all facts but the body."""
    scope, fields = request.scope, path_fields_of(request)
    template, mount = template_of(scope), mount_of(scope)
    return RequestFacts(
        method=request.method,
        # The path of a mounted application is no part of the name: it may hold a value.
        route=f"{mount} {name}",
        path=path_of(scope),
        query=query_of(scope),
        headers=headers,
        user=user,
        address=client_address(scope),
        path_fields=fields,
        place=None if template is None else routed_place(template, fields),
    )


async def _body_of(
    request: Request, headers: dict[str, str], limit: int
) -> tuple[bytes, list[Field] | None] | InvalidRequest:
    """Return the body, or the fields and files of a form; or what is wrong with it."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        is_form = media_type == "multipart/form-data"
        body = None if is_form else await _bytes_of(request, media_type)
        if body is None:
            form = (await request.form()).multi_items()
            if sum([_size_of(value) for _, value in form]) > limit:  # parsed before the guard
                return too_large(limit)
            return b"", await _form_fields(form)
    except ClientDisconnect:
        return INCOMPLETE
    return too_large(limit) if len(body) > limit else (body, None)


async def _bytes_of(request: Request, media_type: str) -> bytes | None:
    """Return the body; the endpoint can read it again. None: a form that was parsed before."""
    try:
        return await request.body()
    except RuntimeError:
        if media_type != "application/x-www-form-urlencoded":
            raise
        return None


def _size_of(value: Any) -> int:
    return (value.size or 0) if isinstance(value, UploadFile) else len(value)


async def _form_fields(form: list[tuple[str, Any]]) -> list[Field]:
    uploads = [(name, value) for name, value in form if isinstance(value, UploadFile)]
    values = [(name, str(value)) for name, value in form if not isinstance(value, UploadFile)]
    files = [
        (name, file.filename, await run_in_threadpool(file_hash, file.file))
        for name, file in uploads
    ]
    return form_fields(values, files)
