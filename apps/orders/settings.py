"""What the environment may tell the orders service."""

from pathlib import Path
from typing import NamedTuple

from starlette.config import Config


class Settings(NamedTuple):
    """Where the others are."""

    redis_url: str = "redis://127.0.0.1:6379"
    database_url: str = "sqlite:///orders.db"

    @classmethod
    def from_environment(cls) -> "Settings":
        """The environment first, then `.env`; what is empty is as if it were not there."""
        config = Config(".env" if Path(".env").is_file() else None)
        default = cls()
        return cls(
            config("REDIS_URL", default="") or default.redis_url,
            config("DATABASE_URL", default="") or default.database_url,
        )
