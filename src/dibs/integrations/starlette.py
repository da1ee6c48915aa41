"""Duplicate submissions and idempotency keys for Starlette: a decorator on the endpoint.

    install(app, AsyncDibs("redis://…"))

    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    async def order(request): ...

The endpoint is claimed after authentication has let the request through, and the claim ends with
the last piece of the answer, before that is sent. FastAPI: `dibs.integrations.fastapi`.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, cast, get_args, get_origin
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from .._async.dibs import AsyncDibs
from .._http.answers import Answer
from .._http.decorators import Once, PreventDuplicateSubmit
from .._http.facts import Facts, submission_of
from .._http.policy import Policy
from ..errors import UsageError
from ._claims import aclaimed, values_of
from .asgi import (
    App,
    Message,
    Receive,
    Recorder,
    Scope,
    Send,
    ending,
    header_lines,
    path_of,
    settled,
    who_of,
)

__all__ = ["install", "once", "prevent_duplicate_submit"]

User = Callable[[Request], Any]

_DESK = "dibs.desk"
_POLICY = "__dibs_policy__"


def install(
    app: Starlette,
    dibs: AsyncDibs | str,
    *,
    user: User | None = None,
    secret: str | bytes = b"",
) -> None:
    """Let the decorated endpoints of *app* be guarded by *dibs* (yours to close, or a URL).

    *user*: tells from the request who submits (a string or None, may be async); without it, it is
    the Authorization header, else the cookies, else the client's address. *secret*: keys the
    hashes under which submissions are stored; the same in all processes. UsageError: *app* is
    running already.
    """
    if app.middleware_stack is not None:
        raise UsageError("call install(app, dibs) before the app serves its first request")
    # Inside of all others, in whatever order they are added: an answer is kept as the endpoint
    # made it, and goes through compression, CORS and sessions again each time it is given.
    app.user_middleware.append(Middleware(cast(Any, _Edge), dibs=dibs, user=user, secret=secret))


def policy_of(endpoint: object) -> Policy | None:
    """How *endpoint* is guarded; None: not at all."""
    return getattr(endpoint, _POLICY, None)


# ---- the endpoint


def guard(policy: Policy, function: Callable[..., Any]) -> Callable[..., Any]:
    """*function*, with a claim around it. It needs no `request` of its own."""
    _check(function)
    signature, name, is_added = _with_request(function)
    call = function if _is_async(function) else _in_a_thread(function)

    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        request = _find_request(args, kwargs, name, remove=is_added)
        answer = await _desk_of(request).admit(policy, request)
        if answer is None:
            return await call(*args, **kwargs)
        await request.close()  # the files of a form, which nobody will read
        return _response(answer)

    shown: Any = guarded
    shown.__signature__ = signature
    setattr(shown, _POLICY, policy)
    return shown


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)


def _check(function: Callable[..., Any]) -> None:
    """UsageError: this cannot be guarded."""
    if inspect.isclass(function):
        raise UsageError("decorate the methods of an endpoint, not its class")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError("a generator cannot be guarded; return a StreamingResponse instead")


def _is_async(function: Any) -> bool:
    """True: calling it makes something to be awaited; it may be an object that can be called."""
    call = getattr(function, "__call__", None)  # noqa: B004 – its code is what we want to see
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _in_a_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.partial(run_in_threadpool, function)


def _with_request(function: Callable[..., Any]) -> tuple[inspect.Signature, str, bool]:
    """The signature with a parameter for the request, what it is called, and if it is ours."""
    signature = _resolved(function)
    for name, parameter in signature.parameters.items():
        if _is_request(name, parameter.annotation):
            return signature, name, False
    added = inspect.Parameter("dibs_request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    others = list(signature.parameters.values())
    last = len(others) - (others[-1].kind is inspect.Parameter.VAR_KEYWORD) if others else 0
    parameters = [*others[:last], added, *others[last:]]
    return signature.replace(parameters=parameters), "dibs_request", True


def _is_request(name: str, kind: Any) -> bool:
    """True: this parameter is the request. A body may well be called that, too."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if inspect.isclass(kind):
        return issubclass(kind, Request) or (kind is inspect.Parameter.empty and name == "request")
    return isinstance(kind, str) and name == "request"


def _resolved(function: Callable[..., Any]) -> inspect.Signature:
    """With annotations that are types: as text they would be looked up in this module."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # names that exist for type checkers only
        return inspect.signature(function)


def _find_request(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, *, remove: bool
) -> Request:
    given = kwargs.pop(name, None) if remove else kwargs.get(name)
    for each in (given, *args):
        if isinstance(each, Request):
            return cast(Request, each)
    raise UsageError("this endpoint was called without a request")


def _desk_of(request: Request) -> "_Desk":
    desk = request.scope.get(_DESK)
    if desk is None:
        raise UsageError("call install(app, dibs) once, where the app is made")
    return desk


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in answer.headers]
    return response


# ---- the edge of the application


class _Edge:
    """Gives each request a desk, where its endpoint may ask for a claim."""

    def __init__(
        self, app: App, *, dibs: AsyncDibs | str, user: User | None, secret: str | bytes
    ) -> None:
        self._app = app
        self._url = dibs if isinstance(dibs, str) else None
        self.dibs = AsyncDibs(dibs) if isinstance(dibs, str) else dibs
        self.user = user
        self.secret = secret.encode() if isinstance(secret, str) else secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            desk = scope[_DESK] = _Desk(self, send)
            await desk.run(self._app, scope, receive)
        elif scope["type"] == "lifespan" and self._url is not None:
            await self._app(scope, receive, ending(send, self._close))
        else:
            await self._app(scope, receive, send)

    async def _close(self) -> None:
        """Close what is ours. The application may live again, as it does in tests."""
        assert self._url is not None
        old, self.dibs = self.dibs, AsyncDibs(self._url)
        await old.aclose()


class _Desk:
    """Where one request is claimed, and its answer watched once it is."""

    __slots__ = ("_edge", "_recorder", "_send")

    def __init__(self, edge: _Edge, send: Send) -> None:
        self._edge = edge
        self._send = send
        self._recorder: Recorder | None = None

    async def admit(self, policy: Policy, request: Request) -> Answer | None:
        """None: the work is ours to do. Else what to answer in its place."""
        if self._recorder is not None:
            raise UsageError("this request is guarded already; one decorator is enough")
        name = f"{request.method} {_route_of(request)}"
        facts = await _facts_of(request, name, await settled(self._who(request)))
        keys = values_of(header_lines(request.scope), policy.header)
        submission = submission_of(policy, facts, keys, self._edge.secret)
        outcome = await aclaimed(self._edge.dibs, policy, name, submission)
        if isinstance(outcome, Answer):
            return outcome
        self._recorder = Recorder(policy, outcome, self._send)
        return None

    def _who(self, request: Request) -> Any:
        if self._edge.user is not None:
            return self._edge.user(request)
        return who_of(request.scope, header_lines(request.scope))

    async def run(self, app: App, scope: Scope, receive: Receive) -> None:
        """The application. What it raises is raised, and ends the claim that it made."""
        try:
            await app(scope, receive, self.send)
            if self._recorder is not None:
                await self._recorder.leave()
        finally:
            if self._recorder is not None:
                await self._recorder.close()

    async def send(self, message: Message) -> None:
        """Pass on; with a claim, by its recorder."""
        await (self._send if self._recorder is None else self._recorder.send)(message)


async def _facts_of(request: Request, name: str, user: str | None) -> Facts:
    headers = dict(header_lines(request.scope))
    body = await _body_of(request, headers)
    return Facts(
        method=request.method,
        # Where a mounted application hangs is no part of the name: it may hold a value.
        route=f"{request.scope.get('root_path', '')} {name}",
        path=path_of(request.scope),
        query=request.url.query,
        headers=headers,
        body=body,
        user=user,
        path_fields={key: str(value) for key, value in request.path_params.items()},
    )


async def _body_of(request: Request, headers: dict[str, str]) -> bytes:
    """The body; of a form with files, its text fields: uploads are no part of a key."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        try:
            return await request.body()  # first: afterwards the endpoint can still read all of it
        except RuntimeError:
            if kind != "application/x-www-form-urlencoded":
                raise
    form = await request.form()
    headers["content-type"] = "application/x-www-form-urlencoded"
    pairs = [(n, v) for n, v in form.multi_items() if not isinstance(v, UploadFile)]
    return urlencode(pairs, errors="surrogatepass").encode()


def _route_of(request: Request) -> str:
    """What the route is called: its template, or else its endpoint."""
    route = request.scope.get("route")
    # FastAPI keeps the route as its router has it, and here as the application has it.
    included = request.scope.get("fastapi", {}).get("effective_route_context")
    if getattr(included, "original_route", None) is route:
        route = included
    path = getattr(route, "path", None)
    if path:
        return path
    return getattr(request.scope.get("endpoint"), "__qualname__", "*")
