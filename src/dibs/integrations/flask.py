"""Duplicate submissions and idempotency keys for Flask: a decorator on the view.

install(app, Dibs("redis://…"), user=lambda: session.get("user_id"))

@app.post("/orders")
@prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
def order(): ...
"""

import functools
import io
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlencode

from flask import Flask, Response, after_this_request, current_app, make_response, request

from .._http.answers import Answer
from .._http.decorators import Once, PreventDuplicateSubmit
from .._http.facts import Facts, submission_of
from .._http.policy import Policy
from .._http.recording import Recording
from .._sync.claim import Claim
from .._sync.dibs import Dibs
from ..errors import UsageError
from ._claims import claimed, ended, key_lines

__all__ = ["install", "once", "prevent_duplicate_submit"]

User = Callable[[], object]

_OPEN = "dibs.open"
"""Where the claims of a request are, in its environment."""


def install(
    app: Flask, dibs: Dibs | str, *, user: User | None = None, secret: str | bytes | None = None
) -> None:
    """Let the decorated views of *app* be guarded by *dibs* (yours to close, or a URL).

    *user*: tells who submits the current request; without it, it is the Authorization header, else
    the cookies, else the client's address. *secret*: keys the hashes under which submissions are
    stored, the same in all processes (default: the app's own secret key).
    """
    app.extensions["dibs"] = _Desk(Dibs(dibs) if isinstance(dibs, str) else dibs, user, secret)
    app.teardown_request(_let_go)


def guard(policy: Policy, view: Callable[..., Any]) -> Callable[..., Any]:
    """*view*, with a claim around it."""

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        claim = _desk().admit(policy)
        if isinstance(claim, Answer):
            return _response(claim)
        request.environ.setdefault(_OPEN, []).append(claim)
        try:
            response = make_response(current_app.ensure_sync(view)(*args, **kwargs))
        except Exception:
            # Not ours to answer: decorators around this one want to see it, and the app may have a
            # handler for it. What that says is the answer.
            after_this_request(functools.partial(_end, policy, claim))
            raise
        return _end(policy, claim, response)

    return guarded


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)


def _end(policy: Policy, claim: Claim, response: Response) -> Response:
    """The claim ends with the answer: with a stream when that has ended, or its client has left."""
    recording = _recorded(policy, response)
    if _is_stream(policy, response):
        request.environ[_OPEN].remove(claim)
        response.call_on_close(functools.partial(ended, claim, recording))
    else:
        ended(claim, recording)
    return response


def _let_go(error: BaseException | None) -> None:
    """The request is over: nobody has answered it, and nobody will."""
    for claim in request.environ.pop(_OPEN, ()):
        claim.fail()


def _recorded(policy: Policy, response: Response) -> Recording:
    """The answer, as far as it can be kept: a stream is left alone."""
    recording = Recording(policy)
    recording.begin(response.status_code, tuple(response.headers.items()))
    if _is_stream(policy, response):
        recording.give_up()
    elif policy.after == "replay":
        recording.add(response.get_data())
    return recording


def _is_stream(policy: Policy, response: Response) -> bool:
    """True: it is made while it is sent. Error pages look so, too, but their length is known."""
    length = response.headers.get("Content-Length", type=int)
    is_short = length is not None and length <= policy.most
    return response.direct_passthrough or (response.is_streamed and not is_short)


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.headers.clear()
    response.headers.extend(answer.headers)
    return response


def _desk() -> "_Desk":
    desk = current_app.extensions.get("dibs")
    if desk is None:
        raise UsageError("call install(app, dibs) once, where the app is made")
    return desk


class _Desk:
    """Where requests of one app are claimed."""

    def __init__(self, dibs: Dibs, user: User | None, secret: str | bytes | None) -> None:
        self._dibs = dibs
        self._user = user or _who
        self._secret = secret

    def admit(self, policy: Policy) -> Claim | Answer:
        """A claim on the current request, or what to answer in its place."""
        name = f"{request.method} {request.url_rule or request.endpoint}"
        who = self._user()
        facts = _facts(name, None if who is None else str(who))
        keys = key_lines(request.headers.getlist(policy.header))
        return claimed(self._dibs, policy, name, submission_of(policy, facts, keys, self._key()))

    def _key(self) -> bytes:
        secret = self._secret if self._secret is not None else current_app.secret_key or b""
        return secret.encode() if isinstance(secret, str) else secret


def _facts(name: str, user: str | None) -> Facts:
    headers = {key.lower(): value for key, value in request.headers.items()}
    return Facts(
        method=request.method,
        route=name,
        path=request.path,
        query=request.query_string.decode("latin-1"),
        headers=headers,
        body=_body(headers),
        user=user,
        path_fields={key: str(value) for key, value in (request.view_args or {}).items()},
    )


def _body(headers: dict[str, str]) -> bytes:
    """The body; of a form with files, its text fields: uploads are no part of a key."""
    if request.mimetype != "multipart/form-data":
        body = request.get_data()
        cast(Any, request).stream = io.BytesIO(body)  # the view may want to read it, too
        return body
    headers["content-type"] = "application/x-www-form-urlencoded"
    return urlencode(list(request.form.items(multi=True)), errors="surrogatepass").encode()


def _who() -> str | None:
    """Who submits, as far as the request itself tells, and from what: else a header could be
    filled in with somebody's address.
    """
    for name in ("Authorization", "Cookie"):
        if request.headers.get(name):
            return f"{name.lower()} {request.headers[name]}"
    return None if request.remote_addr is None else f"address {request.remote_addr}"
