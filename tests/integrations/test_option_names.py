"""Options of integrations that do not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette

from dibs import AsyncDibs, Dibs
from dibs.integrations import (
    arq,
    asgi,
    celery,
    dramatiq,
    fastapi,
    flask,
    rq,
    starlette,
    taskiq,
    wsgi,
)

URL = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    ("call", "verb", "written", "meant"),
    [
        (lambda **name: fastapi.held("k", **name), "held", "tll", "ttl"),
        (lambda **name: fastapi.throttled("k", **name), "throttled", "limt", "limit"),
        (lambda **name: fastapi.once(**name), "once", "windw", "window"),
        (lambda **name: flask.once(**name), "once", "withn", "within"),
        (lambda **name: fastapi.install(FastAPI(), URL, **name), "install", "usr", "user"),
        (lambda **name: starlette.install(Starlette(), URL, **name), "install", "usr", "user"),
        (lambda **name: flask.install(Flask("shop"), URL, **name), "install", "usr", "user"),
        (
            lambda **name: asgi.DibsMiddleware(FastAPI(), dibs=URL, **name),
            "DibsMiddleware", "policys", "policies",
        ),
        (
            lambda **name: wsgi.DibsMiddleware(Flask("shop"), dibs=URL, **name),
            "DibsMiddleware", "perhost", "per_host",
        ),
        (lambda **name: celery.unique(Dibs(URL), "k", **name), "unique", "untl", "until"),
        (lambda **name: rq.unique(Dibs(URL), "k", **name), "unique", "quued", "queued"),
        (lambda **name: dramatiq.unique(Dibs(URL), "k", **name), "unique", "wthin", "within"),
        (lambda **name: taskiq.unique(AsyncDibs(URL), "k", **name), "unique", "leas", "lease"),
        (lambda **name: arq.unique(AsyncDibs(URL), "k", **name), "unique", "agan", "again"),
    ],
)  # fmt: skip
def test_the_option_that_was_meant_is_named(
    call: Callable[..., Any], verb: str, written: str, meant: str
) -> None:
    """The error has the name that its caller wrote, and the option that was meant."""
    with pytest.raises(TypeError) as caught:
        call(**{written: 1})
    words = f"{verb}() got an unexpected keyword argument {written!r}. Did you mean {meant!r}?"
    assert str(caught.value) == words
