"""Random requests whose selected value the guard and the application may read differently.

    python -m tests.integrations.selected_readers --requests 100000

As in `two_readers`, each request goes to an application without guards, which says for which user
it would work, and to the same one with `@once(after="hold", by=["body.user"])`. For each user it
works once, in however many ways the user is written; only a request that is odd is refused.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from dibs import AsyncDibs, Dibs
from dibs.testing import Server

from .two_readers import _FORM, _JSON, Answer, Pair, Sent, _of_asgi, _of_wsgi, answer

BY = {
    "/query": "query.user",
    "/header": "header.x-user",
    "/json": "body.user",
    "/form": "body.user",
}
ONCE: dict[str, Any] = {"window": 600, "after": "hold"}
SITE: dict[str, Any] = {"user": lambda *_: "u", "secret": "s"}
_EPOCH = 200
"""Requests after which all users are new ones."""


# ---- requests


def _request(draw: random.Random) -> Sent:
    make = draw.choice([_query, _header, _json, _json, _form, _multipart, _multipart])
    return make(draw)


def _user(draw: random.Random) -> str:
    return draw.choice(["7", "8", "07", "+7", "7.0", " 7", "70", "77", "-7", "u7"])


_QUOTED = {" ": "%20", "+": "%2B"}


def _pairs(draw: random.Random) -> tuple[str, bool]:
    """As in a query or a form."""
    text = "".join([_QUOTED.get(each, each) for each in _user(draw)])
    text = draw.choice([text, text, text.replace("7", "%37")])
    pairs = [draw.choice(["user=", "user=", "%75ser=", "use%72="]) + text]
    others = ["x=1", "users=9", "user.id=9", "x=user", "&", "xuser=9", "user1=9"]
    pairs += draw.sample(others, draw.randrange(3))
    odd = draw.random() < 0.3
    if odd:
        other = draw.choice(["8", "9", "7", "", "007"])
        tricks = [
            f"user={other}", f"%75ser={other}", f"user[]={other}", f"USER={other}", "user",
            f";user={other}", f"user%00={other}", f"user={other};user=7", f"+user={other}",
            f"user%20={other}", f"\ufeffuser={other}", f"user[0]={other}", "_charset_=utf-7",
            f"user={other}%00", f"user={other}%0D%0A", "user=%FF", "%FF=1", f"user%5B%5D={other}",
        ]  # fmt: skip
        pairs += draw.choices(tricks, k=draw.randrange(1, 3))
    draw.shuffle(pairs)
    return "&".join(pairs), odd


def _query(draw: random.Random) -> Sent:
    query, odd = _pairs(draw)
    query = query.encode().decode("latin-1") if query.isascii() else query.replace("\ufeff", "")
    return Sent(f"/query?{query}", [], b"", odd)


def _header(draw: random.Random) -> Sent:
    lines = [("X-User", draw.choice(["7", "8", "07", "7 ", "\t7", "u7"]))]
    odd = draw.random() < 0.3
    if odd:
        lines.append((draw.choice(["x-user", "X-User", "X-USER"]), draw.choice(["9", "10", "7"])))
        draw.shuffle(lines)
    return Sent("/header", lines, b"", odd)


def _json(draw: random.Random) -> Sent:
    user = draw.choice(["7", "8", "7.0", "70e-1", '"7"', '"07"', '" 7"', '"8"', "-7", "7.5"])
    text = draw.choice(['{"user":%s}', '{ "user" : %s , "x":[1] }', '{"x":{"user":9},"user":%s}'])
    text, odd = text % user, draw.random() < 0.5
    lines, code = [("Content-Type", draw.choice([_JSON, f"{_JSON}; charset=utf-8"]))], "utf-8"
    if odd:
        other = draw.choice(["8", "9", '"9"', "null", "7"])
        tricks = [
            f'{{"user":{other},"user":{user}}}', f'{{"user":{user},"user":{other}}}',
            f'{{"user":{user},"\\u0075ser":{other}}}', f'{{"x":"&user={other}&","user":{user}}}',
            text + " " * draw.randrange(9), text + "\x00", "\ufeff" + text, f"[{text}]", text[:-1],
            f'{{"user":{user},"x":NaN}}', f'{{"user":{user},"x":1e999}}', f"user={other}",
            f'{{"User":{other},"user":{user}}}', f'{{"user":[{user},{other}]}}',
            f'{{"user":{user},"x":{"9" * 5000}}}', f'{{"user":{user},"x":"\\ud800"}}',
            f'{{"user":{user},"x":{"[" * 2000 + "]" * 2000}}}', text + " " * (1 << 20),
        ]  # fmt: skip
        text = draw.choice([text, *tricks])
        code = draw.choice(["utf-8", "utf-8", "utf-16", "utf-16-be", "utf-32", "utf-7", "cp037"])
        kinds = [
            _JSON, _JSON.upper(), f"{_JSON};charset=utf-7", "text/plain", "text/json", "x/y+json",
            f'{_JSON}; charset="cp037"', _FORM, "*/*", "multipart/form-data", f"{_JSON};v=1",
            "multipart/form-data; boundary=x", f"{_JSON}; charset=utf-16",
        ]  # fmt: skip
        lines = [("Content-Type", draw.choice(kinds))]
        if draw.random() < 0.2:
            lines = []
        if draw.random() < 0.3:
            codings = ["gzip", "br", "identity", "x", "", "gzip, identity"]
            lines.append(("Content-Encoding", draw.choice(codings)))
    return Sent("/json", lines, text.encode(code, _BEST[code == "cp037"]), odd)


_BEST = ("surrogatepass", "replace")


def _form(draw: random.Random) -> Sent:
    text, odd = _pairs(draw)
    kind = _FORM
    lines: list[tuple[str, str]] = []
    if odd:
        charset = draw.choice(["utf-7", "utf-16", "latin-1", "utf-8", '"utf-8"', "UTF8", "cp037"])
        kind = draw.choice([kind, f"{kind}; charset={charset}", f"{kind} ;charset={charset};x=1"])
        if draw.random() < 0.2:
            lines.append(("Content-Encoding", draw.choice(["gzip", "identity", "x"])))
        if draw.random() < 0.05:
            text = "&".join(["x=1"] * draw.choice([900, 11_000]) + [text])
    return Sent("/form", [("Content-Type", kind), *lines], text.encode(), odd)


_NAMED = 'form-data; name="user"'
_ODD_PARTS = [  # what the part is about, a value, further headers
    (_NAMED, "", ""), (f'{_NAMED}; filename="f"', "", ""), (_NAMED, "usual\r\n", ""),
    (_NAMED, "", "Content-Transfer-Encoding: base64"),
    (_NAMED, "Nw==", "Content-Transfer-Encoding: base64"),
    (_NAMED, "=37", "Content-Transfer-Encoding: quoted-printable"),
    (_NAMED, "", "Content-Type: text/plain; charset=utf-16"),
    (_NAMED, "+ADc-", "Content-Type: text/plain; charset=utf-7"), (_NAMED, "+ADc-", ""),
    ("form-data; name*=utf-8''user", "", ""), ("form-data; name*=utf-8''%75ser", "", ""),
    ("form-data; name*0=us; name*1=er", "", ""), ('form-data; name="us\\er"', "", ""),
    (f'{_NAMED}; name="x"', "", ""), ('form-data; name="x"; name="user"', "", ""),
    ('form-data;\r\n name="user"', "", ""), ('form-data; name="x\r\n y"; name="user"', "", ""),
    ('form-data; NAME="user"', "", ""), ('form-data; name = "user"', "", ""),
    ("form-data; name='user'", "", ""), ('form-data; name="%75ser"', "", ""),
    ('form-data; filename="name=user; x"; name="x"', "", ""), (f"{_NAMED} ", "", ""),
    ('form-data; x="; name=user"; name="x"', "", ""), ('attachment; name="user"', "", ""),
    ('name="user"', "", ""), ("", "", ""), ('form-data; name="_charset_"', "utf-7", ""),
    ('form-data; name="x"', "1", f"Content-Disposition: {_NAMED}"), (f"{_NAMED};", "", ""),
    (_NAMED, "", 'Content-Disposition: form-data; name="x"'), ('form-data; name="usér"', "", ""),
    ('form-data; name="user\x00"', "", ""), (_NAMED, "", "Content-Type: multipart/mixed"),
    (_NAMED, "1\r\n--xyzx\r\n2", ""), (_NAMED, "--xyz", ""), (_NAMED, "1", "X-Other: 1\n"),
]  # fmt: skip
_ODD_TYPES = [
    "multipart/form-data; boundary={}; charset=utf-7", "multipart/form-data boundary={}",
    "multipart/form-data; charset=utf-16; boundary={}", "multipart/form-data;boundary={} ",
    "multipart/form-data; boundary={}; boundary=other", "multipart/form-data; boundary = {}",
    "multipart/form-data; boundary=other; boundary={}", "MULTIPART/Form-Data; BOUNDARY={}",
    "multipart/form-data; xboundary=other; boundary={}", "multipart/form-data; boundary={},x",
    'multipart/form-data; x="boundary=other"; boundary={}', "multipart/form-data; boundary*=''{}",
]  # fmt: skip


def _multipart(draw: random.Random) -> Sent:
    boundary, odd = draw.choice(["xyz", "----W7", "a'b"]), draw.random() < 0.6
    parts = [_part(draw.choice([_NAMED, "form-data; name=user", _NAMED]), _user(draw))]
    others = [_part('form-data; name="x"', "1"), _part('form-data; name="y"; filename="a"', "2")]
    parts += draw.sample(others, draw.randrange(3))
    if odd:
        for about, data, more in draw.choices(_ODD_PARTS, k=draw.randrange(1, 3)):
            part = _part(about, data or draw.choice(["8", "9", "007"]), more)
            part = part.replace("\r\n", "\n", 9 if draw.random() < 0.05 else 0)
            name = draw.choice(["Content-Disposition"] * 9 + ["Content-Disposition ", " X", "X-A"])
            parts.append(part.replace("Content-Disposition", name))
        if draw.random() < 0.5:
            del parts[0]
    draw.shuffle(parts)
    mark = f"--{boundary}"
    padding = draw.choice(["", "", " ", "\t", "x", "--"]) if odd else ""
    body = "".join([f"{mark}{draw.choice(['', padding])}\r\n{each}\r\n" for each in parts])
    body += mark + draw.choice(["--", "--\r\n"] + ["", "-", "--x", f"--\r\n{body}{mark}--"] * odd)
    kinds = ['multipart/form-data; boundary="{}"', "multipart/form-data; boundary={}"]
    if odd:
        before = draw.choice(["preamble\r\n", "\r\n", "\n", f"x{mark}\r\n", "--\r\n", f"{mark}\n"])
        body = (before if draw.random() < 0.2 else "") + body
        body = body.replace("\r\n", "\n") if draw.random() < 0.1 else body
        kinds += draw.sample(_ODD_TYPES, 2)
    kind = draw.choice(kinds).format(boundary)
    return Sent("/form", [("Content-Type", kind)], body.encode(), odd)


def _part(about: str, data: str, more: str = "") -> str:
    lines = [f"Content-Disposition: {about}"] if about else []
    return "\r\n".join([*lines, *([more] if more else []), "", data])


# ---- applications: they say for which user they work


def _starlette(guard: Callable[[str, Any], Any]) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def query(request: Request) -> Any:
        return request.query_params.get("user")

    async def header(request: Request) -> Any:
        return request.headers.get("x-user")

    async def data(request: Request) -> Any:
        return (await request.json())["user"]

    async def form(request: Request) -> Any:
        async with request.form() as fields:
            return fields.get("user")

    def endpoint(read: Any) -> Any:
        async def work(request: Request) -> JSONResponse:
            try:
                return JSONResponse(*_work(await read(request)))
            except (ValueError, TypeError, KeyError, LookupError, RecursionError):
                return JSONResponse({}, 422)

        return work

    reads = dict(zip(BY, (query, header, data, form), strict=True))
    return Starlette(routes=[Route(path, guard(path, endpoint(read)), methods=["POST"])
                             for path, read in reads.items()])  # fmt: skip


def _work(user: Any) -> tuple[Any, int]:
    """For which user it works, as a database would compare them."""
    if user is None or not isinstance(user, str | int | float) or isinstance(user, bool):
        return {}, 422
    return {"user": user if isinstance(user, str) else float(user)}, 201


def _fastapi(guard: Callable[[str, Any], Any]) -> Any:
    from fastapi import FastAPI, Form, Header
    from pydantic import BaseModel

    class Order(BaseModel):
        user: int

    app = FastAPI()

    async def query(user: int) -> Any:
        return {"user": user}

    async def header(x_user: int = Header()) -> Any:
        return {"user": x_user}

    async def data(order: Any) -> Any:
        return {"user": order.user}

    async def form(user: int = Form()) -> Any:
        return {"user": user}

    query.__annotations__["user"] = header.__annotations__["x_user"] = int
    form.__annotations__["user"], data.__annotations__["order"] = int, Order
    for path, function in zip(BY, (query, header, data, form), strict=True):
        app.post(path, status_code=201, response_model=None)(guard(path, function))
    return app


def _flask(guard: Callable[[str, Any], Any]) -> Any:
    from flask import Flask, request

    app = Flask("shop")
    reads: tuple[Callable[[], Any], ...] = (
        lambda: request.args.get("user"), lambda: request.headers.get("x-user"),
        lambda: request.get_json(force=True)["user"], lambda: request.form.get("user"),
    )  # fmt: skip

    def view(read: Callable[[], Any]) -> Any:
        def work() -> Any:
            try:
                return _work(read())
            except (ValueError, TypeError, KeyError, LookupError, RecursionError):
                return {}, 422

        return work

    for path, read in zip(BY, reads, strict=True):
        app.post(path, endpoint=path)(guard(path, view(read)))
    return app


def _bottle() -> Any:
    import bottle

    app, request = bottle.Bottle(), bottle.request
    reads: tuple[Callable[[], Any], ...] = (
        lambda: request.query.get("user"), lambda: request.get_header("x-user"),
        lambda: json.loads(request.body.read())["user"], lambda: request.forms.get("user"),
    )  # fmt: skip

    def view(read: Callable[[], Any]) -> Any:
        def work() -> Any:
            try:
                body, bottle.response.status = _work(read())
            except (ValueError, TypeError, KeyError, LookupError, RecursionError):
                body, bottle.response.status = {}, 422
            return body

        return work

    for path, read in zip(BY, reads, strict=True):
        app.post(path, callback=view(read))
    return app


# ---- the frameworks


async def _with_asgi_decorator(stack: AsyncExitStack, url: str, name: str) -> Pair:
    from dibs.integrations import fastapi, starlette

    make, module = {"starlette": (_starlette, starlette), "fastapi": (_fastapi, fastapi)}[name]
    guarded = make(lambda path, function: module.once(by=[BY[path]], **ONCE)(function))
    module.install(guarded, await stack.enter_async_context(AsyncDibs(url)), **SITE)
    return _of_asgi(make(lambda path, function: function), guarded)


async def _with_asgi(stack: AsyncExitStack, url: str) -> Pair:
    from dibs.integrations.asgi import DibsMiddleware, Policy

    plain = _starlette(lambda path, function: function)
    policies = [Policy(f"POST {path}", by=[by], **ONCE) for path, by in BY.items()]
    dibs = await stack.enter_async_context(AsyncDibs(url))
    return _of_asgi(plain, DibsMiddleware(plain, dibs=dibs, policies=policies, **SITE))


async def _with_flask(stack: AsyncExitStack, url: str) -> Pair:
    from dibs.integrations.flask import install, once

    guarded = _flask(lambda path, view: once(by=[BY[path]], **ONCE)(view))
    install(guarded, stack.enter_context(Dibs(url)), **SITE)
    return _of_wsgi(_flask(lambda path, view: view), guarded)


async def _with_wsgi(stack: AsyncExitStack, url: str, make: Callable[[], Any]) -> Pair:
    from dibs.integrations.wsgi import DibsMiddleware, Policy

    plain = make()
    policies = [Policy(f"POST {path}", by=[by], **ONCE) for path, by in BY.items()]
    dibs = stack.enter_context(Dibs(url))
    return _of_wsgi(plain, DibsMiddleware(plain, dibs=dibs, policies=policies, **SITE))


async def _with_django(stack: AsyncExitStack, url: str, name: str) -> Pair:
    from . import two_readers_django

    plain, guarded = two_readers_django.build_selected(stack, url, name)
    return (_of_asgi if name == "async" else _of_wsgi)(plain, guarded)


FRAMEWORKS: dict[str, Callable[[AsyncExitStack, str], Awaitable[Pair]]] = {
    "starlette": functools.partial(_with_asgi_decorator, name="starlette"),
    "fastapi": functools.partial(_with_asgi_decorator, name="fastapi"),
    "asgi": _with_asgi,
    "flask": _with_flask,
    "wsgi with flask": functools.partial(_with_wsgi, make=lambda: _flask(lambda path, view: view)),
    "wsgi with bottle": functools.partial(_with_wsgi, make=_bottle),
    "django": functools.partial(_with_django, name="views"),
    "django middleware": functools.partial(_with_django, name="middleware"),
    "django async": functools.partial(_with_django, name="async"),
}


# ---- the check


class Check:
    """What the guard has to answer, by the user for whom the application works."""

    def __init__(self, name: str) -> None:
        self._is_django = name.startswith("django")
        self._users: dict[str, Sent] = {}
        self.counts = {"ran": 0, "refused": 0, "odd": 0, "other": 0}

    def forget(self) -> None:
        self._users.clear()

    def look(self, sent: Sent, plain: Answer, guarded: Answer) -> None:
        """AssertionError: the guard has read another user than the application."""
        # Django has no raw bytes of a form with files, once it was read.
        is_gone = self._is_django and sent.path == "/json" and "multipart" in str(sent.headers)
        if plain.status != 201 or (is_gone and guarded.status == 500):
            assert is_gone or guarded.status in (plain.status, 400, 413, 429), "not for an endpoint"
            self.counts["other"] += 1
            return
        if guarded.status in (400, 413):
            assert sent.odd, "an ordinary request is refused"
            self.counts["odd"] += 1
            return
        user = json.dumps([sent.path.partition("?")[0], json.loads(plain.body)])
        if guarded.status == 429:
            assert user in self._users, "a user for whom nothing was done is refused"
            self.counts["refused"] += 1
            return
        assert guarded.status == 201, "neither run nor refused"
        first = self._users.setdefault(user, sent)
        assert first is sent, f"a second effect for one user, after {str(first)[:2000]}"
        assert guarded.body == plain.body
        self.counts["ran"] += 1


async def compare(name: str, server: Server, requests: int, seed: int) -> dict[str, int]:
    """Send *requests* random ones to a framework. AssertionError: with the request, see `Check`."""
    draw, check = random.Random(f"{name} {seed}"), Check(name)
    async with AsyncExitStack() as stack:
        pair = await FRAMEWORKS[name](stack, server.url)
        for number in range(requests):
            if number % _EPOCH == 0:
                check.forget()
                server.flush()
            sent = _request(draw)
            plain, guarded = await answer(pair.plain, sent), await answer(pair.guarded, sent)
            try:
                check.look(sent, plain, guarded)
            except AssertionError as error:
                error.add_note(f"{name}: request {number} of seed {seed}: {str(sent)[:3000]}")
                error.add_note(f"the application: {plain}\nwith its guard: {guarded}")
                raise
    return check.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=100_000, help="for all frameworks together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # frameworks write a line for each refusal
    names = options.framework or list(FRAMEWORKS)
    with Server.start() as server:
        for name in names:
            each = -(-options.requests // len(names))
            print(name, asyncio.run(compare(name, server, each, options.seed)), flush=True)


if __name__ == "__main__":
    main()
