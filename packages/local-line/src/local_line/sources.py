"""Where an event comes from: a person, or a group or room with or without the person's id."""

import re
import secrets
from dataclasses import dataclass

_ID = re.compile(r"[UCR][0-9a-f]{32}")
_LETTER = {"user": "U", "group": "C", "room": "R"}


def new_id(kind: str) -> str:
    """A new id: `U…` for a user, `C…` for a group, `R…` for a room."""
    return _LETTER[kind] + secrets.token_hex(16)


def is_id(value: object, kinds: str = "UCR") -> bool:
    """True: it looks like the id of a user, group or room, of those kinds."""
    return isinstance(value, str) and bool(_ID.fullmatch(value)) and value[0] in kinds


@dataclass(frozen=True)
class Source:
    """The chat of an event, and the user."""

    kind: str
    chat_id: str
    user_id: str | None

    @classmethod
    def user(cls, user_id: str) -> "Source":
        """The chat of one person with the bot."""
        return cls("user", user_id, user_id)

    @classmethod
    def group(cls, group_id: str, user_id: str | None = None) -> "Source":
        """A group. Without *user_id*: a member whose id LINE does not tell."""
        return cls("group", group_id, user_id)

    @classmethod
    def room(cls, room_id: str, user_id: str | None = None) -> "Source":
        """A chat of several people that is not a group."""
        return cls("room", room_id, user_id)

    def json(self) -> dict[str, str]:
        """The JSON of an event."""
        facts = {"type": self.kind, f"{self.kind}Id": self.chat_id}
        if self.user_id is not None:
            facts["userId"] = self.user_id
        return facts
