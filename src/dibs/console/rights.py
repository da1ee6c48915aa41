"""Who may see the console, who may release, who sees whole keys: decided by the application.

Pure: the answers of the application's rules come as arguments.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from ..errors import UsageError

HOST: Literal["host"] = "host"
Rule = Callable[[Any], bool | Awaitable[bool]] | Literal["host"]
"""A function of the request that returns a bool, or "host": the application around the console
has decided before the request comes here."""


class Rights(NamedTuple):
    """What one request may do."""

    read: bool
    release: bool = False
    keys: bool = False


class Rules(NamedTuple):
    """The application's rules; None: nobody."""

    read: Rule
    release: Rule | None
    keys: Rule | None


def checked_rules(allow: object, allow_release: object, allow_keys: object) -> Rules:
    """The rules. UsageError: one is neither a function nor "host", or `allow` is missing."""
    return Rules(
        _checked("allow", allow),
        None if allow_release is None else _checked("allow_release", allow_release),
        None if allow_keys is None else _checked("allow_keys", allow_keys),
    )


def _checked(what: str, rule: Any) -> Any:
    if rule == HOST or callable(rule):
        return rule
    raise UsageError(
        f"{what} must be a function of the request that returns a bool, or {HOST!r} if the"
        f" application around the console decides who may see it; not {rule!r}"
    )


def asked(rule: Rule | None, request: object) -> Any:
    """The answer of *rule*, or an awaitable of it. None: False. "host": True."""
    if rule is None:
        return False
    return True if isinstance(rule, str) else rule(request)


def decided(answer: object) -> bool:
    """The answer of a rule. UsageError: it is not a bool.

    An object is not taken for a yes: a user who is not logged in is an object, too, and so is a
    coroutine that was not awaited.
    """
    if isinstance(answer, bool):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
        raise UsageError("this rule is asynchronous; a WSGI console needs a plain function")
    raise UsageError(f"a rule must return True or False, not {type(answer).__name__}")
