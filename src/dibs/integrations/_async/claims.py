"""Claim a guarded request, and end the claim by its response."""

from typing import TYPE_CHECKING

from ..._http.policy import Policy
from ..._http.problems import refusal_response, replay
from ..._http.responses import Recording, Response
from ..._http.submission import InvalidRequest, Submission
from ..._interface import claiming
from ...errors import Duplicate, Mismatch, Unavailable
from .._claims import claim_request_of, how_it_ended

if TYPE_CHECKING:
    from ... import AsyncDibs
    from ..._interface import AsyncClaim


async def claim_request(
    dibs: "AsyncDibs", policy: Policy, name: str, submission: Submission | InvalidRequest
) -> "AsyncClaim | Response":
    """A claim under which the request is processed, or the response in its place.

    *name*: the template of the route, for events.
    """
    if isinstance(submission, InvalidRequest):
        return refusal_response(policy, submission, by_client=True)
    try:
        claim = await claiming(dibs, claim_request_of(submission, name)).__aenter__()
    except (Duplicate, Mismatch, Unavailable) as error:
        return refusal_response(submission.policy, error, by_client=submission.by_client)
    return replay(policy, claim.result, submission.accept_encoding) if claim.replayed else claim


async def end_claim(claim: "AsyncClaim", policy: Policy, recording: Recording) -> None:
    """End the claim by its response, as the core decides."""
    if claim.is_open:
        await claim.end(how_it_ended(claim, policy, recording))
