"""`python -m dibs.testing.torture`: the suite from a terminal."""

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

from ...errors import UsageError
from ..engines import ServerMissing
from . import CASES, Adapter, Case, Report, torture
from .report import table
from .subjects import KNOWN, Subject, known_subject

DESCRIPTION = "Try ASGI idempotency middlewares: do they keep their promises when it gets rough?"
EPILOG = """\
A TARGET is a name (%(names)s), which starts a Valkey of its own, or `package.module:wrap`, where
wrap(app) returns the app with the middleware around it. Several targets share one table.
The exit status is 1 if a promise was broken, 2 if a target could not be tried.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try what the arguments name, print the table, return the exit status."""
    options = _parser().parse_args(arguments)
    if options.list:
        return _say("\n".join(f"{case.name}: {case.promise}" for case in CASES))
    logging.getLogger().addHandler(logging.NullHandler())  # what they log is not what we look at
    try:
        if not options.target:
            raise UsageError("name what to try; --help tells how")
        cases = _chosen(options.case)
        reports = [_tried(target, cases, options) for target in options.target]
    except (UsageError, ServerMissing) as mistake:
        sys.stderr.write(f"{mistake}\n")
        return 2
    _say(table(reports))
    return 1 if any(report.failed for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dibs.testing.torture",
        description=DESCRIPTION,
        epilog=EPILOG % {"names": ", ".join(KNOWN)},
    )
    parser.add_argument("target", nargs="*", metavar="TARGET", help="what to try, see below")
    parser.add_argument("--adapter", metavar="MODULE:NAME", help="the Adapter of a wrap of yours")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this one; repeatable")
    parser.add_argument("--within", type=float, help="seconds that a step may take (default: 10)")
    parser.add_argument("--list", action="store_true", help="print the cases and their promises")
    return parser


def _say(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def _chosen(names: Sequence[str] | None) -> Sequence[Case]:
    if unknown := set(names or ()) - {case.name for case in CASES}:
        raise UsageError(f"no such case: {', '.join(sorted(unknown))} (--list shows them)")
    return [case for case in CASES if not names or case.name in names]


def _tried(target: str, cases: Sequence[Case], options: argparse.Namespace) -> Report:
    with _subject(target, options.adapter) as subject:
        changes: dict[str, Any] = {"within": options.within} if options.within is not None else {}
        adapter = dataclasses.replace(subject.adapter, **changes)
        return asyncio.run(torture(subject.wrap, adapter=adapter, cases=cases, name=subject.name))


@contextmanager
def _subject(target: str, adapter: str | None) -> Generator[Subject]:
    if ":" not in target:
        with known_subject(target) as subject:
            yield subject
    else:
        yield Subject(target, _named(target), _named(adapter) if adapter else Adapter())


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as missing:
        raise UsageError(f"{place} cannot be imported: {missing}") from missing


if __name__ == "__main__":
    sys.exit(main())
