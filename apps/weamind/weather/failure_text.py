"""What the bot says when there is no forecast: what they can do, and no internals."""

from .provider import Reason, WeatherUnavailable

_SORRY = {
    Reason.TIMEOUT: "氣象資料來源回應太慢，請稍後再試一次。",
    Reason.UNREACHABLE: "目前連不上氣象資料來源，請稍後再試。",
    Reason.STATUS: "氣象資料來源暫時無法提供資料，請稍後再試。",
    Reason.RATE_LIMITED: "現在查詢的人太多了，請{when}再試。",
    Reason.UNREADABLE: "收到的氣象資料不完整，請稍後再試。",
    Reason.NO_DATA: "目前沒有這個地點的氣象資料，請試試附近的鄉鎮市區。",
    Reason.BAD_KEY: "天氣查詢服務暫停中，我們會盡快修復。",
    Reason.RESTING: "氣象資料來源暫時無法提供資料，請稍後再試。",
}


def failure_text(error: WeatherUnavailable) -> str:
    """A sentence or two in Traditional Chinese, for the person who asked."""
    return f"😥 抱歉，{_SORRY[error.reason].format(when=_when(error.retry_after))}"


def _when(seconds: float | None) -> str:
    if seconds is None or seconds < 60:
        return "過一分鐘"
    minutes = round(seconds / 60)
    return f"過 {minutes} 分鐘" if minutes < 60 else "過一小時"
