"""What a Starlette application adds to guards: routes, refusals."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse

from .._http.decorators import check_registered, policy_of
from .._http.policy import Policy
from .._http.problems import is_refusal
from .._http.responses import Response
from ._response_end import Message, Scope
from .asgi import encoded

_log = logging.getLogger("dibs")

GUARD = "dibs.guard"
"""Where the scope of a request has its guard."""


class Refused(HTTPException):
    """A request that was refused, for an exception handler of the application.

    `status_code`, `detail` and `headers` (Retry-After) are those of any HTTPException; *problem* is
    the document that is sent without a handler, and *response* the response with it.
    """

    def __init__(self, refusal: Response) -> None:
        self.problem: dict[str, Any] = json.loads(refusal.body)
        self.response = response_of(refusal)
        after = dict(refusal.headers).get("retry-after")
        headers = None if after is None else {"Retry-After": after}
        super().__init__(refusal.status, self.problem["detail"], headers)


def response_of(response: Response) -> StarletteResponse:
    """Return *response*, to be returned by an endpoint."""
    answer = StarletteResponse(response.body, response.status)
    answer.raw_headers = encoded(response)
    return answer


def answer(request: Request, response: Response) -> StarletteResponse:
    """Return the response in place of the endpoint's.

    Raises Refused if the application has a handler for it.
    """
    if is_refusal(response) and _is_handled(request, response.status):
        raise refused(request, response)
    return response_of(response)


def refused(request: Request, response: Response) -> Exception:
    """An exception that becomes *response*, unless it is a refusal that the application handles."""
    error: Refused | _Replayed = _Replayed(response)
    if is_refusal(response):
        error = Refused(response)
        request.scope[GUARD].refusal = response
    # Here and not in install(): a mounted application has separate handlers.
    handlers: Any = request.scope.get("starlette.exception_handlers")
    if handlers is not None:
        handlers[0].setdefault(type(error), _response_to)
    return error


class _Replayed(Exception):
    """A stored response, where it cannot be returned.

    It is not an HTTPException, which would be handled by its status.
    """

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response_of(response)


async def _response_to(request: Request, error: Exception) -> StarletteResponse:
    assert isinstance(error, Refused | _Replayed)
    return error.response


def _is_handled(request: Request, status: int) -> bool:
    """Return True if by status or as Refused.

    A handler of all exceptions is not meant for refusals.
    """
    by_class, by_status = request.scope.get("starlette.exception_handlers", ({}, {}))
    return status in by_status or by_class.get(Refused, _response_to) is not _response_to


def with_headers_of(refusal: Response, message: Message) -> Message:
    """Return the start of a page that an application made of *refusal*, with its headers.

    Headers that the page sets itself stay.
    """
    lines = list(message.get("headers", ()))
    names = {bytes(name).lower() for name, _ in lines}
    copied = (b"retry-after", b"cache-control", b"ratelimit", b"ratelimit-policy")
    missing = [line for line in encoded(refusal) if line[0] in copied and line[0] not in names]
    return {**message, "headers": [*lines, *missing]}


def with_fields(fields: list[tuple[str, str]], message: Message) -> Message:
    """Return the beginning of a response, with further headers."""
    lines = [(name.encode(), value.encode()) for name, value in fields]
    return {**message, "headers": [*message.get("headers", ()), *lines]}


def route_of(request: Request) -> str:
    """Return the template of the route, or else the name of its endpoint."""
    template = template_of(request.scope)
    if template is not None:
        return template
    return getattr(request.scope.get("endpoint"), "__qualname__", "*")


def template_of(scope: Scope) -> str | None:
    """Return the template of the route; None: Starlette does not say."""
    route, included = scope.get("route"), effective_route(scope)
    # FastAPI keeps the route as its router has it, and as the application has it.
    if getattr(included, "original_route", None) is route:
        route = included
    return getattr(route, "path", None) or None


def path_fields_of(request: Request) -> dict[str, object]:
    """Return the fields of the path, with the values that the endpoint gets.

    FastAPI converts them only when it calls: to the router, `07` and `7` are two texts.
    """
    fields: dict[str, object] = dict(request.path_params)
    declared = [field for each in all_of(dependant_of(request.scope)) for field in each.path_params]
    for field in declared:  # those of the endpoint last, because they count most
        text = request.path_params.get(field.alias)
        if isinstance(text, str):
            fields[field.alias] = _converted_value(field, text)
    return fields


def _converted_value(field: Any, text: str) -> object:
    """Return the value of *text*; *text* itself, where the endpoint would refuse it."""
    value, errors = field.validate(text, {}, loc=("path", field.alias))
    return text if errors else value


# ---- what an endpoint of FastAPI depends on


def dependant_of(scope: Any) -> Any:
    """Return what the endpoint depends on; recent versions keep that of included routers apart."""
    return getattr(effective_route(scope), "dependant", None)


def effective_route(scope: Scope) -> Any:
    """Return the route of a request, which may be one of an included router.

    None: it is not known.
    """
    included = scope.get("fastapi", {}).get("effective_route_context")
    return scope.get("route") if included is None else included


def all_of(dependant: Any) -> Iterator[Any]:
    """Yield all dependants, the endpoint last."""
    if dependant is not None:
        for each in dependant.dependencies:
            yield from all_of(each)
        yield dependant


def is_dependency(scope: Any, function: object) -> bool:
    """Return True if the endpoint depends on *function*, and is not itself that function."""
    dependants: list[Any] = [*all_of(dependant_of(scope))]
    return any(is_around(each.call, function) for each in dependants[:-1])


def is_around(call: Any, function: object) -> bool:
    """True: *call* is *function*, or a method, an object or a decorated function around it."""
    while call is not None:
        if call is function or getattr(call.__class__, "__call__", None) is function:  # noqa: B004
            return True
        inner = getattr(call, "__func__", None) or getattr(call, "func", None)
        call = inner or getattr(call, "__wrapped__", None)
    return False


def policy_for(scope: Any) -> Policy | None:
    """Return the policy of the endpoint of a request, or of one of its dependencies.

    None: not known.
    """
    endpoint = scope.get("endpoint")
    method = getattr(endpoint, str(scope["method"]).lower(), None)  # of a class
    calls = [each.call for each in all_of(dependant_of(scope))]
    for each in (endpoint, method, *calls):
        if (policy := policy_of(each)) is not None:
            return policy
    return None


# ---- routes that lead past a guard


def check_routes_of(app: Any) -> None:
    """Raise UsageError if a route of *app* leads to a function inside a guard.

    Routes of its routers and of applications mounted in it are checked as well. Warns of
    dependencies that cannot end after the transaction of their endpoint.
    """
    routes = [*_all_routes(getattr(app, "routes", ()))]
    check_registered([getattr(route, "endpoint", None) for route in routes])
    for route in routes:
        if found_by(getattr(route, "endpoint", None)) is not None:
            _warn_of_early_ends(route)


def _all_routes(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        yield route
        # Recent versions of FastAPI keep the routes of included routers apart.
        inner = getattr(route, "original_router", route)
        yield from _all_routes(getattr(inner, "routes", None) or ())


def _warn_of_early_ends(route: Any) -> None:
    for each in [*all_of(getattr(route, "dependant", None))][:-1]:
        if getattr(each, "scope", None) == "function":
            _log.warning(
                '%s: its dependency %s has scope="function", so it ends before the transaction of '
                "within= commits; leave the scope out",
                route.path, getattr(each.call, "__qualname__", each.call),
            )  # fmt: skip


def mark_within(guarded: Any, find: Callable[[bytes], Any]) -> None:
    """*guarded* is an endpoint with its own transaction; *find* looks up what that committed."""
    guarded.__dibs_committed__ = find


def found_by(endpoint: object) -> Callable[[bytes], Any] | None:
    """Return what looks up the responses of *endpoint* that were committed.

    None: it has no `within=`.
    """
    return getattr(endpoint, "__dibs_committed__", None)
