"""The application of `two_readers` in Django: without guards, with views that have one, or with the
middleware.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import JsonResponse
from django.test import override_settings
from django.urls import path, re_path
from django.utils.decorators import sync_and_async_middleware

from dibs.integrations.django import Policy, once

from .edges_django import _forget
from .two_readers import _FORM, KEYED, SITE, _hash, content_of, seen

ROUTES = {"orders": "^orders$", "files/<name>": "", "users/<int:user>/orders": "",
          "items/<uuid:item>": ""}  # fmt: skip
POLICIES = ("/orders", "/files/{name}", "/users/{id}/orders", "/items/{id}")


def _patterns(guard: Callable[[Any], Any], *, is_async: bool) -> tuple[Any, ...]:
    return tuple(
        [
            (re_path(pattern, _view(route, guard, is_async=is_async)))
            if pattern
            else path(route, _view(route, guard, is_async=is_async))
            for route, pattern in ROUTES.items()
        ]
    )


def _view(route: str, guard: Callable[[Any], Any], *, is_async: bool) -> Any:
    def order(request: Any, **values: Any) -> Any:
        kind, fields = request.META.get("CONTENT_TYPE", ""), None
        body = b"" if request.content_type == "multipart/form-data" else request.body
        if request.content_type in (_FORM, "multipart/form-data"):
            fields = [[name, each] for name, all_of in request.POST.lists() for each in all_of]
            files = [(name, file) for name, all_of in request.FILES.lists() for file in all_of]
            fields += [[name, file.name or "", _hash(file.read())] for name, file in files]
        found = seen(
            cookie=request.COOKIES.get("sid"), login=request.headers.get("authorization"),
            host=request.get_host(), route=route, values=values,
            query=request.META.get("QUERY_STRING", ""), content=content_of(kind, body, fields),
        )  # fmt: skip
        return JsonResponse(found, status=201)

    async def aorder(request: Any, **values: Any) -> Any:
        return order(request, **values)

    return guard(aorder if is_async else order)


_urlconf: dict[str, tuple[Any, ...]] = {}


def _choosing(name: str) -> Any:
    @sync_and_async_middleware
    def choose(get_response: Any) -> Any:
        from asgiref.sync import iscoroutinefunction

        async def amiddleware(request: Any) -> Any:
            request.urlconf = _urlconf[name]
            return await get_response(request)

        def middleware(request: Any) -> Any:
            request.urlconf = _urlconf[name]
            return get_response(request)

        return amiddleware if iscoroutinefunction(get_response) else middleware

    return choose


choose_plain, choose_guarded = _choosing("plain"), _choosing("guarded")


def build(stack: AsyncExitStack, url: str, name: str) -> tuple[Any, Any]:
    """The plain application and the guarded one. *name*: "views", "middleware", "async"."""
    is_async, has_middleware = name == "async", name == "middleware"
    make = ASGIHandler if is_async else WSGIHandler
    changed = {f"DIBS_{option.upper()}": value for option, value in SITE.items()}
    if has_middleware:
        changed["DIBS_POLICIES"] = [Policy(f"POST {route}", **KEYED) for route in POLICIES]
    stack.enter_context(
        override_settings(
            ROOT_URLCONF="tests.integrations.edges_django",
            DIBS_URL=url,
            DIBS_OPTIONS={"budget": 5},
            **changed,
        )
    )
    stack.push_async_callback(_forget, is_async)
    _urlconf["plain"] = _patterns(lambda view: view, is_async=is_async)
    guard = (lambda view: view) if has_middleware else once(**KEYED)
    _urlconf["guarded"] = _patterns(guard, is_async=is_async)
    with override_settings(MIDDLEWARE=[f"{__name__}.choose_plain"]):
        plain = make()
    middlewares = [f"{__name__}.choose_guarded"]
    if has_middleware:
        middlewares.append("dibs.integrations.django.DibsMiddleware")
    with override_settings(MIDDLEWARE=middlewares):
        guarded = make()
    return plain, guarded
