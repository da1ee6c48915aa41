"""Integrations: one module for each framework or service, named after it."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def needs(extra: str) -> Generator[None, None, None]:
    """Import the library of an *extra* in the block.

    Raises ModuleNotFoundError if what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        text = f'{error.name} is not installed: pip install "pydibs[{extra}]"'
        raise ModuleNotFoundError(text, name=error.name) from error
