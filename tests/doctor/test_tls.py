"""TLS: what is wrong with a certificate, a name or a port is found, and the fix works."""

import datetime
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from dibs.testing import Certificates, FaultProxy, Server, eventually

from .examining import examine
from .test_connecting import answering

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
        found = examine(line.url)
        assert name in found[code].fix or code == "tls-expired"
    with FaultProxy(valkey.port, tls=Issued(tmp_path, "127.0.0.1")) as line:  # type: ignore[arg-type]
        assert code not in examine(line.url)


def test_an_unknown_authority_is_found(valkey: Server, tmp_path: Path) -> None:
    """With the file of the CA in the URL, as the fix says, it is trusted."""
    with FaultProxy(valkey.port, tls=Certificates(tmp_path)) as line:
        plain = line.url.partition("?")[0]
        assert "ssl_ca_certs=" in examine(plain)["tls-ca"].fix
        assert "tls-ca" not in examine(line.url)
        for path in ("/nonexistent.pem", str(tmp_path)):
            finding = examine(f"{plain}?ssl_ca_certs={path}")["tls-file"]
            assert f"ssl_ca_certs={path}" in finding.seen


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


def test_a_web_server_is_not_taken_for_a_redis_that_wants_tls(tmp_path: Path) -> None:
    """The port of an HTTPS server answers plain text with HTTP: `rediss://` is no fix."""
    context = Certificates(tmp_path).server_context()

    def serve(client: socket.socket) -> None:
        if client.recv(1, socket.MSG_PEEK) == b"\x16":
            context.wrap_socket(client, server_side=True).close()
        else:
            client.recv(1000)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with answering(serve) as url:
        assert set(examine(url)) == {"not-redis"}


def test_a_missing_client_certificate_is_found(start_server: StartServer) -> None:
    """The server asks for one; with that in the URL, as the fix says, it is healthy."""
    server = start_server("redis7", tls="mutual")
    url, _, query = server.tls_url.partition("?")
    authority = query.partition("&")[0]
    assert "tls-client" in examine(f"{url}?{authority}")
    assert "tls-client" not in examine(server.tls_url)


AES_128, AES_256 = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"


@pytest.mark.parametrize("ours", ["", AES_128])
def test_a_handshake_without_a_common_cipher_is_no_missing_certificate(
    start_server: StartServer, ours: str
) -> None:
    """Both are refused with the same alert. The cipher may be missing here, or on the server."""
    theirs = AES_256 if ours else "DHE-RSA-AES256-SHA256"
    config = ("--tls-protocols", "TLSv1.2", "--tls-ciphers", theirs)
    server = start_server("redis7", tls=True, config=config)
    url = server.tls_url + (f"&ssl_ciphers={ours}" if ours else "")
    finding = examine(url)["tls-failed"]
    assert "HANDSHAKE" in finding.seen and "ssl_ciphers" in finding.fix
    if ours:
        assert "tls-failed" not in examine(server.tls_url)


def test_a_missing_client_certificate_is_found_without_tls_1_3(start_server: StartServer) -> None:
    """There the server refuses in the middle of the handshake."""
    server = start_server("redis7", tls="mutual", config=("--tls-protocols", "TLSv1.2"))
    url, _, query = server.tls_url.partition("?")
    assert "tls-client" in examine(f"{url}?{query.partition('&')[0]}")
    assert "tls-client" not in examine(server.tls_url)


def test_a_fix_keeps_tls_and_the_kind_of_the_url(start_server: StartServer) -> None:
    """Each URL that is named works, with the file of the CA: no fix leads to a plain port."""
    server = start_server("redis7", tls=True)
    server.client().config_set("requirepass", "secret")
    address, _, query = server.tls_url.removeprefix("rediss://").partition("?")
    missing = examine(server.tls_url)["auth-missing"]
    assert f"rediss://:PASSWORD@{address}," in missing.fix
    single = examine(f"redis+cluster://:secret@{address}?ssl=true&{query}")["cluster-disabled"]
    assert single.fix == f"Use rediss://{address}."
    assert not examine(f"rediss://:secret@{address}?{query}").keys() - {"persistence", "by-script"}


def test_a_cluster_over_tls_is_led_to_a_cluster_over_tls(start_server: StartServer) -> None:
    """From a URL without TLS, without the CA, and from that of a single server."""
    config = ("--cluster-enabled", "yes", "--tls-cluster", "yes")
    server = start_server("redis7", tls=True, config=config)
    server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    address, _, query = server.tls_url.removeprefix("rediss://").partition("?")
    right = f"redis+cluster://{address}?ssl=true"
    assert "redis+cluster://…?ssl=true" in examine(f"redis+cluster://{address}")["tls-required"].fix
    assert "redis+cluster://…?ssl=true&ssl_ca_certs=" in examine(right)["tls-ca"].fix
    assert f"Use {right}," in examine(server.tls_url)["cluster-target"].fix
    assert f"Use {right}," in examine(server.tls_url.replace("?", "/1?"))["cluster-database"].fix
    eventually(lambda: "cluster-state" not in examine(f"{right}&{query}"), within=90)
    plain = examine(f"redis+cluster://127.0.0.1:{server.port}?ssl=true")["tls-plain"]
    assert "redis+cluster://… without ssl=true" in plain.fix
