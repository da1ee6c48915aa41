"""The account at LINE: the token, the webhook, and what may still be pushed."""

from typing import Any
from urllib.parse import urlsplit

from ...richmenu.channel import Channel, Quota, Refused, Unreachable, Webhook
from ..findings import Finding, degraded, failed, ok

TOKEN, WEBHOOK, DELIVERY, QUOTA = "LINE token", "webhook", "webhook test", "quota"
PATH = "/line/webhook"

REACH_LINE = "Let this machine reach LINE_API_BASE over HTTPS; without that setting, api.line.me."
_ISSUE = (
    "Issue a long-lived channel access token in LINE's console, tab Messaging API, "
    "and set LINE_CHANNEL_ACCESS_TOKEN to it."
)
_SET_URL = f"Set the webhook URL in LINE's console to https://<your host>{PATH}."
_SWITCH_ON = "Switch on “Use webhook” in LINE's console, tab Messaging API."
_LATER = "LINE allows 60 tests an hour: run it again later."
_FIXES = {
    "COULD_NOT_CONNECT": "Start the bot, and let the internet reach it at the webhook URL, with a "
    "certificate that browsers trust.",
    "REQUEST_TIMEOUT": "See why the bot or what stands before it takes more than 2 s: GET /health.",
}
_STATUS_FIXES = {
    400: "Copy the channel secret from LINE's console, tab Basic settings, to LINE_CHANNEL_SECRET, "
    "and start the bot again.",
    404: _SET_URL,
    405: _SET_URL,
    503: "The bot's queue is full: see its log, and raise EVENT_QUEUE_LIMIT if it is busy.",
}
_LOOK_BEFORE = "Look into the log of what stands before the bot: it does not pass LINE's calls on."


async def check_token(channel: Channel) -> Finding:
    """LINE knows us by the token."""
    try:
        return judge_info(await channel.info())
    except Refused as error:
        if error.status in (401, 403):
            return failed(TOKEN, str(error), _ISSUE)
        raise
    except Unreachable as error:
        return failed(TOKEN, str(error), REACH_LINE)


def judge_info(info: dict[str, Any]) -> Finding:
    """Whose token it is."""
    name, basic_id = info.get("displayName", "?"), info.get("basicId", "?")
    return ok(TOKEN, f"LINE knows the bot as {name} ({basic_id})")


async def check_webhook(channel: Channel) -> Finding:
    """LINE knows where the bot is, and sends events there."""
    return judge_webhook(await channel.webhook())


def judge_webhook(webhook: Webhook | None) -> Finding:
    """Whether LINE sends events to where the bot expects them."""
    if webhook is None or not webhook.url:
        return failed(WEBHOOK, "LINE has no URL", _SET_URL)
    parts = urlsplit(webhook.url)
    if not parts.path.endswith(PATH):
        return failed(WEBHOOK, f"the URL that LINE has does not end with {PATH}", _SET_URL)
    if not webhook.is_active:
        return failed(WEBHOOK, "LINE has a URL and does not use it", _SWITCH_ON)
    return ok(WEBHOOK, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


async def check_delivery(channel: Channel) -> Finding:
    """LINE calls the bot, and the bot believes that it is LINE."""
    try:
        return judge_delivery(await channel.test_webhook())
    except Refused as error:
        if error.status == 429:
            return degraded(DELIVERY, str(error), _LATER)
        raise


def judge_delivery(result: dict[str, Any]) -> Finding:
    """What came of LINE's call."""
    if result.get("success"):
        return ok(DELIVERY, "LINE called the bot, and the bot answered")
    reason, status = str(result.get("reason", "UNCLASSIFIED")), result.get("statusCode", 0)
    fix = _FIXES.get(reason) or _STATUS_FIXES.get(status, _LOOK_BEFORE)
    detail = f"{reason}, status {status}" if status else reason
    return failed(DELIVERY, f"LINE called the bot in vain: {detail}", fix)


async def check_quota(channel: Channel, pushes: bool) -> Finding:  # noqa: FBT001 – a fact
    """How much may still be pushed."""
    return judge_quota(await channel.quota(), pushes=pushes)


def judge_quota(quota: Quota, *, pushes: bool) -> Finding:
    """A quota that is used up matters only to who pushes."""
    if quota.limit is None:
        return ok(QUOTA, f"{quota.used} messages pushed this month, without a limit")
    detail = f"{quota.used} of {quota.limit} messages pushed this month; replies cost nothing"
    if pushes and quota.used >= quota.limit:
        return degraded(QUOTA, detail, "Choose a bigger plan at LINE, or set PUSH_FALLBACK=false.")
    return ok(QUOTA, detail)
