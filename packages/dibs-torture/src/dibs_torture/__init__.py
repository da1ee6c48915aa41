"""A torture suite for idempotency middlewares: any ASGI middleware, no server needed.

    report = await torture(wrap, adapter=Adapter())
    assert not report.failed, report

`wrap(app)` puts the middleware under test around an app of the suite's own. Each case is one
promise; `Case.check` tries a single one, for test runners. `python -m dibs_torture --help` is the
command line.
"""

from __future__ import annotations

from collections.abc import Sequence

from .adapter import Adapter, Store, Stored
from .asgi import App, Wrap
from .case import Case
from .cases import CASES
from .errors import UsageError
from .report import Report, Verdict

__all__ = [
    "CASES",
    "Adapter",
    "App",
    "Case",
    "Report",
    "Store",
    "Stored",
    "UsageError",
    "Verdict",
    "Wrap",
    "torture",
]


async def torture(
    wrap: Wrap,
    *,
    adapter: Adapter | None = None,
    cases: Sequence[Case] = CASES,
    name: str = "the middleware",
) -> Report:
    """Return the verdicts about a middleware, one for each case, tried one after the other.

    Never raises for what the middleware does. Raises UsageError if the adapter exempts a case that
    does not exist.
    """
    adapter = adapter or Adapter()
    if unknown := set(adapter.exempt) - {case.name for case in CASES}:
        raise UsageError(f"exempt names no such case: {', '.join(sorted(unknown))}")
    return Report(name, tuple([await case.check(wrap, adapter=adapter) for case in cases]))
