"""The program: its arguments, its commands, its exit codes."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Any, NamedTuple, NoReturn

from .. import __version__
from .._wording import printable_lines
from ..errors import DibsError, Unavailable, UsageError
from .terminal import default_terminal

SHELLS = ("bash", "zsh", "fish")


class Completions:
    """What can be typed: commands with their help, options of each, values of some."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.help: dict[str, str] = {}
        self.options: dict[str, list[str]] = {}
        self.described: dict[str, list[tuple[str, str]]] = {}
        self.values: dict[str, list[str]] = {}
        """Of an option or, by the name of the command, of its argument."""
        self.with_value: set[str] = set()
        """Options behind which a word is typed."""
        self.repeated: set[str] = set()
        """Options that may be given several times."""
        for action in parser._actions:  # pyright: ignore[reportPrivateUsage] # no public name
            if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
                self._read_commands(action)

    def _read_commands(self, found: Any) -> None:
        self.help = {each.dest: each.help for each in found._choices_actions}
        for name, parser in found.choices.items():
            self.options[name] = []
            self.described[name] = []
            for action in parser._actions:
                long = [option for option in action.option_strings if option.startswith("--")]
                self.options[name] += long
                if action.nargs != 0:
                    self.with_value.update(long)
                if isinstance(action, argparse._AppendAction):  # pyright: ignore[reportPrivateUsage]
                    self.repeated.update(long)
                self.described[name] += [(option, action.help or "") for option in long]
                if action.choices:
                    listed = [str(each) for each in action.choices]
                    self.values.update(dict.fromkeys(long or [name], listed))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.add_argument("shell", choices=SHELLS)
    parser.epilog = (
        'bash: eval "$(dibs completion bash)" in ~/.bashrc · zsh: dibs completion zsh > '
        "~/.zfunc/_dibs · fish: dibs completion fish > ~/.config/fish/completions/dibs.fish"
    )


def run(args: argparse.Namespace) -> int:
    """Print the script. Returns 0."""
    from .program import make_parser

    words = Completions(make_parser("*"))
    default_terminal().line({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](words))
    return 0


def bash(words: Completions) -> str:
    """A function for `complete -F`."""
    options = "\n".join(
        f"    {name}) words='{' '.join([*listed, *words.values.get(name, [])])}' ;;"
        for name, listed in words.options.items()
    )
    named = [name for name in words.values if name.startswith("--")]
    cases = [f"    {name}) words='{' '.join(words.values[name])}' ;;" for name in named]
    free = "|".join(sorted(words.with_value - set(named)))
    values = "\n".join([*cases, f"    {free}) COMPREPLY=(); return ;;"])
    return _BASH.format(commands=" ".join(words.help), options=options, values=values)


_BASH = """\
_dibs() {{
  local words='' here="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  case "$before" in
{values}
  esac
  if [ -z "$words" ]; then
    case "${{COMP_WORDS[1]}}" in
{options}
    esac
  fi
  [ "$COMP_CWORD" -eq 1 ] && words='{commands} --help --version'
  COMPREPLY=($(compgen -W "$words" -- "$here"))
}}
complete -F _dibs dibs"""


def zsh(words: Completions) -> str:
    """A file `_dibs` for `fpath`."""
    commands = "\n".join(f"    '{name}:{_quoted(help)}'" for name, help in words.help.items())
    cases = "\n".join(f"    {name}) {_zsh_arguments(words, name)} ;;" for name in words.help)
    return _ZSH.format(commands=commands, cases=cases)


def _zsh_arguments(words: Completions, command: str) -> str:
    parts = [
        f"'{'*' * (option in words.repeated)}{option}[{_quoted(help)}]{_zsh_values(words, option)}'"
        for option, help in words.described[command]
    ]
    if command in words.values:
        parts.append(f"'1:{command}:({' '.join(words.values[command])})'")
    return " ".join(["_arguments", *parts])


def _zsh_values(words: Completions, option: str) -> str:
    if option in words.values:
        return f":value:({' '.join(words.values[option])})"
    return ":value:" if option in words.with_value else ""


def _quoted(text: str) -> str:
    for character in ("'", "[", "]", ":"):
        text = text.replace(character, " ")
    return text


_ZSH = """\
#compdef dibs
_dibs() {{
  local -a commands
  commands=(
{commands}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{cases}
  esac
}}
if [ "$funcstack[1]" = _dibs ]; then _dibs "$@"; else compdef _dibs dibs; fi"""


def fish(words: Completions) -> str:
    """Lines of `complete`."""
    lines = ["complete -c dibs -f"]
    for name, help in words.help.items():
        lines.append(f"complete -c dibs -n __fish_use_subcommand -a {name} -d '{_quoted(help)}'")
    for command, described in words.described.items():
        inside = f"complete -c dibs -n '__fish_seen_subcommand_from {command}'"
        if command in words.values:
            lines.append(f"{inside} -a '{' '.join(words.values[command])}'")
        for option, help in described:
            values = words.values.get(option)
            listed = f" -a '{' '.join(values)}'" if values else ""
            wanted = f" -x{listed}" if option in words.with_value else ""
            lines.append(f"{inside} -l {option[2:]}{wanted} -d '{_quoted(help)}'")
    return "\n".join(lines)


OK, NOT_FOUND, USAGE, UNAVAILABLE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 3, 130, 141
EXIT_CODES = (
    "exit codes: 0 done; 1 not found, not released, or findings; 2 wrong usage, or the server "
    "refused it; 3 the server, or a node of the cluster, is unavailable; 130 Ctrl-C; 141 the "
    "reader closed the pipe"
)


class Command(NamedTuple):
    """A command, and where it is: a module with `add_arguments(parser)` and `run(args)`."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("ls", "list what the server holds", "dibs.cli.listing"),
    Command("peek", "who holds a key, and what it is", "dibs.cli.peeking"),
    Command("why", "why a key is stuck, and what can be done", "dibs.cli.why"),
    Command("watch", "a live list: what is taken, freed, handed on", "dibs.cli.watching"),
    Command("release", "free a key that is stuck", "dibs.cli.releasing"),
    Command("invalidate", "delete a cached value, or all with a tag", "dibs.cli.invalidating"),
    Command("run", "run a program while no other machine does", "dibs.cli.running"),
    Command("schedule", "when a cron expression fires next", "dibs.cli.scheduling"),
    Command("doctor", "examine the server; a fix for each finding", "dibs.doctor"),
    Command("console", "the same as a page in a browser", "dibs.console.command"),
    Command("bench", "how fast dibs is on this server; loads it", "dibs.cli.bench"),
    Command("sql", "print SQL for the table of within=", "dibs.cli.sql"),
    Command("completion", "print completion for bash, zsh or fish", "dibs.cli.program"),
)


def available() -> list[Command]:
    """The commands that are installed."""
    return [command for command in COMMANDS if _is_there(command.module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; only that of *only* has its options, the others load nothing."""
    parser = argparse.ArgumentParser(
        "dibs", description="Shows and changes what dibs holds on a Redis or Valkey server.",
        epilog=EXIT_CODES,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"dibs {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in available():
        own = commands.add_parser(command.name, help=command.help, description=f"{command.help}.")
        if only in (command.name, "*"):
            import_module(command.module).add_arguments(own)
        own.set_defaults(own_parser=own)
    return parser


def _parsed(given: list[str], chosen: str | None) -> argparse.Namespace:
    """The arguments. SystemExit: they are wrong; the usage is that of the command."""
    args, unknown = make_parser(chosen).parse_known_args(given)
    if any("://" in word for word in unknown):  # not repeated: it may hold a password
        args.own_parser.error("name the server by --url URL, or by the variable DIBS_URL")
    if unknown:
        args.own_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


DOCTOR = "; `dibs doctor` with the same --url says why"


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. SystemExit: the arguments are wrong."""
    _open_streams()
    given = sys.argv[1:] if arguments is None else arguments
    chosen = next((word for word in given if not word.startswith("-")), None)

    def work() -> int:
        args = _parsed(given, chosen)
        module = next(each.module for each in COMMANDS if each.name == args.command)
        return import_module(module).run(args)

    return guarded(chosen or "", work)


def guarded(name: str, work: Callable[[], int]) -> int:
    """Run *work*; errors become a sentence and an exit code, interruptions just the code."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = work()
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _failed(name, error, USAGE)
    except Unavailable as error:
        return _failed(name, error, UNAVAILABLE, DOCTOR)
    except DibsError as error:
        return _failed(name, error, NOT_FOUND)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _leave_pipe()
        return CLOSED_PIPE
    except OSError as error:  # a full disk, for one
        _leave_pipe()
        return _failed(name, error, USAGE)


def _failed(name: str, error: Exception, code: int, hint: str = "") -> int:
    default_terminal().say(f"dibs {name}: {printable_lines(str(error))}{hint}")
    return code


def _open_streams() -> None:
    """Whatever is written can be: what the encoding does not have is replaced.

    Python has None in place of a stream that is closed (`>&-`): what is written to it is lost.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # rich writes an ellipsis that not every encoding has
            stream.reconfigure(errors="replace")


def _terminate(*_: Any) -> NoReturn:
    # As an exception, so that a full screen is left and what was made is removed.
    sys.exit(128 + signal.SIGTERM)


def _leave_pipe() -> None:
    """Python would complain once more when it closes stdout at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
