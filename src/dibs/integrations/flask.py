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

from flask import Flask, Response, after_this_request, current_app, make_response, request

from .._http.answers import Answer
from .._http.bodies import declared_length
from .._http.decorators import Once, PreventDuplicateSubmit
from .._http.facts import INCOMPLETE, Facts, KeyTrouble, Submission, submission_of, too_large
from .._http.forms import Field, by_name
from .._http.identity import Identity, identify
from .._http.policy import Policy
from .._http.recording import Recording
from .._http.site import Site, checked_secret, make_site
from .._sync.claim import Claim
from .._sync.client import Dibs
from ..errors import UsageError
from ._bodies import file_hash
from ._claims import applied, claimed, ended, key_lines
from .wsgi import CountedInput

__all__ = ["install", "once", "prevent_duplicate_submit"]

User = Callable[[], object]

_OPEN = "dibs.open"
"""Where the claims of a request are, in its environment."""


def install(
    app: Flask,
    dibs: Dibs | str,
    *,
    user: User | None = None,
    session_cookie: str | None = None,
    secret: str | bytes | None = None,
    service: str | None = None,
    per_host: bool = False,
) -> None:
    """Let the decorated views of *app* be guarded by *dibs* (yours to close, or a URL).

    *user*: tells who submits the current request, or None where it is not known. *session_cookie*:
    the name of the cookie that says so; not that of Flask's own session, whose value changes
    whenever it is written. Without either, it is the Authorization header. *secret*: keys the
    hashes under which submissions are stored, the same in all processes (default: the app's own
    secret key). *service*: the name of this application, where several use one store (default: its
    import name). *per_host*: the Host header counts, too.
    """
    name = app.import_name if service is None else service
    site = make_site(secret, name, session_cookie, per_host=per_host)
    app.extensions["dibs"] = _Desk(Dibs(dibs) if isinstance(dibs, str) else dibs, user, site)
    app.wsgi_app = _counting(app.wsgi_app)
    app.teardown_request(_let_go)


def _counting(wsgi_app: Callable[..., Any]) -> Any:
    """*wsgi_app*, with a body that is counted as it is read, by whomever."""

    def counting(environ: dict[str, Any], start_response: Any) -> Any:
        environ["wsgi.input"] = CountedInput(environ["wsgi.input"])
        return wsgi_app(environ, start_response)

    return counting


def guard(policy: Policy, view: Callable[..., Any]) -> Callable[..., Any]:
    """*view*, with a claim around it."""

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        admitted = _desk().admit(policy)
        if isinstance(admitted, Answer):
            return _response(admitted)
        if admitted is None:
            return current_app.ensure_sync(view)(*args, **kwargs)
        used, claim = admitted
        request.environ.setdefault(_OPEN, []).append(claim)
        try:
            response = make_response(current_app.ensure_sync(view)(*args, **kwargs))
        except Exception:
            # Not ours to answer: decorators around this one want to see it, and the app may have a
            # handler for it. What that says is the answer.
            after_this_request(functools.partial(_end, used, claim))
            raise
        return _end(used, claim, response)

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

    def __init__(self, dibs: Dibs, user: User | None, site: Site) -> None:
        self._dibs = dibs
        self._user = user
        self._site = site

    def admit(self, policy: Policy) -> tuple[Policy, Claim] | Answer | None:
        """A claim on the current request, or what to answer in its place; None: neither."""
        name = f"{request.method} {request.url_rule or request.endpoint}"
        submission = self._submission(policy, name)
        if submission is None:
            return None
        claim = claimed(self._dibs, policy, name, submission)
        return claim if isinstance(claim, Answer) else (applied(policy, submission), claim)

    def _submission(self, policy: Policy, name: str) -> Submission | KeyTrouble | None:
        keys = key_lines(request.headers.getlist(policy.header))
        if policy.key == "only" and not keys:
            return None
        who = self._who()
        headers = {key.lower(): value for key, value in request.headers.items()}
        body = _body(headers, policy.body_limit)
        if isinstance(body, KeyTrouble):
            return body
        facts = _facts(name, headers, self._site)._replace(
            user=who.user, client=who.client, body=body[0], fields=body[1]
        )
        return submission_of(policy, facts, keys, self._secret())

    def _secret(self) -> bytes:
        return self._site.secret or checked_secret(current_app.secret_key or None)

    def _who(self) -> Identity:
        return identify(
            self._user() if self._user is not None else None,
            session=self._site.session_cookie,
            authorization=request.headers.get("Authorization", ""),
            cookies=request.headers.get("Cookie", ""),
            address=request.remote_addr,
            agent=request.headers.get("User-Agent", ""),
        )


def _facts(name: str, headers: dict[str, str], site: Site) -> Facts:
    """All but the body and who it is."""
    return Facts(
        method=request.method,
        route=name,
        path=request.path,
        query=request.query_string.decode("latin-1"),
        headers=headers,
        body=b"",
        user=None,
        path_fields={key: str(value) for key, value in (request.view_args or {}).items()},
        service=site.service,
        host=site.host(request.host),
    )


def _body(headers: dict[str, str], limit: int) -> tuple[bytes, list[Field] | None] | KeyTrouble:
    """The body, or the fields and files of a form; or what is wrong with it."""
    length = declared_length(headers) or 0
    if length > limit:
        _drain(2 * limit)
        return too_large(limit)
    found = _read()
    counted = getattr(request.environ["wsgi.input"], "count", None)
    if found[1] is None and counted is not None and len(found[0]) < length <= counted:
        raise UsageError("somebody has read the body before the guard, and has not kept it")
    size = len(found[0]) if counted is None and found[1] is None else counted
    if size is not None and size < length:
        return INCOMPLETE
    return too_large(limit) if size is not None and size > limit else found


def _drain(most: int) -> None:
    """Read what nobody wants: a client that still sends would lose its connection."""
    while most > 0 and (piece := request.stream.read(min(most, 65536))):
        most -= len(piece)


def _read() -> tuple[bytes, list[Field] | None]:
    """The body; of a form with files, or one that somebody has read before, its fields."""
    is_form = request.mimetype == "multipart/form-data"
    if not is_form and "form" not in request.__dict__:
        body = request.get_data()
        cast(Any, request).stream = io.BytesIO(body)  # the view may want to read it, too
        return body, None
    if not is_form and request.mimetype != "application/x-www-form-urlencoded":
        return request.get_data(), None
    files = [
        [name, file.filename or "", file_hash(file.stream)]
        for name, file in request.files.items(multi=True)
    ]
    fields = [[name, value] for name, value in request.form.items(multi=True)]
    return b"", by_name([*fields, *files])
