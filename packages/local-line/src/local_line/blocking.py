"""The platform for programs without a loop: every verb waits until it is done."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from threading import Thread
from typing import Any, TypeVar

from .chats import Chat
from .contents import Content
from .events import Draft, Json
from .journal import Call, Delivery
from .local import LocalLine
from .logins import Login
from .sources import Source

T = TypeVar("T")


class BlockingLine:
    """LINE, on this machine, in a thread: `with BlockingLine() as line: line.say("嗨")`.

    The options are those of `LocalLine`. Safe to use from any thread.
    """

    line: LocalLine
    """The platform itself, for what has no method here; it belongs to the thread's loop."""

    def __init__(self, **options: Any) -> None:
        """TypeError, ValueError: an option that `LocalLine` does not take."""
        self.line = LocalLine(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="local-line", daemon=True)
        self._open = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __enter__(self) -> "BlockingLine":
        """OSError: the port is taken."""
        self._thread.start()
        try:
            self._run(self._open.enter_async_context(self.line))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._run(self._open.aclose())
        finally:
            self._end()

    def _end(self) -> None:
        self._run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _do(self, work: Callable[[], T]) -> T:
        async def done() -> T:
            return work()

        return self._run(done())

    # ---- where everything is

    @property
    def api_base(self) -> str:
        """The base URL of LINE's API, for a bot."""
        return self.line.api_base

    @property
    def page_url(self) -> str:
        """The chat, to look at in a browser."""
        return self.line.page_url

    @property
    def secret(self) -> str:
        """The channel secret."""
        return self.line.channel.secret

    @property
    def access_token(self) -> str:
        """The channel access token."""
        return self.line.channel.access_token

    @property
    def webhook_url(self) -> str:
        """Where webhooks are sent."""
        return self.line.webhook_url

    @webhook_url.setter
    def webhook_url(self, url: str) -> None:
        self.line.webhook_url = url

    def connect(self, app: Any, path: str = "/callback") -> str:
        """Serve the bot, an ASGI or WSGI app, until the end; webhooks go to its *path*.

        Returns its address. OSError: it does not start. TypeError: it is not an app.
        """
        return self._run(self.line.connect(app, path))

    # ---- what people do

    def somebody(self, name: str | None = None) -> Source:
        """Create a person who is a friend of the bot, without an event."""
        return self._do(lambda: self.line.somebody(name))

    def say(self, words: str, *, source: Source | None = None) -> Delivery:
        """Send a text message."""
        return self._run(self.line.say(words, source=source))

    def tap(self, data: str, *, source: Source | None = None, **rest: Any) -> Delivery:
        """Tap a button, or an area of the rich menu, with this postback *data*."""
        return self._run(self.line.tap(data, source=source, **rest))

    def share_location(
        self, latitude: float, longitude: float, *, source: Source | None = None, **rest: Any
    ) -> Delivery:
        """Send a location."""
        return self._run(self.line.share_location(latitude, longitude, source=source, **rest))

    def send_picture(
        self, content: Content | None = None, *, source: Source | None = None
    ) -> Delivery:
        """Send a picture, which the bot can download."""
        return self._run(self.line.send_picture(content, source=source))

    def follow(self, *, source: Source | None = None) -> Delivery:
        """Add the bot as a friend, or unblock it."""
        return self._run(self.line.follow(source=source))

    def unfollow(self, *, source: Source | None = None) -> Delivery:
        """Block the bot."""
        return self._run(self.line.unfollow(source=source))

    def join(self, *, source: Source) -> Delivery:
        """Invite the bot to that group or room."""
        return self._run(self.line.join(source=source))

    def leave(self, *, source: Source) -> Delivery:
        """Remove the bot from that group or room."""
        return self._run(self.line.leave(source=source))

    def unsend(self, message_id: str, *, source: Source | None = None) -> Delivery:
        """Unsend a message."""
        return self._run(self.line.unsend(message_id, source=source))

    def link_account(
        self, link_token: str, nonce: str, *, source: Source | None = None
    ) -> Delivery:
        """Link an account after a login at the bot's site, which has given the *nonce*."""
        return self._run(self.line.link_account(link_token, nonce, source=source))

    def send(self, draft: Draft, *, source: Source | None = None) -> Delivery:
        """Send any event of `events`, in its own webhook."""
        return self._run(self.line.send(draft, source=source))

    def batch(self, drafts: Sequence[Draft], *, source: Source | None = None) -> Delivery:
        """Send several events in one webhook."""
        return self._run(self.line.batch(drafts, source=source))

    def redeliver(self, event_id: str, *, is_flagged: bool = True) -> Delivery:
        """Send the same event again, *is_flagged* as such or not. KeyError: it is unknown."""
        return self._run(self.line.redeliver(event_id, is_flagged=is_flagged))

    def verify(self, url: str | None = None) -> Delivery:
        """Send a webhook without events, as LINE's console does. Not in the journal."""
        return self._run(self.line.verify(url))

    def log_in(self, source: Source | None = None, *, nonce: str | None = None) -> Login:
        """Log in with LINE or open a LIFF page. Returns the tokens that the page gets."""
        return self._do(lambda: self.line.log_in(source, nonce=nonce))

    # ---- what can be seen of it

    def chat(self, source: Source | None = None) -> Chat:
        """The conversation of that source: `texts`, `sent`, `quick_reply`, `entries`."""
        return self.line.chat(source)

    def wait_for_messages(
        self, number: int, *, source: Source | None = None, within: float = 30.0
    ) -> list[Json]:
        """Return the bot's messages, once there are *number*. TimeoutError: too late."""
        return self._run(self.line.wait_for_messages(number, source=source, within=within))

    def fail_next(self, route: str, **fault: Any) -> None:
        """Refuse the next calls of *route* with *status*, or answer them *delay* s late."""
        self._do(lambda: self.line.fail_next(route, **fault))

    @property
    def calls(self) -> list[Call]:
        """The bot's calls to the API, the oldest first."""
        return self._do(lambda: self.line.calls)

    @property
    def deliveries(self) -> list[Delivery]:
        """The webhooks, in the order in which they were answered."""
        return self._do(lambda: self.line.deliveries)


async def _cancel_others() -> None:
    """Cancel all other tasks of this loop: a thread that waits for one would wait for ever."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
