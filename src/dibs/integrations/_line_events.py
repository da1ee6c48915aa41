"""What is read from an event of LINE: its id, its sender, its reply token; and its signature.

Events and sources may be the SDK's objects, any others with the same attributes, or LINE's own
JSON as dicts.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import cast

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
