"""What went over the wire: webhooks to the bot and calls from it, for the pages that watch.

Every row has a number, given when it began: by it a page shows rows in that order.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count
from typing import Any

Json = dict[str, Any]
_KEPT = 2000
_BACKLOG = 200
"""How many messages a slow page may lag behind before it misses some."""


@dataclass(frozen=True)
class Delivery:
    """One webhook, and its result."""

    at: float
    events: tuple[Json, ...] = field(repr=False)
    status: int | None
    """None: there was no answer."""
    reason: str
    """`ok`, or as LINE calls it: `error_status_code`, `request_timeout`, `could_not_connect`."""
    took: float
    """Seconds until the answer, or until there was none."""
    is_redelivery: bool = False
    number: int = 0
    """The place among all rows: webhooks and calls are counted together, as they begin."""
    url: str = field(default="", repr=False)
    body: bytes = field(default=b"", repr=False)
    """The body that was sent, to the byte."""
    signature: str = field(default="", repr=False)

    @property
    def is_ok(self) -> bool:
        """True: the bot has answered 2xx in time, and has the events now."""
        return self.reason == "ok"

    @property
    def event_ids(self) -> list[str]:
        """The ids of its events."""
        return [event["webhookEventId"] for event in self.events]

    def json(self) -> Json:
        """The JSON for the page."""
        facts = {"at": self.at, "status": self.status, "reason": self.reason, "took": self.took}
        standby = any(event["mode"] == "standby" for event in self.events)
        facts |= {"events": [_name(event) for event in self.events], "ids": self.event_ids}
        facts |= {"number": self.number}
        return facts | {"isRedelivery": self.is_redelivery, "isStandby": standby}


def _name(event: Json) -> str:
    if event["type"] == "postback":
        return f"postback {event['postback']['data']}"
    return event.get("message", event)["type"]


@dataclass(frozen=True)
class Call:
    """One call of the bot to LINE's API, and its answer."""

    at: float
    method: str
    route: str
    status: int
    took: float
    request_id: str
    note: str = ""
    """The message of a refusal."""
    body: Any = field(default=None, repr=False)
    """The JSON that was sent, for tests."""
    number: int = 0
    """The place among all rows: webhooks and calls are counted together, as they begin."""
    path: str = field(default="", repr=False)
    """The path below the API's base URL, with its query."""
    headers: Json = field(default_factory=dict, repr=False)
    """The relevant request headers, without the access token."""
    sent: bytes = field(default=b"", repr=False)
    """The body; empty if it was too long."""
    is_cut: bool = False
    """True: the body was too long to be stored."""
    answer: Any = field(default=None, repr=False)
    """The JSON of the answer; for other answers, their kind."""
    is_known: bool = True
    """False: the platform has no such route."""

    def json(self) -> Json:
        """The JSON for the page."""
        facts = {"at": self.at, "method": self.method, "route": self.route, "note": self.note}
        facts |= {"number": self.number, "isKnown": self.is_known}
        return facts | {"status": self.status, "took": self.took}


@dataclass(frozen=True)
class News:
    """A change that pages may show."""

    kind: str
    facts: Json
    chat_id: str | None
    """None: it concerns all chats."""


class Window:
    """The subscription of one page to what happens in its chats."""

    def __init__(self, chat_ids: Collection[str]) -> None:
        self._chat_ids = chat_ids
        self._queue: asyncio.Queue[News | None] = asyncio.Queue()
        self.has_missed = False
        """True: it was too slow, and should reload everything."""

    def show(self, news: News) -> None:
        """Queue it, if it concerns this window and the queue is not full."""
        if news.chat_id is not None and news.chat_id not in self._chat_ids:
            return
        if self._queue.qsize() >= _BACKLOG:
            self.has_missed = True
        else:
            self._queue.put_nowait(news)

    async def next(self) -> News | None:
        """Wait for the next item. None: the subscription has ended."""
        return await self._queue.get()

    def end(self) -> None:
        """End the subscription after the queued items."""
        self._queue.put_nowait(None)

    def clear(self) -> None:
        """Drop all unread items."""
        self.has_missed = False
        is_over = False
        while not self._queue.empty():
            is_over = self._queue.get_nowait() is None or is_over
        if is_over:
            self.end()


class Journal:
    """The latest webhooks and calls, and the pages that watch them."""

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque(maxlen=_KEPT)
        self.calls: deque[Call] = deque(maxlen=_KEPT)
        self.on_row: Callable[[Delivery | Call], None] | None = None
        """Called with each webhook and call when it has ended."""
        self.changes = 0
        """The number of changes so far."""
        self._windows: set[Window] = set()
        self._numbers = count(1)
        self._lately: deque[News] = deque(maxlen=_KEPT)

    def begin(self) -> int:
        """Return the number of a row that begins now."""
        return next(self._numbers)

    def delivered(self, delivery: Delivery, chat_id: str | None) -> None:
        """Record a webhook that has ended."""
        self.deliveries.append(delivery)
        self._write(News("delivery", delivery.json(), chat_id), delivery)

    def called(self, call: Call, chat_id: str | None) -> None:
        """Record a call that was answered."""
        self.calls.append(call)
        self._write(News("call", call.json(), chat_id), call)

    def _write(self, news: News, row: Delivery | Call) -> None:
        if self.on_row is not None:
            self.on_row(row)
        self._lately.append(news)
        self.tell(news)

    def lately(self, chat_ids: Collection[str], most: int) -> list[News]:
        """The latest traffic of those chats, and traffic that belongs to no chat."""
        mine = [each for each in self._lately if each.chat_id is None or each.chat_id in chat_ids]
        return mine[-most:]

    def tell(self, news: News) -> None:
        """Send it to every subscriber that it concerns, without recording it."""
        self.changes += 1
        for window in self._windows:
            window.show(news)

    def open_window(self, chat_ids: Collection[str]) -> Window:
        """Subscribe to what happens in those chats."""
        window = Window(chat_ids)
        self._windows.add(window)
        return window

    def close_window(self, window: Window) -> None:
        """Unsubscribe this page."""
        self._windows.discard(window)
