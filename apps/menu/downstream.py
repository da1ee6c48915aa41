"""The store-service as the BFF sees it: over HTTP, with deadlines, and not to be trusted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2 as httpx

SUCCESS = "00000"
NO_MENU = {"40401": "There is no such branch.", "40402": "The branch serves nothing now."}
"""The codes that mean that there is no menu to show.

Every other code is an error of the service.
"""
LONGEST = 5.0
"""Seconds that each read of a call may take; the cache's load_timeout limits all of them."""
_CONNECT = 1.0
_IDLE = 2.0
"""Servers close idle connections after some seconds; ours is closed first, so that none is used
that is just being closed."""
_FIELDS: dict[str, type] = {
    "menuVersionId": str,
    "versionNo": int,
    "bizDate": str,
    "timeWindow": dict,
    "versionHash": str,
    "categories": list,
    "items": list,
}


@dataclass(frozen=True, slots=True)
class ActiveMenu:
    """The seed's FindMenuActiveRs. Its names are those of the JSON, and of the value in Redis."""

    menuVersionId: str  # noqa: N815
    versionNo: int  # noqa: N815
    bizDate: str  # noqa: N815
    timeWindow: dict[str, Any]  # noqa: N815
    versionHash: str  # noqa: N815
    categories: list[dict[str, Any]]
    items: list[dict[str, Any]]

    def printed(self) -> dict[str, Any]:
        """The JSON for guests."""
        # Not dataclasses.asdict: it copies every dish for every guest.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def ends_at(self) -> datetime | None:
        """When its time window ends. None: the store-service does not say so, or not clearly."""
        try:
            at = datetime.fromisoformat(self.timeWindow["endsAt"])
        except (KeyError, TypeError, ValueError):
            return None
        return at if at.tzinfo is not None else None


class Refused(Exception):
    """The store-service answered with a code other than 00000."""

    def __init__(self, code: str, msg: str) -> None:
        super().__init__(code, msg)
        self.code = code
        self.msg = msg

    def __str__(self) -> str:
        return f"the store-service answered {self.code}"


class NoMenu(Refused):
    """It has no menu for this branch: there is no such branch, or it serves nothing now."""

    @property
    def reason(self) -> str:
        """The message for the guest."""
        return NO_MENU[self.code]


class Unreachable(Exception):
    """The store-service did not answer, not in time, or not in its own format."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"no answer from the store-service: {self.cause}"


class Published(NamedTuple):
    """The store-service's answer to a publication."""

    status: int
    body: bytes
    media_type: str

    @property
    def is_done(self) -> bool:
        """True: there is a new version."""
        return 200 <= self.status < 300


class StoreClient:
    """One long-lived connection pool to the store-service."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(LONGEST, connect=_CONNECT),
            limits=httpx.Limits(keepalive_expiry=_IDLE),
            trust_env=False,  # a proxy for other networks is not for a service beside this one
        )

    async def resolve_active(self, branch_id: str) -> ActiveMenu:
        """The branch's menu. NoMenu: there is none. Refused, Unreachable: it is unknown.

        All guests of the branch share the answer, so the request contains nothing of one guest's,
        not even the table.
        """
        answer = await self._ask("POST", "/resolveActive", json={"branchId": branch_id})
        return converted(_data(answer))

    async def publish(self, branch_id: str, edition: bytes) -> Published:
        """Publish a new version. Unreachable: it may be published, or not."""
        path = f"/branches/{quote(branch_id, safe='')}/menus"
        answer = await self._ask("POST", path, content=edition)
        media_type = answer.headers.get("Content-Type", "application/json")
        return Published(answer.status_code, answer.content, media_type)

    async def check(self) -> None:
        """Return if the service is healthy. Unreachable: it is not."""
        answer = await self._ask("GET", "/health")
        if answer.status_code != 200:
            raise Unreachable(f"HTTP {answer.status_code}")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _ask(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise Unreachable(type(error).__name__) from error
        if answer.status_code >= 500:
            raise Unreachable(f"HTTP {answer.status_code}")
        return answer


def converted(data: Mapping[str, Any]) -> ActiveMenu:
    """The seed's convertToResult: seven fields; all others are ignored.

    Unreachable: one is missing, or cannot be sent to a guest as JSON.
    """
    for name, kind in _FIELDS.items():
        value = data.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Unreachable(f"its answer has no {name}")
    for name in ("categories", "items"):
        if not all(isinstance(each, dict) for each in data[name]):
            raise Unreachable(f"its answer has {name} that are no objects")
    menu = ActiveMenu(**{name: data[name] for name in _FIELDS})
    _check_sendable(menu)
    return menu


def _check_sendable(menu: ActiveMenu) -> None:
    """Unreachable: only Python reads it as JSON: NaN, 1e999, half a surrogate pair."""
    try:
        json.dumps(menu.printed(), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise Unreachable("its answer cannot be sent as JSON") from None


def _data(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        raise Unreachable("its answer is not JSON") from None
    code = body.get("responseCode") if isinstance(body, dict) else None
    if not isinstance(code, str):
        raise Unreachable(f"HTTP {answer.status_code} without a responseCode")
    if code != SUCCESS:
        raise (NoMenu if code in NO_MENU else Refused)(code, str(body.get("msg") or ""))
    return body["data"] if isinstance(body.get("data"), dict) else {}
