"""The shop in Django and in Django REST framework: settings, routes and views."""

from __future__ import annotations

from typing import Any

import django
from django.conf import settings

SETTINGS: dict[str, Any] = {
    "SECRET_KEY": "of the tests",
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "MIDDLEWARE": [],
    "INSTALLED_APPS": [],
    "DATABASES": {},
    "TEMPLATES": [{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    "LOGGING_CONFIG": None,
    "DATA_UPLOAD_MAX_MEMORY_SIZE": 100_000,
}
REST = {
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
}
if not settings.configured:
    settings.configure(**SETTINGS)
    django.setup()

from asgiref.sync import sync_to_async  # noqa: E402
from django.core.handlers.asgi import ASGIHandler  # noqa: E402
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.test import override_settings  # noqa: E402
from django.urls import re_path  # noqa: E402

from dibs import AsyncDibs, Dibs  # noqa: E402
from dibs.integrations import django as edge  # noqa: E402
from dibs.integrations.django import Policy, once  # noqa: E402

current: Any = None
user_header: str | None = None


def route(request: Any, path: str) -> Any:
    """The application that the test has built."""
    return current(request)


async def aroute(request: Any, path: str) -> Any:
    return await current(request)


urlpatterns = [re_path(r"^(?P<path>.*)$", route)]


def user_of(request: Any) -> str | None:
    return request.headers.get(user_header)


async def build(
    name: str, stack: Any, server: Any, shop: Any, site: dict[str, Any], policy: dict[str, Any]
) -> Any:
    global current, user_header
    user_header = site.pop("user", None)
    changed = {f"DIBS_{option.upper()}": value for option, value in site.items()}
    if user_header:
        changed["DIBS_USER"] = f"{__name__}.user_of"
    if "middleware" in name:
        changed["DIBS_POLICIES"] = [Policy(policy.pop("route", "POST /*"), **policy)]
        changed["MIDDLEWARE"] = ["dibs.integrations.django.DibsMiddleware"]
    is_async = name.endswith("async")
    stack.enter_context(
        override_settings(
            ROOT_URLCONF=f"{__name__}_async" if is_async else __name__,
            DIBS_URL=server.url,
            DIBS_OPTIONS={"budget": 5},
            DATA_UPLOAD_MAX_MEMORY_SIZE=None,
            REST_FRAMEWORK=REST,
            **changed,
        )
    )
    stack.push_async_callback(_forget, is_async)
    current = _view(name, shop, policy)
    handler: Any = ASGIHandler() if is_async else WSGIHandler()
    return handler


async def _forget(is_async: bool) -> None:
    if edge._made.cache_info().currsize:
        if is_async:
            await edge._made(AsyncDibs).aclose()
        else:
            edge._made(Dibs).close()
    edge._made.cache_clear()


def _view(name: str, shop: Any, policy: dict[str, Any]) -> Any:
    def view(request: Any) -> Any:
        files = [file.read() for file in request.FILES.values()]
        status, headers, answer = shop.order(b"".join(files) or request.body)
        response = JsonResponse(answer, status=status)
        for name, value in headers.items():
            response[name] = value
        return response

    async def aview(request: Any) -> Any:
        return await sync_to_async(view)(request)

    if "middleware" in name:
        return aview if name.endswith("async") else view
    if name.startswith("drf"):
        return _rest_view(name, shop, policy)
    return once(**policy)(aview if name.endswith("async") else view)


def _rest_view(name: str, shop: Any, policy: dict[str, Any]) -> Any:
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from dibs.integrations.drf import OnceMixin
    from dibs.integrations.drf import once as rest_once

    def post(self: Any, request: Any) -> Any:
        is_form = request.content_type.startswith("multipart/")
        files = [file.read() for file in request.FILES.values()] if is_form else []
        status, headers, answer = shop.order(b"".join(files) or request._request.body)
        return Response(answer, status=status, headers=headers)

    if name == "drf mixin":
        facts = {"post": post, "dibs_policy": Policy(**policy)}
        return type("Orders", (OnceMixin, APIView), facts).as_view()  # type: ignore[attr-defined]
    return type("Orders", (APIView,), {"post": rest_once(**policy)(post)}).as_view()
