"""How much the bot logs, and where: nothing of it names a person."""

import logging

OURS = ("apps", "dibs")
"""The loggers whose level is set. Not others: httpx2 would log the coordinates of each query."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(level: str) -> None:
    """Log lines of *level* and above to stderr, for a process of our own."""
    logging.basicConfig(format=FORMAT)
    set_level(level)


def log_if_nobody_does(level: str, *, is_chosen: bool) -> None:
    """The same within a server of others: where they log already, only a *chosen* level is set."""
    if not logging.getLogger().handlers:
        log_to_stderr(level)
    elif is_chosen:
        set_level(level)


def set_level(level: str) -> None:
    """Set the level of our loggers."""
    for name in OURS:
        logging.getLogger(name).setLevel(level)
