"""The settings of the orders service, from the environment."""

import hashlib
import logging
import uuid
from pathlib import Path
from typing import Literal, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

from starlette.config import Config

from apps.databases import Timeouts

Refusals = Literal["problem", "result"]
_SHORTEST_SECRET = 16
_MACHINE_ID = Path("/etc/machine-id")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_log = logging.getLogger(__name__)


class Settings(NamedTuple):
    """The addresses of the other services, their timeouts, and the form of refusals."""

    redis_url: str = "redis://127.0.0.1:6379"
    database_url: str = "sqlite:///orders.db"
    secret: str = ""
    """Keys the hashes under which submissions are in Redis; the same in all processes."""
    refusals: Refusals = "problem"
    """`problem`: RFC 9457 problem+json. `result`: the seed's `Result` envelope."""
    timeouts: Timeouts = Timeouts()

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment, then `.env`; an empty setting counts as missing.

        ValueError: which setting cannot be used.
        """
        config = Config(".env" if Path(".env").is_file() else None)
        default = cls()
        return cls(
            config("REDIS_URL", default="") or default.redis_url,
            config("DATABASE_URL", default="") or default.database_url,
            config("ORDERS_SECRET", default=""),
            _refusals(config("ORDERS_REFUSALS", default="") or default.refusals),
            Timeouts.read(lambda name: config(name, default="")),
        )

    @property
    def is_local(self) -> bool:
        """Redis and the database are on this machine, as on a developer's."""
        return _is_here(self.redis_url) and _is_here(self.database_url)

    def usable_secret(self) -> str:
        """The secret; on one machine, without one, a secret from the machine's id.

        ValueError: it is missing or too short.
        """
        if self.secret and len(self.secret) < _SHORTEST_SECRET:
            raise ValueError(f"ORDERS_SECRET must have {_SHORTEST_SECRET} characters or more.")
        if self.secret:
            return self.secret
        if not self.is_local:
            raise ValueError(
                "ORDERS_SECRET must be set: without it, whoever reads the keys in Redis can try"
                " who ordered what. The same text in all processes, such as"
                " `python -c 'import secrets; print(secrets.token_hex())'` prints."
            )
        _log.warning("ORDERS_SECRET is not set: one is made from this machine's id")
        return _secret_of_this_machine()


def _secret_of_this_machine() -> str:
    """The same in all processes of this machine, and not to be guessed from elsewhere."""
    known = _MACHINE_ID.read_text() if _MACHINE_ID.is_file() else ""
    return hashlib.sha256(f"orders {known.strip() or uuid.getnode()}".encode()).hexdigest()


def _is_here(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme in ("embedded", "unix", "sqlite"):
        return True
    hosts = parse_qs(parts.query).get("host") or [parts.hostname or ""]
    many = "," in parts.netloc  # Sentinel and clusters: several hosts
    return not many and all(host in _LOOPBACK or host.startswith("/") for host in hosts)


def _refusals(text: str) -> Refusals:
    if text not in ("problem", "result"):
        raise ValueError('ORDERS_REFUSALS must be "problem" or "result".')
    return cast(Refusals, text)
