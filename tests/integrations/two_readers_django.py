"""The application of `two_readers` in Django: without guards, with views that have one, or with the
middleware.
"""

from __future__ import annotations

import json
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
from .selected_readers import BY, ONCE, _work
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
    changed = {f"DIBS_{option.upper()}": value for option, value in SITE.items()}
    if has_middleware:
        changed["DIBS_POLICIES"] = [Policy(f"POST {route}", **KEYED) for route in POLICIES]
    guard = (lambda view: view) if has_middleware else once(**KEYED)
    patterns = [_patterns(each, is_async=is_async) for each in (lambda view: view, guard)]
    return _built(stack, url, name, changed, *patterns)


def build_selected(stack: AsyncExitStack, url: str, name: str) -> tuple[Any, Any]:
    """As `build`, the applications of `selected_readers`."""
    changed: dict[str, Any] = {"DIBS_USER": f"{__name__}.everybody"}
    if name == "middleware":
        policies = [Policy(f"POST {route}", by=[by], **ONCE) for route, by in BY.items()]
        changed["DIBS_POLICIES"] = policies
    patterns: list[list[Any]] = [[], []]
    for route, read in READS.items():
        view = _worker(read, is_async=name == "async")
        guarded = view if name == "middleware" else once(by=[BY[route]], **ONCE)(view)
        patterns[0].append(path(route[1:], view))
        patterns[1].append(path(route[1:], guarded))
    return _built(stack, url, name, changed, *patterns)


def everybody(request: Any) -> str:
    return "u"


READS: dict[str, Callable[[Any], Any]] = {
    "/query": lambda request: request.GET.get("user"),
    "/header": lambda request: request.headers.get("x-user"),
    "/json": lambda request: json.loads(request.body)["user"],
    "/form": lambda request: request.POST.get("user"),
}


def _worker(read: Callable[[Any], Any], *, is_async: bool) -> Any:
    def work(request: Any) -> Any:
        try:
            body, status = _work(read(request))
        except (ValueError, TypeError, KeyError, LookupError, RecursionError):
            body, status = {}, 422
        return JsonResponse(body, status=status)

    async def awork(request: Any) -> Any:
        return work(request)

    return awork if is_async else work


def _built(
    stack: AsyncExitStack, url: str, name: str, changed: dict[str, Any], plain: Any, guarded: Any
) -> tuple[Any, Any]:
    is_async, has_middleware = name == "async", name == "middleware"
    make = ASGIHandler if is_async else WSGIHandler
    stack.enter_context(
        override_settings(
            ROOT_URLCONF="tests.integrations.edges_django",
            DIBS_URL=url,
            DIBS_OPTIONS={"budget": 5},
            **changed,
        )
    )
    stack.push_async_callback(_forget, is_async)
    _urlconf["plain"], _urlconf["guarded"] = tuple(plain), tuple(guarded)
    with override_settings(MIDDLEWARE=[f"{__name__}.choose_plain"]):
        application = make()
    middlewares = [f"{__name__}.choose_guarded"]
    if has_middleware:
        middlewares.append("dibs.integrations.django.DibsMiddleware")
    with override_settings(MIDDLEWARE=middlewares):
        return application, make()
