"""`python manage.py alone migrate`: run a command while no other process runs it.

Options for `alone` go before the name of the command: `alone --wait 60 migrate --noinput`.
"""

# pyright: basic
# Django has no types.

import argparse
import sys
from typing import Any

from django.core.management import ManagementUtility
from django.core.management.base import BaseCommand, CommandError

from ...alone import Alone, key_of, taking_turns


class Command(BaseCommand):
    """Runs another command alone."""

    help = (
        "Runs COMMAND while no other process runs it; the others wait, and run it afterwards. "
        "Exit codes: those of COMMAND; 69: Redis is unavailable, nothing was run; 70: the lease "
        "was lost, COMMAND was stopped; 75: another process is running COMMAND, nothing was run."
    )
    requires_system_checks: Any = ()  # COMMAND makes those that it needs
    alone_grace = Alone.alone_grace

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options of `alone`; everything from the name of the command on belongs to that."""
        add = parser.add_argument
        add("--wait", type=float, default=300, metavar="SECONDS", help="how long to wait for the "
            "one that runs (default: 300)")  # fmt: skip
        add("--skip", action="store_true", help="exit with 0 if it still runs elsewhere then")
        add("--key", help="what is held (default: alone:<service>:<COMMAND>)")
        add("--ttl", type=float, default=60, metavar="SECONDS", help="how long a crash keeps the "
            "others waiting (default: 60)")  # fmt: skip
        add("--on-outage", choices=["closed", "open"], default="closed", help="open: run it "
            "unguarded while Redis is unavailable")  # fmt: skip
        add("command", metavar="COMMAND", help="the command, with its own arguments behind it")
        add("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command in its turn."""
        name = options["command"]
        argv = [sys.argv[0], name, *options["arguments"]]
        command = ManagementUtility(argv).fetch_command(name)
        if isinstance(command, Alone):
            raise CommandError(f"{name} runs alone by itself: call it without `alone`")
        self.alone_wait, self.alone_skip = options["wait"], options["skip"]
        self.alone_ttl, self.alone_on_outage = options["ttl"], options["on_outage"]
        with taking_turns(self, options["key"] or key_of(name), name) as is_granted:
            if is_granted:
                command.run_from_argv(argv)
