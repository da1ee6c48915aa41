"""What every integration does with a guarded request beside claiming it (_async/claims.py)."""

import functools
import hashlib
import logging
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from .._http.bodies import PIECE
from .._http.policy import Policy
from .._http.responses import Recording
from .._http.submission import InvalidRequest, Submission
from .._interface import ClaimRequest, How
from ..errors import UsageError

if TYPE_CHECKING:
    from .._interface import AsyncClaim, Claim

_log = logging.getLogger("dibs")
_GUARDED = "dibs.guarded"


def request_of(submission: Submission, name: str) -> ClaimRequest:
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
    """Once for each route. Without the header, and without its scheme: some clients send the bare
    credential in its place.
    """
    _log.warning(
        "%s: the scheme of an Authorization header is not known to send the same header with a "
        "retry, so it does not identify the user; say who submits with user= (Django: DIBS_USER)",
        name,
    )


def applied(policy: Policy, submission: Submission | InvalidRequest) -> Policy:
    """The policy by which the response ends the claim: a request without a key has another one."""
    return submission.policy if isinstance(submission, Submission) else policy


def how_it_ended(claim: "AsyncClaim | Claim", policy: Policy, recording: Recording) -> How:
    """How the request ended; a response that is to be stored is handed to the claim."""
    is_later = recording.status >= 400 and recording.is_later
    how = policy.outcome(recording.status, is_later=is_later)
    if how == "returned" and (response := recording.response) is not None:
        claim.complete(response)
    return how


# ---- reading a body that the framework has parsed, or that nobody wants


def drain(read: Callable[[int], bytes], most: int) -> None:
    """Read and drop up to *most* bytes: a client that is still sending would lose its connection,
    and the response with it.
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
