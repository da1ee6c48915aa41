"""Read by pyright and mypy, never run: the options of the HTTP guard, in every integration."""

from typing import assert_type

from fastapi import FastAPI, Request
from flask import Flask
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from dibs import AsyncDibs, Dibs
from dibs.integrations import asgi, django, fastapi, flask, wsgi


def user_of(request: Request) -> str | None:
    return request.headers.get("x-user")


async def application(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None: ...


def wsgi_application(environ: wsgi.Environ, start_response: wsgi.StartResponse) -> list[bytes]:
    return []


fastapi.install(FastAPI(), AsyncDibs("redis://h"), user=user_of, session_cookie="s", per_host=True)
flask.install(Flask("shop"), "redis://h", user=lambda: "ann", secret=b"s", service="shop")
asgi.DibsMiddleware(application, dibs="redis://h", user=lambda scope: scope["user"])
wsgi.DibsMiddleware(
    wsgi_application, dibs=Dibs("redis://h"), policies=[wsgi.Policy("* /*", window=1)]
)
fastapi.held("order:{id}", ttl=5, wait=2, message="…")
fastapi.held(lambda request: request.headers["x-user"], ttl=5, name="user:{id}")
fastapi.held("order:{id}", ttl="5")  # type: ignore[arg-type]
fastapi.held("order:{id}", wait=2)  # type: ignore[call-arg]
fastapi.install(FastAPI(), "redis://h", users=user_of)  # type: ignore[call-arg]
flask.install(Flask("shop"), "redis://h", secret=3)  # type: ignore[arg-type]

POLICY = fastapi.Policy(window=86400, after="replay", key="required")


@fastapi.once(POLICY)
def pay(amount: int) -> int:
    return amount


@flask.once(window=10, after="hold", by=["body.cart"])
def order(cart: int) -> str:
    return str(cart)


async def with_a_database(
    sessions: sessionmaker[Session], async_sessions: async_sessionmaker[AsyncSession]
) -> None:
    @fastapi.once(POLICY, within=async_sessions.begin)
    async def place(session: AsyncSession, amount: int) -> int:
        return amount

    @fastapi.once(window=10, after="replay", within=sessions.begin)
    def plain(session: Session, amount: int) -> int:
        return amount

    @flask.once(window=10, after="replay", within=sessions.begin)
    def view(session: Session, cart: int) -> str:
        return str(cart)

    @django.once(POLICY, within=django.atomic())
    def in_django(request: object) -> int:
        return 1

    assert_type(await place(1), int)
    assert_type(plain(amount=1), int)
    assert_type(view(1), str)
    assert_type(in_django(object()), int)
    plain(sessions(), 1)  # type: ignore[arg-type, call-arg]
    fastapi.once(POLICY, within=sessions.begin)(pay)  # type: ignore[arg-type]
    fastapi.once(POLICY, within=3)  # type: ignore[call-overload]


assert_type(pay(1), int)
assert_type(order(1), str)
fastapi.once(window=10, afer="hold")  # type: ignore[call-overload]
