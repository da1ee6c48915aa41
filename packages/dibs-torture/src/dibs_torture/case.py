"""A case: one promise, how it is tried, and the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .adapter import Adapter, Need
from .asgi import Wrap
from .exchange import Exchange
from .harness import Harness
from .lifespan import adapter_hooks, no_leftover_tasks, running_lifespan
from .notifier import PromiseBroken
from .report import Verdict

Body = Callable[[Harness], Awaitable[str | None]]

STEPS = 20  # a whole case may take that many times what one of its steps may


@dataclass(frozen=True)
class Case:
    """One promise that a middleware keeps or breaks.

    The body gets a Harness, raises PromiseBroken with what it saw, and may return a remark.
    """

    name: str
    promise: str
    body: Body
    needs: tuple[Need, ...]
    with_lifespan: bool

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
            remark = await self._run(wrap, adapter)
        except AssertionError as broken:
            return Verdict(self.name, self.promise, "failed", str(broken))
        except Exception as error:
            return Verdict(self.name, self.promise, "failed", f"raised {error!r}")
        return Verdict(self.name, self.promise, "passed", remark or "")

    def _reason_against(self, adapter: Adapter) -> str | None:
        if self.name in adapter.exempt:
            return adapter.exempt[self.name]
        return next(filter(None, map(adapter.lacks, self.needs)), None)

    async def _run(self, wrap: Wrap, adapter: Adapter) -> str | None:
        async with no_leftover_tasks(), adapter_hooks(adapter):
            harness = Harness(wrap, adapter)
            async with running_lifespan(harness, wanted=self.with_lifespan):
                remark = await self._run_in_time(harness)
                _check_order(harness)
        return remark

    async def _run_in_time(self, harness: Harness) -> str | None:
        whole = STEPS * harness.adapter.within
        try:
            async with asyncio.timeout(whole):
                return await self.body(harness)
        except TimeoutError:
            raise PromiseBroken(f"the case did not end within {whole:g} s") from None


def case(*needs: Need, with_lifespan: bool = True) -> Callable[[Body], Case]:
    """Make a case of a coroutine function; its docstring is the promise.

    `needs` is what the middleware must have for it to make sense. Without `with_lifespan`, the case
    sends the lifespan itself.
    """

    def made(body: Body) -> Case:
        promise = " ".join((body.__doc__ or "").split())
        return Case(body.__name__, promise, body, needs, with_lifespan)

    return made


def _check_order(harness: Harness) -> None:
    for connection in harness.connections:
        if isinstance(connection, Exchange) and connection.violation:
            raise PromiseBroken(connection.violation)
