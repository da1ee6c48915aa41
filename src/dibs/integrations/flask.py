"""Duplicate submissions and idempotency keys for Flask: a decorator on the view.

install(app, Dibs("redis://…"), user=lambda: session.get("user_id"))

@app.post("/orders")
@prevent_duplicate_submit(interval=10, message="Already sent, please wait.")
def order(): ...
"""

import functools
import io
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Unpack, cast

from . import needs

with needs("flask"):
    from flask import Flask, after_this_request, current_app, make_response, request
    from flask import Response as FlaskResponse
    from werkzeug.exceptions import HTTPException, default_exceptions

from .. import Dibs
from .._http.bodies import Field, declared_length, file_hash, form_fields
from .._http.decorators import Once, PreventDuplicateSubmit, TransactionOpener, check_registered
from .._http.facts import (
    INCOMPLETE,
    InvalidRequest,
    RequestFacts,
    RequestHeaders,
    endpoint_method,
    read_headers,
    too_large,
)
from .._http.policy import (
    GuardKeywords,
    GuardOptions,
    Policy,
    guard_options,
    mark_guarded,
    secret_bytes,
    with_service,
)
from .._http.problems import busy, is_refusal
from .._http.responses import Headers, Recording, Response
from .._http.submission import Submission, routed_place, split_key_lines, submission_of
from .._http.throttle import Throttle, Throttled
from .._internal_api import signature_of, throttling
from ..errors import Unavailable, UsageError
from ._request_claims import RequestClaim, ResponseBody
from ._request_transaction import STREAMED, run_within, warn_of_success, within_of
from ._sync.http_claims import claim_request
from .wsgi import CountedInput

if TYPE_CHECKING:
    from .._internal_api import Claim

__all__ = ["Policy", "Refused", "install", "once", "prevent_duplicate_submit", "throttled"]

User = Callable[[], object]

_CLAIMS = "dibs.claims"
"""In the environment of a request: its claims, which end with it at the latest."""


def install(app: Flask, dibs: Dibs | str, **options: Unpack[GuardKeywords[User]]) -> None:
    """Guard the decorated views of *app*.

    Args:
        dibs: A Dibs, which you close, or a URL.
        user: Called without arguments while a request is handled.
        service: Default: the import name of the app.
        secret: Default: the secret key of the app.
        **options: `GuardKeywords`.
    """
    checked = guard_options("install", with_service(options, app.import_name))
    app.extensions["dibs"] = _AppGuard(Dibs(dibs) if isinstance(dibs, str) else dibs, checked)
    app.wsgi_app = cast(
        Any, _with_view_checks(app, _with_counted_body(_with_claims_ended(app.wsgi_app)))
    )
    app.teardown_request(_fail_open_claims)


def _with_view_checks(app: Flask, wsgi_app: Callable[..., Any]) -> Callable[..., Any]:
    """Return *wsgi_app*, with a check of all views before the first request.

    Flask accepts no further views then. UsageError: a view escapes its guard.
    """
    is_checked = False

    def checked(environ: dict[str, Any], start_response: Any) -> Any:
        nonlocal is_checked
        if not is_checked:
            check_registered(app.view_functions.values())
            is_checked = True
        return wsgi_app(environ, start_response)

    return checked


def _with_counted_body(wsgi_app: Callable[..., Any]) -> Any:
    """Return *wsgi_app*, with a request body that counts the bytes that are read from it."""

    def counting(environ: dict[str, Any], start_response: Any) -> Any:
        environ["wsgi.input"] = CountedInput(environ["wsgi.input"])
        return wsgi_app(environ, start_response)

    return counting


def guard(
    policy: Policy, view: Callable[..., Any], within: TransactionOpener[Any] | None = None
) -> Callable[..., Any]:
    """Return *view*, run under a claim."""
    opened = find = None
    if within is not None:
        opened, _, find = within_of(within, policy, signature_of(view), is_async=False)

    def made(*args: Any, **kwargs: Any) -> FlaskResponse:
        return make_response(current_app.ensure_sync(view)(*args, **kwargs))

    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        since = time.monotonic()
        claimed = _guard_of_app().claim(policy, find)
        if isinstance(claimed, Response):
            return _answer_with(claimed)
        if claimed is None:
            return made(*args, **kwargs) if opened is None else opened.run(made, args, kwargs)
        submission, claim = claimed
        used = submission.policy
        claimed = RequestClaim(used, claim)
        if (claims := request.environ.get(_CLAIMS)) is not None:
            claims.append(claimed)
        try:
            if opened is None:
                response: Any = made(*args, **kwargs)
            else:
                given = (submission, since, _recorded_whole, made, args, kwargs)
                response = run_within(opened, claim, *given)
        except Exception:
            # Outer decorators may handle it, and the app may have an error handler; the response of
            # that ends the claim.
            after_this_request(
                functools.partial(_end_claim_by, used, claimed, is_rolled_back=opened is not None)
            )
            raise
        if isinstance(response, Response):
            return _answer_with(response)
        return _end_claim_by(used, claimed, response) if opened is None else response

    return guarded


once = Once(guard)
prevent_duplicate_submit = PreventDuplicateSubmit(guard)


def _throttled_view(throttle: Throttle, view: Callable[..., Any]) -> Callable[..., Any]:
    """Return *view*, counted at each request. A function as the key is called without arguments."""

    @functools.wraps(view)
    def counted(*args: Any, **kwargs: Any) -> Any:
        refusal = _guard_of_app().count(throttle)
        if refusal is not None:
            return _answer_with(refusal)
        return current_app.ensure_sync(view)(*args, **kwargs)

    return counted


throttled = Throttled(_throttled_view)


def _with_fields(fields: Headers, response: FlaskResponse) -> FlaskResponse:
    response.headers.extend(fields)
    return response


def _end_claim_by(
    policy: Policy, claimed: RequestClaim, response: FlaskResponse, *, is_rolled_back: bool = False
) -> FlaskResponse:
    """Note by which response the claim ends: when that, or what replaces it, is complete."""
    if is_rolled_back:
        warn_of_success(claimed.claim.name, response.status_code)
    if _is_stream(policy, response):
        claimed.begin(response.status_code, response.headers.items())
        if response.direct_passthrough:
            claimed.recording.discard()
        else:
            _record_stream(claimed, response)
    else:
        claimed.recording, claimed.has_response = _recorded_response(policy, response), True
        claimed.is_whole = True
    if _CLAIMS not in request.environ:  # a view that is called in a test_request_context
        if claimed.is_whole:
            claimed.end()
        else:
            response.call_on_close(claimed.leave)
    return response


def _record_stream(claimed: RequestClaim, response: FlaskResponse) -> None:
    """Record the pieces of *response* as the view makes them: what compresses them comes later."""
    source, pieces = response.response, response.iter_encoded()
    if (close := getattr(source, "close", None)) is not None:
        response.call_on_close(close)

    def recorded() -> Iterator[bytes]:
        for piece in pieces:
            claimed.recording.add(piece)
            yield piece
        claimed.is_whole = True

    response.response = recorded()


def _fail_open_claims(error: BaseException | None) -> None:
    """The request has ended by *error*, or without a response: so do its claims."""
    if isinstance(error, GeneratorExit):
        return  # the client has left a stream that has the context of the request
    for each in request.environ.get(_CLAIMS, ()):
        if error is not None or not each.has_response:
            each.fail()


def _with_claims_ended(wsgi_app: Callable[..., Any]) -> Callable[..., Any]:
    """Return *wsgi_app*; claims end after all that it does after a view, which may be a commit.

    Also those whose response is replaced, or dropped.
    """

    def ending(environ: dict[str, Any], start_response: Any) -> Any:
        claims: list[RequestClaim] = []
        environ[_CLAIMS] = claims
        method = environ["REQUEST_METHOD"]
        body = ResponseBody(method, start_response, claims, is_recorded=False)
        return body.run(wsgi_app, environ).unless_over()

    return ending


def _recorded_response(policy: Policy, response: FlaskResponse) -> Recording:
    """Return the response as far as it can be stored; a stream cannot."""
    recording = Recording(policy.record_limit)
    recording.begin(response.status_code, response.headers.items())
    if _is_stream(policy, response):
        recording.discard()
    elif recording.reads_body:
        recording.add(response.get_data())
    return recording


def _recorded_whole(policy: Policy, response: FlaskResponse) -> Recording:
    """Return the response. Raises UsageError if it is a stream."""
    if _is_stream(policy, response):
        raise UsageError(STREAMED)
    return _recorded_response(policy, response)


def _is_stream(policy: Policy, response: FlaskResponse) -> bool:
    """Return True if the body is made while it is sent.

    Error pages are streams, too, of known length.
    """
    length = response.headers.get("Content-Length", type=int)
    is_short = length is not None and length <= policy.most
    return response.direct_passthrough or (response.is_streamed and not is_short)


class Refused(HTTPException):
    """A request that was refused, for an error handler of the application.

    `code`, `description` and the response are those of any HTTPException. It is also the exception
    of its status, such as TooManyRequests. Without a handler, its response is sent.
    """

    problem: dict[str, Any]
    """The document, with `retryAfter` where a retry makes sense."""


@functools.cache
def _refused_with(status: int) -> Any:
    """Return the exception for *status*: Flask finds handlers of statuses by their classes."""
    return type("Refused", (Refused, default_exceptions[status]), {})


def _answer_with(response: Response) -> FlaskResponse:
    """Return the response in place of the view's.

    Raises Refused if the application has a handler for it.
    """
    answer = _flask_response(response)
    if is_refusal(response) and _is_handled(response.status):
        after_this_request(functools.partial(_with_headers_of, answer))
        problem = json.loads(response.body)
        error = _refused_with(response.status)(problem["detail"], answer)
        error.problem = problem
        raise error
    return answer


def _with_headers_of(refusal: FlaskResponse, page: FlaskResponse) -> FlaskResponse:
    """*page*, which an error handler has made of *refusal*, with the headers that it lacks."""
    for name in ("retry-after", "cache-control", "ratelimit", "ratelimit-policy"):
        if name in refusal.headers:
            page.headers.setdefault(name, refusal.headers[name])
    return page


def _is_handled(status: int) -> bool:
    """Return True if by status or as Refused.

    A handler of all exceptions is not meant for refusals.
    """
    specs = [current_app.error_handler_spec.get(name, {}) for name in (*request.blueprints, None)]
    return any(spec.get(status) or Refused in spec.get(None, {}) for spec in specs)


def _flask_response(response: Response) -> FlaskResponse:
    answer = FlaskResponse(response.body, response.status)
    answer.headers.clear()
    answer.headers.extend(response.headers)
    return answer


def _guard_of_app() -> "_AppGuard":
    guard = current_app.extensions.get("dibs")
    if guard is None:
        raise UsageError("call install(app, dibs) once, when the app is created")
    return guard


class _AppGuard:
    """Claims the requests of one app."""

    def __init__(self, dibs: Dibs, options: GuardOptions[User]) -> None:
        self._dibs = dibs
        self._options = options

    def claim(self, policy: Policy, find: Any) -> "tuple[Submission, Claim] | Response | None":
        """Return a claim on the current request, or the response in its place; None: not guarded.

        *find*: as in `ClaimRequest`.
        """
        name = f"{endpoint_method(request.method)} {request.url_rule or request.endpoint}"
        submission = self._submission_of(policy, name)
        if submission is None:
            return None
        mark_guarded(request.environ)
        outcome = claim_request(self._dibs, policy, name, submission, find)
        if isinstance(outcome, Response) or isinstance(submission, InvalidRequest):
            return cast(Response, outcome)
        return submission, outcome

    def count(self, throttle: Throttle) -> Response | None:
        """Count the current request. Returns the refusal; None: run it."""
        key = throttle.key_of(request.view_args or {})
        try:
            cost = throttle.cost_of()
            outcome = throttling(self._dibs, key, throttle.name, throttle.options, cost)
        except Unavailable as error:
            return busy(error)
        answer = throttle.answer(outcome)
        if answer.fields:
            after_this_request(functools.partial(_with_fields, answer.fields))
        return answer.refusal

    def _submission_of(self, policy: Policy, name: str) -> Submission | InvalidRequest | None:
        keys = split_key_lines(request.headers.getlist(policy.header))
        if policy.key == "only" and not keys:
            return None
        options = self._options
        user = options.user() if options.user is not None else None
        headers = read_headers(request.headers.items())
        body = _request_body(headers, policy.body_limit)
        if isinstance(body, InvalidRequest):
            return body
        facts = _request_facts(name, headers, user)._replace(body=body[0], fields=body[1])
        return submission_of(policy, facts, keys, options, self._secret_bytes())

    def _secret_bytes(self) -> bytes:
        return self._options.key or secret_bytes(current_app.secret_key or None)


def _request_facts(name: str, headers: RequestHeaders, user: object) -> RequestFacts:
    """Return all facts but the body."""
    fields = _path_fields()
    rule = request.url_rule
    return RequestFacts(
        method=request.method,
        route=name,
        path=request.path,
        query=request.query_string.decode("latin-1"),
        headers=headers,
        user=user,
        address=request.remote_addr,
        path_fields=fields,
        place=None if rule is None else routed_place(rule.rule, fields),
        host=request.host,
    )


def _path_fields() -> dict[str, Any]:
    """Return the values of the path, as its rule converts them.

    Not `view_args`: a `url_value_preprocessor` may have taken the tenant out of them.
    """
    rule: Any = request.url_rule
    adapter = current_app.create_url_adapter(request) if rule and rule.arguments else None
    if adapter is None:
        return dict(request.view_args or {})
    return dict(adapter.match(method=request.method)[1])


def _request_body(
    headers: RequestHeaders, limit: int
) -> tuple[bytes, list[Field] | None] | InvalidRequest:
    """Return the body, or the fields and files of a form; or what is wrong with it."""
    length, source = declared_length(headers) or 0, request.environ["wsgi.input"]
    if not isinstance(source, CountedInput):  # a request context that was opened by hand
        body = _read_form_or_body()
        return too_large(limit) if len(body[0]) > limit else body
    if length > limit:
        source.drop(2 * limit)
        return too_large(limit)
    source.limit = limit
    body = _read_form_or_body()
    source.limit = None
    if body[1] is None and len(body[0]) < length <= source.count:
        raise UsageError("the request body was read before the guard, and is not available again")
    if source.count > limit:
        source.drop(limit)
        return too_large(limit)
    return INCOMPLETE if source.count < length else body


def _read_form_or_body() -> tuple[bytes, list[Field] | None]:
    """Return the body; of a form with files, or one that was parsed before, its fields."""
    is_form = request.mimetype == "multipart/form-data"
    if not is_form and "form" not in request.__dict__:
        body = request.get_data()
        cast(Any, request).stream = io.BytesIO(body)  # the view may read it, too
        return body, None
    if not is_form and request.mimetype != "application/x-www-form-urlencoded":
        return request.get_data(), None
    files = [
        (name, file.filename, file_hash(file.stream))
        for name, file in request.files.items(multi=True)
    ]
    return b"", form_fields(request.form.items(multi=True), files)
