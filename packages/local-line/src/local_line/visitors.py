"""The visitors of the page: a few people with phones, and their chats."""

import hashlib
from collections.abc import Mapping

from .events import Draft
from .sources import Source

NAMES = {"ann": "Ann", "ben": "Ben", "cleo": "Cleo"}
"""The people of every visitor, by their names in the page's address."""
PLACES = ("private", "group", "room", "anonymous")


class Phone:
    """One person, with a private chat, and with a group and a room that they share with others."""

    def __init__(self, person: str, seed: str) -> None:
        self.person = person
        self.name = NAMES[person]
        shared = _digits(seed)
        user_id = f"U{shared if person == 'ann' else _digits(f'{seed}/{person}')}"
        group_id, room_id = f"C{shared}", f"R{shared}"
        self.private = Source.user(user_id)
        self.places: Mapping[str, Source] = {
            "private": self.private,
            "group": Source.group(group_id, user_id),
            "room": Source.room(room_id, user_id),
            "anonymous": Source.group(group_id),
        }
        self.chat_ids = {user_id: "private", group_id: "group", room_id: "room"}
        """The name of each chat on the page."""
        self.last: list[Draft] = []
        """Their last actions, each with its source."""
        self.last_event: str | None = None


class Visitor:
    """A browser, with all its people."""

    def __init__(self, cookie: str) -> None:
        self.phones = {person: Phone(person, cookie) for person in NAMES}
        self.chat_ids = {chat for phone in self.phones.values() for chat in phone.chat_ids}
        """All their chats."""


def _digits(seed: str) -> str:
    return hashlib.sha256(seed.encode()).hexdigest()[:32]
