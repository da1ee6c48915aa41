# Generated from src/dibs/integrations/_async/claims.py by unasync.py – do not edit.
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
    from ... import Dibs
    from ..._interface import Claim


def claim_request(
    dibs: "Dibs", policy: Policy, name: str, submission: Submission | InvalidRequest
) -> "Claim | Response":
    """A claim under which the request is processed, or the response in its place.

    *name*: the template of the route, for events.
    """
    if isinstance(submission, InvalidRequest):
        return refusal_response(policy, submission, by_client=True)
    try:
        claim = claiming(dibs, claim_request_of(submission, name)).__enter__()
    except (Duplicate, Mismatch, Unavailable) as error:
        return refusal_response(submission.policy, error, by_client=submission.by_client)
    return replay(policy, claim.result, submission.accept_encoding) if claim.replayed else claim


def end_claim(claim: "Claim", policy: Policy, recording: Recording) -> None:
    """End the claim by its response, as the core decides."""
    if claim.is_open:
        claim.end(how_it_ended(claim, policy, recording))
