"""What the environment, or `.env`, tells the bot. Checked once, at the start."""

from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from dibs import AsyncDibs, UsageError

from .database import checked_url

S = TypeVar("S", bound="StoreSettings")
LONGEST_LOCK = 60.0
"""No forecast takes longer: an unneeded lock must not keep a person out."""


class SettingsError(ValueError):
    """Settings that cannot be used: `mistakes` has one line for each, without any value."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__(mistakes)
        self.mistakes = mistakes

    def __str__(self) -> str:
        return "\n".join(self.mistakes)


# ---- kinds of values


def _secret(text: object) -> object:
    """Without the spaces and line ends that come along when it is copied."""
    text = text.get_secret_value() if isinstance(text, SecretStr) else text
    return text.strip() if isinstance(text, str) else text


def _header_safe(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text:
        raise ValueError("is empty")
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise ValueError("has characters that LINE never gives out; copy it again")
    return secret


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must begin with http:// or https://, and name a host")
    return url.rstrip("/")


def _redis_url(url: str) -> str:
    try:
        AsyncDibs(url)  # reads the URL; does not connect
    except UsageError as error:
        raise ValueError(str(error)) from None
    return url


def _upper(text: object) -> object:
    return text.strip().upper() if isinstance(text, str) else text


LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
Secret = Annotated[SecretStr, BeforeValidator(_secret), AfterValidator(_header_safe)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]


# ---- the settings


class StoreSettings(BaseSettings):
    """Where the lock is: all that `processing_lock_service` needs to know."""

    model_config = SettingsConfigDict(
        env_file=".env", env_ignore_empty=True, extra="ignore", populate_by_name=True
    )

    redis_url: Annotated[str, AfterValidator(_redis_url)] = "redis://localhost:6379/0"
    """Every target of dibs."""


class Settings(StoreSettings):
    """All settings of the bot; the names in the environment are these in capitals."""

    line_channel_secret: Secret
    line_channel_access_token: Secret
    line_api_base: HttpUrl = "https://api.line.me"
    database_url: Annotated[str, AfterValidator(checked_url)] = "sqlite:///weamind.db"

    weather_provider: Literal["open-meteo", "cwa", "sample"] = "open-meteo"
    cwa_api_key: Secret | None = None
    sample_delay_seconds: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 0.0
    """Makes the sample provider slow, to see the lock work."""

    processing_lock_enabled: bool = True
    processing_lock_timeout_seconds: Annotated[
        float, Field(gt=0, le=LONGEST_LOCK, allow_inf_nan=False)
    ] = Field(
        default=5.0,
        validation_alias=AliasChoices("PROCESSING_LOCK_TIMEOUT_SECONDS", "PROCESSING_LOCK_TIMEOUT"),
    )
    processing_lock_min_seconds: Annotated[
        float, Field(ge=0, le=LONGEST_LOCK, allow_inf_nan=False)
    ] = 1.0
    """How long a lock stays after it was taken, also after a quick answer: the next of five taps
    finds it. 0: it goes with the answer, as in the seeds. Never longer than the time-out."""
    processing_lock_scope: Literal["selective", "all"] = "selective"
    """selective: taps of home, office and recent queries. all: also texts, locations, any tap."""
    processing_lock_busy_reply: Literal["every", "first"] = "every"
    """Which refused taps get the sentence that asks to wait."""

    push_fallback: bool = False
    """Push what could not be replied because the token had expired. It counts against the quota."""
    liff_id: Annotated[str, Field(pattern=r"^[0-9]+-[0-9A-Za-z]+$")] | None = None
    """The settings as a page within LINE, at /liff/settings; none without it."""
    line_login_channel_id: Annotated[str, Field(pattern=r"^[0-9]+$")] | None = None
    """The channel that the LIFF app belongs to: only tokens that were made for it are good."""

    liff_sdk_url: Annotated[HttpUrl, Field(pattern=r"/liff/edge/2/sdk\.js$")] = (
        "https://static.line-scdn.net/liff/edge/2/sdk.js"
    )
    """The script of that page: LINE's own, or local-line's, to try the page on one machine."""

    event_concurrency: Annotated[int, Field(ge=1, le=1000)] = 32
    """How many events are worked on at once in this process."""
    event_queue_limit: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """How many events may wait or be worked on; webhooks beyond it get 503."""
    shutdown_seconds: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)] = 15.0
    """How long the events under way may take when the process is stopped."""
    log_level: LogLevel = "INFO"
    """How much the bot says. DEBUG: also when a lock is acquired, missed and released."""

    @model_validator(mode="after")
    def _cwa_needs_a_key(self) -> "Settings":
        if self.weather_provider == "cwa" and self.cwa_api_key is None:
            raise ValueError("CWA_API_KEY: is needed for WEATHER_PROVIDER=cwa")
        return self

    @model_validator(mode="after")
    def _liff_needs_a_channel(self) -> "Settings":
        if self.liff_id is not None and self.line_login_channel_id is None:
            raise ValueError("LINE_LOGIN_CHANNEL_ID: is needed for LIFF_ID")
        if self.line_login_channel_id is not None and self.liff_id is None:
            raise ValueError("LIFF_ID: is needed for LINE_LOGIN_CHANNEL_ID")
        return self


def read_settings() -> Settings:
    """The environment first, then `.env`. SettingsError: what cannot be used, line by line."""
    return _read(Settings)


def read_store_settings() -> StoreSettings:
    """The same, for those who need no more than the lock."""
    return _read(StoreSettings)


def _read(kind: type[S]) -> S:
    try:
        return kind()
    except ValidationError as error:
        raise SettingsError(_mistakes(error)) from None


def _mistakes(error: ValidationError) -> list[str]:
    """One line each: the name and what is wrong with it, never what it was."""
    lines: list[str] = []
    for each in error.errors(include_input=False, include_url=False, include_context=False):
        what = each["msg"].removeprefix("Value error, ")
        name = str(each["loc"][0]).upper() if each["loc"] else ""
        what = "is missing" if each["type"] == "missing" else what
        lines.append(f"{name}: {what}" if name else what)
    return lines
