"""The console as an application, on a real server: under ASGI and WSGI, with both clients."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, UsageError
from dibs.console import console
from dibs.console.http import COOKIE
from dibs.console.key_rows import state_of
from dibs.testing import Server
from tests.console.asgi_client import Answer, request
from tests.topologies import start_cluster

TOKEN = "0123456789abcdef" * 2
WAYS = ("asgi", "asgi of a Dibs", "wsgi")
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def in_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request reads and computes again: tests ask faster than a page does."""
    monkeypatch.setattr("dibs.console.key_rows.SAME_FOR", 0.0)
    monkeypatch.setattr("dibs.console.application.REST", 0)


class Page:
    """A console, as a browser sees it."""

    def __init__(self, app: Any, way: str = "asgi") -> None:
        self.app = app
        self.is_wsgi = way == "wsgi"

    async def ask(
        self, address: str = "/", method: str = "GET", body: bytes = b"", **headers: str
    ) -> Answer:
        if not self.is_wsgi:
            return await request(self.app, address, method, body, "/dibs", **headers)
        return await asyncio.to_thread(_call_wsgi, self.app, address, method, body, headers)

    async def state(self, query: str = "") -> Any:
        answer = await self.ask(f"/api/state?{query}")
        assert answer.status == 200
        return answer.json

    async def rows(self, group: str = "leases") -> list[Any]:
        return (await self.state(f"group={group}"))["server"]["view"]["rows"]

    async def release(self, row: Any, **changes: str) -> Answer:
        body = json.dumps({"id": row["id"], "seen": row["seen"]}).encode()
        headers = {
            "content_type": "application/json", "origin": "http://shop.example",
            "x_dibs_console": TOKEN, "cookie": f"{COOKIE}={TOKEN}",
        }  # fmt: skip
        return await self.ask("/api/release", "POST", body, **{**headers, **changes})

    async def until(self, check: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(60):
            while not check(seen := await self.state()):
                await asyncio.sleep(0.05)
        return seen


def _call_wsgi(app: Any, address: str, method: str, body: bytes, headers: dict[str, str]) -> Answer:
    path, _, query = address.partition("?")
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": "/dibs", "QUERY_STRING": query,
        "SERVER_NAME": "shop.example", "SERVER_PORT": "80", "HTTP_HOST": "shop.example",
        "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)),
        **{f"HTTP_{name.upper()}": value for name, value in headers.items()},
        "CONTENT_TYPE": headers.get("content_type", ""),
    }  # fmt: skip
    answer = Answer()

    def start(status: str, lines: list[tuple[str, str]]) -> None:
        answer.status, answer.headers = int(status[:3]), {n.lower(): v for n, v in lines}

    answer.body = b"".join(app.wsgi(environ, start))
    return answer


@asynccontextmanager
async def shown(way: str, server: Server, **rules: Any) -> AsyncIterator[tuple[AsyncDibs, Page]]:
    """A client that works, and a console: of the same client, or of a Dibs beside it."""
    async with AsyncDibs(server.url, namespace="shop:") as dibs:
        with Dibs(server.url, namespace="shop:") as of_threads:
            of = dibs if way == "asgi" else of_threads
            yield dibs, Page(console(of, **{"allow": "host", **rules}), way)


def header_of(asker: Any, name: str) -> str | None:
    """A header of a request, which rules get as a scope or an environ."""
    if "headers" not in asker:
        return asker.get("HTTP_" + name.upper().replace("-", "_"))
    return dict(asker["headers"]).get(name.encode(), b"").decode()


# ---- who may see it


@every_way
async def test_nothing_is_served_to_whom_the_application_does_not_allow(
    valkey: Server, way: str
) -> None:
    """Neither page nor style nor data; and the server is not read."""
    async with shown(way, valkey, allow=lambda asker: False) as (_, page):
        before = valkey.commands("scan")
        for path in ("/", "/static/console.css", "/api/state", "/api/why", "/nowhere"):
            assert (await page.ask(path)).status == 403
        assert (await page.ask("/api/release", "POST")).status == 403
        assert valkey.commands("scan") == before


@every_way
async def test_the_application_decides_by_the_request(valkey: Server, way: str) -> None:
    """A rule gets the ASGI scope or WSGI environ, with what middleware has put there."""

    def is_admin(asker: Any) -> bool:
        return header_of(asker, "x-user") == "admin"

    async with shown(way, valkey, allow=is_admin) as (_, page):
        assert (await page.ask("/")).status == 403
        assert (await page.ask("/", x_user="admin")).status == 200


@every_way
async def test_a_rule_that_fails_or_says_neither_yes_nor_no_lets_nobody_in(
    valkey: Server, way: str
) -> None:
    """The error reaches the application around the console; nothing is sent."""
    async with shown(way, valkey, allow=lambda asker: asker["user"]) as (_, page):
        with pytest.raises(KeyError):
            await page.ask("/")
    async with shown(way, valkey, allow=lambda asker: object()) as (_, page):
        with pytest.raises(UsageError, match="True or False"):
            await page.ask("/")


@every_way
async def test_a_rule_may_be_asynchronous_where_there_is_an_event_loop(
    valkey: Server, way: str
) -> None:
    """Under WSGI there is none: then it lets nobody in, and an error says so."""

    async def rule(asker: Any) -> bool:
        await asyncio.sleep(0)
        return header_of(asker, "x-user") == "admin"

    async with shown(way, valkey, allow=rule) as (_, page):
        if way == "wsgi":
            with pytest.raises(UsageError, match="asynchronous"):
                await page.ask("/", x_user="admin")
        else:
            assert (await page.ask("/", x_user="admin")).status == 200
            assert (await page.ask("/")).status == 403


async def test_a_console_without_a_decision_cannot_be_made(valkey: Server) -> None:
    """Not by forgetting the argument either."""
    async with AsyncDibs(valkey.url) as dibs:
        with pytest.raises(TypeError, match="allow"):
            console(dibs)  # type: ignore[call-arg]
        with pytest.raises(UsageError, match="allow must be"):
            console(dibs, allow=True)  # type: ignore[arg-type]


# ---- what it shows


@every_way
async def test_leases_permits_claims_loads_and_values_are_listed(valkey: Server, way: str) -> None:
    """Of every process that uses the server, counted by kind."""
    async with shown(way, valkey, allow_keys="host") as (dibs, page):
        async with AsyncDibs(valkey.url, namespace="shop:") as other:
            loading, go_on = asyncio.Event(), asyncio.Event()

            async def load() -> str:
                loading.set()
                await go_on.wait()
                return "noodles"

            cold = asyncio.create_task(other.get_or_load("menu:b1", load, ttl=60))
            await loading.wait()
            async with (
                other.hold("order:1", ttl=30),
                dibs.hold("gpu", ttl=30, limit=3),
                other.hold("gpu", ttl=30, limit=3),
                dibs.claim("pay:7", window=60, note="card"),
            ):
                seen = await page.state()
                [lease] = await page.rows("leases")
                [permits] = await page.rows("permits")
                [claim] = await page.rows("claims")
                [load_row] = await page.rows("loads")
            go_on.set()
            await cold
    counts = seen["server"]["sweep"]["counts"]
    assert counts["now"] == 4
    assert counts["leases"] == counts["permits"] == counts["claims"] == counts["loads"] == 1
    assert lease["key"] == "order:1" and 20 < lease["remaining"] <= 30 and lease["holder"]
    assert permits["count"] == 2 and len(permits["permits"]) == 2
    assert (claim["key"], claim["state"], claim["note"]) == ("pay:7", "running", "card")
    assert load_row["of"] == "menu:b1"


@every_way
async def test_no_secret_and_no_whole_key_is_sent_without_the_rights(
    valkey: Server, way: str
) -> None:
    """Keys are shortened, what a release compares is left out, a token is never sent."""
    async with (
        shown(way, valkey) as (dibs, page),
        dibs.hold("order:secret-42", ttl=30) as lease,
    ):
        waiting = asyncio.create_task(dibs.try_hold("order:secret-42", ttl=5, wait=5))
        await asyncio.sleep(0)
        bodies = [(await page.ask(f"/api/state?group={each}")).body for each in ("leases", "x")]
        waiting.cancel()
        await asyncio.wait([waiting])
    for body in bodies:
        assert b"order:~" in body and b"secret-42" not in body
        assert lease.token.encode() not in body
        assert lease.token.partition("-")[0].encode() not in body
    assert json.loads(bodies[0])["server"]["view"]["rows"][0]["seen"] is None


async def test_what_this_process_does_is_told_apart_from_the_server(valkey: Server) -> None:
    """Held here, waited for here, hit rates by template: not what other processes do."""
    async with shown("asgi", valkey, allow_keys="host") as (dibs, page):
        menu = dibs.cached("menu:{branch}", ttl=60)(_branch)
        await menu("b1")
        await menu("b1")
        async with AsyncDibs(valkey.url, namespace="shop:") as other:
            async with other.hold("order:1", ttl=30), dibs.hold("order:2", ttl=30):
                waiting = asyncio.create_task(dibs.try_hold("order:1", ttl=5, wait=30))
                seen = await page.until(lambda seen: seen["process"]["waited_for"])
                waiting.cancel()
                await asyncio.wait([waiting])
    process = seen["process"]
    assert [each["key"] for each in process["held"]] == ["order:2"]
    [waited] = process["waited_for"]
    assert (waited["key"], waited["count"]) == ("order:1", 1)
    template = next(each for each in process["templates"] if each["name"] == "menu:{branch}")
    assert template["hit_rate"] == 0.5 and template["loads"]["count"] == 1
    assert process["breakers"] == [{"state": "closed", "cause": "", "out_for": None}]


async def _branch(branch: str) -> str:
    return branch


@every_way
async def test_it_says_why_a_key_is_so(valkey: Server, way: str) -> None:
    """The same as `dibs why`; the key is shortened without the right to see it."""

    def may(asker: Any) -> bool:
        return header_of(asker, "x-user") == "admin"

    async with shown(way, valkey, allow_keys=may) as (dibs, page), dibs.hold("job:7", ttl=60):
        [row] = await page.rows()
        for who in ("nobody", "admin"):
            said = await page.ask(f"/api/why?id={row['id']}", x_user=who)
            assert said.status == 200 and ["namespace", "shop:"] in said.json["facts"]
            assert ["its process", "is running, on this machine"] in said.json["facts"]
            assert (b"job:7" in said.body) == (who == "admin")
            assert said.json["next"].startswith("Others get Busy")
        assert (await page.ask("/api/why?id=none")).status == 404


# ---- releasing


@every_way
async def test_a_lease_is_released_if_it_is_the_one_that_was_shown(
    valkey: Server, way: str
) -> None:
    """Then it is free, and the list knows."""
    async with shown(way, valkey, allow_release="host") as (dibs, page):
        lease = await dibs.try_hold("order:1", ttl=30)
        [row] = await page.rows()
        answer = await page.release(row)
        assert answer.status == 200 and answer.json["outcome"] == "released"
        assert await dibs.peek("order:1") is None and lease is not None
        assert await page.rows() == []
        assert await lease.release() is False


@every_way
async def test_a_successor_is_never_released(valkey: Server, way: str) -> None:
    """The lease that was shown has ended; its successor keeps the key."""
    async with shown(way, valkey, allow_release="host") as (dibs, page):
        async with dibs.hold("order:1", ttl=30):
            [row] = await page.rows()
        async with dibs.hold("order:1", ttl=30) as successor:
            answer = await page.release(row)
            assert answer.status == 409 and answer.json["outcome"] == "other"
            assert await dibs.peek("order:1") is not None and not successor.lost
        assert (await page.release(row)).json["outcome"] == "free"


@every_way
async def test_one_permit_is_released_and_the_others_stay(valkey: Server, way: str) -> None:
    """Each has its own row in the list of its key."""
    async with shown(way, valkey, allow_release="host") as (dibs, page):
        first = await dibs.try_hold("gpu", ttl=30, limit=2)
        second = await dibs.try_hold("gpu", ttl=30, limit=2)
        assert first is not None and second is not None
        [row] = await page.rows("permits")
        answer = await page.release({"id": row["id"], "seen": row["permits"][0]["seen"]})
        assert answer.json["outcome"] == "released"
        assert sorted([await first.release(), await second.release()]) == [False, True]


@every_way
async def test_who_may_read_may_not_release(valkey: Server, way: str) -> None:
    """It is a separate right; and a request from another origin has none, for every user."""

    def is_operator(asker: Any) -> bool:
        return header_of(asker, "x-role") == "op"

    async with shown(way, valkey, allow_release=is_operator) as (dibs, page):
        async with dibs.hold("order:1", ttl=30):
            [row] = await page.rows()
            row["seen"] = "guessed-1"
            assert (await page.release(row)).status == 403
            assert (await page.release(row, x_role="op")).status == 409
            evil = {"x_role": "op", "origin": "http://evil.example"}
            assert (await page.release(row, **evil)).status == 403
            assert (await page.release(row, x_role="op", x_dibs_console="")).status == 403
            assert valkey.keys() != []


@every_way
async def test_a_row_that_another_worker_showed_is_found(valkey: Server, way: str) -> None:
    """The browser's POST may reach a process that has read nothing yet."""
    async with shown(way, valkey, allow_release="host") as (dibs, page):
        async with shown(way, valkey, allow_release="host") as (_, worker):
            async with dibs.hold("order:1", ttl=30):
                [row] = await page.rows()
                assert (await worker.release(row)).json["outcome"] == "released"
                lost = await worker.release({"id": "0" * 24, "seen": "a-1"})
                assert lost.json["outcome"] == "lost"


@every_way
async def test_a_long_body_is_refused(valkey: Server, way: str) -> None:
    """No more of it is read than a release needs."""
    async with shown(way, valkey, allow_release="host") as (_, page):
        assert (await page.release({"id": "x" * 10_000, "seen": "a-1"})).status == 400


# ---- reading the server


@every_way
async def test_viewers_share_what_is_read_and_what_is_shown(
    valkey: Server, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read and made once for all of them; other rows and other rights make another state."""
    made: list[tuple[Any, Any]] = []

    def counting(*given: Any) -> Any:
        made.append(given[3:5])
        return state_of(*given)

    monkeypatch.setattr("dibs.console.application.state_of", counting)
    monkeypatch.setattr("dibs.console.key_rows.SAME_FOR", 3600.0)

    def may(asker: Any) -> bool:
        return "operator=1" in (header_of(asker, "cookie") or "")

    async with shown(way, valkey, allow_release=may) as (dibs, page):
        lease = await dibs.try_hold("job", ttl=600)
        assert (await page.state("group=leases"))["token"] is None
        read = valkey.commands("scan")
        for _ in range(3):
            await page.state("group=leases")
        assert len(made) == 1 and valkey.commands("scan") == read
        await page.state("group=claims")
        assert len(made) == 2
        for cookie in ("operator=1", "operator=1"):
            assert (await page.ask("/api/state", cookie=cookie)).json["may"]["release"]
        assert len(made) == 3 and lease is not None


async def test_after_it_has_read_for_a_moment_it_rests_for_longer(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many viewers ask, most of the time belongs to the application; the sweep goes on."""
    monkeypatch.setattr("dibs.console.application.REST", 1_000_000)
    monkeypatch.setattr("dibs.console.application.READ_FOR", 0.0)
    async with shown("asgi", valkey) as (dibs, page):
        assert await dibs.try_hold("order:1", ttl=600)
        assert (await page.state())["server"]["sweep"] is None
        before = valkey.commands("scan")
        monkeypatch.setattr("dibs.console.application.READ_FOR", 0.15)
        assert (await page.state())["server"]["sweep"] is None
        assert valkey.commands("scan") == before
        page.app._reader._rests_until = 0.0
        assert (await page.state())["server"]["sweep"]["complete"]


async def test_a_request_reads_beside_another_one_only_if_that_has_ended(
    own_server: Server,
) -> None:
    """While one waits for the server, the others are answered with what there is."""
    async with shown("asgi", own_server) as (_, page):
        await page.state()
        page.app.survey.look_again()
        own_server.freeze()
        reading = asyncio.create_task(page.state())
        try:
            await asyncio.sleep(0)
            async with asyncio.timeout(20):
                assert (await page.state())["server"]["sweep"]["complete"]
            assert not reading.done()
        finally:
            own_server.thaw()
        await reading


@every_way
async def test_a_server_that_is_out_is_said_and_its_return_is_noticed(
    own_server: Server, way: str
) -> None:
    """What was read before is still shown; the outage is on the time line of this process."""
    async with shown(way, own_server) as (dibs, page):
        held = await dibs.try_hold("order:1", ttl=60)
        assert held is not None and len(await page.rows()) == 1
        own_server.kill()
        seen = await page.until(lambda seen: seen["server"]["failure"] is not None)
        assert len(seen["server"]["view"]["rows"]) == 1
        assert seen["process"]["breakers"][0]["state"] != "closed"
        own_server.restart()
        await page.until(lambda seen: seen["server"]["failure"] is None)
        await page.until(lambda seen: seen["process"]["breakers"][0]["state"] == "closed")


async def test_an_outage_is_on_the_time_line_of_its_process(own_server: Server) -> None:
    """From the first call that it touches until the server answers again."""
    async with shown("asgi", own_server) as (dibs, page):
        own_server.kill()
        await dibs.try_hold("order:2", ttl=5)
        assert (await page.state())["process"]["outages"][-1]["ended"] is None
        own_server.restart()
        await page.until(lambda seen: seen["process"]["outages"][-1]["ended"] is not None)


@every_way
async def test_an_acl_without_info_costs_the_facts_alone(own_server: Server, way: str) -> None:
    """Keys are listed all the same; without SCAN, the page says what the server refused."""
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", "viewer", "on", ">x", "~*", "+@all", "-info")
        async with AsyncDibs(own_server.url.replace("redis://", "redis://viewer:x@")) as dibs:
            with Dibs(own_server.url.replace("redis://", "redis://viewer:x@")) as of_threads:
                page = Page(console(dibs if way == "asgi" else of_threads, allow="host"), way)
                async with dibs.hold("order:1", ttl=30):
                    assert len(await page.rows()) == 1
                    assert (await page.state())["server"]["nodes"] == []
                    client.execute_command("ACL", "SETUSER", "viewer", "-scan")
                    page.app.survey.look_again()
                    assert "scan" in (await page.state())["server"]["failure"].lower()


async def test_every_node_of_a_cluster_is_shown_and_a_lost_one_is_named(
    start_server: Callable[..., Server],
) -> None:
    """Keys of all nodes, facts and a breaker for each; one that is gone is said to be missing."""
    servers = start_cluster(start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in servers)
    async with AsyncDibs(url) as dibs:
        page = Page(console(dibs, allow="host"))
        for number in range(30):
            assert await dibs.try_hold(f"order:{number}", ttl=60)
        seen = await page.until(lambda seen: seen["server"]["sweep"]["complete"])
        assert seen["server"]["sweep"]["counts"]["leases"] == 30
        assert len(seen["server"]["nodes"]) == len(seen["process"]["breakers"]) == 3
        servers[2].kill()
        page.app.survey.look_again()
        seen = await page.until(lambda seen: seen["server"]["sweep"]["unreachable"])
        assert seen["server"]["sweep"]["unreachable"] == [f"127.0.0.1:{servers[2].port}"]
        assert 0 < seen["server"]["sweep"]["counts"]["leases"] < 30


# ---- the protocols


@every_way
async def test_every_request_of_a_page_is_answered(valkey: Server, way: str) -> None:
    """The page, its files, a HEAD without a body, the way to the page's own folder."""
    async with shown(way, valkey) as (_, page):
        first = await page.ask("/")
        assert first.status == 200 and b"What the server holds" in first.body
        assert "default-src 'none'" in first.headers["content-security-policy"]
        assert (await page.ask("/static/console.js")).status == 200
        assert (await page.ask("/api/events")).status == 404
        head = await page.ask("/", "HEAD")
        assert head.status == 200 and head.body == b""
        assert int(head.headers["content-length"]) == len(first.body)
        moved = await page.ask("")
        assert moved.status == 307 and moved.headers["location"] == "dibs/"


async def test_it_lives_at_any_root_path(valkey: Server) -> None:
    """Servers that name the root in the path, and servers that cut it off."""
    async with shown("asgi", valkey) as (_, page):
        assert await _status(page, path="/admin/dibs/", root_path="/admin/dibs") == 200
        assert await _status(page, path="/static/console.css", root_path="/dibs") == 200
        assert await _status(page, path="/dibs-other/", root_path="/dibs") == 404


async def test_it_is_found_behind_a_proxy_that_cuts_off_its_prefix(valkey: Server) -> None:
    """Then the root path has two parts, and the path only the second one."""
    async with shown("asgi", valkey) as (_, page):
        for path in ("/dibs/", "/api/dibs/", "/dibs/static/console.js"):
            facts = {"path": path, "root_path": "/api/dibs", "app_root_path": "/api"}
            assert await _status(page, **facts) == 200
        facts = {"path": "/dibs-other/", "root_path": "/api/dibs", "app_root_path": "/api"}
        assert await _status(page, **facts) == 404


async def _status(page: Page, **facts: Any) -> int:
    answer = Answer()
    scope = {"type": "http", "method": "GET", "headers": [], "query_string": b"", **facts}
    await page.app(scope, lambda: asyncio.sleep(0, {"type": "http.disconnect"}), answer.send)
    return answer.status


async def test_a_lifespan_is_answered_and_a_websocket_is_closed(valkey: Server) -> None:
    """A server that has only the console can start and end."""
    async with shown("asgi", valkey) as (_, page):
        sent: list[Any] = []
        messages = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await page.app({"type": "websocket", "path": "/"}, None, send)
        await page.app({"type": "lifespan"}, receive, send)
        complete = ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert sent == ["websocket.close", *complete]


async def test_a_view_in_front_of_it_decides(valkey: Server) -> None:
    """A view of Flask or Django asks for the response; the place of the view is the root."""
    async with shown("wsgi", valkey) as (_, page):

        async def asked(path: str, behind: str) -> tuple[int, dict[str, str]]:
            environ = {
                "REQUEST_METHOD": "GET", "SCRIPT_NAME": "/shop", "PATH_INFO": path,
                "SERVER_NAME": "x", "SERVER_PORT": "80",
            }  # fmt: skip
            status, headers, _ = await asyncio.to_thread(page.app.respond, environ, behind)
            return status, dict(headers)

        status, headers = await asked("/admin/dibs/", "")
        # Without a path it is for the folder of the page, as the browser sees that.
        assert status == 200 and "Path=" not in headers["Set-Cookie"]
        for path, expected in {"static/console.css": 200, "api/state": 200, "nowhere": 404}.items():
            assert (await asked(f"/admin/dibs/{path}", path))[0] == expected


async def test_under_wsgi_it_needs_a_client_for_threads(valkey: Server) -> None:
    """It says which."""
    async with AsyncDibs(valkey.url) as dibs:
        with pytest.raises(UsageError, match="needs a Dibs"):
            console(dibs, allow="host").wsgi({}, lambda *_: None)
