"""The local memory of values: bounded, and emptied by every doubt."""

from dibs._core.local import ABSENT, Local, Ticket


def test_local_memory_is_bounded_and_doubts() -> None:
    """The oldest goes first; what changed while it was asked for is not kept."""
    local = Local(most=2)
    tickets = {key: _ticket() for key in (b"a", b"b", b"c")}
    gone: list[tuple[bytes, Ticket]] = []
    for key, ticket in tickets.items():
        local.ask(key, ticket)
        gone = local.put(key, key, 10.0, ticket)
    assert gone == [(b"a", tickets[b"a"])]
    assert local.get(b"a", 0.0) is ABSENT
    assert local.get(b"c", 0.0) == b"c"
    assert local.get(b"c", 10.0) is ABSENT
    late = _ticket()
    local.ask(b"d", late)
    local.forget(b"d")
    assert local.put(b"d", 1, 10.0, late) == [(b"d", late)]
    assert local.get(b"d", 0.0) is ABSENT


def test_local_memory_names_the_ticket_that_a_newer_value_replaces() -> None:
    """One ticket stays for each value, so that nobody listens for a key twice."""
    local = Local()
    first, second = _ticket(), _ticket()
    local.ask(b"a", first)
    assert local.put(b"a", 1, 10.0, first) == []
    local.ask(b"a", second)
    assert local.put(b"a", 2, 10.0, second) == [(b"a", first)]
    assert local.get(b"a", 0.0) == 2


def _ticket() -> Ticket:
    return lambda: None
