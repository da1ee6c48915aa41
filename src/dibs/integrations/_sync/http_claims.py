# Generated from src/dibs/integrations/_async/http_claims.py by unasync.py – do not edit.
"""What every HTTP integration does with a claim: take it for a request, end it by the response."""

import functools
import logging
from typing import TYPE_CHECKING, Any

from ..._http.facts import InvalidRequest
from ..._http.policy import Policy, outcome_of
from ..._http.problems import refusal_response, replay
from ..._http.responses import Recording, Response
from ..._http.submission import Submission
from ..._internal_api import ClaimRequest, How, claiming
from ...errors import Duplicate, Mismatch, Unavailable

if TYPE_CHECKING:
    from ... import Dibs
    from ..._internal_api import Claim

_log = logging.getLogger("dibs")


def claim_request(
    dibs: "Dibs",
    policy: Policy,
    name: str,
    submission: Submission | InvalidRequest,
    find: Any = None,
) -> "Claim | Response":
    """Return a claim under which the request is processed, or the response in its place.

    *name*: the template of the route, for events. *find*: as in `ClaimRequest`.
    """
    if isinstance(submission, InvalidRequest):
        if submission.kind == "ambiguous":
            _warn_once(name, "ambiguous")
        return refusal_response(policy, submission, by_client=True)
    key, payload, by_client, applied, accept_encoding, unknown = submission
    if unknown is not None:
        _warn_once(name, unknown)
    request = ClaimRequest(f"once:{key}", applied.claim_options, payload, name, find=find)
    try:
        claim = claiming(dibs, request).__enter__()
    except (Duplicate, Mismatch, Unavailable) as error:
        return refusal_response(applied, error, by_client=by_client)
    return replay(policy, claim.result, accept_encoding) if claim.replayed else claim


_WARNINGS = {
    "scheme": "the scheme of an Authorization header is not known to send the same header with a "
    "retry, so it does not identify the user; say who submits with user= (Django: DIBS_USER)",
    "cookie": "a stored response goes to whoever sends the same key and payload: if the cookies "
    "of this client are a login, name it with session_cookie=, or say who submits with user= "
    "(Django: DIBS_SESSION_COOKIE, DIBS_USER)",
    "ambiguous": "refused a request that says twice who submits, where or what by= selects (two "
    "session cookies, two lines of a header), or whose host or path is malformed; if clients have "
    "two cookies of one name, a subdomain may set it: a name that begins with __Host- prevents "
    "that",
}


@functools.cache
def _warn_once(name: str, what: str) -> None:
    """Warn once for each route.

    The warning contains neither the header nor its scheme: some clients send the bare credential in
    its place.
    """
    _log.warning("%s: %s", name, _WARNINGS[what])


def end_claim(claim: "Claim", policy: Policy, recording: Recording) -> None:
    """End the claim by its response, as the core decides."""
    if claim.is_open:
        claim.end(how_it_ended(claim, policy, recording))


def how_it_ended(claim: "Claim", policy: Policy, recording: Recording) -> How:
    """Return how the request ended; a response that is to be stored is handed to the claim."""
    how = outcome_of(policy, recording)
    if how == "returned" and (response := recording.response) is not None:
        claim.complete(policy.stored(response))
    return how
