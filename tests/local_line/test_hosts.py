"""A page on the internet that leads its own name to this machine reads nothing here."""

import httpx2 as httpx
import pytest
from local_line import KnownHosts, LocalLine

from apps.playground.main import app


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8800", "api.line.me.evil.example", "127.0.0.1.nip.io"]
)
async def test_a_name_of_another_machine_is_refused(host: str) -> None:
    """The page, its streams, LINE's API and the pages of LINE Login alike."""
    async with LocalLine() as line, httpx.AsyncClient(base_url=line.api_base) as client:
        for path in ("/chat/", "/chat/rows", "/v2/bot/info", "/oauth2/v2.1/verify", "/"):
            answer = await client.get(path, headers={"Host": host})
            assert (answer.status_code, "host is not known" in answer.text) == (403, True)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8800", "[::1]:8800", "localhost", "LOCALHOST:1", "local-line:8800",
             "host.docker.internal:8800", "api.line.me"],
)  # fmt: skip
async def test_names_of_this_machine_are_known(host: str) -> None:
    """Addresses, containers, and LINE's own hosts, which are led here."""
    async with LocalLine() as line, httpx.AsyncClient(base_url=line.api_base) as client:
        assert (await client.get("/chat/", headers={"Host": host})).status_code == 200


async def test_the_name_at_which_it_listens_is_known() -> None:
    """`--host bots.example.org`."""

    async def answer(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    transport = httpx.ASGITransport(KnownHosts(answer, {"bots.example.org"}))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport) as client:
        assert (await client.get("http://bots.example.org:8800/")).status_code == 204
        assert (await client.get("http://example.org/")).status_code == 403


async def test_the_playground_has_the_same_rule() -> None:
    """Its buttons are not for pages elsewhere."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        for path in ("/", "/static/page.css", "/chat/"):
            assert (await client.get(f"http://evil.example{path}")).status_code == 403
        assert (await client.get("http://127.0.0.1:8000/")).status_code == 200
