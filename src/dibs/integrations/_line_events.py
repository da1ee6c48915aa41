"""What LINE sends: ids, senders, reply tokens, signatures; which events are new, who handles them.

Events and sources may be the SDK's objects, any others with the same attributes, or LINE's own
JSON as dicts. Pure: no I/O. line-bot-sdk is imported when it is first needed.
"""

import base64
import hashlib
import hmac
import importlib
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from .._interface import fork_safe_lock
from ..errors import UsageError
from ._extras import needs

_log = logging.getLogger("dibs.linebot")

DeliveryState = Literal["running", "done"]
Skipped = Callable[[DeliveryState], object]
Handler = Callable[..., Any]
_LOCKED = ("message", "postback")
ACTOR_NAME = "processing:user:{userId}"
REPLY_NAME = "line:reply:{replyToken}"
REPLY_TTL = 1800.0
"""A reply token is good for a minute, and after a redelivery up to 20 minutes after the event."""
EVENT_NAME = "line:event:{webhookEventId}"
"""The name of the claim on an event, in events and errors of dibs."""
WINDOW = 86_400.0
"""A day: LINE stops redelivering an event before that."""


def signature_is_right(body: bytes, signature: str | None, secret: str) -> bool:
    """True: *body*, as received, was signed with the channel's *secret*.

    *signature*: the header `X-Line-Signature`. False if it is malformed or missing; the comparison
    takes constant time.
    """
    right = base64.b64encode(hmac.digest(secret.encode(), body, hashlib.sha256))
    return hmac.compare_digest(right, (signature or "").encode("utf-8", "replace"))


def actor_key(source: object) -> str | None:
    """`processing:user:{userId}` of the sender, also in a group; None: LINE does not send it."""
    user_id = fact_of(source, "user_id", "userId")
    return None if user_id is None else f"processing:user:{user_id}"


def event_id(event: object) -> str | None:
    """The event's `webhookEventId`, the same at each delivery; None: it has none."""
    return fact_of(event, "webhook_event_id", "webhookEventId")


def event_key(event: object) -> str | None:
    """The key that is claimed for the event; None: the event has no id."""
    found = event_id(event)
    return None if found is None else f"line:event:{found}"


def reply_token(event: object) -> str | None:
    """The event's `replyToken`; None: it cannot be replied to."""
    return fact_of(event, "reply_token", "replyToken")


def reply_key(token: str) -> str:
    """The key that is held from the moment a reply token is used; it does not show the token."""
    return f"line:reply:{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def part_of(thing: object, name: str) -> object:
    """A part of an event, such as its source or message; None: it has none."""
    if isinstance(thing, Mapping):
        return cast("Mapping[str, object]", thing).get(name)
    return getattr(thing, name, None)


def fact_of(thing: object, attribute: str, field: str) -> str | None:
    """A string of *thing*: an attribute or, in LINE's JSON, a field; None: it has none."""
    if isinstance(thing, Mapping):
        value = cast("Mapping[str, object]", thing).get(field)
    else:
        value = getattr(thing, attribute, None)
    return value if isinstance(value, str) and value else None


# ---- which are new


class EventMemory:
    """The latest keys of this process and their states, up to *size*; the oldest go first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[str, DeliveryState] = OrderedDict()
        self._lock = fork_safe_lock()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: str) -> DeliveryState | None:
        """Its state. None: never seen, or too long ago."""
        return self._states.get(key)

    def begin(self, key: str) -> DeliveryState | None:
        """Its state. None: it was not known, and is running from now on."""
        with self._lock:
            state = self._states.get(key)
            if state is None:
                self._put(key, "running")
            return state

    def put(self, key: str, state: DeliveryState) -> None:
        """Remember it."""
        with self._lock:
            self._put(key, state)

    def drop(self, key: str) -> None:
        """It may come again."""
        with self._lock:
            self._states.pop(key, None)

    def end(self, key: str, *, is_done: bool) -> None:
        """It is done; or it may come again."""
        self.put(key, "done") if is_done else self.drop(key)

    def _put(self, key: str, state: DeliveryState) -> None:
        self._states[key] = state
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)


def is_new(state: DeliveryState | None, skipped: Skipped | None) -> bool:
    """Whether an event in *state* is new; if not, *skipped* is called."""
    if state is not None and skipped is not None:
        skipped(state)
    return state is None


# ---- who handles them, and what is replied


class Route(NamedTuple):
    """A handler, and the events that it is for."""

    kind: Any
    content: Any
    handler: Handler
    alone: bool | None

    def fits(self, event: object) -> bool:
        """Whether it is for this handler."""
        name = fact_of(event, "type", "type") or ""
        content = part_of(event, name)
        return _is(event, self.kind) and (self.content is None or _is(content, self.content))

    def key_of(self, event: object) -> str | None:
        """The key of the sender, if this is done one at a time for each."""
        alone = fact_of(event, "type", "type") in _LOCKED if self.alone is None else self.alone
        return actor_key(part_of(event, "source")) if alone else None


def _is(thing: object, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return fact_of(thing, "type", "type") == wanted
    return isinstance(thing, wanted)


class Routes:
    """The handlers, and how they are found."""

    def __init__(self, parser: Any, *, is_async: bool) -> None:
        self._parser = parser
        self._is_async = is_async
        self._routes: list[Route] = []

    def on(
        self, kind: Any, content: Any = None, *, alone: bool | None = None
    ) -> Callable[[Handler], Handler]:
        """Handle events of *kind*, with messages of the type *content*: `handler(event, reply)`.

        Both are classes of line-bot-sdk, or LINE's names for them ("message", "text"). The first
        handler that fits is called. *alone*: one event at a time for each person, as `busy=` says;
        None: messages and postbacks. UsageError: a coroutine function where threads work, or a
        plain one where tasks do.
        """

        def decorate(handler: Handler) -> Handler:
            if inspect.iscoroutinefunction(handler) is not self._is_async:
                wanted = "a coroutine function" if self._is_async else "a plain function"
                raise UsageError(f"a handler of {type(self).__name__} must be {wanted}")
            self._routes.append(Route(kind, content, handler, alone))
            return handler

        return decorate

    def route(self, event: object) -> Route | None:
        """None: nobody handles it, or another bot has the chat."""
        if fact_of(event, "mode", "mode") == "standby":
            return None
        return next((route for route in self._routes if route.fits(event)), None)

    def parsed(self, body: bytes, signature: str | None) -> Sequence[Any] | None:
        """The events of a webhook. None: it was not signed by LINE, or is not what LINE sends."""
        try:
            return self._parser.parse(body.decode(), signature or "")
        except Exception as error:  # the SDK has many: a signature, JSON, missing fields
            _log.warning("a webhook was refused with 400: %s", type(error).__name__)
            return None


def sdk() -> Any:
    """The part of line-bot-sdk that sends."""
    with needs("linebot"):
        return importlib.import_module("linebot.v3.messaging")


def reply_request(token: str, messages: Sequence[Any]) -> Any:
    """Texts, messages as dicts, or messages of the SDK, as it sends them."""
    listed = [_message(each) for each in messages]
    return sdk().ReplyMessageRequest.from_dict({"replyToken": token, "messages": listed})


def _message(message: Any) -> dict[str, Any]:
    if isinstance(message, str):
        return {"type": "text", "text": message}
    return cast(Any, message) if isinstance(message, dict) else message.to_dict()
