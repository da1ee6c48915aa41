"""The platform: people, chats, menus and a bot, and what people can do on their phones.

Every verb of a person (`say`, `tap`, `follow` …) is one webhook to the bot, and returns when the
bot has answered it, or has not within two seconds. What the bot says back is in `chat().sent`.
"""

import asyncio
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from time import time
from typing import Any

from . import events
from .accounts import Accounts, Channel, Picture, same
from .audiences import Audiences
from .chats import Chat, Chats, Entry
from .contents import Content, Contents
from .deliveries import WEBHOOK_TIMEOUT, WebhookSender
from .events import Draft, Json, Stamp
from .faults import Fault, Faults
from .journal import Call, Delivery, Journal, News
from .logins import Login, Logins
from .rates import Rates
from .richmenus import RichMenus
from .sendings import Sendings
from .sources import Source, new_id
from .tokens import LinkTokens, ReplyTokens, RetryKeys
from .troubles import too_few

REDELIVERED_AFTER = (1.0, 5.0, 20.0)
"""Seconds until a failed webhook is sent again, and again; LINE does not document its own."""

_MOST_EVENTS = 10_000
"""How many events are stored for redelivery."""


class Platform:
    """LINE, for one bot, without HTTP: `api.create_api` serves its API while it is entered."""

    def __init__(
        self,
        *,
        secret: str,
        access_token: str,
        webhook_url: str = "",
        reply_token_ttl: float = 60.0,
        redelivery: bool = False,
        redelivered_after: Sequence[float] = REDELIVERED_AFTER,
        webhook_timeout: float = WEBHOOK_TIMEOUT,
        quota: int | None = 200,
        rate_limits: bool = True,
        name: str = "My bot",
        picture: Picture | None = None,
        picture_url: str | None = None,
        channel_id: str | None = None,
        identity: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        """ValueError: no secret, no token. *webhook_url* is needed at the first event only.

        *identity*: `channel_id`, `bot_id` and `basic_id` of an earlier run.
        *quota*: messages in a month, None: no end. *rate_limits*: False: call as often as you like.
        """
        known = dict(identity or {})
        known |= {"channel_id": channel_id} if channel_id is not None else {}
        self.channel = Channel(secret, access_token, name, picture, picture_url, **known)
        self.webhook_url = webhook_url
        self.api_base = "https://api.line.me"
        """The base URL of LINE's API, for a bot."""
        self.redelivery = redelivery
        self.quota = quota
        self.used = 0
        """How many messages of the quota were pushed."""
        self.clock = clock
        self.accounts = Accounts()
        self.chats = Chats()
        self.menus = RichMenus()
        self.journal = Journal()
        self.reply_tokens = ReplyTokens(ttl=reply_token_ttl)
        self.retry_keys = RetryKeys()
        self.link_tokens = LinkTokens()
        self.read_tokens: dict[str, str] = {}
        """The chats of `markAsReadToken`s."""
        self.logins = Logins(self.channel)
        self.liff_apps: dict[str, Json] = {}
        """The LIFF apps of the channel, by their ids."""
        self.coupons: dict[str, Json] = {}
        """The coupons of the channel, by their ids."""
        self.contents = Contents()
        self.sendings = Sendings()
        self.audiences = Audiences()
        self.rates = Rates(enabled=rate_limits)
        self.faults = Faults()
        self.me = Source.user(new_id("user"))
        """The person who acts when a call names no `source`."""
        self._redelivered_after = tuple(redelivered_after)
        self._sender = WebhookSender(
            self.channel, timeout=webhook_timeout, clock=clock, begin=self.journal.begin
        )
        self._events: dict[str, Json] = {}
        self.last_number = 500_000_000_000_000_000
        """The id of the last message."""
        self._under_way: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.journal.deliveries)} webhooks>"

    async def __aenter__(self) -> "Platform":
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Give up webhooks under way."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)

    # ---- what people do

    async def say(self, words: str, *, source: Source | None = None) -> Delivery:
        """Send a text message."""
        return await self.send(events.text(words), source=source)

    async def tap(
        self,
        data: str,
        *,
        display_text: str | None = None,
        params: Json | None = None,
        source: Source | None = None,
    ) -> Delivery:
        """Tap a button, or an area of the rich menu, with this postback *data*."""
        draft = events.postback(data, display_text=display_text, params=params)
        return await self.send(draft, source=source)

    async def share_location(
        self,
        latitude: float,
        longitude: float,
        *,
        title: str | None = None,
        address: str | None = None,
        source: Source | None = None,
    ) -> Delivery:
        """Send a location."""
        draft = events.location(latitude, longitude, title=title, address=address)
        return await self.send(draft, source=source)

    async def follow(self, *, source: Source | None = None) -> Delivery:
        """Add the bot as a friend, or unblock it."""
        return await self.send(self.following(source or self.me))

    async def unfollow(self, *, source: Source | None = None) -> Delivery:
        """Block the bot."""
        return await self.send(self.unfollowing(source or self.me))

    async def join(self, *, source: Source) -> Delivery:
        """Invite the bot to that group or room."""
        return await self.send(events.join(), source=source)

    async def leave(self, *, source: Source) -> Delivery:
        """Remove the bot from that group or room."""
        return await self.send(events.leave(), source=source)

    async def unsend(self, message_id: str, *, source: Source | None = None) -> Delivery:
        """Unsend a message."""
        return await self.send(events.unsend(message_id), source=source)

    async def send_picture(
        self, content: Content | None = None, *, source: Source | None = None
    ) -> Delivery:
        """Send a picture, which the bot can download."""
        return await self.send(events.image(content), source=source)

    async def link_account(
        self, link_token: str, nonce: str, *, source: Source | None = None
    ) -> Delivery:
        """Link an account after a login at the bot's site, which has given the *nonce*."""
        person = source or self.me
        is_ok = self.link_tokens.spend(link_token, self.clock()) == person.chat_id
        return await self.send(events.account_link(nonce, is_ok=is_ok), source=person)

    def log_in(self, source: Source | None = None, *, nonce: str | None = None) -> Login:
        """Log in with LINE or open a LIFF page. Returns the tokens that the page gets."""
        person = self.accounts.person((source or self.me).chat_id)
        return self.logins.log_in(person, self.clock(), nonce=nonce)

    async def batch(self, drafts: Sequence[Draft], *, source: Source | None = None) -> Delivery:
        """Send several events in one webhook."""
        return await self.start(self.happen(drafts, source=source))

    async def send(self, draft: Draft, *, source: Source | None = None) -> Delivery:
        """Send any event of `events`, in its own webhook."""
        return await self.batch([draft], source=source)

    async def redeliver(self, event_id: str, *, is_flagged: bool = True) -> Delivery:
        """Send the same event again, *is_flagged* as such or not. KeyError: it is unknown."""
        return await self.start_again(event_id, is_flagged=is_flagged)

    async def verify(self, url: str | None = None) -> Delivery:
        """Send a webhook without events, as LINE's console does. Not in the journal."""
        return await self._sender.deliver(url or self.webhook_url, ())

    def somebody(self, name: str | None = None) -> Source:
        """Create a person who is a friend of the bot, without an event."""
        source = Source.user(new_id("user"))
        person = self.accounts.person(source.chat_id)
        person.is_friend = True
        person.name = name or person.name
        return source

    def is_channel_token(self, token: str) -> bool:
        """True: it is a valid channel access token of the bot."""
        is_console = same(token, self.channel.access_token)
        return is_console or self.logins.is_channels(token, self.clock())

    # ---- what can be seen of it

    def chat(self, source: Source | None = None) -> Chat:
        """The conversation of that source: `entries`, `sent`, `quick_reply`, `loading`."""
        return self.chats.open((source or self.me).chat_id)

    @property
    def calls(self) -> list[Call]:
        """The bot's calls to the API, the oldest first."""
        return list(self.journal.calls)

    @property
    def deliveries(self) -> list[Delivery]:
        """The webhooks, in the order in which they were answered."""
        return list(self.journal.deliveries)

    async def wait_for_messages(
        self, number: int, *, source: Source | None = None, within: float = 30.0
    ) -> list[Json]:
        """Return the bot's messages, once there are *number*. TimeoutError: too late."""
        chat = self.chat(source)
        window = self.journal.open_window([chat.id])
        try:
            async with asyncio.timeout(within):
                while len(chat.sent) < number:
                    await window.next()
        except TimeoutError:
            raise TimeoutError(too_few(chat.texts, number, within, self.deliveries)) from None
        finally:
            self.journal.close_window(window)
        return chat.sent

    def fail_next(
        self, route: str, *, status: int | None = None, delay: float = 0.0, times: int = 1
    ) -> None:
        """Refuse the next calls of *route* with *status*, or execute them and answer late."""
        self.faults.add(route, Fault(status, delay, times))

    # ---- how it is done

    def following(self, source: Source) -> Draft:
        """Make this person a friend, and return the event. ValueError: no webhook is set."""
        self._find_bot()
        person = self.accounts.person(source.chat_id)
        draft = events.follow(is_unblocked=person.has_blocked).by(source)
        person.is_friend, person.has_blocked = True, False
        return draft

    def unfollowing(self, source: Source) -> Draft:
        """Let this person block the bot, and return the event. ValueError: no webhook is set."""
        self._find_bot()
        person = self.accounts.person(source.chat_id)
        person.is_friend, person.has_blocked = False, True
        return events.unfollow().by(source)

    def happen(self, drafts: Sequence[Draft], *, source: Source | None = None) -> list[Json]:
        """Add it to the chats, and return its events. ValueError: no webhook is set."""
        self._find_bot()
        return [self._happen(draft, draft.source or source or self.me) for draft in drafts]

    def _find_bot(self) -> None:
        if not self.webhook_url:
            raise ValueError("Set webhook_url first: nobody knows where the bot is.")

    def start(
        self, made: list[Json], *, redelivery: bool | None = None
    ) -> "asyncio.Task[Delivery]":
        """Send one webhook with all events now."""
        again = self.redelivery if redelivery is None else redelivery
        return self._spawn(self._deliver(made, redelivery=again))

    def start_again(self, event_id: str, *, is_flagged: bool = True) -> "asyncio.Task[Delivery]":
        """Send the event once more now. KeyError: it is unknown."""
        return self._spawn(self._repeat([self._events[event_id]], is_flagged=is_flagged))

    def repeat(self, delivery: Delivery) -> "asyncio.Task[Delivery]":
        """Send the same webhook once more now, without the flag of a redelivery."""
        made = [event | {"deliveryContext": {"isRedelivery": False}} for event in delivery.events]
        return self._spawn(self._repeat(made, is_flagged=False))

    def _happen(self, draft: Draft, source: Source) -> Json:
        """Add it to the chat, and return its event."""
        now = self.clock()
        self.accounts.meet(source)
        stamp = self._stamp(now)
        event = events.compose(draft, source, stamp)
        self._remember(event)
        self._change_members(draft, source)
        if "replyToken" in event:
            self.reply_tokens.issue(stamp.reply_token, source.chat_id, now)
        if draft.type == "message":
            self._remember_token(stamp.read_token, source.chat_id)
        if draft.carried is not None:
            self.contents.add(stamp.message_id, draft.carried)
        if draft.takes_back is not None:
            self._take_back(source.chat_id, draft.takes_back)
        if draft.shown is not None:
            self.add_entry(source.chat_id, self._entry(draft.shown, source, stamp))
        return event

    def _entry(self, message: Json, source: Source, stamp: Stamp) -> Entry:
        person = self.accounts.find(source.user_id or "")
        name = person.name if person is not None else None
        return Entry(
            stamp.message_id, "person", message, stamp.at, stamp.event_id,
            user_id=source.user_id, name=name,
        )  # fmt: skip

    def _change_members(self, draft: Draft, source: Source) -> None:
        if draft.type == "leave":
            self.accounts.leave(source.chat_id)
        for member in draft.content.get("joined", {}).get("members", []):
            self.accounts.enter(source.chat_id, member["userId"])
        for member in draft.content.get("left", {}).get("members", []):
            self.accounts.part(source.chat_id, member["userId"])

    def _take_back(self, chat_id: str, message_id: str) -> None:
        self.contents.forget(message_id)
        self.chats.open(chat_id).take_back(message_id)
        self.journal.tell(News("unsent", {"id": message_id}, chat_id))

    def _remember(self, event: Json) -> None:
        self._events[event["webhookEventId"]] = event
        if len(self._events) > _MOST_EVENTS:
            del self._events[next(iter(self._events))]

    def _remember_token(self, token: str, chat_id: str) -> None:
        self.read_tokens[token] = chat_id
        if len(self.read_tokens) > _MOST_EVENTS:
            del self.read_tokens[next(iter(self.read_tokens))]

    def _stamp(self, now: float) -> Stamp:
        event_id = events.ulid(now, secrets.randbits(80))
        return Stamp(
            now, event_id, secrets.token_hex(16), self.next_number(), secrets.token_urlsafe(24),
            secrets.token_urlsafe(24),
        )  # fmt: skip

    def next_number(self) -> str:
        """Return the id of a new message."""
        self.last_number += 1
        return str(self.last_number)

    def add_entry(self, chat_id: str, entry: Entry) -> None:
        """Add a message to the chat, and show it to those who watch."""
        self.chats.open(chat_id).add(entry)
        self.journal.tell(News("entry", entry.json(), chat_id))

    async def _deliver(self, made: list[Json], *, redelivery: bool) -> Delivery:
        delivery = await self._sender.deliver(self.webhook_url, made)
        self._record(delivery)
        if redelivery and not delivery.is_ok:
            self._spawn(self._keep_trying(made))
        return delivery

    async def _keep_trying(self, made: list[Json]) -> None:
        for pause in self._redelivered_after:
            await asyncio.sleep(pause)
            if (await self._repeat(made, is_flagged=True)).is_ok:
                return

    async def _repeat(self, made: list[Json], *, is_flagged: bool) -> Delivery:
        for event in made:
            self.reply_tokens.renew(event.get("replyToken", ""), self.clock())
        delivery = await self._sender.deliver(self.webhook_url, made, again=is_flagged)
        self._record(delivery)
        return delivery

    def _record(self, delivery: Delivery) -> None:
        places: Collection[str] = {chat_of(event) for event in delivery.events}
        self.journal.delivered(delivery, places.pop() if len(places) == 1 else None)

    def _spawn(self, work: "Coroutine[Any, Any, Any]") -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task


def chat_of(event: Json) -> str:
    """The chat of an event."""
    source = event["source"]
    return source[f"{source['type']}Id"]
