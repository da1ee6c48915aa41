"""Coupons: create, list, show and close.

POST, GET /v2/bot/coupon · GET /v2/bot/coupon/{couponId} · PUT /v2/bot/coupon/{couponId}/close
"""

import secrets
from typing import Any

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .findings import (
    Check,
    Finding,
    Findings,
    Path,
    anything,
    by_type,
    fields,
    number,
    one_of,
    text,
)
from .pages import page_of
from .platform import Platform
from .refusals import Detail, Refusal, not_found, wrong_body, wrong_parameter

Json = dict[str, Any]
_STATUSES = ("DRAFT", "RUNNING", "CLOSED")
_rewards: dict[str, Check] = {
    kind: fields({}, {"priceInfo": anything})
    for kind in ("cashBack", "discount", "free", "gift", "others")
}
_conditions: dict[str, Check] = {
    "normal": fields({}, {}),
    "lottery": fields({"lotteryProbability": number(1, 99), "maxAcquireCount": anything}, {}),
    "referral": fields({}, {}),
}
_moment = number(0, 2**63)
_coupon = fields(
    {
        "title": text(60),
        "acquisitionCondition": by_type(_conditions),
        "startTimestamp": _moment,
        "endTimestamp": _moment,
        "maxUseCountPerTicket": number(-1, 1),
        "visibility": one_of("UNLISTED", "PUBLIC"),
        "timezone": text(40),
    },
    {
        "reward": by_type(_rewards),
        "description": text(1000, least=0),
        "usageCondition": text(100, least=0),
        "couponCode": anything,
        "imageUrl": anything,
        "barcodeImageUrl": anything,
    },
)


def _in_order(body: Json) -> Findings:
    path: Path = ("endTimestamp",)
    if body["endTimestamp"] <= body["startTimestamp"]:
        yield Finding(path, "must be later than startTimestamp")


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    api = CouponApi(platform)
    return [
        ApiRoute("POST", "/v2/bot/coupon", api.create),
        ApiRoute("GET", "/v2/bot/coupon", api.list_all),
        ApiRoute("GET", "/v2/bot/coupon/{couponId}", api.get),
        ApiRoute("PUT", "/v2/bot/coupon/{couponId}/close", api.close),
    ]


class CouponApi:
    """The coupons of the bot."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._coupons = platform.coupons

    async def create(self, asked: Asked) -> Response:
        """Create a coupon, which is valid at once."""
        body = await asked.json()
        mistakes = list(_coupon(body, ())) or list(_in_order(body))
        if mistakes:
            raise wrong_body([Detail(each.dotted, each.message) for each in mistakes])
        coupon_id = secrets.token_hex(12)
        made = {"couponId": coupon_id, "status": "RUNNING"}
        made |= {"createdTimestamp": int(self._platform.clock()), "maxTicketPerUser": 1}
        self._coupons[coupon_id] = body | made
        return done({"couponId": coupon_id})

    async def list_all(self, asked: Asked) -> Response:
        """List all coupons, or those of a status."""
        wanted = asked.request.query_params.getlist("status")
        if not set(wanted) <= set(_STATUSES):
            raise wrong_parameter("status")
        found = [each for each in self._coupons.values() if not wanted or each["status"] in wanted]
        items, more = page_of(found, asked, most=100, usual=20)
        shown = [{"couponId": each["couponId"], "title": each["title"]} for each in items]
        return done({"items": shown} | more)

    async def get(self, asked: Asked) -> Response:
        """Return a coupon."""
        return done(self._find(asked))

    async def close(self, asked: Asked) -> Response:
        """Close a coupon. Refusal: 410, it is already closed."""
        coupon = self._find(asked)
        if coupon["status"] == "CLOSED":
            raise Refusal(410, "The coupon has already been closed")
        coupon["status"] = "CLOSED"
        return done()

    def _find(self, asked: Asked) -> Json:
        coupon = self._coupons.get(asked.part("couponId"))
        if coupon is None:
            raise not_found("coupon not found")
        return coupon
