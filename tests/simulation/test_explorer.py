"""Every interleaving of clients on the real scripts: see explorations.py."""

from collections.abc import Iterable
from typing import Any

import pytest

from .explorations import EXPLORATIONS
from .explorer import Client, Exploration, State, Step, command, explore, on
from .server import VALKEY

TAKEN = "the key is taken, and no client has it"
CLAIMED = "it is claimed, and no client runs it"
OLDER = "version 1 is stored after 2 was announced"
LATE = {
    "hold, by script": TAKEN,
    "hold, by command": TAKEN,
    "hold, extended by script": TAKEN,
    # Only where the user may not run scripts.
    "hold, extended by command": "client 0 is sure for 19999 ms, and is wrong",
    "hold, extended on Redis 8.4": "client 0 is sure for 19999 ms, and is wrong",
    "fences": TAKEN,
    "permits": TAKEN,
    "permits, extended": TAKEN,
    "once, by script": CLAIMED,
    "once, by command": CLAIMED,
    "runs": TAKEN,
    "cached, set": OLDER,
    "cached, set twice": OLDER,
    "freed by a person": TAKEN,
}
"""What the scripts alone do not prevent, if a copy arrives after its client has gone on."""


LONG = ("permits, extended", "runs", "permits")  # of 9 s, 6


@pytest.mark.parametrize(
    ("when", "name"),
    [
        pytest.param(
            when, name, marks=[pytest.mark.long] if when == "in time" and name in LONG else []
        )
        for name in EXPLORATIONS
        for when in ("never", "in time")
    ],
)
def test_no_order_of_requests_breaks_a_promise(name: str, when: str) -> None:
    """Also if one request is executed twice before its client continues."""
    result = explore(on(EXPLORATIONS[name], repeated=when))
    assert result.wrong is None, "\n".join(result.path)


@pytest.mark.parametrize("name", EXPLORATIONS)
def test_what_a_late_copy_can_do_is_known(name: str) -> None:
    """The transport has to prevent the rest; nothing more, and nothing less, is needed of it."""
    result = explore(on(EXPLORATIONS[name], repeated="late"))
    assert result.wrong == LATE.get(name), "\n".join(result.path)


class _Counting(Client):
    """Reads a number, then writes the next one."""

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            yield Step("reads", command(b"GET", b"n"), self._read)
        elif isinstance(known, int):
            yield Step("writes", command(b"SET", b"n", known + 1), self._wrote)

    def _read(self, state: State, reply: Any) -> State:
        return state.having(self.number, int(reply or 0))

    def _wrote(self, state: State, _: Any) -> State:
        return state.having(self.number, "done")


def _lost_update(state: State) -> str | None:
    is_over = all(known == "done" for known in state.clients)
    return "lost" if is_over and int(state.value(b"n")) < len(state.clients) else None


def test_an_update_that_is_lost_is_found() -> None:
    """The explorer finds the shortest order in which two clients overwrite each other."""
    result = explore(Exploration(VALKEY, (_Counting(0), _Counting(1)), _lost_update))
    assert result.wrong == "lost"
    assert [label.split()[1] for label in result.path] == ["reads", "reads", "writes", "writes"]
