"""Proxies between the doctor and the server: what they lack is found."""

import pytest

from dibs.testing import CommandFilter, Server
from tests.behaviour.test_twemproxy import Start, twemproxy

from .examining import examine, look

__all__ = ["twemproxy"]


def test_twemproxy_is_found_and_without_it_the_finding_is_gone(
    twemproxy: Start, valkey: Server
) -> None:
    """It closes the connection on most commands; those that dibs needs work."""
    url = twemproxy(valkey.port)
    found = examine(url)
    assert found.keys() == {"proxy"}
    [server] = look(url).servers
    assert server.commands["eval"] == "allowed" and server.latency
    assert "proxy" not in examine(valkey.url)


def test_a_proxy_without_its_server_is_found(twemproxy: Start, own_server: Server) -> None:
    """It answers in the server's place."""
    url = twemproxy(own_server.port)
    own_server.kill()
    assert set(examine(url)) & {"proxy-backend", "closed"}


def test_a_proxy_that_speaks_resp2_only_is_found(valkey: Server) -> None:
    """HELLO is refused; where it is passed, the finding is gone. So with protocol=2 in the URL."""
    with CommandFilter(valkey.port) as line:
        line.refuse("HELLO", "CLIENT TRACKING", "INFO", "CONFIG")
        assert "resp2" in examine(line.url)
        [server] = look(line.url).servers
        assert any("does not know INFO" in why for why in server.unknown.values())
        line.allow_all()
        assert "resp2" not in examine(line.url)
        assert "resp2" in examine(line.url + "?protocol=2")


@pytest.mark.parametrize("command", ["EVAL", "SET"])
def test_a_proxy_that_lacks_what_dibs_needs_is_found(valkey: Server, command: str) -> None:
    """Verb by verb; it is not the user who is at fault."""
    with CommandFilter(valkey.port) as line:
        line.refuse(command)
        finding = examine(line.url)["commands-missing"]
        assert all(command.lower() in each for each in finding.details)
        line.allow_all()
        assert "commands-missing" not in examine(line.url)


def test_a_proxy_without_client_tracking_is_found(valkey: Server) -> None:
    """RESP3 alone brings no notifications."""
    with CommandFilter(valkey.port) as line:
        line.refuse("CLIENT TRACKING")
        assert "no-tracking" in examine(line.url)
        line.allow_all()
        assert "no-tracking" not in examine(line.url)
