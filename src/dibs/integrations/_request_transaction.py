"""The transaction of a request, with `within=`: its response is stored with its work."""

import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .._http.policy import Policy
from .._http.problems import refusal_response, replay
from .._http.responses import Recording, Response
from .._http.submission import Submission
from .._internal_api import How, NotOurs, Replay, committed, remaining, transactions
from ._sync import http_claims as sync_claims

if TYPE_CHECKING:
    from .._internal_api import AsyncWork, Claim, Within, Work

_log = logging.getLogger("dibs")

STREAMED = (
    "the view has within=, so its response is stored in the transaction, before it is sent: "
    "return a whole response, not a stream or a file"
)


class NotFinal(Exception):
    """Rolls back the transaction of a request without a final response."""


def within_of(
    opener: Any, policy: Policy, signature: inspect.Signature, *, is_async: bool
) -> tuple[Any, inspect.Signature, Any]:
    """What opens the transactions of a view, its *signature* without that, and what they committed.

    UsageError: an option does not go with it, or the view has no parameter for the transaction.
    """
    from .. import AsyncDibs, Dibs  # not at import: most applications use one half

    kind = AsyncDibs if is_async else Dibs
    *_, runner = [transactions(kind, opener, each) for each in policy.all_claim_options]
    return runner, remaining(opener, signature), committed(kind, runner)


def left_of(submission: Submission, since: float) -> float:
    """Return how long it may still wait for another, if it was submitted at *since*."""
    return since + submission.policy.claim_options.wait - time.monotonic()


def warn_of_success(name: str, status: int) -> None:
    """Warn if the response to work that was rolled back is a success.

    *name*: the template of the route.
    """
    if status < 400:
        _log.warning(
            "%s: the transaction was rolled back, and an error handler has answered %d, so the "
            "client believes that its request was processed; answer with a 4xx or 5xx",
            name, status,
        )  # fmt: skip


def table_response(policy: Policy, submission: Submission, answer: Any) -> Response:
    """Return the response to a duplicate that the table has answered."""
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
    """Return the response of *view*, committed with its work; or the `Response` to a duplicate.

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
        recording = record(submission.policy, work.result)
        how = sync_claims.how_it_ended(claim, submission.policy, recording)
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

    async def end(self, how: How) -> None:
        """Commit if the request has *returned*, else roll back; nothing, if it has ended."""
        if how != "returned":
            await self.roll_back()
        elif self._is_open:
            self._is_open = False
            await self._call(functools.partial(self._work.commit, effects=False))

    async def carry_out(self) -> None:
        """Carry out what has waited for its end, once the dependencies have ended, too."""
        if not self._is_open:
            await self._call(self._work.carry_out)

    async def roll_back(self) -> None:
        """There is no final response. Nothing, if it has ended."""
        if self._is_open:
            self._is_open = False
            roll_back = functools.partial(self._work.roll_back, effects=False)
            await self._call(roll_back, NotFinal())
