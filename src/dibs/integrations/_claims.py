"""What every edge does with a submission: claim it, and end the claim by the answer.

Both worlds side by side: too small to be printed.
"""

# pyright: reportPrivateUsage=false
# `_claim` is for integrations: it takes terms that were checked when the policy was made.

from collections.abc import Iterable
from typing import Protocol

from .._async.claim import AsyncClaim
from .._async.client import AsyncDibs
from .._core.keys import Seconds
from .._core.lease import OutagePolicy
from .._core.once import NO_PAYLOAD, Terms
from .._http.answers import Answer, refusal, replay
from .._http.facts import KeyTrouble, Submission, is_quoted
from .._http.kept import Headers, Kept
from .._http.policy import Policy
from .._http.recording import Recording
from .._sync.claim import Claim
from .._sync.client import Dibs
from ..errors import Duplicate, Mismatch, Unavailable

REFUSED = (Duplicate, Mismatch, Unavailable)


async def aclaimed(
    dibs: AsyncDibs, policy: Policy, name: str, submission: Submission | KeyTrouble
) -> AsyncClaim | Answer:
    """A claim that is ours to work on, or what to answer in its place."""
    if isinstance(submission, KeyTrouble):
        return refusal(policy, submission, by_client=True)
    try:
        claim = await dibs._claim(*_asked(submission, name)).__aenter__()
    except REFUSED as error:
        return refusal(submission.policy, error, by_client=submission.by_client)
    return replay(policy, claim.result, submission.accepts) if claim.replayed else claim


def claimed(
    dibs: Dibs, policy: Policy, name: str, submission: Submission | KeyTrouble
) -> Claim | Answer:
    """A claim that is ours to work on, or what to answer in its place."""
    if isinstance(submission, KeyTrouble):
        return refusal(policy, submission, by_client=True)
    try:
        claim = dibs._claim(*_asked(submission, name)).__enter__()
    except REFUSED as error:
        return refusal(submission.policy, error, by_client=submission.by_client)
    return replay(policy, claim.result, submission.accepts) if claim.replayed else claim


def _asked(
    submission: Submission, name: str
) -> tuple[str, Terms, bytes, OutagePolicy | None, str, Seconds]:
    seen = NO_PAYLOAD if submission.payload is None else submission.payload.encode()
    policy = submission.policy
    return f"once:{submission.key}", policy.terms, seen, policy.on_outage, name, policy.wait


def applied(policy: Policy, submission: Submission | KeyTrouble) -> Policy:
    """By which policy the answer is judged and kept."""
    return submission.policy if isinstance(submission, Submission) else policy


async def aended(claim: AsyncClaim, recording: Recording) -> None:
    """The answer is known: the claim ends as its status says."""
    if not claim.is_open:
        return
    await (claim.finish() if _settled(claim, recording) else claim.fail())


def ended(claim: Claim, recording: Recording) -> None:
    """The answer is known: the claim ends as its status says."""
    if claim.is_open:
        _ = claim.finish() if _settled(claim, recording) else claim.fail()


class _Open(Protocol):
    _terms: Terms

    def release(self) -> None: ...
    def complete(self, value: Kept) -> Kept: ...


def _settled(claim: _Open, recording: Recording) -> bool:
    """Tell the claim what came of it. False: it failed."""
    verdict, kept = recording.verdict, recording.kept
    if verdict == "release":
        claim.release()
    elif verdict == "finish" and kept is not None:
        claim.complete(kept)
    return verdict != "fail"


# ---- what a request says


def values_of(headers: Headers, name: str) -> list[str]:
    """All lines of one header."""
    return [value for each, value in headers if each == name.lower()]


def key_lines(lines: Iterable[str]) -> list[str]:
    """The lines of a header where the server has joined them by commas.

    Only a key in quotes may have a comma in it, so what is joined is told from what is not.
    """
    return [part for line in lines for part in ([line] if is_quoted(line) else line.split(","))]
