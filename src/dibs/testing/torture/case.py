"""A case: one promise, how it is tried, and the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .adapter import Adapter, Need
from .asgi import Wrap
from .exchange import Exchange
from .lifespan import alive, hooked, swept
from .news import Broken
from .report import Verdict
from .trial import Trial

Body = Callable[[Trial], Awaitable[str | None]]

PATIENCE = 20  # a whole case may take that many times what one of its steps may


@dataclass(frozen=True)
class Case:
    """One promise that a middleware keeps or breaks.

    The body gets a Trial, raises Broken with what it saw, and may return a remark.
    """

    name: str
    promise: str
    body: Body
    needs: tuple[Need, ...]
    lives: bool

    def __str__(self) -> str:
        return self.name

    async def check(self, wrap: Wrap, *, adapter: Adapter | None = None) -> Verdict:
        """Return the verdict about a middleware; what the middleware raises is one, too.

        To be awaited in an event loop that has nothing else to do: a task that is left behind is
        a broken promise.
        """
        adapter = adapter or Adapter()
        if reason := self._reason_against(adapter):
            return Verdict(self.name, self.promise, "not applicable", reason)
        try:
            remark = await self._tried(wrap, adapter)
        except AssertionError as broken:
            return Verdict(self.name, self.promise, "failed", str(broken))
        except Exception as error:
            return Verdict(self.name, self.promise, "failed", f"raised {error!r}")
        return Verdict(self.name, self.promise, "passed", remark or "")

    def _reason_against(self, adapter: Adapter) -> str | None:
        if self.name in adapter.exempt:
            return adapter.exempt[self.name]
        return next(filter(None, map(adapter.lacks, self.needs)), None)

    async def _tried(self, wrap: Wrap, adapter: Adapter) -> str | None:
        async with swept(), hooked(adapter):
            trial = Trial(wrap, adapter)
            async with alive(trial, wanted=self.lives):
                remark = await self._in_time(trial)
                _check_order(trial)
        return remark

    async def _in_time(self, trial: Trial) -> str | None:
        whole = PATIENCE * trial.adapter.within
        try:
            async with asyncio.timeout(whole):
                return await self.body(trial)
        except TimeoutError:
            raise Broken(f"the case did not end within {whole:g} s") from None


def case(*needs: Need, lives: bool = True) -> Callable[[Body], Case]:
    """Make a case of a coroutine function; its docstring is the promise.

    `needs` is what the middleware must have for it to make sense; without `lives` the case itself
    sends the lifespan.
    """

    def made(body: Body) -> Case:
        promise = " ".join((body.__doc__ or "").split())
        return Case(body.__name__, promise, body, needs, lives)

    return made


def _check_order(trial: Trial) -> None:
    for line in trial.lines:
        if isinstance(line, Exchange) and line.violation:
            raise Broken(line.violation)
