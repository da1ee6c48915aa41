"""The weather: one forecast, asked for as the bot asks."""

from ...places import atlas
from ...weather.forecast import Forecast
from ...weather.provider import Provider, Reason, WeatherUnavailable
from ..findings import Finding, failed, ok

WEATHER = "weather"
REACH = (
    "Let this machine reach the weather provider over HTTPS, or choose another WEATHER_PROVIDER."
)
_FIXES = {
    Reason.BAD_KEY: "Set CWA_API_KEY to the key that the Central Weather Administration gave you.",
    Reason.RATE_LIMITED: "Wait: the provider has been asked too often today or within this hour.",
    Reason.TIMEOUT: REACH,
    Reason.UNREACHABLE: REACH,
}
_CHOOSE = "Wait until the provider has fixed it, or choose another WEATHER_PROVIDER."
_PLACE = "63000"
"""Taipei."""


async def check(provider: Provider) -> Finding:
    """There is a forecast."""
    place = atlas.by_code(_PLACE)
    if place is None:
        raise LookupError(f"there is no place {_PLACE} on the map")
    try:
        return judge(await provider.fetch(place))
    except WeatherUnavailable as error:
        return failed(WEATHER, str(error), _FIXES.get(error.reason, _CHOOSE))


def judge(forecast: Forecast) -> Finding:
    """Where it comes from; a made-up one is what the settings ask for."""
    made_up = ", which is made up" if forecast.sample else ""
    return ok(WEATHER, f"a forecast for {forecast.place_name} from {forecast.provider}{made_up}")
