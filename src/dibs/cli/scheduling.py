"""`dibs schedule`: when a cron expression fires next. Asks no server."""

import argparse
import time
from datetime import UTC

from .._interface import next_fires
from .terminal import default_terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to *parser*."""
    parser.add_argument("cron", help="five fields, or six with seconds first; or @daily …")
    parser.add_argument("--timezone", default="UTC", help="such as Asia/Taipei; default: UTC")
    parser.add_argument("--count", type=int, default=5, help="how many fires; default: 5")
    parser.add_argument("--json", action="store_true", help="print JSON, see the documentation")


def run(args: argparse.Namespace) -> int:
    """Print the next fires. UsageError: it is no cron expression, or there is no such zone."""
    terminal = default_terminal()
    fires = next_fires(args.cron, args.timezone, int(time.time() * 1000), min(args.count, 1000))
    if args.json:
        terminal.json({"fires": [fire.isoformat() for fire in fires]})
        return 0
    for fire in fires:
        in_utc = fire.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        terminal.line(f"{fire.strftime('%a')} {fire.isoformat(' ')}  {in_utc}")
    return 0
