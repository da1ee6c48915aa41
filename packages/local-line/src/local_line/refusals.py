"""The refusals of LINE's API."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response


class Detail(NamedTuple):
    """One error, and where."""

    property: str
    message: str


class Refusal(Exception):
    """Refuses a call with this status and message."""

    def __init__(
        self,
        status: int,
        message: str,
        details: Iterable[Detail] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self._details = None if details is None else [detail._asdict() for detail in details]
        self._extra = extra or {}
        self._headers = headers

    def response(self) -> Response:
        """The answer as bytes: `{"message": …, "details": […]}`, as LINE writes it."""
        body: dict[str, Any] = {"message": self.message}
        if self._details is not None:
            body["details"] = self._details
        return JSONResponse(body | self._extra, self.status, self._headers)


def wrong_body(details: Sequence[Detail]) -> Refusal:
    """400, with the number of errors and each of them by its property."""
    return Refusal(400, f"The request body has {len(details)} error(s)", details)


def wrong_property(name: str) -> Refusal:
    """400, for a property that is not valid at all."""
    return Refusal(
        400, f"The property, '{name}', in the request body is invalid (line: -, column: -)"
    )


def wrong_parameter(name: str) -> Refusal:
    """400, for a path parameter."""
    return Refusal(400, f"The value for the '{name}' parameter is invalid")


def not_found(message: str = "Not found") -> Refusal:
    """404. For rich menus, with the reason and empty details."""
    return Refusal(404, message, None if message == "Not found" else ())
