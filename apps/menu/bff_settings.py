"""The settings of the BFF, from the environment."""

import math
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.config import Config


class Settings(NamedTuple):
    """The addresses of the other services, and how old a menu may be when there is no newer one."""

    redis_url: str = "redis://127.0.0.1:6379"
    store_service_url: str = "http://127.0.0.1:8001"
    stale: float = 600.0
    """Seconds past its ttl that a menu may be served."""
    admin_token: str = ""
    """The token that admin calls must send; empty: none, if the network keeps others out."""

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment, then `.env`. ValueError: which setting cannot be used."""
        config = Config(".env" if Path(".env").is_file() else None)
        default = cls()
        return cls(
            config("REDIS_URL", default="") or default.redis_url,
            _http_url(config("STORE_SERVICE_URL", default="") or default.store_service_url),
            _seconds(config("MENU_STALE_SECONDS", default="") or default.stale),
            config("MENU_ADMIN_TOKEN", default=""),
        )


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("STORE_SERVICE_URL must begin with http:// or https://, and name a host.")
    return url


def _seconds(text: str | float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError("MENU_STALE_SECONDS must be a number of seconds, 0 or more.")
    return value
