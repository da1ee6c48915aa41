"""Duplicate submissions, idempotency keys and leases for FastAPI.

    install(app, AsyncDibs("redis://…"), user=lambda request: request.headers.get("x-user"))

    @app.post("/orders")
    @prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
    async def order(order: Order) -> Receipt: ...

    @app.post("/orders/{id}/pay")
    async def pay(id: int, lease: Annotated[AsyncLease, Depends(held("order:{id}", ttl=5))]): ...

    @app.post("/sms/{user}", dependencies=[Depends(throttled("sms:{user}", limit=5, per=60))])
    async def send(user: int): ...

Sync and async endpoints alike; none needs a `request` parameter. Dependencies and validation run
before a decorator claims, so a client that is not authorized gets no replay. The OpenAPI document
lists the refusals.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Unpack, cast

from . import needs

with needs("fastapi"):
    from fastapi import FastAPI, routing
    from fastapi.dependencies import utils
    from fastapi.exceptions import RequestValidationError
    from starlette.requests import HTTPConnection, Request

from .. import AsyncDibs, AsyncLease
from .._http.decorators import policy_of
from .._http.policy import GuardKeywords, Policy, with_service
from .._http.problems import busy, document, document_lease, document_throttle
from .._http.throttle import Throttle
from .._internal_api import HoldKeywords, Template, ThrottleKeywords, check_hold
from ..errors import Busy, Unavailable, UsageError
from . import starlette
from ._starlette_routes import Refused, all_of, dependant_of, refused
from .starlette import (
    User,
    count,
    known_response,
    leases_of,
    once,
    prevent_duplicate_submit,
    resolved,
)

__all__ = [
    "Policy", "Refused", "held", "install", "once", "prevent_duplicate_submit", "throttled",
]  # fmt: skip


def install(app: FastAPI, dibs: AsyncDibs | str, **options: Unpack[GuardKeywords[User]]) -> None:
    """Guard the decorated endpoints of *app*.

    Args:
        dibs: An AsyncDibs, which you close, or a URL.
        user: Called with the request; may be async.
        service: Default: the title of the app.
        **options: `GuardKeywords`.

    Raises:
        UsageError: An option is invalid, or *app* is running already.
    """
    starlette.install(app, dibs, **with_service(options, app.title))
    make_schema = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _documented_schema(app, make_schema())
        return app.openapi_schema

    app.openapi = openapi


# ---- the dependency


def held(
    key: str | Callable[[Request], Any],
    *,
    message: str | None = None,
    name: str | None = None,
    **options: Unpack[HoldKeywords],
) -> Callable[..., Any]:
    """Create a dependency that holds *key* for the length of a request; its value is the lease.

    A request gets a 409 with Retry-After if another one has the key, a 503 if Redis is unavailable
    and the policy is "closed", and a 422 for an invalid field. Two dependencies with the same
    arguments are equal.

    Args:
        key: A template, whose fields are parameters of the path, or else of the query, with the
            values that the endpoint gets; or a function of the request, which may be async.
        message: What a refusal says.
        name: What events call the key. Default: the template.
        **options: Those of `hold`.

    Raises:
        UsageError: An option is invalid.
    """
    check_hold("held", options)
    return _Held(key, message, name, options)


class _Held:
    """The dependency. FastAPI compares dependencies: equal ones are solved once for a request."""

    def __init__(
        self,
        key: str | Callable[[Request], Any],
        message: str | None,
        name: str | None,
        options: HoldKeywords,
    ) -> None:
        self._key = key
        self._template = Template(key) if isinstance(key, str) else None
        self._message = message
        self._name = key if isinstance(key, str) and name is None else name
        self.options = options

    async def __call__(self, connection: HTTPConnection) -> AsyncLease:
        if not isinstance(connection, Request):
            raise UsageError("held() is for HTTP endpoints, not for WebSockets")
        leases, key = leases_of(connection), await _key_of(connection, self._key, self._template)
        try:
            return await leases.take(key, self._name, **self.options)
        except Busy as error:
            # A retry is answered by its key: what has the lease may be its own first copy.
            known = await known_response(connection)
            raise refused(connection, known or busy(error, self._message)) from error
        except Unavailable as error:
            raise refused(connection, busy(error, self._message)) from error
        except UsageError as error:  # the options were checked, so it is the key: too long
            raise _validation_error(error) from None

    def _identifying_facts(self) -> tuple[Any, ...]:
        return self._key, self._message, self._name, *sorted(self.options.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self._identifying_facts() == other._identifying_facts()

    def __hash__(self) -> int:
        return hash(self._identifying_facts())

    def __repr__(self) -> str:
        options = "".join([f", {name}={value!r}" for name, value in self.options.items()])
        return f"held({self._key!r}{options})"


def throttled(
    key: str | Callable[[Request], Any],
    *,
    cost: int | Callable[[Request], Any] = 1,
    message: str | None = None,
    name: str | None = None,
    **options: Unpack[ThrottleKeywords],
) -> Callable[..., Any]:
    """Create a dependency that refuses a request with a 429 if *key* was called too often.

    It answers 503 if Redis is unavailable and the policy is "closed".

    Args:
        key: As in `held`.
        cost: How many units a request uses; or a function of the request that returns it.
        message: As in `held`.
        name: What events and the RateLimit fields call the key. Default: the template.
        **options: Those of `throttle`.

    Raises:
        UsageError: An option is invalid.
    """
    return _Throttled(Throttle(key, message, name, options, cost))


class _Throttled:
    """The dependency; equal ones count a request once."""

    def __init__(self, throttle: Throttle) -> None:
        self.throttle = throttle

    async def __call__(self, connection: HTTPConnection) -> None:
        if not isinstance(connection, Request):
            raise UsageError("throttled() is for HTTP endpoints, not for WebSockets")
        throttle = self.throttle
        key = await _key_of(connection, throttle.key, throttle.template)
        try:
            refusal = await count(connection, throttle, key)
        except UsageError as error:  # the options were checked, so it is the key: too long
            raise _validation_error(error) from None
        if refusal is not None:
            raise refused(connection, refusal)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Throttled) and self.throttle.facts() == other.throttle.facts()

    def __hash__(self) -> int:
        return hash(self.throttle.facts())


async def _key_of(
    request: Request, key: str | Callable[[Request], Any], template: Template | None
) -> str:
    """Return the key of a request. Raises RequestValidationError if a field of it is not valid."""
    if template is None:
        return cast(str, await resolved(cast("Callable[[Request], Any]", key)(request)))
    declared = {field.name: field for field in _parameters_of(dependant_of(request.scope))}
    values = {
        name: _parameter_value(request, template.text, name, declared.get(name))
        for name in template.fields
    }
    try:
        return template((), values)
    except UsageError as error:
        raise _validation_error(error) from None


def _parameter_value(request: Request, template: str, name: str, field: Any) -> object:
    """The value of a parameter, as the endpoint gets it. RequestValidationError: it is not valid.

    In the path, `07` and `7` are one order where the endpoint asks for a number: the text would
    give it two keys.
    """
    path, alias = request.path_params, name if field is None else field.alias
    if field is None:
        if name not in path:
            message = "neither the path nor a parameter of the endpoint is called"
            raise UsageError(f"{template!r}: {message} {name!r}")
        return path[name]
    source = path if alias in path else request.query_params
    values, errors = utils.request_params_to_args([field], source)
    if errors:
        raise RequestValidationError(errors)
    return values[name]


def _validation_error(error: UsageError) -> RequestValidationError:
    # Without the value: it may be long, and the message says what is wrong with it.
    return RequestValidationError(
        [{"type": "value_error", "loc": ("request",), "msg": str(error), "input": None}]
    )


def _parameters_of(dependant: Any) -> Iterator[Any]:
    """Yield the parameters of the path and the query.

    Those of the endpoint last, because they count most.
    """
    for each in all_of(dependant):
        yield from (*each.query_params, *each.path_params)


# ---- OpenAPI


def _documented_schema(app: FastAPI, schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with the refusals of guarded endpoints."""
    for route in _all_routes(app):
        dependant = getattr(route, "dependant", None)
        policies = [policy_of(each.call) for each in all_of(dependant)]
        operations = schema.get("paths", {}).get(getattr(route, "path_format", None), {})
        calls = [each.call for each in all_of(dependant)]
        for method in getattr(route, "methods", None) or ():
            operation = operations.get(method.lower())
            for policy in policies:
                document(operation, policy)
            for call in calls:
                if isinstance(call, _Held):
                    document_lease(operation, closed=_is_closed(call.options))
                elif isinstance(call, _Throttled):
                    document_throttle(operation, closed=_is_closed(call.throttle.options))
    return schema


def _is_closed(options: HoldKeywords | ThrottleKeywords) -> bool:
    return options.get("on_outage") == "closed"


def _all_routes(app: FastAPI) -> Iterable[Any]:
    """Return all routes; recent versions keep those of included routers apart."""
    listed: Any = getattr(routing, "iter_route_contexts", iter)
    return listed(app.routes)
