"""The command `dibs`: shows what a server holds, frees a key, drops a cached value.

What is shown is decided in `_wording.py`, `table.py` and `changes.py`, which ask nobody and print
nothing. docs/command-line.md documents options, exit codes and the fields of `--json`.
"""

from .program import main

__all__ = ["main"]
