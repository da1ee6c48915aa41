"""What a test asks of the events that it has collected."""

from dibs import Event


def kinds(events: list[Event]) -> list[str]:
    """The kinds, in the order in which they were emitted."""
    return [event.kind for event in events]
