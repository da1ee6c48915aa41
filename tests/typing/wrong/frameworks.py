"""Mistakes with frameworks and jobs."""

from fastapi import Depends, FastAPI, Request
from flask import Flask

from dibs import AsyncDibs, Dibs
from dibs.integrations import arq, asgi, celery, dramatiq, fastapi, flask, rq, taskiq, wsgi

shop = Dibs("redis://localhost")
kitchen = AsyncDibs("redis://localhost")
app = FastAPI()


def user_of(request: Request) -> str | None:
    return request.headers.get("x-user")


def frameworks() -> None:
    fastapi.install(app)  # wrong: with which client?
    fastapi.install(app, shop)  # wrong: an AsyncDibs
    fastapi.install(app, kitchen, usr=user_of)  # wrong: misspelt
    fastapi.install(app, kitchen, per_host="yes")  # wrong: True
    flask.install(Flask("shop"), kitchen)  # wrong: a Dibs
    flask.install(Flask("shop"), shop, user="ann")  # wrong: a function
    flask.install(Flask("shop"), shop, secret=3)  # wrong: text or bytes
    asgi.DibsMiddleware(app, kitchen)  # wrong: options have names
    asgi.DibsMiddleware(app, dibs=shop)  # wrong: an AsyncDibs
    wsgi.DibsMiddleware(Flask("shop").wsgi_app, dibs=kitchen)  # wrong: a Dibs
    asgi.DibsMiddleware(app, dibs=kitchen, policies=["POST /orders"])  # wrong: policies
    fastapi.Policy("POST /orders")  # wrong: no window
    fastapi.Policy("POST /orders", window=10, key="yes")  # wrong: "required"
    fastapi.Policy("POST /orders", window=10, after="keep")  # wrong: "replay"
    fastapi.once(ttl=5)  # wrong: `window`
    fastapi.once(window=10, route="POST /orders")  # wrong: the endpoint has one
    fastapi.once(window=10, by="user")  # wrong: a list; unseen by all
    fastapi.prevent_duplicate_submit(window=3)  # wrong: `interval`
    Depends(fastapi.held("order:{id}"))  # wrong: no ttl
    Depends(fastapi.held("order:{id}", ttl=5, renewed=True))  # wrong: misspelt
    Depends(fastapi.throttled("sms", limit=5))  # wrong: in which time?


def jobs() -> None:
    celery.unique(kitchen, "report:{month}")  # wrong: a Dibs
    celery.unique(shop, "report:{month}", until="done")  # wrong: "end"
    rq.unique(shop, "report:{month}", alone="yes")  # wrong: True
    rq.unique(shop)  # wrong: no template
    dramatiq.unique(shop, "report:{month}", on_duplicate="ignore")  # wrong: "return"
    taskiq.unique(shop, "report:{month}")  # wrong: an AsyncDibs
    taskiq.unique(kitchen, "report:{month}", queue=60)  # wrong: `queued`
    arq.unique(kitchen, "report:{month}", limit="3")  # wrong: a number
    arq.unique(kitchen, "report:{month}", within=print)  # wrong: for others
