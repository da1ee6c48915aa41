"""What was typed: which command, and its options. The command itself is loaded when it is wanted.

Exit codes: 0 done · 1 something does not work · 2 a mistake in the arguments or the settings.
"""

import argparse
from collections.abc import Sequence

_EXIT_CODES = "exit codes: 0 done; 1 something does not work; 2 a mistake in arguments or settings"
_SETTINGS = "Settings come from the environment, or from .env in the current folder."


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute *arguments*, or those of the process, and return the exit code."""
    wanted = _parser().parse_args(arguments)
    if wanted.command == "serve":
        from .serving import serve

        return serve(wanted.host, wanted.port)
    if wanted.command == "doctor":
        from .doctor import doctor

        return doctor(as_json=wanted.json)
    from .richmenu import richmenu

    return richmenu(wanted.verb)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m apps.weamind",
        description=f"WeaMind, a weather bot for LINE. {_SETTINGS}",
        epilog=_EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_doctor(commands)
    _add_richmenu(commands)
    return parser


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    words = "run the bot until it is stopped"
    serve = commands.add_parser("serve", help=words, description=f"{_capital(words)}. {_SETTINGS}")
    serve.add_argument("--host", default="127.0.0.1", help="where to listen (%(default)s)")
    serve.add_argument("--port", default=8003, type=_port, help="and on which port (%(default)s)")


def _add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    words = "check everything the bot needs, and say how to fix what is broken"
    doctor = commands.add_parser(
        "doctor", help=words, description=f"{_capital(words)}. {_SETTINGS}"
    )
    doctor.add_argument("--json", action="store_true", help="say it as JSON")


def _add_richmenu(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    words = "the menu below every chat: give it to LINE, look at it, take it away"
    richmenu = commands.add_parser(
        "richmenu", help=words, description=f"{_capital(words)}. {_SETTINGS}"
    )
    verbs = richmenu.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, help in (
        ("apply", "everybody sees it as it is now; may be repeated"),
        ("show", "which menus LINE has, and which everybody sees"),
        ("remove", "nobody sees it any more; menus of others are left alone"),
    ):
        verbs.add_parser(verb, help=help, description=_capital(help))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:6]) > 65535:
        raise argparse.ArgumentTypeError("must be a number from 0 to 65535")
    return int(text)


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
