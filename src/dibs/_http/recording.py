"""What an answer leaves behind: judged by its status, recorded up to a size."""

from typing import Literal

from .kept import Headers, Kept, keepable
from .policy import Policy

Verdict = Literal["finish", "release", "fail"]
_NOT_FINAL = (401, 403, 407, 408, 425, 429)
"""Log in, or come back later: not what came of the work."""
_NOBODY_HERE = (404, 405, 413, 415)
"""Said by routers, of requests that no endpoint has worked on."""


def verdict_on(policy: Policy, status: int) -> Verdict:
    """How the claim ends. 5xx: like an exception. 4xx: the caller may mend it and try again.

    Where answers are kept, a 4xx is one: the same request gets the same again. A middleware, which
    is a policy with a route, cannot tell whether there is such an endpoint at all.
    """
    if status >= 500:
        return "fail"
    if status in _NOT_FINAL or (status >= 400 and policy.after != "replay"):
        return "release"
    return "release" if policy.route and status in _NOBODY_HERE else "finish"


class Recording:
    """An answer on its way, as long as it is small enough to be kept."""

    __slots__ = ("_body", "_headers", "_policy", "_size", "status")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.status = 0
        """0: it has not begun."""
        self._headers: Headers = ()
        self._body: list[bytes] | None = [] if policy.after == "replay" else None
        self._size = 0

    def begin(self, status: int, headers: Headers) -> None:
        """Status and headers are known."""
        self.status = status
        self._headers = headers

    def add(self, piece: bytes) -> None:
        """A piece of the body."""
        if self._body is None:
            return
        self._size += len(piece)
        if self._size > self._policy.most:
            self.give_up()
        else:
            self._body.append(bytes(piece))

    def give_up(self) -> None:
        """It will not be kept: too long, or it does not pass here."""
        self._body = None

    @property
    def verdict(self) -> Verdict:
        """How the claim ends."""
        return verdict_on(self._policy, self.status)

    @property
    def kept(self) -> Kept | None:
        """What can be given again. None: nothing; it stays known that it was done."""
        if self._body is None:
            return None
        return Kept(self.status, keepable(self._headers), b"".join(self._body))
