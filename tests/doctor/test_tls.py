"""TLS: what is wrong with a certificate, a name or a port is found, and the fix works."""

import datetime
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from dibs.testing import Certificates, FaultProxy, Server

from .examining import examine

StartServer = Callable[..., Server]


class Issued:
    """A certificate for a name, which may have expired, for a proxy that speaks TLS."""

    def __init__(self, folder: Path, name: str, *, days: int = 30) -> None:
        authority = trustme.CA()
        now = datetime.datetime.now(datetime.UTC)
        begin, end = now - datetime.timedelta(days=60), now + datetime.timedelta(days=days)
        self._issued = authority.issue_cert(name, not_before=begin, not_after=end)
        self.ca = folder / f"{name}{days}.pem"
        authority.cert_pem.write_to_path(str(self.ca))

    def server_context(self) -> ssl.SSLContext:
        """What the proxy speaks TLS with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._issued.configure_cert(context)
        return context

    def url(self, address: str) -> str:
        """The URL that trusts it."""
        return f"rediss://{address}?ssl_ca_certs={self.ca}"


@pytest.mark.parametrize(
    ("code", "name", "days"), [("tls-expired", "127.0.0.1", -1), ("tls-host", "other.example", 30)]
)
def test_a_certificate_that_does_not_fit_is_found(
    valkey: Server, tmp_path: Path, code: str, name: str, days: int
) -> None:
    """Expired, or for another name; with a new certificate the finding is gone."""
    with FaultProxy(valkey.port, tls=Issued(tmp_path, name, days=days)) as line:  # type: ignore[arg-type]
        assert code in examine(line.url)
    with FaultProxy(valkey.port, tls=Issued(tmp_path, "127.0.0.1")) as line:  # type: ignore[arg-type]
        assert code not in examine(line.url)


def test_an_unknown_authority_is_found(valkey: Server, tmp_path: Path) -> None:
    """With the file of the CA in the URL, as the fix says, it is trusted."""
    with FaultProxy(valkey.port, tls=Certificates(tmp_path)) as line:
        plain = line.url.partition("?")[0]
        assert "ssl_ca_certs=" in examine(plain)["tls-ca"].fix
        assert "tls-ca" not in examine(line.url)
        assert "tls-file" in examine(plain + "?ssl_ca_certs=/nonexistent.pem")


def test_tls_to_a_plain_port_and_the_reverse_are_found(start_server: StartServer) -> None:
    """The scheme that the fix names works."""
    server = start_server("redis7", tls=True)
    to_plain = examine(f"rediss://127.0.0.1:{server.port}")["tls-plain"]
    assert "outage" in to_plain.why
    assert f"redis://127.0.0.1:{server.port} " in to_plain.fix
    assert "tls-plain" not in examine(server.url)
    tls_url = server.tls_url
    without, _, query = tls_url.partition("?")
    to_tls = examine(without.replace("rediss", "redis"))["tls-required"]
    assert f"{without}," in to_tls.fix
    assert "tls-required" not in examine(f"{without}?{query}")


def test_a_missing_client_certificate_is_found(start_server: StartServer) -> None:
    """The server asks for one; with that in the URL, as the fix says, it is healthy."""
    server = start_server("redis7", tls="mutual")
    url, _, query = server.tls_url.partition("?")
    authority = query.partition("&")[0]
    assert "tls-client" in examine(f"{url}?{authority}")
    assert "tls-client" not in examine(server.tls_url)
