"""The same endpoint in every framework: it works for a moment, and writes that it did."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from .double_submits import POLICY

Execute = Callable[[bytes], None]


def run(framework: str, url: str, database: str, port: int, server: str = "") -> None:
    """Serve it, until the process is killed."""

    def execute(body: bytes) -> None:
        time.sleep(random.random() * 0.05)
        with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
            connection.execute("INSERT INTO executions VALUES (?)", (json.loads(body)["intent"],))

    build, usual = _BUILT[framework]
    SERVERS[server or usual](build(url, execute), port)


# ---- servers


def _by_uvicorn(app: Any, port: int, http: Any = "h11") -> None:
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", http=http)


def _by_hypercorn(app: Any, port: int) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "CRITICAL"
    asyncio.run(serve(app, config, mode="asgi"))


def _by_gunicorn(app: Any, port: int, kind: str = "gthread") -> None:
    from gunicorn.app.base import BaseApplication

    class Application(BaseApplication):
        def load_config(self) -> None:
            options = {
                "bind": f"127.0.0.1:{port}", "worker_class": kind,
                "threads": 16 if kind == "gthread" else 1,
                "loglevel": "critical", "reuse_port": True, "control_socket_disable": True,
            }  # fmt: skip
            for name, value in options.items():
                if name in self.cfg.settings:
                    self.cfg.set(name, value)

        def load(self) -> Any:
            return app

    Application().run()


SERVERS: dict[str, Callable[[Any, int], None]] = {
    "uvicorn": _by_uvicorn,
    "uvicorn httptools": functools.partial(_by_uvicorn, http="httptools"),
    "hypercorn": _by_hypercorn,
    "gunicorn": _by_gunicorn,
    "gunicorn sync": functools.partial(_by_gunicorn, kind="sync"),
}


# ---- applications


def _asgi(url: str, execute: Execute) -> Any:
    from dibs.integrations.asgi import DibsMiddleware, Policy

    from . import answer, read

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await asyncio.to_thread(execute, await read(receive))
            await answer(send)

    return DibsMiddleware(app, dibs=url, policies=[Policy("POST /orders", **POLICY)])


def _starlette(url: str, execute: Execute) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from dibs.integrations.starlette import install, once

    @once(**POLICY)
    async def order(request: Request) -> JSONResponse:
        await asyncio.to_thread(execute, await request.body())
        return JSONResponse({}, 201)

    app = Starlette(routes=[Route("/orders", order, methods=["POST"])])
    install(app, url)
    return app


def _fastapi(url: str, execute: Execute) -> Any:
    from fastapi import FastAPI

    from dibs.integrations.fastapi import install, once

    app = FastAPI()

    def order(body: dict[str, str]) -> dict[str, str]:
        execute(json.dumps(body).encode())
        return {}

    order.__annotations__["body"] = dict[str, str]
    app.post("/orders", status_code=201, response_model=None)(once(**POLICY)(order))
    install(app, url)
    return app


def _flask(url: str, execute: Execute) -> Any:
    from flask import Flask, request

    from dibs.integrations.flask import install, once

    app = Flask("shop")

    @app.post("/orders")
    @once(**POLICY)
    def order() -> Any:
        execute(request.get_data())
        return {}, 201

    install(app, url)
    return app


def _wsgi(url: str, execute: Execute) -> Any:
    from bottle import Bottle, request, response

    from dibs.integrations.wsgi import DibsMiddleware, Policy

    app = Bottle()

    @app.post("/orders")
    def order() -> Any:
        execute(request.body.read())
        response.status = 201
        return {}

    return DibsMiddleware(app, dibs=url, policies=[Policy("POST /orders", **POLICY)])


def _django(url: str, execute: Execute, handler: str = "wsgi", view: Any = None) -> Any:
    from . import edges_django

    from django.conf import settings  # isort: skip
    from django.core import asgi, wsgi  # isort: skip
    from django.http import JsonResponse  # isort: skip

    settings.DIBS_URL = url
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    settings.REST_FRAMEWORK = edges_django.REST

    def order(request: Any) -> Any:
        execute(request.body)
        return JsonResponse({}, status=201)

    async def aorder(request: Any) -> Any:
        await asyncio.to_thread(execute, request.body)
        return JsonResponse({}, status=201)

    if view is not None:
        edges_django.current = view(execute)
        return wsgi.get_wsgi_application()
    if handler == "wsgi":
        edges_django.current = edges_django.once(**POLICY)(order)
        return wsgi.get_wsgi_application()
    settings.ROOT_URLCONF = "tests.integrations.edges_django_async"
    edges_django.current = edges_django.once(**POLICY)(aorder)
    return asgi.get_asgi_application()


def _django_asgi(url: str, execute: Execute) -> Any:
    return _django(url, execute, "asgi")


def _drf(url: str, execute: Execute) -> Any:
    def view(execute: Execute) -> Any:
        from rest_framework.response import Response
        from rest_framework.views import APIView

        from dibs.integrations.drf import once

        class Orders(APIView):
            @once(**POLICY)
            def post(self, request: Any) -> Response:
                execute(json.dumps(request.data).encode())
                return Response({}, 201)

        return Orders.as_view()

    return _django(url, execute, view=view)


_BUILT: dict[str, tuple[Callable[[str, Execute], Any], str]] = {
    "asgi": (_asgi, "uvicorn"),
    "starlette": (_starlette, "uvicorn"),
    "fastapi": (_fastapi, "uvicorn"),
    "flask": (_flask, "gunicorn"),
    "wsgi": (_wsgi, "gunicorn"),
    "django": (_django, "gunicorn"),
    "django-asgi": (_django_asgi, "uvicorn"),
    "drf": (_drf, "gunicorn"),
}
