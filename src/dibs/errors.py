"""What can go wrong, and what it means for the caller.

DibsError                       never raised itself
├── Busy(key, retry_after)      somebody has it, and the wait (if any) is over
├── Duplicate(key, retry_after, state)   submitted before: still running, or done
├── Mismatch(key)               submitted before, with another payload
├── LeaseLost(key, fence)       you had it and no longer do: stop writing
├── Unavailable(cause, detail)  the store did not answer within the budget
└── UsageError                  a mistake in the calling code or the settings (also a ValueError)

Each error carries its facts as attributes and writes its own sentence from them. The sentence
names the *name* of a key (its template), never the key itself, and never a token: sentences end
up in logs, and keys hold user ids.
"""

import math
from typing import Literal


class DibsError(Exception):
    """Anything that dibs raises on purpose."""

    def __repr__(self) -> str:
        # The facts would include the key.
        return f"{type(self).__name__}({str(self)!r})"


class Busy(DibsError):
    """Somebody else has the key; `retry_after` is how long, if its holder does not renew it.

    inf: another program wrote the key, without a ttl.
    """

    def __init__(
        self, key: str, retry_after: float, holder: str | None = None, name: str = "the key"
    ) -> None:
        super().__init__(key, retry_after, holder, name)
        self.key = key
        self.retry_after = retry_after
        self.holder = holder
        self.name = name

    def __str__(self) -> str:
        by = f" by {self.holder}" if self.holder else ""
        if self.retry_after == math.inf:
            return f"{self.name} is held{by}, by a value without a ttl"
        return f"{self.name} is held{by}; try again in {self.retry_after:.3g} s"


class Duplicate(DibsError):
    """It was submitted before; `state` is "running" or "done", `message` is for people.

    `retry_after` is when a new submission will be let through: if it is still running, at the
    earliest; inf: another program wrote the key, without a ttl.
    """

    def __init__(
        self,
        key: str,
        retry_after: float,
        state: Literal["running", "done"],
        message: str | None = None,
        name: str = "the key",
    ) -> None:
        super().__init__(key, retry_after, state, message, name)
        self.key = key
        self.retry_after = retry_after
        self.state: Literal["running", "done"] = state
        self.message = message
        self.name = name

    def __str__(self) -> str:
        if self.message is not None:
            return self.message
        was = "is being worked on" if self.state == "running" else "was done already"
        if self.retry_after == math.inf:
            return f"{self.name} {was}"
        return f"{self.name} {was}; try again in {self.retry_after:.3g} s"


class Mismatch(DibsError):
    """It was submitted before under the same key, with another payload: a mistake of the caller."""

    def __init__(self, key: str, name: str = "the key") -> None:
        super().__init__(key, name)
        self.key = key
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} was submitted before with another payload; use a new key"


class LeaseLost(DibsError):
    """You were the holder and no longer are: stop writing."""

    def __init__(self, key: str, fence: int | None = None, name: str = "the key") -> None:
        super().__init__(key, fence, name)
        self.key = key
        self.fence = fence
        self.name = name

    def __str__(self) -> str:
        fence = "" if self.fence is None else f" (fence {self.fence})"
        return f"the lease on {self.name}{fence} ran out or was taken; somebody else may hold it"


OTHER = "other"
"""The code of a cause that has none of its own."""


class Cause(str):
    """A sentence for people that carries a `code` for machines: "silent", "readonly" …"""

    code: str

    def __new__(cls, sentence: str, code: str = OTHER) -> "Cause":
        """*sentence* may be a Cause: then it keeps its code, unless another one is given."""
        made = super().__new__(cls, sentence)
        known = sentence.code if isinstance(sentence, Cause) else OTHER
        made.code = known if code == OTHER else code
        return made


class Unavailable(DibsError):
    """The store could not answer; `cause` is a code, `detail` says what happened in a sentence."""

    def __init__(self, cause: str, name: str = "the key") -> None:
        """*cause*: a `Cause`, or a sentence without a code."""
        super().__init__(cause, name)
        self.cause = Cause(cause).code
        self.detail = str(cause)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} is not available: {self.detail}"


class UsageError(DibsError, ValueError):
    """A mistake in the calling code or the settings; the sentence names the fix."""
