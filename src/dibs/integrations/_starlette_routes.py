"""The routes of a Starlette or FastAPI application."""

from collections.abc import Iterable, Iterator
from typing import Any

from starlette.requests import Request

from .._http.decorators import check_registered


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
