"""Signal handlers that raise, at each of the moments at which Python looks for signals."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dibs import Dibs
from dibs._core.request import Request
from dibs._transport.thread_connection import ThreadConnection
from dibs.testing import Server


class Interrupt(BaseException):
    """What a handler raises."""


def test_an_interrupted_read_does_not_give_others_the_values_of_other_keys(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values for the memory are read on one connection, in turn: a request is written, or none."""

    def menu_of(branch: str) -> str:
        return branch

    def interrupt(connection: ThreadConnection, request: Request) -> None:
        monkeypatch.undo()
        raise Interrupt

    with Dibs(valkey.url, budget=5) as dibs, Dibs(valkey.url, budget=5) as other:
        menu, filled = [
            each.cached("menu:{branch}", ttl=600, local=True)(menu_of) for each in (dibs, other)
        ]
        branches = ["b0", "b1", "b2", "b3", "b4"]
        assert [filled(branch) for branch in branches] == branches
        assert menu("b0") == "b0"
        monkeypatch.setattr(ThreadConnection, "write", interrupt)
        with pytest.raises(Interrupt):
            menu("b1")
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(menu, branches)) == branches
