"""One place of Taiwan: a township, or a whole county."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A township (`town` is its name) or a county (`town` is None), spelt with 臺.

    `code` is the government's: 8 digits for a township, 5 for a county. The coordinates are those
    of a point inside.
    """

    code: str
    county: str
    town: str | None
    latitude: float
    longitude: float

    @property
    def name(self) -> str:
        """As people write it: 臺北市信義區, or 臺北市."""
        return f"{self.county}{self.town or ''}"
