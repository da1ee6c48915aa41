"""The exceptions that dibs raises.

DibsError                       base class
├── Busy(key, retry_after)      another holder has the key, and the wait (if any) is over;
│                               or it was called too often (throttle)
├── Duplicate(key, retry_after, state)   submitted before: still running, or done
├── Mismatch(key)               submitted before, with another payload
├── LeaseLost(key, fence)       the lease expired or was taken over: stop writing
├── Interrupted(items)          the process that ran a stream has died
├── Unavailable(cause, detail)  Redis is unavailable
└── UsageError                  an error in the calling code or the settings (also a ValueError)

Each error has its facts as attributes. Its message contains the *name* of a key (the template),
never the key itself, and never a token: messages end up in logs, and keys contain user ids.
"""

import math
from typing import Literal

Source = Literal["redis", "table"]
"""Which memory has answered: Redis, or the table in your database (`within=`)."""


_UNITS = ((172_800, 86_400, "d", 3600, "h"), (3600, 3600, "h", 60, "min"), (60, 60, "min", 1, "s"))


def duration_text(seconds: float) -> str:
    """Return *seconds* as people say it, rounded up: `4.2 s`, `13 min 20 s`, `2 h`, `3 d 4 h`."""
    for least, unit, name, part, parts in _UNITS:
        if seconds >= least - 0.05:
            whole = math.ceil(seconds / part - 0.05) * part
            rest = whole % unit // part
            return f"{whole // unit} {name}" + (f" {rest} {parts}" if rest else "")
    return f"{seconds:.3g} s"


class DibsError(Exception):
    """Base class of all errors that dibs raises."""

    def __repr__(self) -> str:
        # The arguments would include the key.
        return f"{type(self).__name__}({str(self)!r})"


class _ErrorAboutKey(DibsError):
    """An error about one key. `args` and `vars` have its name in place of it.

    Reporters of errors send them, result backends store them. A copy has the key all the same.
    """

    __slots__ = ("key",)

    key: str

    def __init__(self, key: str, name: str, *facts: object) -> None:
        super().__init__(name, *facts)
        self.key = key
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.key, *self.args[1:]), vars(self)


BusyState = Literal["held", "cooling", "throttled"]


class Busy(_ErrorAboutKey):
    """Another holder has the key, or it was called too often.

    Attributes:
        key: The key as you wrote it; do not log it.
        name: What messages call the key.
        retry_after: Seconds until the key expires, if it is not renewed, or until the next call is
            allowed. inf: another program wrote the key, without a ttl.
        holder: Host name and process id of the holder. None: not written by dibs.
        is_here: This client itself holds the key.
        state: "held"; "cooling" if it was released, and `at_least` keeps it; or "throttled" if it
            was called too often.
        limit: How many permits there are, all of them taken. None: it was held without `limit`.
        waited: The `wait` that is over, in seconds.
    """

    def __init__(
        self,
        key: str,
        retry_after: float,
        holder: str | None = None,
        name: str = "the key",
        is_here: bool = False,  # noqa: FBT001, FBT002 – a copy is made of the arguments
        state: BusyState = "held",
        limit: int | None = None,
        waited: float = 0.0,
    ) -> None:
        super().__init__(key, name, retry_after, holder, name, is_here, state, limit, waited)
        self.is_here = is_here
        self.limit = limit
        self.waited = waited
        self.state: BusyState = state
        self.retry_after = retry_after
        self.holder = holder

    def __str__(self) -> str:
        if self.state == "throttled":
            wait = duration_text(self.retry_after)
            return f"{self.name} was called too often; try again in {wait}"
        after = f", after a wait of {duration_text(self.waited)}" if self.waited else ""
        if self.retry_after == math.inf:
            return f"{self._held}, by a value without a ttl{after}"
        return f"{self._held}{after}; try again in {duration_text(self.retry_after)}"

    @property
    def _held(self) -> str:
        if self.limit is not None and self.limit > 1:
            return f"all {self.limit} permits of {self.name} are taken"
        if self.state == "cooling":
            return f"{self.name} was released, and stays taken for a time (at_least)"
        by = f" by {self.holder}" if self.holder else ""
        if self.is_here:
            by = " by this process; leases are not re-entrant"
        return f"{self.name} is held{by}"


class Duplicate(_ErrorAboutKey):
    """It was submitted before.

    Attributes:
        key: The key as you wrote it; do not log it.
        name: What messages call the key.
        retry_after: Seconds until a new submission is accepted; at the earliest, if the first one
            is still running. inf: another program wrote the key, without a ttl.
        state: "running" or "done".
        message: The text for the user.
        note: What the first submission said about itself, such as the id of the job that runs. The
            message does not contain it.
        source: "redis", or "table" if your database has answered.
    """

    def __init__(
        self,
        key: str,
        retry_after: float,
        state: Literal["running", "done"],
        message: str | None = None,
        name: str = "the key",
        note: str | None = None,
        source: Source = "redis",
    ) -> None:
        super().__init__(key, name, retry_after, state, message, name, note, source)
        self.note = note
        self.source: Source = source
        self.retry_after = retry_after
        self.state: Literal["running", "done"] = state
        self.message = message

    def __str__(self) -> str:
        if self.message is not None:
            return self.message
        was = "is being processed" if self.state == "running" else "was processed already"
        if self.retry_after == math.inf:
            return f"{self.name} {was}"
        return f"{self.name} {was}; try again in {duration_text(self.retry_after)}"


class Mismatch(_ErrorAboutKey):
    """The key was used before with another payload: an error of the caller.

    Attributes:
        key: The key as you wrote it; do not log it.
        name: What messages call the key.
    """

    def __init__(self, key: str, name: str = "the key") -> None:
        super().__init__(key, name, name)

    def __str__(self) -> str:
        return f"{self.name} was used before with another payload; use a new key"


class LeaseLost(_ErrorAboutKey):
    """You do not hold the lease: it expired or was taken over, so stop writing; or it was released.

    Attributes:
        key: The key as you wrote it; do not log it.
        fence: The fence of the lost lease. None: it had none.
        name: What messages call the key.
        state: "lost", or "released" if it was released or handed over before.
    """

    def __init__(
        self,
        key: str,
        fence: int | None = None,
        name: str = "the key",
        state: Literal["lost", "released"] = "lost",
    ) -> None:
        super().__init__(key, name, fence, name, state)
        self.fence = fence
        self.state: Literal["lost", "released"] = state

    def __str__(self) -> str:
        fence = "" if self.fence is None else f" (fence {self.fence})"
        if self.state == "released":
            return f"the lease on {self.name}{fence} was released or handed over before"
        return (
            f"the lease on {self.name}{fence} expired or was taken over; another holder may have it"
        )


class Interrupted(DibsError):
    """The process that ran a stream has died. What was received is the beginning of its run.

    Another run would not continue it, so none is joined to it: call the function again for a new
    one, from its first item.

    Attributes:
        items: How many items were received.
        name: What messages call the key.
    """

    def __init__(self, items: int, name: str = "the stream") -> None:
        super().__init__(items, name)
        self.items = items
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} was interrupted after {self.items} items: its process has died"


OTHER = "other"
"""The code of a cause without a specific one."""


class Cause(str):
    """A sentence for people with a `code` for programs, such as "silent" or "readonly"."""

    code: str

    def __new__(cls, sentence: str, code: str = OTHER) -> "Cause":
        """Keep the code of a *sentence* that is a Cause, unless another one is given."""
        cause = super().__new__(cls, sentence)
        known = sentence.code if isinstance(sentence, Cause) else OTHER
        cause.code = known if code == OTHER else code
        return cause


class Unavailable(DibsError):
    """Redis is unavailable, or a load failed.

    Attributes:
        cause: A code. The argument is a `Cause`, or a sentence without a code.
        detail: The sentence.
        name: What messages call the key.
        failure: The class name of the exception with which a load failed, such as "NotFound", where
            a cached function remembers it (`negative_ttl`). None: no load failed.
    """

    def __init__(self, cause: str, name: str = "the key", failure: str | None = None) -> None:
        super().__init__(cause, name, failure)
        self.cause = Cause(cause).code
        self.detail = str(cause)
        self.name = name
        self.failure = failure

    def __str__(self) -> str:
        return f"{self.name} is unavailable: {self.detail}"


class UsageError(DibsError, ValueError):
    """An error in the calling code or the settings; the message says how to correct it."""
