"""The routes of a Starlette or FastAPI application."""

from collections.abc import Iterable, Iterator
from typing import Any

from starlette.requests import Request

from .._http.decorators import check_registered, policy_of
from .._http.policy import Policy


def route_of(request: Request) -> str:
    """The template of the route, or else the name of its endpoint."""
    route = request.scope.get("route")
    # FastAPI keeps the route as its router has it, and here as the application has it.
    included = request.scope.get("fastapi", {}).get("effective_route_context")
    if getattr(included, "original_route", None) is route:
        route = included
    path = getattr(route, "path", None)
    if path:
        return path
    return getattr(request.scope.get("endpoint"), "__qualname__", "*")


# ---- what an endpoint of FastAPI depends on


def dependant_of(scope: Any) -> Any:
    """What the endpoint depends on; recent versions keep that of included routers apart."""
    included = scope.get("fastapi", {}).get("effective_route_context")
    return getattr(scope.get("route") if included is None else included, "dependant", None)


def all_of(dependant: Any) -> Iterator[Any]:
    """All dependants, the endpoint last."""
    if dependant is not None:
        for each in dependant.dependencies:
            yield from all_of(each)
        yield dependant


def is_dependency(scope: Any, function: object) -> bool:
    """True: the endpoint depends on *function*, and is not itself that function."""
    dependants: list[Any] = [*all_of(dependant_of(scope))]
    return any(_reaches(each.call, function) for each in dependants[:-1])


def _reaches(call: Any, function: object) -> bool:
    """True: *call* is *function*, or a method, an object or a decorated function around it."""
    while call is not None:
        kind: Any = type(call)
        if call is function or getattr(kind, "__call__", None) is function:  # noqa: B004
            return True
        inner = getattr(call, "__func__", None) or getattr(call, "func", None)
        call = inner or getattr(call, "__wrapped__", None)
    return False


def policy_for(scope: Any) -> Policy | None:
    """The policy of the endpoint of a request, or of one of its dependencies; None: not known."""
    endpoint = scope.get("endpoint")
    method = getattr(endpoint, str(scope["method"]).lower(), None)  # of a class
    calls = [each.call for each in all_of(dependant_of(scope))]
    for each in (endpoint, method, *calls):
        if (policy := policy_of(each)) is not None:
            return policy
    return None


# ---- routes that lead past a guard


def check_routes_of(app: Any) -> None:
    """UsageError: a route of *app*, of its routers or of an application mounted in it leads to a
    function that is inside of a guard.
    """
    check_registered(_endpoints(getattr(app, "routes", ())))


def _endpoints(routes: Iterable[Any]) -> Iterator[object]:
    for route in routes:
        yield getattr(route, "endpoint", None)
        # Recent versions of FastAPI keep the routes of included routers apart.
        inner = getattr(route, "original_router", route)
        yield from _endpoints(getattr(inner, "routes", None) or ())
