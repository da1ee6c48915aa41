"""Random requests that the guard and the application may read differently: who, where and what.

    python -m tests.integrations.two_readers --requests 100000

Each request goes to an application twice: to a plain one, which says what it sees, and to the same
one with guards. The guard has to see the same: whoever sends a key again gets the response that was
made for the same person, host, place and payload; any other combination runs once; and only a
request that is ambiguous is refused.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import hashlib
import inspect
import io
import json
import logging
import random
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from dibs import AsyncDibs, Dibs
from dibs.testing import Server

from . import Call

UUID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
SITE: dict[str, Any] = {"session_cookie": "sid", "per_host": True, "secret": "s"}
KEYED: dict[str, Any] = {"after": "replay", "key": "required", "window": 600}
_NOBODY = ("", "null", "none", "undefined", "nan")
_EPOCH = 250
"""Requests after which the keys are new ones."""


class Sent(NamedTuple):
    """One request. *odd*: what of it may be refused."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    odd: bool


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


Send = Callable[[Sent], Awaitable[Answer]]


class Pair(NamedTuple):
    """An application without guards, and with them."""

    plain: Send
    guarded: Send


# ---- requests


def _request(draw: random.Random, epoch: int, *, is_routed: bool) -> Sent:
    """*is_routed*: the framework's router is known, so values of the path may be converted."""
    key = f"key-{epoch}-{draw.randrange(2)}"
    lines = [("Idempotency-Key", draw.choice([key, key, f'"{key}"', f'"{key}";v=1', f" {key} "]))]
    path, is_odd = _path(draw, is_routed=is_routed) if draw.random() < 0.4 else ("/orders", False)
    kind, body, is_bad = _content(draw) if draw.random() < 0.4 else _USUAL_CONTENT
    lines += kind
    is_odd = is_odd or is_bad
    for make, usual in ((_hosts, "a.shop"), (_cookies, "sid=ann"), (_logins, "Bearer ann")):
        more, is_bad = make(draw) if draw.random() < 0.4 else ([(_NAMES[make], usual)], False)
        lines += more
        is_odd = is_odd or is_bad
    draw.shuffle(lines)
    lines = [(draw.choice([name, name.lower(), name.upper()]), value) for name, value in lines]
    return Sent(path, lines, body, is_odd)


def _path(draw: random.Random, *, is_routed: bool) -> tuple[str, bool]:
    number = draw.choice(["7", "7", "8", "07", "007", "+7", "%207", "7.0", "7%20", "%EF%BC%97"])
    texts = [str(UUID), str(UUID).upper(), UUID.hex, f"urn:uuid:{UUID}", str(uuid.UUID(int=1))]
    paths = ["/orders", "/orders", f"/files/{draw.choice(['a', 'b', 'A', '%61', 'a%20', 'a;b'])}"]
    if is_routed:
        paths += [f"/users/{number}/orders", f"/items/{draw.choice(texts)}"]
    path = draw.choice(paths)
    if draw.random() < 0.7:
        return path, False
    changes: list[Callable[[str], str]] = [
        lambda path: "/" + path, lambda path: "//" + path, lambda path: path + "%0A",
        lambda path: path + "%0D", lambda path: path + "%00", lambda path: path + "%09",
        lambda path: "/%0A" + path[1:], lambda path: path + "/", lambda path: path.upper(),
        lambda path: path + "%C2%A0", lambda path: path + "%20", lambda path: path + "%E2%80%A8",
        lambda path: path.replace("/", "/./", 1), lambda path: "/x/.." + path,
        lambda path: path + "%0A%0A", lambda path: "/%2F" + path[1:], lambda path: "/ " + path[1:],
        lambda path: path + ";v=1", lambda path: path + "?n=1", lambda path: path + "?n=2",
    ]  # fmt: skip
    return draw.choice(changes)(path), True


def _hosts(draw: random.Random) -> tuple[list[tuple[str, str]], bool]:
    one = draw.choice(["a.shop", "a.shop", "b.shop", "A.SHOP", "a.shop:80", "a.shop:8080"])
    if draw.random() < 0.92:
        return [("Host", one)], False
    other = draw.choice(["a.shop", "b.shop"])
    odd = [f"x@{other}", f"{other}/x", f"{other}.", f"{other}:", f"{other}:080", f"{other}:0"]
    lines = [[("Host", one), ("Host", other)], [("Host", f"{one},{other}")]]
    return draw.choice([*lines, [("Host", draw.choice(odd))]]), True


def _cookies(draw: random.Random) -> tuple[list[tuple[str, str]], bool]:
    if draw.random() < 0.3:
        return [], False
    session = draw.choice(["ann", "bob"])
    sid = draw.choice(["sid={}", "sid={}", 'sid="{}"', " sid={} ", "sid = {}"]).format(session)
    others = ["_ga=GA1.2", "theme=dark", "mysid=eve", "sidx=eve", "csrftoken=x"]
    if draw.random() < 0.6:
        cookies = [sid, *draw.sample(others, 2)]
        draw.shuffle(cookies)
        return [("Cookie", "; ".join(cookies))], False
    other = draw.choice(["ann", "bob", "", "eve"])
    tricks = [
        f"sid={other}", f'sid="{other}"', f"\u00a0sid={other}", f"sid\t=\t{other}", "sid",
        f'q="; sid={other}; z="', f"x=1 sid={other}", f"x=1,sid={other}", f"SID={other}",
        f"\x1csid={other}", f"$Path=/; sid={other}", f"=sid={other}", f'x="a;sid={other}"',
        f"sid={other} {session}", f"sid=\\{other}", f'sid="\\141{other}"', f"sid={other}\u00e9",
        f'x="\\"; sid={other}; y="', 'x="', f"sid=a={other}", "sid=undefined", "sid=None",
        f'sid="{other}', f"sid='{other}'", f"sid={other},", f"sid={other}\u0085",
    ]  # fmt: skip
    cookies = draw.choice([[draw.choice(tricks), sid], [sid, draw.choice(tricks)]])
    cookies += draw.choice([[], [draw.choice(tricks)]])
    if draw.random() < 0.2:
        return [("Cookie", each) for each in cookies], True
    return [("Cookie", draw.choice(["; ", ";", "; ; "]).join(cookies))], True


def _logins(draw: random.Random) -> tuple[list[tuple[str, str]], bool]:
    if draw.random() < 0.5:
        return [], False
    basic = base64.b64encode(b"ann:x").decode()
    logins = [
        "Bearer ann", "Bearer bob", "bearer ann", "BEARER  ann", "Bearer ann ", f"Basic {basic}",
        f"basic {basic}", "Bearer null", "Bearer undefined", "Bearer None", "Digest ann",
    ]  # fmt: skip
    one, other = draw.choice(logins), draw.choice(logins)
    if draw.random() < 0.85:
        return [("Authorization", one)], False
    if draw.random() < 0.2:
        return [("Authorization", f"{one},{other}")], True
    return [("Authorization", one), ("Authorization", other)], True


_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"


def _content(draw: random.Random) -> tuple[list[tuple[str, str]], bytes, bool]:
    kind, body, odd = draw.choice([_json, _json, _form, _multipart])(draw)
    if draw.random() < 0.9:
        return [("Content-Type", kind)], body, odd
    other = draw.choice([_JSON, _FORM, "text/plain", "multipart/form-data; boundary=x"])
    lines = [("Content-Type", kind), ("Content-Type", other)]
    return draw.choice([lines, [("Content-Type", f"{kind},{other}")]]), body, True


def _json(draw: random.Random) -> tuple[str, bytes, bool]:
    text = draw.choice(
        [
            '{"n":1,"m":"é"}', '{"m":"\\u00e9", "n":1}', ' {"n": 1,\n"m":"é"}', '{"n":2,"m":"é"}',
            '{"n":2,"n":1,"m":"é"}', '{"n":1.0,"m":"é"}', '{"n":"1","m":"é"}', '{"n":1,"m":"e"}',
        ]
    )  # fmt: skip
    code = draw.choice(["utf-8", "utf-8", "utf-8", "utf-16", "utf-16-le", "utf-32"])
    kinds = [_JSON, _JSON, _JSON.upper(), f"{_JSON}; charset=utf-8", f" {_JSON} ;charset=utf-16"]
    return draw.choice(kinds), text.encode(code), code != "utf-8"


def _form(draw: random.Random) -> tuple[str, bytes, bool]:
    body = draw.choice(
        [b"a=1&b=2", b"b=2&a=1", b"a=%31&b=2", b"a=1&a=2", b"a=2&a=1", b"a=1&b=", b"a=1;b=2",
         b"a=+&b=2", b"a=%20&b=2", b"a=%C3%A9", b"&&a=1&b=2&"]
    )  # fmt: skip
    return draw.choice([_FORM, _FORM, f"{_FORM}; charset=utf-8"]), body, False


def _multipart(draw: random.Random) -> tuple[str, bytes, bool]:
    boundary = draw.choice(["xyz", "a-b_c", "----W7", "x y"])
    ends = draw.random() < 0.95
    parts: list[bytes] = []
    for _ in range(draw.randrange(1, 3)):
        about = draw.choice(
            [
                'form-data; name="a"', "form-data; name=a", 'form-data; name="b"',
                'form-data;name="a"', 'form-data; name="f"; filename="x.txt"',
                'form-data; filename="x.txt"; name="f"', 'form-data; name="f"; filename=x.txt',
            ]
        )  # fmt: skip
        name = draw.choice(["Content-Disposition", "content-disposition", "CONTENT-DISPOSITION"])
        more = draw.choice(["", "", "Content-Type: text/plain\r\n", 'X-Other: name="c"\r\n'])
        head = draw.choice([f"{name}: {about}\r\n{more}", f"{more}{name}: {about}\r\n"])
        data = draw.choice([b"1", b"2", b"", b"1\r\n", b"--xy", b"\r\n--x"])
        parts.append(f"--{boundary}\r\n{head}\r\n".encode() + data + b"\r\n")
    body = b"".join(parts) + (f"--{boundary}--".encode() if ends else b"") + b"\r\n"
    quoted = f'"{boundary}"' if " " in boundary or draw.random() < 0.5 else boundary
    return f"multipart/form-data; boundary={quoted}", body, not ends


_NAMES: dict[Any, str] = {_hosts: "Host", _cookies: "Cookie", _logins: "Authorization"}
_USUAL_CONTENT = ([("Content-Type", _JSON)], '{"n":1,"m":"é"}'.encode(), False)


# ---- what an application sees


def seen(
    *, cookie: str | None, login: str | None, host: str, route: str, values: Any, query: str,
    content: Any,
) -> dict[str, Any]:  # fmt: skip
    """What the application says, in one form for all frameworks."""
    name, _, port = host.strip().lower().rpartition(":")
    who: list[str] | None = None
    scheme, _, credential = (login or "").partition(" ")
    if cookie and cookie.lower() not in _NOBODY:
        who = ["session", cookie]
    elif scheme.lower() in ("bearer", "basic") and credential.strip().lower() not in _NOBODY:
        who = ["login", scheme.lower(), credential.strip()]
    return {
        "who": who, "host": name if name and port in ("80", "443") else host.strip().lower(),
        "route": route, "values": {key: str(value) for key, value in values.items()},
        "what": [query, content],
    }  # fmt: skip


def content_of(kind: str, body: bytes, fields: Any) -> Any:
    """*fields*: of a form, as the framework has parsed it."""
    media_type = kind.partition(";")[0].strip().lower()
    if media_type == _JSON:
        try:
            text = body.decode(json.detect_encoding(body), "surrogatepass")
            return ["json", json.dumps(json.loads(text), sort_keys=True)]
        except ValueError:
            return ["raw", body.hex()]
    if fields is None:
        return ["raw", body.hex()]
    return ["form", sorted(fields, key=lambda field: field[0])]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- applications


async def _through_asgi(app: Any, sent: Sent) -> Answer:
    path, _, query = sent.path.partition("?")
    lines = [(name, value) for name, value in sent.headers]
    call = Call(app, "POST /", headers=[*lines, ("content-length", str(len(sent.body)))],
                body=sent.body, path=unquote_to_bytes(path).decode("utf-8", "replace"),
                raw_path=path.encode(), query_string=query.encode())  # fmt: skip
    await call.run()
    return Answer(call.status, call.headers, call.body)


def _through_wsgi(app: Any, sent: Sent) -> Answer:
    path, _, query = sent.path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST", "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "SCRIPT_NAME": "", "QUERY_STRING": query, "REMOTE_ADDR": "10.0.0.1",
        "SERVER_NAME": "shop", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(sent.body),
        "wsgi.errors": io.StringIO(), "wsgi.version": (1, 0), "wsgi.multithread": True,
        "wsgi.multiprocess": True, "wsgi.run_once": False, "wsgi.input_terminated": True,
        "CONTENT_LENGTH": str(len(sent.body)),
    }  # fmt: skip
    for name, value in sent.headers:
        key = name.upper().replace("-", "_")
        key = key if key == "CONTENT_TYPE" else f"HTTP_{key}"
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    started: list[Any] = []

    def start_response(status: str, lines: list[tuple[str, str]], error: Any = None) -> Any:
        started[:] = [int(status.split()[0]), {n.lower(): v for n, v in lines}]
        return lambda data: None

    pieces = app(environ, start_response)
    try:
        data = b"".join(pieces)
    finally:
        getattr(pieces, "close", lambda: None)()
    return Answer(started[0], started[1], data)


def _of_asgi(plain: Any, guarded: Any) -> Pair:
    return Pair(functools.partial(_through_asgi, plain), functools.partial(_through_asgi, guarded))


def _of_wsgi(plain: Any, guarded: Any) -> Pair:
    def sending(app: Any) -> Send:
        async def send(sent: Sent) -> Answer:
            return await asyncio.to_thread(_through_wsgi, app, sent)

        return send

    return Pair(sending(plain), sending(guarded))


async def _seen_by_starlette(request: Any, route: str, values: Any = None) -> dict[str, Any]:
    kind = request.headers.get("content-type", "")
    media_type, fields, body = kind.partition(";")[0].strip().lower(), None, b""
    if media_type in (_FORM, "multipart/form-data"):
        form = await request.form()
        fields = [
            [name, value.filename or "", _hash(await value.read())]
            if hasattr(value, "filename")
            else [name, value]
            for name, value in form.multi_items()
        ]
        await form.close()
    else:
        body = await request.body()
    return seen(
        cookie=request.cookies.get("sid"), login=request.headers.get("authorization"),
        host=request.headers.get("host", ""), route=route,
        values=request.path_params if values is None else values,
        query=request.scope["query_string"].decode(), content=content_of(kind, body, fields),
    )  # fmt: skip


def _starlette(guard: Callable[[Any], Any]) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    def endpoint(route: str) -> Any:
        async def order(request: Request) -> JSONResponse:
            return JSONResponse(await _seen_by_starlette(request, route), 201)

        return Route(route, guard(order), methods=["POST"])

    routes = ("/orders", "/files/{name}", "/users/{user:int}/orders", "/items/{item:uuid}")
    return Starlette(routes=[endpoint(route) for route in routes])


def _fastapi(guard: Callable[[Any], Any]) -> Any:
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    app = FastAPI()

    async def order(request: Request) -> Any:
        return JSONResponse(await _seen_by_starlette(request, "/orders"), 201)

    async def file(request: Request, name: str) -> Any:
        found = await _seen_by_starlette(request, "/files", {"name": name})
        return JSONResponse(found, 201)

    async def user(request: Request, user: int) -> Any:
        found = await _seen_by_starlette(request, "/users", {"user": user})
        return JSONResponse(found, 201)

    async def item(request: Request, item: uuid.UUID) -> Any:
        found = await _seen_by_starlette(request, "/items", {"item": item})
        return JSONResponse(found, 201)

    paths = ("/orders", "/files/{name}", "/users/{user}/orders", "/items/{item}")
    for path, function in zip(paths, (order, file, user, item), strict=True):
        function.__annotations__["request"] = Request
        if function is item:
            function.__annotations__["item"] = uuid.UUID
        app.post(path, response_model=None)(guard(function))
    return app


def _flask(guard: Callable[[Any], Any]) -> Any:
    from flask import Flask, request

    app = Flask("shop")

    def view(route: str) -> None:
        def order(**values: Any) -> Any:
            kind = request.headers.get("content-type", "")
            fields = None
            if request.mimetype in (_FORM, "multipart/form-data"):
                fields = [[name, value] for name, value in request.form.items(multi=True)]
                files = request.files.items(multi=True)
                fields += [[name, file.filename or "", _hash(file.read())] for name, file in files]
            found = seen(
                cookie=request.cookies.get("sid"), login=request.headers.get("authorization"),
                host=request.host, route=route, values=values,
                query=request.query_string.decode(),
                content=content_of(kind, b"" if fields is not None else request.get_data(), fields),
            )  # fmt: skip
            return found, 201

        app.post(route, endpoint=route)(guard(order))

    for route in ("/orders", "/files/<name>", "/users/<int:user>/orders", "/items/<uuid:item>"):
        view(route)
    return app


def _bottle() -> Any:
    import bottle

    app = bottle.Bottle()

    def view(route: str) -> None:
        def order(**values: Any) -> Any:
            request = bottle.request
            kind = request.get_header("Content-Type") or ""
            body, fields = request.body.read(), None
            if kind.partition(";")[0].strip().lower() in (_FORM, "multipart/form-data"):
                fields = [[name, value] for name, value in request.forms.allitems()]
                files = request.files.allitems()
                fields += [
                    [name, file.raw_filename, _hash(file.file.read())] for name, file in files
                ]
            session = request.get_cookie("sid")
            if session is None and "sid" in request.headers.get("Cookie", ""):
                bottle.abort(423, "its parser stops at a cookie that it does not know")
            found = seen(
                cookie=session, login=request.get_header("Authorization"),
                host=request.get_header("Host") or "", route=route, values=values,
                query=request.query_string,
                content=content_of(kind, body, fields),
            )  # fmt: skip
            bottle.response.status = 201
            return found

        app.post(route, callback=order)

    for route in ("/orders", "/files/<name>"):
        view(route)
    return app


# ---- the frameworks


async def _with_starlette(stack: AsyncExitStack, url: str) -> Pair:
    from dibs.integrations.starlette import install, once

    guarded = _starlette(once(**KEYED))
    install(guarded, await stack.enter_async_context(AsyncDibs(url)), **SITE)
    return _of_asgi(_starlette(lambda function: function), guarded)


async def _with_fastapi(stack: AsyncExitStack, url: str) -> Pair:
    from dibs.integrations.fastapi import install, once

    guarded = _fastapi(once(**KEYED))
    install(guarded, await stack.enter_async_context(AsyncDibs(url)), **SITE)
    return _of_asgi(_fastapi(lambda function: function), guarded)


async def _with_asgi(stack: AsyncExitStack, url: str) -> Pair:
    from dibs.integrations.asgi import DibsMiddleware, Policy

    plain = _starlette(lambda function: function)
    policies = [Policy(f"POST {route}", **KEYED) for route in ("/orders", "/files/{name}")]
    dibs = await stack.enter_async_context(AsyncDibs(url))
    return _of_asgi(plain, DibsMiddleware(plain, dibs=dibs, policies=policies, **SITE))


async def _with_flask(stack: AsyncExitStack, url: str) -> Pair:
    from dibs.integrations.flask import install, once

    guarded = _flask(once(**KEYED))
    install(guarded, stack.enter_context(Dibs(url)), **SITE)
    return _of_wsgi(_flask(lambda function: function), guarded)


async def _with_wsgi(stack: AsyncExitStack, url: str, make: Callable[[], Any]) -> Pair:
    from dibs.integrations.wsgi import DibsMiddleware, Policy

    plain = make()
    policies = [Policy(f"POST {route}", **KEYED) for route in ("/orders", "/files/{name}")]
    dibs = stack.enter_context(Dibs(url))
    return _of_wsgi(plain, DibsMiddleware(plain, dibs=dibs, policies=policies, **SITE))


async def _with_django(stack: AsyncExitStack, url: str, name: str) -> Pair:
    from . import two_readers_django

    plain, guarded = two_readers_django.build(stack, url, name)
    return (_of_asgi if name == "async" else _of_wsgi)(plain, guarded)


FRAMEWORKS: dict[str, Callable[[AsyncExitStack, str], Awaitable[Pair]]] = {
    "starlette": _with_starlette,
    "fastapi": _with_fastapi,
    "asgi": _with_asgi,
    "flask": _with_flask,
    "wsgi with flask": functools.partial(
        _with_wsgi, make=lambda: _flask(lambda function: function)
    ),
    "wsgi with bottle": functools.partial(_with_wsgi, make=_bottle),
    "django": functools.partial(_with_django, name="views"),
    "django middleware": functools.partial(_with_django, name="middleware"),
    "django async": functools.partial(_with_django, name="async"),
}
_ROUTED = ("starlette", "fastapi", "flask", "django", "django middleware", "django async")


def starlette_names_routes() -> bool:
    """False: this version does not say which route it has matched, and the path is compared."""
    from starlette import routing

    return 'scope["route"]' in inspect.getsource(routing)


# ---- the check


class Check:
    """What the guard has to answer, by what the application sees."""

    def __init__(self, *, is_routed: bool) -> None:
        self._is_routed = is_routed
        self._first: dict[str, tuple[Any, bytes]] = {}
        self.counts = {"ran": 0, "replayed": 0, "refused": 0, "other": 0, "mismatch": 0}

    def forget(self) -> None:
        self._first.clear()

    def look(self, sent: Sent, plain: Answer, guarded: Answer) -> None:
        """AssertionError: the guard has seen something else than the application."""
        if plain.status != 201:
            # A middleware does not know its router: it may know the submission by another path.
            is_known = guarded.status == 422 or "idempotent-replayed" in guarded.headers
            assert guarded.status in (plain.status, 400) or (
                is_known and sent.odd and not self._is_routed
            ), "not for an endpoint"
            self.counts["other"] += 1
            return
        if guarded.status == 400:
            assert sent.odd, "an ordinary request is refused"
            self.counts["refused"] += 1
            return
        idea = json.loads(plain.body)
        what = idea.pop("what")
        key = {name.lower(): value for name, value in sent.headers}["idempotency-key"]
        submission = json.dumps([idea, key.strip().partition(";")[0].strip('"')], sort_keys=True)
        if guarded.status == 422:
            assert submission in self._first, "a mismatch with nothing"
            # Of a form without its end, some parsers see fewer parts than a middleware.
            is_cut = sent.odd and not self._is_routed
            assert is_cut or self._first[submission][0] != what, "the same payload differs"
            self.counts["mismatch"] += 1
            return
        assert guarded.status == 201, "neither run nor replayed"
        if guarded.headers.get("idempotent-replayed") == "true":
            made_for = [one for one, (_, body) in self._first.items() if body == guarded.body]
            assert submission in self._first, f"a response that was made for {made_for}"
            assert self._first[submission] == (what, guarded.body), (
                "the response to another payload"
            )
            self.counts["replayed"] += 1
            return
        assert submission not in self._first, "a second effect of one submission"
        assert guarded.body == plain.body
        self._first[submission] = (what, guarded.body)
        self.counts["ran"] += 1


async def answer(send: Send, sent: Sent) -> Answer:
    """What comes back. FastAPI fails to tell what is wrong with bytes that are no text, and old
    versions of Starlette with forms that are broken.
    """
    try:
        return await send(sent)
    except ValueError:
        return Answer(500, {}, b"")


async def compare(name: str, server: Server, requests: int, seed: int) -> dict[str, int]:
    """Send *requests* random ones to a framework. AssertionError: with the request, see `Check`."""
    is_routed = name in _ROUTED and (name != "starlette" or starlette_names_routes())
    draw, check = random.Random(f"{name} {seed}"), Check(is_routed=is_routed)
    async with AsyncExitStack() as stack:
        pair = await FRAMEWORKS[name](stack, server.url)
        for number in range(requests):
            if number % _EPOCH == 0:
                check.forget()
                server.flush()
            sent = _request(draw, number // _EPOCH, is_routed=is_routed)
            plain, guarded = await answer(pair.plain, sent), await answer(pair.guarded, sent)
            try:
                check.look(sent, plain, guarded)
            except AssertionError as error:
                error.add_note(f"{name}: request {number} of seed {seed}: {sent}")
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
