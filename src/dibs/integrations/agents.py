"""Tools that models call, and call again: MCP, pydantic-ai, LangGraph, OpenAI Agents.

    guard = ToolGuard(dibs, refusal=ToolError)      # how the SDK tells its model of a failure

    @server.tool()
    @guard.once("charge:{order}", window=86400, payload=["cents"])
    async def charge(order: str, cents: int) -> Receipt: ...

A refusal becomes a sentence that the model can act on. The key is made of arguments: a model that
asks again makes another call, whose id is new.
"""

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeVar, Unpack

from .. import AsyncDibs, Busy, Dibs, Duplicate, Mismatch, Unavailable, UsageError
from .._internal_api import ClaimKeywords, ClaimOptions, OnCancel, fields_of, signature_of, takes
from ..errors import duration_text

__all__ = ["ToolGuard"]

P = ParamSpec("P")
T = TypeVar("T")

_CALL_IDS = {"call_id", "request_id", "run_id", "tool_call_id", "tool_use_id"}
"""How SDKs name the id of a call, or of what it belongs to."""
_CONTEXTS = {
    *("Context", "RunContext", "RunContextWrapper", "ToolContext"),
    *("InjectedToolCallId", "RunnableConfig", "Runtime", "ToolRuntime"),
}
"""The types of parameters that SDKs pass, and models do not see."""
_DEFAULTS = {"after": "replay", "wait": 30}
_REFUSALS = (Busy, Duplicate, Mismatch, Unavailable)


class ToolGuard:
    """Has what models ask for done once, and tells them why a call was refused.

    Args:
        dibs: An `AsyncDibs` for coroutine functions, a `Dibs` for plain ones.
        refusal: Called with a sentence for the model. An exception that it returns is raised,
            anything else is the result of the tool: `ToolError` (MCP), `ToolFailed` (pydantic-ai),
            `ToolException` (LangChain), `str` (OpenAI Agents).

    Raises:
        UsageError: One of them is something else.
    """

    def __init__(self, dibs: AsyncDibs | Dibs, *, refusal: Callable[[str], object]) -> None:
        if not isinstance(dibs, AsyncDibs | Dibs):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"a ToolGuard needs an AsyncDibs or a Dibs, not {dibs!r}")
        if not callable(refusal):
            raise UsageError("refusal must be callable: an exception of the SDK, or str")
        self._dibs = dibs
        self._refusal = refusal

    @takes(ClaimKeywords, ClaimOptions)
    def once(
        self,
        template: str,
        *,
        payload: Iterable[str] = (),
        ignore: Iterable[str] = (),
        within: Callable[[], Any] | None = None,
        retry: int = 0,
        on_cancel: OnCancel | None = None,
        **options: Unpack[ClaimKeywords],
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Do what a model asks for once, as `once` of the client does.

        Where they are not given, `after` is "replay" and `wait` is 30.

        Args:
            template: The key, with fields for the arguments that say what the effect is about.
            payload: As all that follow, that of `once`.

        Raises:
            UsageError: An option is invalid, the function lacks a field, or the key would be
                another one for each call.
        """
        chosen: Any = {**_DEFAULTS, **options}
        paths = (payload,) if isinstance(payload, str) else tuple(payload)
        fields = fields_of(template)
        decorated: Any = self._dibs.once(
            template, payload=paths, ignore=ignore, within=within, retry=retry,
            on_cancel=on_cancel, **chosen,
        )  # fmt: skip

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            _refuse_call_ids([*fields, *paths], function)
            tool = _Tool(_name(function), _listed(fields), _listed(paths))
            return self._telling(decorated(_marking(function)), tool.refused)

        return decorate

    def told(self, function: Callable[P, T]) -> Callable[P, T]:
        """Tell the model of refusals of *function*, such as one with `@dibs.throttled(…)`."""
        return self._telling(function, _Tool(_name(function)).stopped)

    def _telling(self, function: Callable[..., Any], sentence: Callable[[Exception], str]) -> Any:
        def tell(error: Exception) -> object:
            answer = self._refusal(sentence(error))
            if isinstance(answer, BaseException):
                raise answer from error
            return answer

        async def answered(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except (_Inside, *_REFUSALS) as error:
                return tell(error)

        def answered_in_thread(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (_Inside, *_REFUSALS) as error:
                return tell(error)

        is_async = inspect.iscoroutinefunction(function)
        return functools.wraps(function)(answered if is_async else answered_in_thread)


class _Inside(Exception):
    """What a function has raised that had begun."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Tell refusals that *function* itself raises from those of its own call."""

    async def marked(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except _REFUSALS as error:
            raise _Inside(error) from error

    def marked_in_thread(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except _REFUSALS as error:
            raise _Inside(error) from error

    is_async = inspect.iscoroutinefunction(function)
    return functools.wraps(function)(marked if is_async else marked_in_thread)


class _Tool(NamedTuple):
    """What the model knows of a tool."""

    name: str
    fields: str = ""
    """The arguments of its key."""
    payload: str = ""

    def refused(self, error: Exception) -> str:
        """Say why a call was refused: nothing was done."""
        match error:
            case Duplicate(message=str(message)):
                return message
            case Duplicate(state="running"):
                return (
                    f"{self.name} is still running{self._about}: an earlier call has not ended, "
                    f"and this one did nothing. To learn its result, repeat the call with exactly "
                    f"the same arguments {_later(error.retry_after)}; do not ask in another way."
                )
            case Duplicate():
                return (
                    f"{self.name} was called before{self._about} and has ended; its result was not "
                    f"kept, and this call did nothing. Do not call it again for this: find out "
                    f"what it has done, or ask the user."
                )
            case Mismatch():
                return (
                    f"{self.name} was called before{self._about}, with other values of "
                    f"{self.payload}. That call counts, and this one did nothing. Do not repeat it "
                    f"with changed values: take what was done, or name another {self.fields} if "
                    f"something else is meant."
                )
            case Unavailable():
                return (
                    f"It cannot be known right now whether {self.name} was done before, so this "
                    f"call did nothing. Repeat it later with exactly the same arguments."
                )
            case _:
                return self.stopped(error)

    def stopped(self, error: Exception) -> str:
        """Say why a call ended before its work was done, or before it began."""
        error = error.error if isinstance(error, _Inside) else error
        match error:
            case Busy(state="throttled"):
                return (
                    f"{self.name} was called too often. Call it again {_later(error.retry_after)}."
                )
            case Busy():
                return (
                    f"{self.name} could not be done, because another call works on the same thing. "
                    f"Call it again {_later(error.retry_after)}."
                )
            case Duplicate() | Mismatch():
                return (
                    f"{self.name} could not be done, because a part of it was asked for before. "
                    f"Do not call it again: find out what was done, or ask the user."
                )
            case _:
                return (
                    f"{self.name} could not be done, because a service that it needs does not "
                    f"answer. Call it again later with exactly the same arguments."
                )

    @property
    def _about(self) -> str:
        return f" for the same {self.fields}" if self.fields else ""


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "the tool")


def _listed(paths: Iterable[str]) -> str:
    return " and ".join(paths)


def _later(seconds: float) -> str:
    return "later" if seconds == math.inf else f"in {duration_text(seconds)}"


def _refuse_call_ids(paths: Iterable[str], function: Callable[..., Any]) -> None:
    """Raise UsageError if one of *paths* differs between two calls that ask for the same."""
    parameters = signature_of(function).parameters
    for path in paths:
        root, _, rest = path.partition(".")
        is_context = not rest and root in parameters and _is_context(parameters[root])
        if is_context or path.rpartition(".")[2] in _CALL_IDS:
            raise UsageError(
                f"{path!r} is another one for each call, and a model that asks again makes a new "
                f"call: name the arguments of {_name(function)}() that say what its effect is about"
            )


def _is_context(parameter: inspect.Parameter) -> bool:
    """Return whether an SDK passes it: by its annotation, or the usual name."""
    names = re.findall(r"\w+", inspect.formatannotation(parameter.annotation))
    return parameter.name == "ctx" or not _CONTEXTS.isdisjoint(names)
