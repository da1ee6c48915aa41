"""Duplicate submissions and idempotency keys for Starlette: a decorator on the endpoint.

    install(app, AsyncDibs("redis://…"))

    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    async def order(request): ...

The endpoint is claimed after authentication has let the request through, and the claim ends with
the last piece of the answer, before that is sent. FastAPI: `dibs.integrations.fastapi`.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, cast, get_args, get_origin

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from .._async.client import AsyncDibs
from .._http.answers import Answer
from .._http.bodies import declared_length
from .._http.decorators import Once, PreventDuplicateSubmit
from .._http.facts import INCOMPLETE, Facts, KeyTrouble, Submission, submission_of, too_large
from .._http.forms import Field, by_name
from .._http.policy import Policy
from .._http.site import Site, make_site
from ..errors import UsageError
from ._bodies import file_hash
from ._claims import aclaimed, applied, values_of
from .asgi import (
    App,
    Message,
    Receive,
    Recorder,
    Scope,
    Send,
    ending,
    header_lines,
    mount_of,
    place_of,
    query_of,
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
    session_cookie: str | None = None,
    secret: str | bytes | None = None,
    service: str = "",
    per_host: bool = False,
) -> None:
    """Let the decorated endpoints of *app* be guarded by *dibs* (yours to close, or a URL).

    *user*: tells from the request who submits (a string, or None: not known; may be async).
    *session_cookie*: the name of the cookie that says so. Without either, it is the Authorization
    header. *secret*: keys the hashes under which submissions are stored; the same in all
    processes. *service*: the name of this application, where several use one store. *per_host*:
    the Host header counts, too. UsageError: *app* is running already.
    """
    if app.middleware_stack is not None:
        raise UsageError("call install(app, dibs) before the app serves its first request")
    # Inside of all others, in whatever order they are added: an answer is kept as the endpoint
    # made it, and goes through compression, CORS and sessions again each time it is given.
    site = make_site(secret, service, session_cookie, per_host=per_host)
    app.user_middleware.append(Middleware(cast(Any, _Edge), dibs=dibs, user=user, site=site))


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

    def __init__(self, app: App, *, dibs: AsyncDibs | str, user: User | None, site: Site) -> None:
        self._app = app
        self._url = dibs if isinstance(dibs, str) else None
        self.dibs = AsyncDibs(dibs) if isinstance(dibs, str) else dibs
        self.user = user
        self.site = site

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

    __slots__ = ("_edge", "_form_of", "_recorder", "_send")

    def __init__(self, edge: _Edge, send: Send) -> None:
        self._edge = edge
        self._send = send
        self._recorder: Recorder | None = None
        self._form_of: Request | None = None
        """Whose form was read here, and is closed here."""

    async def admit(self, policy: Policy, request: Request) -> Answer | None:
        """None: the work is ours to do. Else what to answer in its place."""
        if self._recorder is not None:
            raise UsageError("this request is guarded already; one decorator is enough")
        name = f"{request.method} {_route_of(request)}"
        submission = await self._submission(policy, request, name)
        if submission is None:
            return None
        outcome = await aclaimed(self._edge.dibs, policy, name, submission)
        if isinstance(outcome, Answer):
            return outcome
        self._recorder = Recorder(applied(policy, submission), outcome, self._send)
        return None

    async def _submission(
        self, policy: Policy, request: Request, name: str
    ) -> Submission | KeyTrouble | None:
        edge, headers = self._edge, header_lines(request.scope)
        keys = values_of(headers, policy.header)
        if policy.key == "only" and not keys:
            return None
        said = await settled(edge.user(request)) if edge.user is not None else None
        named = dict(headers)
        who = who_of(request.scope, headers, named, said, edge.site.session_cookie)
        self._form_of = request
        body = await _body_of(request, named, policy.body_limit)
        if isinstance(body, KeyTrouble):
            return body
        facts = _facts_of(request, name, named, edge.site)._replace(
            user=who.user, client=who.client, body=body[0], fields=body[1]
        )
        return submission_of(policy, facts, keys, edge.site.secret)

    async def run(self, app: App, scope: Scope, receive: Receive) -> None:
        """The application. What it raises is raised, and ends the claim that it made."""
        try:
            await app(scope, receive, self.send)
            if self._recorder is not None:
                await self._recorder.leave()
        finally:
            if self._recorder is not None:
                await self._recorder.close()
            if self._form_of is not None:
                await self._form_of.close()

    async def send(self, message: Message) -> None:
        """Pass on; with a claim, by its recorder."""
        await (self._send if self._recorder is None else self._recorder.send)(message)


def _facts_of(request: Request, name: str, headers: dict[str, str], site: Site) -> Facts:
    """All but the body and who it is."""
    scope = request.scope
    return Facts(
        method=request.method,
        # Where a mounted application hangs is no part of the name: it may hold a value.
        route=f"{mount_of(scope)} {name}",
        path=place_of(scope),
        query=query_of(scope),
        headers=headers,
        body=b"",
        user=None,
        path_fields={key: str(value) for key, value in request.path_params.items()},
        service=site.service,
        host=site.host(headers.get("host", "")),
    )


async def _body_of(
    request: Request, headers: dict[str, str], limit: int
) -> tuple[bytes, list[Field] | None] | KeyTrouble:
    """The body, or the fields and files of a form; or what is wrong with it."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if (declared_length(headers) or 0) > limit:
        await _drain(request, 2 * limit)
        return too_large(limit)
    try:
        body = None if kind == "multipart/form-data" else await _bytes_of(request, kind)
        if body is None:
            form = (await request.form()).multi_items()
            if sum([_size(value) for _, value in form]) > limit:  # its length was not declared
                return too_large(limit)
            return b"", by_name([await _field(name, value) for name, value in form])
    except ClientDisconnect:
        return INCOMPLETE
    return too_large(limit) if len(body) > limit else (body, None)


async def _drain(request: Request, most: int) -> None:
    """Read what nobody wants: a client that still sends would lose its connection."""
    with contextlib.suppress(RuntimeError, ClientDisconnect):  # it was read before, or is gone
        async for piece in request.stream():
            most -= len(piece)
            if most <= 0:
                break


async def _bytes_of(request: Request, kind: str) -> bytes | None:
    """The body; afterwards the endpoint can still read all of it. None: a form was read before."""
    try:
        return await request.body()
    except RuntimeError:
        if kind != "application/x-www-form-urlencoded":
            raise
        return None


def _size(value: Any) -> int:
    return (value.size or 0) if isinstance(value, UploadFile) else len(value)


async def _field(name: str, value: Any) -> Field:
    if not isinstance(value, UploadFile):
        return [name, str(value)]
    digest = await run_in_threadpool(file_hash, value.file)
    return [name, value.filename or "", digest]


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
