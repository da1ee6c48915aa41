"""Commands that ask no server: `dibs schedule`, `sql`, `completion`."""

import argparse
import time
from datetime import UTC
from typing import Any

from .._internal_api import DIALECTS, cron_words, ddl, next_runs
from .program import make_parser
from .terminal import default_terminal

# ---- dibs schedule: when a cron expression is due next


def schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.add_argument("cron", help="five fields, or six with seconds first; or @daily …")
    parser.add_argument("--timezone", default="UTC", help="such as Asia/Taipei; default: UTC")
    parser.add_argument("--count", type=int, default=5, help="how many runs; default: 5")
    parser.add_argument("--json", action="store_true", help="print JSON, see the documentation")


def schedule(args: argparse.Namespace) -> int:
    """Print the next runs.

    Raises UsageError if it is no cron expression, or there is no such zone.
    """
    terminal = default_terminal()
    runs = next_runs(args.cron, args.timezone, int(time.time() * 1000), min(args.count, 1000))
    if args.json:
        terminal.json({"runs": [run.isoformat() for run in runs]})
        return 0
    terminal.say(cron_words(args.cron))
    now = time.time()
    for run in runs:
        in_utc = run.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        there = f"{run.strftime('%a')} {run.isoformat(' ')}"
        when = f"in {until(run.timestamp() - now)}"
        is_utc = not run.utcoffset()
        terminal.line(f"{there}  {when}" if is_utc else f"{there}  {in_utc}  {when}")
    return 0


def until(seconds: float) -> str:
    """Return `42 s`, `8 min`, `5 h 20 min`, `3 days`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(round(seconds), 0)} s"
    if minutes < 90:
        return f"{minutes} min"
    return (
        f"{minutes // 60} h {minutes % 60} min" if minutes < 36 * 60 else f"{minutes // 1440} days"
    )


# ---- dibs sql: the statements for the table of `within=`, for a migration or a job


def sql_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: what is printed, and for which database."""
    parser.add_argument(
        "statement", choices=("create", "prune"),
        help="create: the table dibs_done; prune: remove 500 rows whose window is over",
    )  # fmt: skip
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="postgresql")


def sql(args: argparse.Namespace) -> int:
    """Print the statements."""
    dialect = DIALECTS[args.dialect]
    print(ddl(dialect) if args.statement == "create" else f"{dialect.prune};\n", end="")
    return 0


# ---- dibs completion: what a shell completes

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


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.add_argument("shell", choices=SHELLS)
    parser.epilog = (
        'bash: eval "$(dibs completion bash)" in ~/.bashrc · zsh: dibs completion zsh > '
        "~/.zfunc/_dibs · fish: dibs completion fish > ~/.config/fish/completions/dibs.fish"
    )


def completion(args: argparse.Namespace) -> int:
    """Print the script. Returns 0."""
    words = Completions(make_parser("*"))
    default_terminal().script({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](words))
    return 0


def bash(words: Completions) -> str:
    """Return a function for `complete -F`."""
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
    """Return a file `_dibs` for `fpath`."""
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
    """Return the lines of `complete`."""
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
