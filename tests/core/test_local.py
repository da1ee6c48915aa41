"""The local memory of values: bounded, and emptied by every doubt."""

from dibs._core.cache import ABSENT, Local, Ticket


def test_local_memory_is_bounded_and_doubts() -> None:
    """The oldest goes first; what changed while it was asked for is not kept."""
    local = Local(_never, most=2)
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
    """One ticket stays for each value, so that no key is tracked twice."""
    local = Local(_never)
    first, second = _ticket(), _ticket()
    local.ask(b"a", first)
    assert local.put(b"a", 1, 10.0, first) == []
    local.ask(b"a", second)
    assert local.put(b"a", 2, 10.0, second) == [(b"a", first)]
    assert local.get(b"a", 0.0) == 2


def test_after_a_pause_the_store_is_asked_until_nothing_was_missed() -> None:
    """The first reader after half a second asks whether changes were missed."""
    asked: list[float] = []
    behind = [False]

    def is_behind(now: float) -> bool:
        asked.append(now)
        return behind[0]

    local, ticket = Local(is_behind), _ticket()
    local.ask(b"a", ticket)
    local.put(b"a", 1, 100.0, ticket)
    assert [local.get(b"a", now) for now in (10.0, 10.2, 10.5)] == [1, 1, 1]
    assert asked == [10.0]
    behind[0] = True
    assert [local.get(b"a", now) for now in (12.0, 12.1)] == [ABSENT, ABSENT]
    behind[0] = False
    assert local.get(b"a", 12.2) == 1
    assert asked == [10.0, 12.0, 12.1, 12.2]


def _never(_: float) -> bool:
    return False


def _ticket() -> Ticket:
    return lambda: None


def test_what_had_to_go_does_not_come_back_with_its_old_ticket() -> None:
    """Its changes are no longer tracked."""
    local, first, second = Local(_never, most=1), _ticket(), _ticket()
    for key, ticket in ((b"a", first), (b"b", second)):
        local.ask(key, ticket)
        local.put(key, key, 10.0, ticket)
    assert local.put(b"a", b"a", 10.0, first) == [(b"a", first)]
    assert local.get(b"a", 0.0) is ABSENT
