"""What every integration does with a guarded request beside claiming it (_async/claims.py)."""

import functools
import hashlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from .._http.bodies import PIECE
from .._http.policy import Policy
from .._http.problems import refusal_response, replay
from .._http.responses import Recording, Response
from .._http.submission import InvalidRequest, Submission
from .._interface import ClaimRequest, How, NotOurs, Replay, remaining, transactions
from ..errors import UsageError

if TYPE_CHECKING:
    from .._interface import AsyncClaim, AsyncWork, Claim, Within, Work

_log = logging.getLogger("dibs")
_GUARDED = "dibs.guarded"


def claim_request_of(submission: Submission, name: str) -> ClaimRequest:
    """What is claimed for *submission*. *name*: the template of the route, for events."""
    key, payload, _, policy, _, is_login_unknown = submission
    if is_login_unknown:
        _warn_of_login(name)
    return ClaimRequest(f"once:{key}", policy.claim_options, payload, name)


def mark_guarded(marks: MutableMapping[str, Any]) -> None:
    """UsageError: another guard has claimed this request; the second would refuse it.

    *marks*: what all guards of one request see: its scope, or its environment.
    """
    if marks.get(_GUARDED):
        rule = "use a decorator or a policy of a middleware, and exempt the route from the other"
        raise UsageError(f"this request is guarded already: {rule}")
    marks[_GUARDED] = True


def unmark_guarded(marks: MutableMapping[str, Any]) -> None:
    """The request has ended; a server or a middleware may use its scope again."""
    marks.pop(_GUARDED, None)


@functools.cache
def _warn_of_login(name: str) -> None:
    """Warn once for each route.

    The warning contains neither the header nor its scheme: some clients send the bare credential in
    its place.
    """
    _log.warning(
        "%s: the scheme of an Authorization header is not known to send the same header with a "
        "retry, so it does not identify the user; say who submits with user= (Django: DIBS_USER)",
        name,
    )


def applied(policy: Policy, submission: Submission | InvalidRequest) -> Policy:
    """The policy by which the response ends the claim: a request without a key has another one."""
    return submission.policy if isinstance(submission, Submission) else policy


def outcome_of(policy: Policy, recording: Recording) -> How:
    """How a request with such a response has ended."""
    is_later = recording.status >= 400 and recording.is_later
    return policy.outcome(recording.status, is_later=is_later)


def how_it_ended(claim: "AsyncClaim | Claim", policy: Policy, recording: Recording) -> How:
    """How the request ended; a response that is to be stored is handed to the claim."""
    how = outcome_of(policy, recording)
    if how == "returned" and (response := recording.response) is not None:
        claim.complete(response)
    return how


# ---- the transaction of a request, with within=

STREAMED = (
    "the view has within=, so its response is stored in the transaction, before it is sent: "
    "return a whole response, not a stream or a file"
)


class NotFinal(Exception):
    """Rolls back the transaction of a request without a final response."""


def within_of(
    opener: Any, policy: Policy, signature: inspect.Signature, *, is_async: bool
) -> tuple[Any, inspect.Signature]:
    """What opens the transactions of a view, and what is left of its *signature*.

    UsageError: an option does not go with it, or the view has no parameter for the transaction.
    """
    from .. import AsyncDibs, Dibs  # not at import: most applications use one half

    kind = AsyncDibs if is_async else Dibs
    *_, runner = [transactions(kind, opener, each) for each in policy.all_claim_options]
    return runner, remaining(opener, signature)


def left_of(submission: Submission, since: float) -> float:
    """How long it may still wait for another, if it was submitted at *since*."""
    return since + submission.policy.claim_options.wait - time.monotonic()


def table_response(policy: Policy, submission: Submission, answer: Any) -> Response:
    """The response to a duplicate that the table has answered."""
    if isinstance(answer, Replay):
        return replay(policy, answer.value, submission.accept_encoding)
    return refusal_response(submission.policy, answer.error, by_client=submission.by_client)


def run_within(
    within: "Within",
    claim: "Claim",
    submission: Submission,
    since: float,
    record: Callable[[Policy, Any], Recording],
    view: Callable[..., Any],
    args: Any,
    kwargs: Any,
) -> Any:
    """The response of *view*, committed with its work; or the `Response` to a duplicate.

    *record*: what is stored of a response. What the view raises rolls back.
    """
    records = claim.recording()
    wait = left_of(submission, since)
    work = within.begin(claim, records, view, args, kwargs, wait)
    if isinstance(work, NotOurs):
        answer = table_response(submission.policy, submission, records.answer(work))
        claim.end("returned")
        return answer
    try:
        how = how_it_ended(claim, submission.policy, record(submission.policy, work.result))
    except BaseException as error:
        work.roll_back(error)
        raise
    if how == "returned":
        work.commit()
    else:
        work.roll_back(NotFinal())
    claim.end(how)
    return work.result


class OpenTransaction:
    """The transaction of a request under asyncio, from its endpoint to its response."""

    def __init__(self, work: "AsyncWork | Work", call: Callable[..., Awaitable[Any]]) -> None:
        """*call*: how the methods of *work* are called: awaited, or in a thread."""
        self._work: Any = work
        self._call = call
        self._is_open = True

    async def end_with(self, claim: "AsyncClaim", policy: Policy, recording: Recording) -> None:
        """End it by the response, with which it commits or is rolled back; then its claim."""
        if claim.is_open:
            how = how_it_ended(claim, policy, recording)
            if how == "returned":
                self._is_open = False
                await self._call(self._work.commit)
            else:
                await self.roll_back()
            await claim.end(how)

    async def roll_back(self) -> None:
        """There is no final response. Nothing, if it has ended."""
        if self._is_open:
            self._is_open = False
            await self._call(self._work.roll_back, NotFinal())


# ---- reading a body that the framework has parsed, or that is not wanted


def drain(read: Callable[[int], bytes], most: int) -> None:
    """Read and drop up to *most* bytes.

    A client that is still sending would lose its connection, and the response with it.
    """
    while most > 0 and (piece := read(min(most, 65536))):
        most -= len(piece)


def file_hash(file: Any) -> str:
    """The hash of an uploaded file; its position is restored for the application."""
    position, hashing = file.tell(), hashlib.sha256()
    file.seek(0)
    while piece := file.read(PIECE):
        hashing.update(piece)
    file.seek(position)
    return hashing.hexdigest()
