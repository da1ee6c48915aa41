"""One place of Taiwan: a township, a whole county, or a landmark."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A township (`town` is its name), a county (`town` is None), or a landmark in a township.

    Names are spelt with 臺. `code` is the government's, 8 digits for a township and 5 for a county,
    or our own for a landmark. The coordinates are those of a point inside.
    """

    code: str
    county: str
    town: str | None
    latitude: float
    longitude: float
    landmark: str | None = None
    """The name of the landmark; None: the place is the township or county itself."""
    elevation: int | None = None
    """Metres above the sea, where a forecast should know them."""
    town_code: str = ""
    """Of a landmark: the code of its township. Empty: no township's forecast is true there."""

    @property
    def name(self) -> str:
        """As people write it: 臺北市信義區, 臺北市, or 九份."""
        return self.landmark or self.area

    @property
    def area(self) -> str:
        """The township or county that it is, or that it lies in: 新北市瑞芳區."""
        return f"{self.county}{self.town or ''}"

    @property
    def area_code(self) -> str:
        """The government's code of that area; empty, if no area's forecast is true here."""
        return self.town_code if self.landmark else self.code

    @property
    def is_off_the_map(self) -> bool:
        """True: an islet far from the township that administers it."""
        return not self.area_code
