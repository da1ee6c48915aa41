"""What to install, where the library of an integration is missing."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def needs(extra: str) -> Generator[None, None, None]:
    """Import the library of an *extra* in the block. ModuleNotFoundError: what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        said = f'{error.name} is not installed: pip install "dibs[{extra}]"'
        raise ModuleNotFoundError(said, name=error.name) from error
