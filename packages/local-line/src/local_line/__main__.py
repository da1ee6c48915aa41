"""`local-line --webhook http://127.0.0.1:5000/callback`: LINE, in front of any bot."""

import argparse
import asyncio
import re
import signal
import sys
from collections.abc import Sequence
from errno import EADDRINUSE
from os import environ
from urllib.parse import urlsplit

from .accounts import Picture
from .journal import Call, Delivery
from .local import LocalLine
from .sdks import hints
from .troubles import trouble

PORT = 8800


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="local-line",
        description="LINE's Messaging API on this machine, and a phone in the browser.",
        usage="local-line [run] [options] [-- command of a bot, which need not be edited]",
    )
    add = parser.add_argument
    add("--webhook", metavar="URL", default="", help="where the bot listens")
    add(
        "--secret",
        default=environ.get("LINE_CHANNEL_SECRET"),
        help="the channel secret; or set LINE_CHANNEL_SECRET",
    )
    add(
        "--token",
        default=environ.get("LINE_CHANNEL_ACCESS_TOKEN"),
        help="the channel access token; or set LINE_CHANNEL_ACCESS_TOKEN",
    )
    add("--name", default="My bot", help="what the bot is called")
    add("--picture", metavar="FILE", help="what the bot looks like, PNG or JPEG")
    add("--host", default="127.0.0.1", help="the address to listen at")
    add("--port", type=int, default=PORT, help=f"the port to listen at ({PORT}); 0: a free one")
    add("--channel-id", help="of the channel, for LINE Login")
    add(
        "--liff",
        metavar="ID=URL",
        default="",
        help="a LIFF app: its id, and its page",
    )
    add("--state", metavar="FILE", help="keep everything in it for the next run")
    add("--quota", type=int, default=200, help="messages in a month (200); -1: no limit")
    add("--redelivery", action="store_true", help="send webhooks again that have failed")
    add("--no-rate-limits", action="store_true", help="let the bot call as often as it likes")
    return parser


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """`run [options] -- command` has a command; without `run` there is none."""
    words, command = list(arguments), []
    if words[:1] == ["run"]:
        end = words.index("--") if "--" in words else len(words)
        words, command = words[1:end], words[end + 1 :]
        if not command and not {"-h", "--help"} & {*words}:
            parser.error("run: what? local-line run -- python app.py")
    options = parser.parse_args(words)
    options.command = command
    return options


def _platform(options: argparse.Namespace) -> LocalLine:
    """ValueError: an empty secret or token, or no picture. OSError: the file cannot be read."""
    picture = Picture.read(options.picture) if options.picture else None
    liff_id, _, page = options.liff.partition("=")
    line = LocalLine(
        secret=options.secret or None,
        access_token=options.token or None,
        webhook_url=options.webhook,
        host=options.host,
        port=options.port,
        state=options.state,
        name=options.name,
        picture=picture,
        channel_id=options.channel_id or liff_id.partition("-")[0] or None,
        quota=None if options.quota < 0 else options.quota,
        redelivery=options.redelivery,
        rate_limits=not options.no_rate_limits,
    )
    if liff_id:
        line.liff_apps[liff_id] = {"liffId": liff_id, "view": {"type": "full", "url": page}}
    return line


async def _run(options: argparse.Namespace) -> int:
    """The exit code: that of the program, if one was started."""
    async with _platform(options) as line:
        line.journal.on_row = _report
        ended = asyncio.Event()
        if sys.platform != "win32":  # there Ctrl-C is an exception
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, ended.set)
        print(_greeting(line, options), flush=True)  # who has read it may end us
        if options.command:
            return await _run_until(ended, line, options)
        await ended.wait()
        return 0


async def _run_until(ended: asyncio.Event, line: LocalLine, options: argparse.Namespace) -> int:
    from .programs import run_program  # cryptography is slow to load

    work = run_program(line, options.command, finds_webhook=not options.webhook)
    running, waiting = asyncio.create_task(work), asyncio.create_task(ended.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        return running.result()
    running.cancel()
    await asyncio.wait([running])
    return 0


def _greeting(line: LocalLine, options: argparse.Namespace) -> str:
    lines = [
        f"LINE is at  {line.api_base}",
        f"The chat    {line.page_url}",
        f"The bot     {line.webhook_url or _unknown(options)}",
        "",
    ]
    if line.liff_apps:
        lines[3:] = [f"LIFF's SDK  {line.api_base}/liff/edge/2/sdk.js", ""]
    if options.command:
        return "\n".join([*lines, "Ctrl-C ends both."])
    if not options.secret or not options.token:
        lines += [f"Made up for {options.state or 'this run'}; the bot needs both:"]
        lines += [f"  LINE_CHANNEL_SECRET={line.channel.secret}"]
        lines += [f"  LINE_CHANNEL_ACCESS_TOKEN={line.channel.access_token}", ""]
    lines += ["In the bot, give the SDK this address:"]
    lines += [f"  {language:<8}{how}" for language, how in hints(line.api_base).items()]
    return "\n".join([*lines, "", "Ctrl-C ends it."])


def _unknown(options: argparse.Namespace) -> str:
    if options.command:
        return "is looked for where the program listens"
    return "nowhere yet: start again with --webhook URL"


def _report(row: Delivery | Call) -> None:
    if words := trouble(row):
        print(f"local-line: {words}", file=sys.stderr, flush=True)


def _problem(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the options. None: nothing."""
    if not 0 <= options.port <= 65535:
        return "--port: a number from 0 to 65535"
    if options.webhook and not _is_address(options.webhook):
        return "--webhook: an address such as http://127.0.0.1:5000/callback"
    if options.liff and not _is_app(options.liff):
        return "--liff: such as 1234567890-abcdefgh=http://127.0.0.1:5000/page"
    return None


def _is_app(text: str) -> bool:
    liff_id, _, page = text.partition("=")
    return re.fullmatch(r"[0-9]+-[0-9A-Za-z]+", liff_id) is not None and _is_address(page)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or too high
        return False


def _in_words(error: Exception, options: argparse.Namespace) -> str:
    if isinstance(error, OSError) and error.errno == EADDRINUSE:
        return f"port {options.port} is in use; --port takes another one, 0 a free one"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code. Wrong options: SystemExit, as from argparse."""
    parser = _parser()
    options = _parse(parser, sys.argv[1:] if arguments is None else arguments)
    if problem := _problem(options):
        parser.error(problem)
    try:
        return asyncio.run(_run(options))
    except KeyboardInterrupt:
        return 0
    except (OSError, ValueError) as error:
        print(f"local-line: {_in_words(error, options)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
