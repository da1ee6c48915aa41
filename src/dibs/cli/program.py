"""The program: its arguments, its commands, its exit codes."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Any, NamedTuple, NoReturn

from .. import __version__
from ..errors import DibsError, Unavailable, UsageError
from .terminal import default_terminal

OK, NOT_FOUND, USAGE, UNAVAILABLE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 3, 130, 141
EXIT_CODES = (
    "exit codes: 0 done; 1 not found, not released, or findings; 2 wrong usage, or the server "
    "refused it; 3 the server, or a node of the cluster, is unavailable; 130 Ctrl-C; 141 the "
    "reader closed the pipe"
)


class Command(NamedTuple):
    """A command, and its module, with the functions `NAME_arguments(parser)` and `NAME(args)`."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("ls", "list what the server holds", "dibs.cli.listing"),
    Command("peek", "who holds a key, and what it is", "dibs.cli.keys"),
    Command("why", "why a key is stuck, and what can be done", "dibs.cli.keys"),
    Command("watch", "a live list: what is taken, freed, handed on", "dibs.cli.watching"),
    Command("release", "free a key that is stuck", "dibs.cli.keys"),
    Command("invalidate", "delete a cached value, or all with a tag", "dibs.cli.keys"),
    Command("run", "run a program while no other machine does", "dibs.cli.running"),
    Command("schedule", "when a cron expression is due next", "dibs.cli.cron_and_sql"),
    Command("doctor", "examine the server; a fix for each finding", "dibs.doctor"),
    Command("console", "what the server holds, as a page in a browser", "dibs.console.command"),
    Command("sql", "print SQL for the table of within=", "dibs.cli.cron_and_sql"),
    Command("completion", "print completion for bash, zsh or fish", "dibs.cli.cron_and_sql"),
)


def available() -> list[Command]:
    """Return the commands that are installed."""
    return [command for command in COMMANDS if _is_there(command.module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands.

    Only that of *only* has its options, the others load nothing.
    """
    parser = argparse.ArgumentParser(
        "dibs", description="Shows and changes what dibs holds on a Redis or Valkey server.",
        epilog=EXIT_CODES,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"dibs {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in available():
        own = commands.add_parser(command.name, help=command.help, description=f"{command.help}.")
        if only in (command.name, "*"):
            getattr(import_module(command.module), f"{command.name}_arguments")(own)
        own.set_defaults(own_parser=own)
    return parser


def _parsed_arguments(given: list[str], chosen: str | None) -> argparse.Namespace:
    """Return the arguments.

    Raises SystemExit if they are wrong; the usage is that of the command.
    """
    args, unknown = make_parser(chosen).parse_known_args(given)
    if any("://" in word for word in unknown):  # not repeated: it may hold a password
        args.own_parser.error("name the server by --url URL, or by the variable DIBS_URL")
    if unknown:
        args.own_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


DOCTOR = "; `dibs doctor` with the same --url says why"


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. Raises SystemExit if the arguments are wrong."""
    _open_streams()
    given = sys.argv[1:] if arguments is None else arguments
    chosen = next((word for word in given if not word.startswith("-")), None)

    if not given:
        make_parser().print_help(sys.stderr)
        return USAGE
    if chosen is not None and chosen not in (names := [each.name for each in available()]):
        near = get_close_matches(chosen, names, n=1, cutoff=0.5)
        hint = f"did you mean `dibs {near[0]}`?" if near else f"there are {', '.join(names)}"
        default_terminal().say(f"dibs: there is no command {chosen!r}; {hint}")
        return USAGE

    def work() -> int:
        args = _parsed_arguments(given, chosen)
        module = next(each.module for each in COMMANDS if each.name == args.command)
        return getattr(import_module(module), args.command)(args)

    return guarded(chosen or "", work)


def guarded(name: str, work: Callable[[], int]) -> int:
    """Run *work*; errors become a sentence and an exit code, interruptions just the code."""
    signal.signal(signal.SIGTERM, _exit_by_signal)
    try:
        code = work()
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _report_failure(name, error, USAGE)
    except Unavailable as error:
        return _report_failure(name, error, UNAVAILABLE, DOCTOR)
    except DibsError as error:
        return _report_failure(name, error, NOT_FOUND)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _leave_pipe()
        return CLOSED_PIPE
    except OSError as error:  # a full disk, for one
        _leave_pipe()
        return _report_failure(name, error, USAGE)


def _report_failure(name: str, error: Exception, code: int, hint: str = "") -> int:
    words = str(error).rstrip(".") if hint else str(error)
    for line in f"dibs {name}: {words}{hint}".split("\n"):
        default_terminal().say(line)
    return code


def _open_streams() -> None:
    """Let all text be written: what the encoding does not have is replaced.

    Python has None in place of a stream that is closed (`>&-`): what is written to it is lost.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # rich writes an ellipsis that not every encoding has
            stream.reconfigure(errors="replace")


def _exit_by_signal(*_: Any) -> NoReturn:
    # As an exception, so that a full screen is left and what was made is removed.
    sys.exit(128 + signal.SIGTERM)


def _leave_pipe() -> None:
    """Python would complain once more when it closes stdout at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
