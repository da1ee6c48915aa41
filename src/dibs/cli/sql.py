"""dibs sql: the statements for the table of `within=`, to be executed by a migration or a job."""

import argparse

from .._interface import DIALECTS, ddl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is printed, and for which database."""
    parser.add_argument(
        "statement", choices=("create", "prune"),
        help="create: the table dibs_done; prune: remove 500 rows whose window is over",
    )  # fmt: skip
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="postgresql")


def run(args: argparse.Namespace) -> int:
    """Print the statements."""
    dialect = DIALECTS[args.dialect]
    print(ddl(dialect) if args.statement == "create" else f"{dialect.prune};\n", end="")
    return 0
