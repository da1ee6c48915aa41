"""`python -m dibs_torture`: the command line of the suite."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib
import logging
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from . import CASES, Adapter, Case, Report, UsageError, torture
from .report import table
from .targets import KNOWN, Target, known_target

DESCRIPTION = (
    "Test ASGI idempotency middlewares: cancellation, disconnects, streams, outages and more."
)
EPILOG = """\
A TARGET is a name (%(names)s), which starts a Valkey of its own, or `package.module:wrap`, where
wrap(app) returns the app with the middleware around it. Several targets share one table.
The exit status is 1 if a promise was broken, 2 if a target could not be tried.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try what the arguments name, print the table, return the exit status."""
    options = _parser().parse_args(arguments)
    if options.list:
        return _print("\n".join(f"{case.name}: {case.promise}" for case in CASES))
    logging.getLogger().addHandler(logging.NullHandler())  # logs of the middlewares are not shown
    try:
        if not options.target:
            raise UsageError("name what to try; see --help")
        cases = _selected(options.case)
        reports = [_report(target, cases, options) for target in options.target]
    except UsageError as mistake:
        sys.stderr.write(f"{mistake}\n")
        return 2
    _print(table(reports))
    return 1 if any(report.failed for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dibs_torture",
        description=DESCRIPTION,
        epilog=EPILOG % {"names": ", ".join(KNOWN)},
    )
    parser.add_argument("target", nargs="*", metavar="TARGET", help="what to try, see below")
    parser.add_argument("--adapter", metavar="MODULE:NAME", help="the Adapter of a wrap of yours")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this one; repeatable")
    parser.add_argument("--within", type=float, help="seconds that a step may take (default: 10)")
    parser.add_argument("--list", action="store_true", help="print the cases and their promises")
    return parser


def _print(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def _selected(names: Sequence[str] | None) -> Sequence[Case]:
    if unknown := set(names or ()) - {case.name for case in CASES}:
        raise UsageError(f"no such case: {', '.join(sorted(unknown))} (--list shows them)")
    return [case for case in CASES if not names or case.name in names]


def _report(target: str, cases: Sequence[Case], options: argparse.Namespace) -> Report:
    with _target(target, options.adapter) as found:
        changes: dict[str, Any] = {"within": options.within} if options.within is not None else {}
        adapter = dataclasses.replace(found.adapter, **changes)
        return asyncio.run(torture(found.wrap, adapter=adapter, cases=cases, name=found.name))


@contextmanager
def _target(target: str, adapter: str | None) -> Generator[Target]:
    if ":" not in target:
        with known_target(target) as found:
            yield found
    else:
        yield Target(target, _imported(target), _imported(adapter) if adapter else Adapter())


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as missing:
        raise UsageError(f"{place} cannot be imported: {missing}") from missing


def script() -> None:
    """The `dibs-torture` command."""
    sys.exit(main())


if __name__ == "__main__":
    script()
