"""What a bot's author should know about a webhook or a call that failed, in one line."""

from collections.abc import Sequence

from .journal import Call, Delivery


def trouble(row: Delivery | Call) -> str | None:
    """What is wrong. None: nothing, or the bot's author sees it in the answer."""
    return _of_webhook(row) if isinstance(row, Delivery) else _of_call(row)


def _of_webhook(row: Delivery) -> str | None:
    said = {
        "could_not_connect": f"no connection to {row.url}. Is the bot running?",
        "request_timeout": f"no answer from {row.url} within {row.took:.0f} s.",
        "error_status_code": f"{row.url} answered {row.status}. {_advice(row.status or 0)}",
        "unclassified": f"no HTTP answer from {row.url}. Did the bot crash?",
    }.get(row.reason)
    return said and f"webhook: {said}"


def _advice(status: int) -> str:
    if status in (400, 401, 403):
        return "Does the bot have the same channel secret?"
    if status in (404, 405):
        return "Is the path of --webhook right?"
    return "The bot's log says why."


def _of_call(row: Call) -> str | None:
    if not row.is_known:
        return f"call: {row.method} {row.route} is not served."
    if row.status == 401:
        return f"call: {row.method} {row.route}: 401. Does the bot have the same access token?"
    return None


def too_few(texts: Sequence[str], wanted: int, within: float, webhooks: Sequence[Delivery]) -> str:
    """The messages that a test got instead of more, and how the bot answered the webhook."""
    said = "no webhook was answered"
    if webhooks:
        last = webhooks[-1]
        said = f"the last webhook: {last.reason} {last.status or ''}".rstrip()
    return f"{len(texts)} of {wanted} messages within {within:g} s: {list(texts)}; {said}"
