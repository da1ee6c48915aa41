"""The conversations: their messages, and whether the loading animation is shown."""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

Json = dict[str, Any]
_KEPT = 500
"""How many messages of a chat are kept."""


@dataclass(frozen=True)
class Entry:
    """One message in a chat."""

    id: str
    author: str
    """`bot` or `person`."""
    message: Json
    at: float
    event_id: str | None = None
    """The event that carried it to the bot."""
    via: str | None = None
    """For messages of the bot: `reply`, `push`, `multicast` …"""
    user_id: str | None = None
    """The sender, if LINE tells."""
    name: str | None = None
    is_unsent: bool = False
    """True: it was unsent, and its content is no longer shown."""

    def json(self) -> Json:
        """The JSON for the page."""
        return dict(vars(self))


class Chat:
    """One person's chat with the bot, or a group's."""

    def __init__(self, chat_id: str) -> None:
        self.id = chat_id
        self.entries: deque[Entry] = deque(maxlen=_KEPT)
        self._loading_until = 0.0

    def __repr__(self) -> str:
        return f"<Chat: {len(self.entries)} messages>"

    def add(self, entry: Entry) -> None:
        """Add a message. A message of the bot ends the loading animation."""
        self.entries.append(entry)
        if entry.author == "bot":
            self._loading_until = 0.0

    def take_back(self, message_id: str) -> None:
        """Hide the content of an unsent message."""
        for index, entry in enumerate(self.entries):
            if entry.id == message_id:
                self.entries[index] = replace(entry, message={"type": "unsent"}, is_unsent=True)

    def load(self, until: float) -> None:
        """Show the loading animation, until then at most."""
        self._loading_until = until

    def loading(self, now: float) -> float:
        """For how many more seconds the loading animation is shown; 0.0: it is not."""
        return max(self._loading_until - now, 0.0)

    @property
    def sent(self) -> list[Json]:
        """The bot's messages as it sent them, the oldest first."""
        # A copy: the bot may say more while a test looks, in another thread.
        return [entry.message for entry in self.entries.copy() if entry.author == "bot"]

    @property
    def texts(self) -> list[str]:
        """The bot's messages as text: texts, and the alternative texts of cards and pictures."""
        return [words_of(message) for message in self.sent]

    @property
    def quick_reply(self) -> list[Json]:
        """The buttons below the last message. Any later message removes them."""
        last = self.entries[-1] if self.entries else None
        if last is None or last.author != "bot":
            return []
        return last.message.get("quickReply", {}).get("items", [])


class Chats:
    """All conversations, by the id of the person, group or room."""

    def __init__(self) -> None:
        self._chats: dict[str, Chat] = {}

    def open(self, chat_id: str) -> Chat:
        """Return that conversation, which is empty at first."""
        return self._chats.setdefault(chat_id, Chat(chat_id))

    def snapshot(self) -> Json:
        """The messages of all conversations, as JSON."""
        return {id: [entry.json() for entry in chat.entries] for id, chat in self._chats.items()}

    def restore(self, facts: Json) -> None:
        """Restore what `snapshot` has returned."""
        for chat_id, entries in facts.items():
            self.open(chat_id).entries.extend(Entry(**each) for each in entries)


def words_of(message: Json) -> str:
    """The text of a message; for other kinds, its alternative text or its type."""
    return message.get("text") or message.get("altText") or f"({message['type']})"
