# Generated from tests/behaviour/_async/test_messages.py by unasync.py – do not edit.
"""What errors say to people: durations, names, and what to do."""

from typing import Any

import pytest

from dibs import Dibs, Busy, Duplicate, UsageError
from dibs.testing import Server


def test_a_wait_of_hours_is_said_in_hours(server: Server) -> None:
    """Not as 7.2e+03 s: people log and show it."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold("job:1", ttl=7200):
            with pytest.raises(Busy, match=r"try again in 2 h$"):
                two.hold("job:1", ttl=7200).__enter__()
        with one.claim("order:1", window=86_400, after="hold"):
            pass
        with pytest.raises(Duplicate, match=r"try again in 24 h$"):
            two.claim("order:1", window=86_400, after="hold").__enter__()


def test_a_word_without_a_colon_is_shown_whole(server: Server) -> None:
    """It is the name of a task; what may be an id is not shown."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        for key, shown in (
            ("nightly-report", "nightly-report"),
            ("u4711", r"\*"),
            ("a@b.c", r"\*"),
        ):
            with one.hold(key, ttl=5):
                with pytest.raises(Busy, match=rf"^{shown} is held by"):
                    two.hold(key, ttl=5).__enter__()


@pytest.mark.parametrize("wait", [0, 0.01])
def test_a_nested_hold_is_said_to_be_in_this_process(server: Server, wait: float) -> None:
    """Whose it is matters more than a process id that is one's own."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold("job:1", ttl=5):
            with pytest.raises(Busy, match="held by this process; leases are not re-entrant") as it:
                one.hold("job:1", ttl=5, wait=wait).__enter__()
            assert it.value.holder is not None
            with pytest.raises(Busy) as elsewhere:
                two.hold("job:1", ttl=5, wait=wait).__enter__()
            assert "re-entrant" not in str(elsewhere.value)


def test_permits_are_counted_and_a_wait_is_named(server: Server) -> None:
    """All of them are taken: one holder of five is not the cause. What was waited is said too."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold("api", ttl=5, limit=2), one.hold("api", ttl=5, limit=2):
            with pytest.raises(Busy, match=r"^all 2 permits of api are taken; try") as refused:
                two.hold("api", ttl=5, limit=2).__enter__()
            assert (refused.value.limit, refused.value.waited) == (2, 0.0)
            with pytest.raises(Busy, match=r"are taken, after a wait of 0.01 s; try again in"):
                two.hold("api", ttl=5, limit=2, wait=0.01).__enter__()
        with one.hold("job", ttl=5):
            with pytest.raises(Busy, match=r"^job is held by \S+, after a wait of 0.01 s; try"):
                two.hold("job", ttl=5, wait=0.01).__enter__()
            with pytest.raises(Busy, match=r"after a wait of 0.01 s"):
                two.leader("job", ttl=5, wait=0.01).__enter__()


def test_a_limit_is_named(server: Server) -> None:
    """1e9 is finite, but more than ten years."""
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="the limit is 315360000 s, ten years"):
            dibs.hold("a:1", ttl=5, wait=1e9)
        with pytest.raises(UsageError, match="finite"):
            dibs.hold("a:1", ttl=float("inf"))


def test_what_was_called_wrongly_is_said_with_what_to_write(server: Server) -> None:
    """A loader that was called, a classmethod below, a missing argument, a closed client."""
    with Dibs(server.url, budget=5) as dibs:

        def load() -> int:
            return 1

        made: Any = load()
        with pytest.raises(UsageError, match=r"pass the function itself, without \(\)"):
            dibs.get_or_load("a:1", made, ttl=5)
        if hasattr(made, "close"):
            made.close()

        with pytest.raises(UsageError, match="put @classmethod above"):
            wrong: Any = classmethod(load)
            dibs.exclusive("a:b", ttl=5)(wrong)
        with pytest.raises(UsageError, match="put @staticmethod above"):
            wrong = staticmethod(load)
            dibs.once("a:b", window=5)(wrong)

        @dibs.cached("v:{item}", ttl=5)
        def value(item: str) -> str:
            return item

        missing: Any = value.invalidate
        with pytest.raises(TypeError, match=r"value\(\) missing .*'item'"):
            missing()
    with pytest.raises(UsageError, match=r"is closed .*: make another one"):
        dibs.try_hold("a:1", ttl=5)
