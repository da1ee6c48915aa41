"""The bot's account, and the people and groups who know it."""

import hmac
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .sources import Source, new_id


@dataclass(frozen=True)
class Picture:
    """A profile picture."""

    data: bytes = field(repr=False)
    media_type: str

    @classmethod
    def read(cls, path: str) -> "Picture":
        """Read a file. OSError: it cannot be read. ValueError: it is neither PNG nor JPEG."""
        data = Path(path).read_bytes()
        for start, media_type in ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg")):
            if data.startswith(start):
                return cls(data, media_type)
        raise ValueError(f"{path} is neither a PNG nor a JPEG")


@dataclass(frozen=True)
class Channel:
    """The bot's account at LINE, as its console shows it. `repr` omits the secrets."""

    secret: str = field(repr=False)
    access_token: str = field(repr=False)
    name: str = "My bot"
    picture: Picture | None = None
    picture_url: str | None = None
    """The address of the picture in LINE's answers; None: it is omitted."""
    channel_id: str = field(default_factory=lambda: f"16{secrets.randbelow(10**8):08}")
    bot_id: str = field(default_factory=lambda: new_id("user"))
    basic_id: str = field(default_factory=lambda: f"@{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        if not self.secret or not self.access_token:
            raise ValueError("A channel needs a secret and an access token.")


@dataclass
class Person:
    """A LINE user."""

    user_id: str
    name: str = "訪客"
    is_friend: bool = False
    """Has added the bot, and has not blocked it."""
    has_blocked: bool = False
    picture_url: str | None = None
    status_message: str | None = None
    language: str = "zh-TW"

    def profile(self) -> dict[str, str]:
        """The profile as LINE returns it."""
        facts = {"userId": self.user_id, "displayName": self.name}
        facts |= {"pictureUrl": self.picture_url} if self.picture_url else {}
        return facts | ({"statusMessage": self.status_message} if self.status_message else {})


class Accounts:
    """All users that the platform knows."""

    def __init__(self) -> None:
        self._people: dict[str, Person] = {}
        self._members: dict[str, set[str]] = {}
        self._group_names: dict[str, str] = {}

    def snapshot(self) -> dict[str, Any]:
        """All of them, as JSON."""
        people = [dict(vars(person)) for person in self._people.values()]
        members = {chat_id: sorted(users) for chat_id, users in self._members.items()}
        return {"people": people, "members": members, "names": self._group_names}

    def restore(self, facts: dict[str, Any]) -> None:
        """Restore what `snapshot` has returned."""
        self._people = {each["user_id"]: Person(**each) for each in facts["people"]}
        self._members = {chat_id: set(users) for chat_id, users in facts["members"].items()}
        self._group_names = facts["names"]

    def person(self, user_id: str) -> Person:
        """Return this person, who is created if unknown."""
        return self._people.setdefault(user_id, Person(user_id))

    def find(self, user_id: str) -> Person | None:
        """Return this person, if known."""
        return self._people.get(user_id)

    def friends(self) -> list[str]:
        """The ids of all who have added the bot and not blocked it."""
        return [person.user_id for person in self._people.values() if person.is_friend]

    def meet(self, source: Source) -> None:
        """Register the user, group or room of this source."""
        if source.user_id is not None:
            self.person(source.user_id)
        if source.kind != "user":
            members = self._members.setdefault(source.chat_id, set())
            members.update([source.user_id] if source.user_id else [])

    def name_group(self, chat_id: str, name: str) -> None:
        """Set the name of a group."""
        self._group_names[chat_id] = name

    def group_name(self, chat_id: str) -> str:
        """Return the name of a group."""
        return self._group_names.get(chat_id, "群組")

    def part(self, chat_id: str, user_id: str) -> None:
        """Remove this person from the chat."""
        self._members.get(chat_id, set()).discard(user_id)

    def enter(self, chat_id: str, user_id: str) -> None:
        """Add this person to the chat, if the bot is in it."""
        self.person(user_id)
        if chat_id in self._members:
            self._members[chat_id].add(user_id)

    def blockers(self) -> int:
        """How many users have blocked the bot."""
        return sum(person.has_blocked for person in self._people.values())

    def people(self) -> list[Person]:
        """Return all users."""
        return list(self._people.values())

    def members(self, chat_id: str) -> set[str] | None:
        """The known user ids of a group or room. None: the bot is not in it."""
        return self._members.get(chat_id)

    def leave(self, chat_id: str) -> None:
        """Remove the bot from the chat."""
        self._members.pop(chat_id, None)

    def knows(self, chat_id: str) -> bool:
        """True: messages can be sent there."""
        return chat_id in self._people or chat_id in self._members


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal, compared in a time that does not depend on them."""
    return hmac.compare_digest(one.encode(), other.encode())
