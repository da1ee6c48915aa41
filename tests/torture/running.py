"""How the tests run the suite, and which of its cases need more than a middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dibs_torture import CASES, Adapter, Case, Report, Wrap, torture

from tests.torture.middlewares import SMALL

NAMES = {case.name for case in CASES}
STORES = {"store", "shared store", "contents", "full store", "lease", "other service"}
OUTAGES = {case.name for case in CASES if STORES & set(case.needs)}
OPTIONAL = {"keyless_runs", "keyless_is_guarded"}


def tortured(wrap: Wrap, adapter: Adapter = SMALL, cases: Sequence[Case] = CASES) -> Report:
    """In a loop without asyncio's debugging, which makes it twenty times as long."""
    return asyncio.run(torture(wrap, adapter=adapter, cases=cases))


def failed(report: Report) -> set[str]:
    return {verdict.case for verdict in report.failed}
