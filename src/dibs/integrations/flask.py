"""Duplicate submissions and idempotency keys for Flask: a decorator on the view.

install(app, Dibs("redis://…"), user=lambda: session.get("user_id"))

@app.post("/orders")
@prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
def order(): ...
"""

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from flask import Flask, Response, current_app, make_response, request

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


def install(
    app: Flask, dibs: Dibs | str, *, user: User | None = None, secret: str | bytes | None = None
) -> None:
    """Let the decorated views of *app* be guarded by *dibs* (yours to close, or a URL).

    *user*: tells who submits the current request; without it, it is the Authorization header, else
    the cookies, else the client's address. *secret*: keys the hashes under which submissions are
    stored, the same in all processes (default: the app's own secret key).
    """
    app.extensions["dibs"] = _Desk(Dibs(dibs) if isinstance(dibs, str) else dibs, user, secret)


def guard(policy: Policy, view: Callable[..., Any]) -> Callable[..., Any]:
    """*view*, with a claim around it."""

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        claim = _desk().admit(policy)
        if isinstance(claim, Answer):
            return Response(claim.body, claim.status, list(claim.headers))
        try:
            response = _answered(view, args, kwargs)
            ended(claim, _recorded(policy, response))
            return response
        finally:
            claim.fail()  # if it is still open: the view raised

    return guarded


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)


def _answered(view: Callable[..., Any], args: Any, kwargs: Any) -> Response:
    """What the view answers; an error that the app has a handler for is an answer, too."""
    try:
        found = current_app.ensure_sync(view)(*args, **kwargs)
    except Exception as error:
        found = current_app.handle_user_exception(error)
    return make_response(found)


def _recorded(policy: Policy, response: Response) -> Recording:
    """The answer, as far as it can be kept: a stream is left alone."""
    recording = Recording(policy)
    recording.begin(response.status_code, tuple(response.headers.items()))
    if response.is_streamed or response.direct_passthrough:
        recording.give_up()
    elif policy.after == "replay":
        recording.add(response.get_data())
    return recording


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
    """The body; of a form, its text fields: uploads are no part of a submission's key."""
    if request.mimetype not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        return request.get_data()
    headers["content-type"] = "application/x-www-form-urlencoded"
    return urlencode(sorted(request.form.items(multi=True)), errors="surrogatepass").encode()


def _who() -> str | None:
    """Who submits, as far as the request itself tells."""
    headers = request.headers
    return headers.get("Authorization") or headers.get("Cookie") or request.remote_addr
