"""How often a route of the API may be called, by LINE's reference."""

from collections import deque

_HOUR, _MINUTE, _SECOND = 3600.0, 60.0, 1.0
USUAL = (2000, _SECOND)
"""The limit of every route that is not named below: calls and seconds."""

_AUDIENCE = "/v2/bot/audienceGroup"
_MENU = "/v2/bot/richmenu"
_INSIGHT = "/v2/bot/insight"
LIMITS: dict[tuple[str, str], tuple[int, float]] = {
    ("POST", "/v2/bot/message/narrowcast"): (60, _HOUR),
    ("POST", "/v2/bot/message/broadcast"): (60, _HOUR),
    ("GET", f"{_INSIGHT}/message/delivery"): (60, _HOUR),
    ("GET", f"{_INSIGHT}/followers"): (60, _HOUR),
    ("GET", f"{_INSIGHT}/demographic"): (60, _HOUR),
    ("GET", f"{_INSIGHT}/message/event"): (60, _HOUR),
    ("GET", f"{_INSIGHT}/message/event/aggregation"): (60, _HOUR),
    ("GET", f"{_INSIGHT}/richmenu/{{richMenuId}}/summary"): (60, _HOUR),
    ("GET", f"{_INSIGHT}/richmenu/{{richMenuId}}/daily"): (60, _HOUR),
    ("POST", "/v2/bot/channel/webhook/test"): (60, _HOUR),
    ("PUT", "/v2/bot/channel/webhook/endpoint"): (1000, _MINUTE),
    ("GET", "/v2/bot/channel/webhook/endpoint"): (1000, _MINUTE),
    ("POST", _MENU): (100, _HOUR),
    ("DELETE", f"{_MENU}/{{richMenuId}}"): (100, _HOUR),
    ("DELETE", f"{_MENU}/alias/{{aliasId}}"): (100, _HOUR),
    ("GET", f"{_MENU}/progress/batch"): (100, _HOUR),
    ("POST", f"{_MENU}/batch"): (3, _HOUR),
    ("GET", f"{_MENU}/list"): (10, _SECOND),
    ("POST", "/v2/bot/message/multicast"): (200, _SECOND),
    ("GET", "/v2/bot/membership/subscription/{userId}"): (200, _SECOND),
    ("GET", "/v2/bot/membership/list"): (200, _SECOND),
    ("POST", "/v2/bot/coupon"): (200, _SECOND),
    ("GET", "/v2/bot/coupon"): (200, _SECOND),
    ("GET", "/v2/bot/coupon/{couponId}"): (200, _SECOND),
    ("PUT", "/v2/bot/coupon/{couponId}/close"): (200, _SECOND),
    ("POST", "/v2/bot/chat/loading/start"): (100, _SECOND),
    ("POST", "/oauth2/v3/token"): (370, _SECOND),
    **{
        (method, f"{_AUDIENCE}{path}"): (60, _MINUTE)
        for method, path in (
            ("POST", "/upload"), ("PUT", "/upload"), ("POST", "/upload/byFile"),
            ("PUT", "/upload/byFile"), ("POST", "/click"), ("POST", "/imp"), ("GET", "/list"),
            ("PUT", "/{audienceGroupId}/updateDescription"), ("DELETE", "/{audienceGroupId}"),
            ("GET", "/{audienceGroupId}"), ("GET", "/shared/{audienceGroupId}"),
            ("GET", "/shared/list"),
        )
    },
}  # fmt: skip


class Rates:
    """The recent calls, by method and route, as LINE counts them."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._calls: dict[tuple[str, str], deque[float]] = {}

    def admit(self, method: str, route: str, now: float) -> bool:
        """True: the call is within the limit, and is counted.

        False: it is refused, and not counted.
        """
        if not self._enabled:
            return True
        most, window = LIMITS.get((method, route), USUAL)
        calls = self._calls.setdefault((method, route), deque())
        while calls and calls[0] <= now - window:
            calls.popleft()
        if len(calls) >= most:
            return False
        calls.append(now)
        return True
