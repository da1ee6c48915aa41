"""Two guards on one request: the second would refuse what the first has claimed."""

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, UsageError
from dibs.integrations import asgi, fastapi, flask, wsgi
from dibs.testing import Server

from . import Call, answer, read
from . import edges_django as site

from django.test import Client, override_settings  # isort: skip  – after its settings
from rest_framework.response import Response  # isort: skip
from rest_framework.views import APIView  # isort: skip

from dibs.integrations import django, drf  # isort: skip

pytestmark = pytest.mark.usefixtures("nothing_stays_open")
ONCE: dict[str, Any] = {"window": 60, "after": "hold"}
EVERY = [asgi.Policy("POST /*", **ONCE)]


def hidden(view: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not say what it wraps."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return inner


@pytest.mark.parametrize("once", [flask.once, django.once, drf.once, fastapi.once])
def test_a_view_has_one_decorator(once: Any) -> None:
    """UsageError when the second is applied."""
    with pytest.raises(UsageError, match="guarded already"):
        once(**ONCE)(once(**ONCE)(lambda request=None: "done"))


def test_a_second_guard_that_cannot_be_seen_in_flask(valkey: Server) -> None:
    """UsageError at the first request, and its claim is not left behind."""
    from flask import Flask

    app = Flask("shop")
    app.testing = True
    view = flask.once(**ONCE)(hidden(flask.once(**ONCE)(lambda: "done")))
    app.add_url_rule("/orders", "order", view, methods=["POST"])
    with Dibs(valkey.url, budget=5) as dibs:
        flask.install(app, dibs)
        with pytest.raises(UsageError, match="guarded already"):
            app.test_client().post("/orders")
        assert valkey.keys() == []


@pytest.fixture
def of_django(valkey: Server) -> Any:
    """The settings of a project, whose view a test sets."""
    with override_settings(
        ROOT_URLCONF=site.__name__, DIBS_URL=valkey.url, DIBS_OPTIONS={"budget": 5},
        REST_FRAMEWORK=site.REST,
    ):  # fmt: skip
        yield
    asyncio.run(site._forget(False))


def test_a_middleware_and_a_decorator_of_django(of_django: None, valkey: Server) -> None:
    """UsageError at the first request; `exempt` leaves the view to its decorator."""
    site.current = django.once(**ONCE)(lambda request: site.JsonResponse({}))
    with override_settings(
        MIDDLEWARE=[site.edge.__name__ + ".DibsMiddleware"], DIBS_POLICIES=EVERY
    ):
        with pytest.raises(UsageError, match=r"guarded already.*exempt"):
            Client().post("/orders")
        assert valkey.keys() == []


def test_a_mixin_and_a_decorator_of_rest_framework(of_django: None, valkey: Server) -> None:
    """UsageError at the first request, and nothing is claimed."""

    def post(self: Any, request: Any) -> Any:
        return Response({})

    facts = {"post": drf.once(**ONCE)(post), "dibs_policy": drf.Policy(**ONCE)}
    site.current = type("Orders", (drf.OnceMixin, APIView), facts).as_view()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="guarded already"):
        Client().post("/orders")
    assert valkey.keys() == []


async def test_a_middleware_within_a_middleware_of_asgi(valkey: Server) -> None:
    """UsageError, and the claim of the outer one is not left behind."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await answer(send)

    async with AsyncDibs(valkey.url, budget=5) as dibs:
        inner = asgi.DibsMiddleware(app, dibs=dibs, policies=EVERY)
        call = Call(asgi.DibsMiddleware(inner, dibs=dibs, policies=EVERY))
        with pytest.raises(UsageError, match="guarded already"):
            await call.run()
        assert valkey.keys() == []
        again = Call(inner)
        again.scope = call.scope  # as a middleware that tries again
        assert (await again.run()).status == 201


def test_a_middleware_within_a_middleware_of_wsgi(valkey: Server) -> None:
    """The same."""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"done"]

    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "wsgi.input": io.BytesIO()}
    with Dibs(valkey.url, budget=5) as dibs:
        inner = wsgi.DibsMiddleware(app, dibs=dibs, policies=EVERY)
        outer = wsgi.DibsMiddleware(inner, dibs=dibs, policies=EVERY)
        with pytest.raises(UsageError, match="guarded already"):
            outer(environ, lambda *args: lambda data: None)
        assert valkey.keys() == []
