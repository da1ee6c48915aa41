"""An example: the processing lock in handlers of line-bot-sdk's `WebhookHandler`, as in the seeds.

    users = UserDatabase("sqlite:///weamind.db")
    users.prepare()
    bot = SynchronousBot(secret=…, access_token=…, users=users, forecast=…)
    bot.handler.handle(body, signature)     # in a thread, after LINE has had its 200

OPERATING.md has a whole program around it. `WebhookHandler` calls plain functions, one event
after the other. It needs line-bot-sdk, which the bot itself does not: `main.py` is the bot to run.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from linebot.v3 import WebhookHandler
from linebot.v3.messaging import ApiClient, Configuration, MessagingApi, ReplyMessageRequest
from linebot.v3.webhooks import (
    LocationMessageContent,
    MessageEvent,
    PostbackEvent,
    TextMessageContent,
)

from .core.processing_lock import ProcessingLockService, processing_lock_service
from .line import texts
from .line.messages import (
    Message,
    no_place_message,
    places_message,
    text_message,
    unknown_message,
    which_message,
)
from .line.postbacks import parse_postback
from .line.service import should_use_processing_lock
from .places import atlas
from .places.place import Place
from .places.search import search
from .user.database import UserDatabase
from .weather.cards import forecast_message
from .weather.forecast import TAIPEI, Forecast

PROCESSING_LOCK_TIMEOUT_SECONDS = 5
_LINE_TIMEOUT = 5
"""Seconds; without it the SDK waits for ever."""


class SynchronousBot:
    """Texts, locations and taps; the taps that are repeated fast, one at a time for each person."""

    def __init__(
        self,
        *,
        secret: str,
        access_token: str,
        users: UserDatabase,
        forecast: Callable[[Place], Forecast],
        lock: ProcessingLockService = processing_lock_service,
        api_base: str = "https://api.line.me",
    ) -> None:
        """*users* and *lock* stay the caller's, to be closed by it."""
        self._users = users
        self._forecast = forecast
        self._lock = lock
        self._line = Configuration(host=api_base, access_token=access_token)
        self.handler = self._handler(secret)

    def _handler(self, secret: str) -> WebhookHandler:
        handler = WebhookHandler(secret)

        # Functions, not methods: the SDK counts `self` as well, and would pass one argument more.
        @handler.add(MessageEvent, message=TextMessageContent)
        def on_text(event: Any) -> None:
            self.handle_message_event(event)

        @handler.add(MessageEvent, message=LocationMessageContent)
        def on_location(event: Any) -> None:
            self.handle_location_message_event(event)

        @handler.add(PostbackEvent)
        def on_postback(event: Any) -> None:
            self.handle_postback_event(event)

        return handler

    def handle_message_event(self, event: Any) -> None:
        """No lock: a person does not type two places within a second."""
        found = search(event.message.text)
        if found.sure:
            self._reply(event, self._card(found.places[0]))
        elif found.places:
            self._reply(event, which_message(found.places, numbered=False))
        else:
            self._reply(event, unknown_message(event.message.text, private=True))

    def handle_location_message_event(self, event: Any) -> None:
        """No lock: a person does not send two locations within a second."""
        place = atlas.locate(event.message.latitude, event.message.longitude)
        self._reply(event, text_message(texts.OUTSIDE) if place is None else self._card(place))

    def handle_postback_event(self, event: Any) -> None:
        """The seeds' own sequence: the key, the attempt, the work, the release in `finally`."""
        postback_data = parse_postback(event.postback.data)
        lock_key = None
        if should_use_processing_lock(postback_data):
            lock_key = self._lock.build_actor_key(event.source)
        if lock_key is None:
            self._dispatch_postback(event, postback_data)
        elif not self._lock.try_acquire_lock(lock_key, PROCESSING_LOCK_TIMEOUT_SECONDS):
            self._reply(event, text_message(texts.BUSY))
        else:
            try:
                self._dispatch_postback(event, postback_data)
            finally:
                self._lock.release_lock(lock_key)

    def _dispatch_postback(self, event: Any, postback_data: dict[str, str]) -> None:
        kind = postback_data.get("type", "")
        if postback_data.get("action") == "weather" and kind in texts.KINDS:
            self._reply(event, self._own_place(event.source.user_id, kind))
        elif postback_data.get("action") == "recent_queries":
            self._reply(event, self._recent(event.source.user_id))
        else:
            self._reply(event, text_message(texts.UNKNOWN_TAP))

    def _own_place(self, user_id: str, kind: str) -> Message:
        person = self._users.meet(user_id, _now_ms())
        code = person.home if kind == "home" else person.office
        place = atlas.by_code(code or "")
        return no_place_message(kind) if place is None else self._card(place)

    def _recent(self, user_id: str) -> Message:
        codes = self._users.meet(user_id, _now_ms()).recent()
        places = [place for code in codes if (place := atlas.by_code(code))]
        said = texts.RECENT if places else texts.NO_QUERIES_YET
        return places_message(said, places, numbered=False)

    def _card(self, place: Place) -> Message:
        return forecast_message(self._forecast(place), now=datetime.now(TAIPEI))

    def _reply(self, event: Any, message: Message) -> None:
        request = ReplyMessageRequest.from_dict(
            {"replyToken": event.reply_token, "messages": [message]}
        )
        with ApiClient(self._line) as client:
            MessagingApi(client).reply_message(request, _request_timeout=_LINE_TIMEOUT)


def _now_ms() -> int:
    return int(datetime.now(TAIPEI).timestamp() * 1000)
