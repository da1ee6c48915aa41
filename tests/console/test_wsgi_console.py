"""The console as a WSGI application, on a real server."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, UsageError
from dibs.console import console_wsgi
from dibs.console.http import COOKIE
from dibs.testing import Server

TOKEN = "0123456789abcdef" * 2


def request(app: Any, address: str = "/", body: bytes = b"", **more: Any) -> Any:
    """Status, headers and body."""
    path, _, query = address.partition("?")
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": path, "SCRIPT_NAME": "/dibs", "QUERY_STRING": query,
        "SERVER_NAME": "shop.example", "SERVER_PORT": "80", "HTTP_HOST": "shop.example",
        "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)),
        **more,
    }  # fmt: skip
    said: list[Any] = []
    sent = b"".join(app(environ, lambda status, headers: said.extend((status, dict(headers)))))
    return int(said[0][:3]), said[1], sent


def rows(app: Any, group: str = "leases") -> list[Any]:
    status, _, body = request(app, f"/api/state?group={group}")
    assert status == 200
    return json.loads(body)["server"]["view"]["rows"]


def release(app: Any, row: Any, **more: str) -> Any:
    body = json.dumps({"id": row["id"], "seen": row["seen"]}).encode()
    ours = {
        "REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json",
        "HTTP_X_DIBS_CONSOLE": TOKEN, "HTTP_COOKIE": f"{COOKIE}={TOKEN}",
        "HTTP_ORIGIN": "http://shop.example",
    }  # fmt: skip
    status, _, said = request(app, "/api/release", body, **{**ours, **more})
    return status, json.loads(said)


def test_the_page_and_its_data_are_served(valkey: Server) -> None:
    """The same page; it asks, because there is no stream."""
    with Dibs(valkey.url) as dibs, dibs.hold("order:1", ttl=30):
        app = console_wsgi(dibs, allow="host")
        status, headers, page = request(app)
        assert status == 200 and b'data-updates="poll"' in page
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert request(app, "/api/events")[0] == 404
        [row] = rows(app)
        assert row["key"].startswith("order:~") and row["seen"] is None


def test_nothing_is_served_without_the_right(valkey: Server) -> None:
    """The rule gets the environ."""
    with Dibs(valkey.url) as dibs:
        app = console_wsgi(dibs, allow=lambda environ: environ.get("REMOTE_USER") == "admin")
        for path in ("/", "/static/console.css", "/api/state", "/api/release"):
            assert request(app, path)[0] == 403
        assert request(app, REMOTE_USER="admin")[0] == 200


def test_a_view_in_front_of_it_decides(valkey: Server) -> None:
    """A view of Flask or Django asks for the response; the place of the view is the root."""
    with Dibs(valkey.url) as dibs:
        page = console_wsgi(dibs, allow="host")

        def asked(path: str, behind: str) -> tuple[int, dict[str, str]]:
            environ = {
                "REQUEST_METHOD": "GET", "SCRIPT_NAME": "/shop", "PATH_INFO": path,
                "SERVER_NAME": "x", "SERVER_PORT": "80",
            }  # fmt: skip
            status, headers, _ = page.respond(environ, behind)
            return status, dict(headers)

        assert asked("/admin/dibs/", "")[0] == 200
        # Without a path it is for the folder of the page, as the browser sees that.
        assert "Path=" not in asked("/admin/dibs/", "")[1]["Set-Cookie"]
        assert asked("/admin/dibs/static/console.css", "static/console.css")[0] == 200
        assert asked("/admin/dibs/api/state", "api/state")[0] == 200
        assert asked("/admin/dibs/nowhere", "nowhere")[0] == 404


def test_releasing_over_wsgi_compares_what_was_shown(valkey: Server) -> None:
    """A successor keeps its key; a request from elsewhere is refused."""
    with Dibs(valkey.url) as dibs:
        app = console_wsgi(dibs, allow="host", allow_release="host")
        with dibs.hold("order:1", ttl=30):
            [first] = rows(app)
        with dibs.hold("order:1", ttl=30) as successor:
            assert release(app, first) == (
                409,
                {
                    "outcome": "other",
                    "said": "It has another holder now, or was completed. Nothing was changed.",
                },
            )
            assert not successor.lost
            app.survey.look_again()
            [row] = rows(app)
            assert release(app, row, HTTP_ORIGIN="http://evil.example")[0] == 403
            assert release(app, row)[1]["outcome"] == "released"
        assert valkey.keys() == []


def test_a_server_that_is_out_is_said_to_who_asks(own_server: Server) -> None:
    """The request is answered all the same."""
    with Dibs(own_server.url) as dibs:
        app = console_wsgi(dibs, allow="host")
        rows(app)
        own_server.kill()
        app.survey.look_again()
        seen = json.loads(request(app, "/api/state")[2])
        assert seen["server"]["failure"] and seen["process"]["breakers"][0]["state"] == "open"


def test_an_acl_without_info_costs_the_facts_alone(own_server: Server) -> None:
    """Keys are listed all the same; without SCAN, the page says what the server refused."""
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", "viewer", "on", ">x", "~*", "+@all", "-info")
    url = own_server.url.replace("redis://", "redis://viewer:x@")
    with Dibs(url) as dibs, dibs.hold("order:1", ttl=30):
        app = console_wsgi(dibs, allow="host")
        assert len(rows(app)) == 1
        assert json.loads(request(app, "/api/state")[2])["server"]["nodes"] == []
        with own_server.client() as client:
            client.execute_command("ACL", "SETUSER", "viewer", "-scan")
        app.survey.look_again()
        assert "scan" in json.loads(request(app, "/api/state")[2])["server"]["failure"].lower()


async def test_a_client_for_asyncio_needs_the_other_console(valkey: Server) -> None:
    """It says which."""
    async with AsyncDibs(valkey.url) as dibs:
        with pytest.raises(UsageError, match="there is console"):
            console_wsgi(dibs, allow="host")  # type: ignore[arg-type]


def test_it_says_why_a_key_is_so(valkey: Server) -> None:
    """The same as `dibs why`; the key is shortened without the right to see it."""
    with Dibs(valkey.url, namespace="shop:", budget=5) as dibs, dibs.hold("job:7", ttl=60):
        for keys in (False, True):
            app = console_wsgi(
                dibs, allow=lambda environ: True, allow_keys=lambda environ, keys=keys: keys
            )
            [row] = rows(app)
            status, _, said = request(app, f"/api/why?id={row['id']}")
            told = json.loads(said)
            assert status == 200 and ["namespace", "shop:"] in told["facts"]
            assert ["its process", "is running, on this machine"] in told["facts"]
            assert ("job:7" in str(said)) == keys and told["next"].startswith("Others get Busy")
        assert request(app, "/api/why?id=none")[0] == 404
