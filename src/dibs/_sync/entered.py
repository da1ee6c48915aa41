# Generated from src/dibs/_async/entered.py by unasync.py – do not edit.
"""What does nothing before it is entered by `with`, and says so to those who forget that."""

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..errors import UsageError


class _OfWhatIsEntered:
    """What a lease or a claim has, looked for too early. (`__getattr__` would cost each hold.)"""

    def __init__(self, error: type[Exception] = AttributeError) -> None:
        self._error = error

    def __get__(self, entered: Any, owner: object = None) -> NoReturn:
        if entered is None:
            raise AttributeError  # of the class
        raise self._error(f"{entered!r} has no such attribute, nor is it called: {entered._how}")


class Entered:
    """The base of holds, claims, leaders and schedulers."""

    __slots__ = ("_is_entered",)

    _verb: ClassVar[str]
    _instead: ClassVar[str] = ""
    """What may have been meant, where it is not entered."""

    def __repr__(self) -> str:
        state = "entered" if self._is_entered else "not entered"
        return f"<{type(self).__name__} {self._named}, {state}>"

    def __bool__(self) -> NoReturn:
        raise UsageError(f"{self._verb}() is neither true nor false: {self._how}")

    @property
    def _how(self) -> str:
        # Two words, so that both halves of dibs name their own statement.
        return f"enter it, `with dibs.{self._verb}(…)`{self._instead}"

    def __del__(self) -> None:
        if not getattr(self, "_is_entered", True):  # True: a signal handler raised in __init__
            message = f"{self!r} does nothing: {self._how}"
            warnings.warn(message, RuntimeWarning, stacklevel=2, source=self)

    if TYPE_CHECKING:

        @property
        def _named(self) -> str:
            """The verb, and what events call its key: each subclass has it."""
            ...

    else:
        acquire = release = extend = check = complete = result = _OfWhatIsEntered()
        __signature__ = _OfWhatIsEntered(UsageError)

        def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
            raise UsageError(f"{self._verb}() cannot be called, or decorate: {self._how}")
