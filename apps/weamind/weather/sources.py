"""Chooses the provider by its name in the settings."""

from . import cwa, open_meteo, sample
from .download import DEADLINE
from .provider import Provider

NAMES = (open_meteo.NAME, cwa.NAME, sample.NAME)


def open_provider(
    name: str = open_meteo.NAME,
    *,
    cwa_key: str = "",
    cwa_strict_tls: bool = False,
    sample_delay: float = 0.0,
    deadline: float = DEADLINE,
    base_url: str | None = None,
) -> Provider:
    """The provider of that name. ValueError: there is none, or what it needs is missing.

    Nothing connects before the first forecast. *base_url* is for those who run their own copy.
    """
    if name == open_meteo.NAME:
        return open_meteo.OpenMeteo(
            base_url=base_url or open_meteo.BASE_URL,
            air_url=None if base_url else open_meteo.AIR_URL,
            deadline=deadline,
        )
    if name == cwa.NAME:
        return cwa.Cwa(
            cwa_key,
            base_url=base_url or cwa.BASE_URL,
            deadline=deadline,
            strict_tls=cwa_strict_tls,
        )
    if name == sample.NAME:
        return sample.Sample(delay=sample_delay)
    raise ValueError(f"a weather provider is one of {', '.join(NAMES)}, not {name!r}")
