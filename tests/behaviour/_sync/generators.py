# Generated from tests/behaviour/_async/generators.py by unasync.py – do not edit.
"""What the tests of `streamed` run."""

from collections.abc import Iterator, Callable

from dibs import Interrupted

from .._threads import Background, eventually, sleep


class Failed(Exception):
    """What a generator of these tests raises."""


class Model:
    """A generator that counts its runs, and yields so many items as it is allowed to."""

    def __init__(self, *items: str) -> None:
        self.items = list(items)
        self.runs = 0
        self.allowed = len(items)
        self.error: Exception | None = None

    def run(self, prompt: str) -> Iterator[str]:
        """The items, or as many as are there before the error."""
        self.runs += 1
        for number, item in enumerate(self.items):
            while number >= self.allowed and self.error is None:
                sleep(0.01)
            if self.error is not None:
                raise self.error
            yield item


class Reader:
    """Reads a stream to its end, and keeps what it got."""

    def __init__(self, stream: Iterator[str]) -> None:
        self.stream = stream
        self.items: list[str] = []
        self.told: list[int] = []
        """How many items were received when another run began."""

    def read(self) -> list[str]:
        """All items."""
        for item in self.stream:
            if isinstance(item, Interrupted):
                self.told.append(item.items)
                self.items = []
            else:
                self.items.append(item)
        return self.items


def begun(
    here: Callable[[str], Iterator[str]],
    there: Callable[[str], Iterator[str]],
    items: int,
) -> tuple[list[Reader], list[Background]]:
    """Two who read one stream, where so many *items* have arrived: the run is the first one's."""
    readers = [Reader(here("a")), Reader(there("a"))]
    reading = [Background(readers[0].read)]
    eventually(lambda: len(readers[0].items) == items)
    reading.append(Background(readers[1].read))
    eventually(lambda: len(readers[1].items) == items)
    return readers, reading
