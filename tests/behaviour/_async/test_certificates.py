"""TLS settings that cannot work: an error at the first use, with what to change."""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dibs import AsyncDibs, Event, UsageError
from dibs.testing import Server

from ..resets import line_that_resets


@pytest.fixture
def tls(start_server: Callable[..., Server]) -> Server:
    """A server with a certificate that only those trust who have its CA."""
    return start_server("redis7", tls=True)


@contextmanager
def without_rights() -> Iterator[None]:
    """Run as a user who may not read everything, if the tests run as root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


async def first_use(url: str) -> str:
    """What the first hold raises."""
    events: list[Event] = []
    async with AsyncDibs(url, budget=5, listeners=[events.append]) as dibs:
        with pytest.raises(UsageError) as caught:
            async with dibs.hold("job:1", ttl=5):
                pytest.fail("let through")
        with pytest.raises(UsageError):  # and not an outage afterwards
            await dibs.try_hold("job:1", ttl=5)
    assert [event.kind for event in events] == []
    return str(caught.value)


async def test_a_certificate_that_is_not_trusted_is_a_mistake(tls: Server) -> None:
    """The sentence names the option that takes the CA."""
    assert "ssl_ca_certs" in await first_use(tls.tls_url.partition("?")[0])


async def test_a_missing_ca_file_is_a_mistake(tls: Server) -> None:
    """Not an outage for ever."""
    url = tls.tls_url.partition("?")[0]
    assert "ssl_ca_certs" in await first_use(f"{url}?ssl_ca_certs=/nowhere/ca.pem")


async def test_a_ca_file_without_a_certificate_is_a_mistake(tls: Server, tmp_path: Path) -> None:
    """The file exists, but cannot be read as a certificate."""
    (tmp_path / "ca.pem").write_text("not a certificate")
    url = tls.tls_url.partition("?")[0]
    assert "ssl_ca_certs" in await first_use(f"{url}?ssl_ca_certs={tmp_path / 'ca.pem'}")


async def test_a_folder_in_place_of_a_ca_file_is_a_mistake(tls: Server, tmp_path: Path) -> None:
    """As when a volume was mounted in place of the file."""
    url = tls.tls_url.partition("?")[0]
    assert "ssl_ca_certs" in await first_use(f"{url}?ssl_ca_certs={tmp_path}")


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
async def test_a_file_without_the_right_to_read_it_is_a_mistake(
    tls: Server, tmp_path: Path, option: str
) -> None:
    """As when a key of root is named to a service that runs as another user."""
    file = tmp_path / "file.pem"
    file.touch(mode=0)
    with without_rights():
        message = await first_use(f"{tls.tls_url.partition('?')[0]}?{option}={file}")
    assert message.endswith(f"{option}={file}: Permission denied")


@pytest.mark.parametrize(
    ("config", "query"),
    [
        (["--tls-ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"], "ssl_ciphers=ECDHE-ECDSA-AES128-SHA"),
        (["--tls-ciphers", "DHE-RSA-AES256-SHA256"], ""),
        ([], f"ssl_min_version={ssl.TLSVersion.TLSv1_3.value}"),
        ([], "ssl_ciphers=nonsense"),
    ],
)
async def test_a_handshake_without_a_common_cipher_or_version_is_a_mistake(
    start_server: Callable[..., Server], config: list[str], query: str
) -> None:
    """The sentence names the options for it, and blames no certificate alone."""
    server = start_server("redis7", tls=True, config=("--tls-protocols", "TLSv1.2", *config))
    message = await first_use(f"{server.tls_url}&{query}")
    assert "ssl_ciphers" in message or "ssl_min_version" in message
    assert "does not accept our certificate" not in message


async def test_a_missing_client_certificate_is_a_mistake_without_tls_1_3(
    start_server: Callable[..., Server],
) -> None:
    """There the alert is the same as without a common cipher: the sentence names both."""
    server = start_server("redis7", tls="mutual", config=("--tls-protocols", "TLSv1.2"))
    message = await first_use(server.tls_url.partition("&")[0])
    assert "ssl_certfile" in message and "ssl_ciphers" in message


async def test_a_certificate_for_another_host_is_a_mistake(tls: Server) -> None:
    """It is trusted, but made for 127.0.0.1: this is the same address by another name."""
    url = tls.tls_url.replace("127.0.0.1", "127.1")
    assert "host name" in await first_use(f"{url}&ssl_check_hostname=true")


async def test_a_missing_client_certificate_is_a_mistake(
    start_server: Callable[..., Server],
) -> None:
    """The server asks for one. With TLS 1.3 it says so after the handshake, and may reset."""
    server = start_server("redis7", tls="mutual")
    url, _, query = server.tls_url.partition("?")
    url = f"{url}?{query.partition('&')[0]}"
    assert "ssl_certfile" in await first_use(url)
    port = urlsplit(url).port
    assert port is not None
    with line_that_resets(port) as line:
        assert "ssl_certfile" in await first_use(url.replace(str(port), str(line)))
    async with AsyncDibs(server.tls_url, budget=5) as dibs, dibs.hold("job:1", ttl=5) as lease:
        assert lease.guarded


async def test_certificates_are_read_once_and_again_when_they_change(
    tls: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for every connection: it takes longer than all the rest of opening one."""
    url, _, ca = tls.tls_url.partition("?ssl_ca_certs=")
    copy = tmp_path / "ca.pem"
    copy.write_bytes(Path(ca).read_bytes())
    made: list[ssl.SSLContext] = []
    make = ssl.create_default_context

    def counted(*args: Any, **options: Any) -> ssl.SSLContext:
        made.append(make(*args, **options))
        return made[-1]

    async def is_guarded() -> bool:
        async with AsyncDibs(f"{url}?ssl_ca_certs={copy}", budget=5) as dibs:
            async with dibs.hold("job:1", ttl=5) as lease:
                return lease.guarded

    monkeypatch.setattr(ssl, "create_default_context", counted)
    assert [await is_guarded() for _ in range(3)] == [True] * 3
    assert len(made) == 1
    copy.write_bytes(Path(ca).read_bytes() + b"\n")
    assert [await is_guarded() for _ in range(3)] == [True] * 3
    assert len(made) == 2


async def test_what_worked_before_is_an_outage_afterwards(
    tls: Server, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """A CA file that vanishes while the process runs: the policy decides, until it is back."""
    url, _, ca = tls.tls_url.partition("?ssl_ca_certs=")
    copy = tmp_path / "ca.pem"
    copy.write_bytes(Path(ca).read_bytes())
    events: list[Event] = []
    async with AsyncDibs(f"{url}?ssl_ca_certs={copy}", budget=5, listeners=[events.append]) as dibs:
        async with dibs.hold("job:1", ttl=5) as lease:
            assert lease.guarded
        copy.write_text("not a certificate")
        tls.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        async def is_out() -> bool:
            async with dibs.hold("job:1", ttl=5) as lease:
                return not lease.guarded

        assert await eventually(is_out, within=90)  # type: ignore[misc]
        copy.write_bytes(Path(ca).read_bytes())
        await eventually(lambda: "recovered" in [event.kind for event in events], within=90)  # type: ignore[misc]
    assert {event.cause for event in events if event.kind == "outage"} <= {"tls", "disconnected"}
    assert "tls" in {event.cause for event in events}
