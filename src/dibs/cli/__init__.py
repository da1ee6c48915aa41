"""The command `dibs`: shows what a server holds, frees a key, drops a cached value.

What is shown is decided in `_key_texts.py`, which does no I/O. Options, exit codes and the fields
of `--json`: docs/command-line.md.
"""

from .program import main

__all__ = ["main"]
