"""Clients that are dropped without being closed, as notebooks and Streamlit do."""

import gc
import warnings

import pytest

from dibs import Dibs
from dibs.testing import Server, eventually
from dibs.testing.ports import free_port
from tests import dropped_clients


@pytest.mark.parametrize("kind", [*dropped_clients.THREADS, *dropped_clients.ASYNCIO])
def test_nothing_of_a_dropped_client_is_left(own_server: Server, kind: str) -> None:
    """Its threads and connections end, and a ResourceWarning says that it was not closed."""
    warned = 0 if kind == "nothing" else 5
    assert dropped_clients.left(own_server, kind, 5) == (0, 0, warned)


def test_a_client_that_is_dropped_in_an_outage_looks_no_more(own_server: Server) -> None:
    """Nobody waits for the server any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        dibs = Dibs(f"redis://127.0.0.1:{free_port()}", budget=0.1, connect=0.1)
        assert dibs.try_hold("user:1", ttl=5) is not None
        assert "dibs probe" in dropped_clients.threads()
        del dibs
        dropped_clients.wait_until_over(own_server)
    assert not dropped_clients.threads()


def test_a_function_keeps_the_client_that_has_decorated_it(valkey: Server) -> None:
    """Also if nothing else refers to the client: values in memory are kept true."""
    loads: list[str] = []

    def menu(branch: str) -> int:
        loads.append(branch)
        return len(loads)

    with warnings.catch_warnings(), Dibs(valkey.url) as other:
        warnings.simplefilter("ignore", ResourceWarning)
        functions = [Dibs(valkey.url).cached("menu:{branch}", ttl=600, local=True)(menu)]
        assert functions[0]("b1") == 1
        gc.collect()
        other.invalidate("menu:b1")
        eventually(lambda: functions[0]("b1") == 2)
        functions.clear()
        gc.collect()
