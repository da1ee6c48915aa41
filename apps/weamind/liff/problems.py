"""What went wrong, as RFC 9457 problem+json."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse, Response


class Refusal(Exception):
    """A request that is not served: the status, and what is wrong in one sentence."""

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return self.detail


def problem(refusal: Refusal) -> Response:
    """The response for a refusal; it is not cacheable."""
    title = HTTPStatus(refusal.status).phrase
    body = {"type": "about:blank", "title": title, "status": refusal.status}
    return JSONResponse(
        {**body, "detail": refusal.detail},
        refusal.status,
        {"Cache-Control": "no-store", **refusal.headers},
        media_type="application/problem+json",
    )
