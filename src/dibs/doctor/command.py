"""The command: `dibs doctor`, or `python -m dibs.doctor`."""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

from .._diagnostics import DEFAULT_BUDGET
from ..errors import UsageError
from .findings import exit_code, findings
from .gather import gather
from .report import ReportStyle, as_text, report_json

DESCRIPTION = (
    "Examine a server for use with dibs, within 3 s. Each finding has a code, a reason and a fix. "
    "Nothing is written: commands are tried on a key that does not exist."
)
DOCTOR_EXIT_CODES = (
    "exit code: 0 no error or warning, 1 errors or warnings, 2 wrong usage, 3 nobody answered"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.description = DESCRIPTION
    parser.epilog = DOCTOR_EXIT_CODES
    add = parser.add_argument
    add("--url", help="target, as for Dibs(…); default: DIBS_URL")
    add("--namespace", help="namespace of the application; default: DIBS_NAMESPACE, or none")
    budget = DEFAULT_BUDGET
    add("--budget", type=float, default=budget, help=f"of the application, in s; default: {budget}")
    add("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Examine the server, print the report, and return the exit code."""
    environment = os.environ
    url = args.url or environment.get("DIBS_URL")
    try:
        if not url:
            raise UsageError("no server: pass --url redis://HOST:PORT, or set DIBS_URL")
        namespace = args.namespace
        if namespace is None:
            namespace = environment.get("DIBS_NAMESPACE", "")
        facts = gather(url, namespace=namespace, budget=_budget(args))
    except UsageError as error:
        sys.stderr.write(f"dibs doctor: {error}\n")
        return 2
    found = findings(facts)
    style = ReportStyle(_width(sys.stdout), colours=wants_colours(sys.stdout, environment))
    _print(report_json(facts, found) if args.json else as_text(facts, found, style))
    return exit_code(facts, found)


def _budget(args: argparse.Namespace) -> float:
    if not 0 < args.budget < 3600:
        raise UsageError(f"--budget must be a number of seconds above 0, not {args.budget:g}")
    return args.budget


def wants_colours(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """No colours in a pipe, with NO_COLOR, or in a terminal that has none."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _width(stream: TextIO) -> int:
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else 80


def _print(text: str) -> None:
    """Print *text*; characters that the terminal does not have are replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(f"{text}\n".encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and run. SystemExit: they are wrong."""
    parser = argparse.ArgumentParser("python -m dibs.doctor")
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
