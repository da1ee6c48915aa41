"""The console as an ASGI application, on a real server."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from dibs import AsyncDibs, Dibs, UsageError
from dibs.console import console
from dibs.console.asgi import STREAM_FOR
from dibs.console.http import COOKIE
from dibs.console.key_rows import state_of
from dibs.testing import Server
from tests.console.asgi_client import Answer, request, scope_of, stream
from tests.topologies import start_cluster

TOKEN = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def in_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state is computed again: tests ask faster than a page does.

    A stream lasts as in uvicorn.
    """
    monkeypatch.setattr("dibs.console.key_rows.SAME_FOR", 0.0)
    monkeypatch.setattr("dibs.console.asgi.BRIEF", STREAM_FOR)


@asynccontextmanager
async def shown(server: Server, **rules: Any) -> AsyncIterator[tuple[AsyncDibs, Any]]:
    """A client, and its console."""
    async with AsyncDibs(server.url, namespace="shop:") as dibs:
        app = console(dibs, **{"allow": "host", **rules})
        yield dibs, app
        await app.stop()


async def state(app: Any, query: str = "") -> Any:
    answer = await request(app, f"/api/state?{query}")
    assert answer.status == 200
    return answer.json


async def release(app: Any, row: Any, **changes: str) -> Answer:
    body = json.dumps({"id": row["id"], "seen": row["seen"]}).encode()
    headers = {
        "content_type": "application/json",
        "origin": "http://shop.example",
        "x_dibs_console": TOKEN,
        "cookie": f"{COOKIE}={TOKEN}",
    }
    return await request(app, "/api/release", "POST", body, **{**headers, **changes})


async def rows(app: Any, group: str = "leases") -> list[Any]:
    return (await state(app, f"group={group}"))["server"]["view"]["rows"]


# ---- who may see it


async def test_nothing_is_served_to_whom_the_application_does_not_allow(valkey: Server) -> None:
    """Neither page nor style nor data; and the server is not read."""

    async def nobody(scope: Any) -> bool:
        return False

    async with shown(valkey, allow=nobody) as (_, app):
        for path in ("/", "/static/console.css", "/api/state", "/api/events", "/nowhere"):
            assert (await request(app, path)).status == 403
        assert (await request(app, "/api/release", "POST")).status == 403
        assert app.is_reading is False


async def test_the_application_decides_by_the_request(valkey: Server) -> None:
    """A rule gets the ASGI scope, with what middleware has put there."""

    def is_admin(scope: Any) -> bool:
        return (b"x-user", b"admin") in scope["headers"]

    async with shown(valkey, allow=is_admin) as (_, app):
        assert (await request(app, "/")).status == 403
        assert (await request(app, "/", x_user="admin")).status == 200


async def test_a_rule_that_fails_or_says_neither_yes_nor_no_lets_nobody_in(valkey: Server) -> None:
    """The error reaches the application around the console; nothing is sent."""
    async with shown(valkey, allow=lambda scope: scope["user"]) as (_, app):
        with pytest.raises(KeyError):
            await request(app, "/")
    async with shown(valkey, allow=lambda scope: object()) as (_, app):
        with pytest.raises(UsageError, match="True or False"):
            await request(app, "/")


async def test_a_console_without_a_decision_cannot_be_made(valkey: Server) -> None:
    """Not by forgetting the argument either."""
    async with AsyncDibs(valkey.url) as dibs:
        with pytest.raises(TypeError, match="allow"):
            console(dibs)  # type: ignore[call-arg]
        with pytest.raises(UsageError, match="allow must be"):
            console(dibs, allow=True)  # type: ignore[arg-type]


# ---- what it shows


async def test_leases_permits_claims_loads_and_values_are_listed(valkey: Server) -> None:
    """Of every process that uses the server, counted by kind."""
    async with shown(valkey, allow_keys="host") as (dibs, app):
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
                seen = await state(app)
                [lease] = await rows(app)
                [permits] = await rows(app, "permits")
                [claim] = await rows(app, "claims")
                [load_row] = await rows(app, "loads")
            go_on.set()
            await cold
    counts = seen["server"]["sweep"]["counts"]
    assert counts["leases"] == counts["permits"] == counts["claims"] == counts["loads"] == 1
    assert lease["key"] == "order:1" and 20 < lease["remaining"] <= 30 and lease["holder"]
    assert permits["count"] == 2 and len(permits["permits"]) == 2
    assert (claim["key"], claim["state"], claim["note"]) == ("pay:7", "running", "card")
    assert load_row["of"] == "menu:b1"


async def test_no_secret_and_no_whole_key_is_sent_without_the_rights(valkey: Server) -> None:
    """Keys are shortened, what a release compares is left out, a token is never sent."""
    async with shown(valkey) as (dibs, app), dibs.hold("order:secret-42", ttl=30) as lease:
        waiting = asyncio.create_task(dibs.try_hold("order:secret-42", ttl=5, wait=5))
        await asyncio.sleep(0)
        bodies = [
            (await request(app, f"/api/state?group={group}")).body for group in ("leases", "x")
        ]
        waiting.cancel()
        await asyncio.wait([waiting])
    for body in bodies:
        assert b"order:~" in body and b"secret-42" not in body
        assert (
            lease.token.encode() not in body and lease.token.partition("-")[0].encode() not in body
        )
    assert json.loads(bodies[0])["server"]["view"]["rows"][0]["seen"] is None


async def test_what_this_process_does_is_told_apart_from_the_server(valkey: Server) -> None:
    """Held here, waited for here, hit rates by template: not what other processes do."""
    async with shown(valkey, allow_keys="host") as (dibs, app):
        menu = dibs.cached("menu:{branch}", ttl=60)(_branch)
        await menu("b1")
        await menu("b1")
        async with AsyncDibs(valkey.url, namespace="shop:") as other:
            async with other.hold("order:1", ttl=30), dibs.hold("order:2", ttl=30):
                waiting = asyncio.create_task(dibs.try_hold("order:1", ttl=5, wait=30))
                async with asyncio.timeout(20):
                    while not (process := (await state(app))["process"])["waited_for"]:
                        await asyncio.sleep(0.01)
                waiting.cancel()
                await asyncio.wait([waiting])
    assert [each["key"] for each in process["held"]] == ["order:2"]
    [waited] = process["waited_for"]
    assert (waited["key"], waited["count"]) == ("order:1", 1)
    template = next(each for each in process["templates"] if each["name"] == "menu:{branch}")
    assert template["hit_rate"] == 0.5 and template["loads"]["count"] == 1
    assert process["breakers"] == [{"state": "closed", "cause": "", "out_for": None}]


async def _branch(branch: str) -> str:
    return branch


async def test_a_client_for_threads_can_be_shown_too(valkey: Server) -> None:
    """FastAPI applications with plain functions have a Dibs; its calls run in threads."""
    with Dibs(valkey.url) as dibs:
        app = console(dibs, allow="host", allow_release="host")
        with dibs.hold("order:1", ttl=30):
            [row] = await rows(app)
            assert (await release(app, row)).json["outcome"] == "released"
        await app.stop()


# ---- releasing


async def test_a_lease_is_released_if_it_is_the_one_that_was_shown(valkey: Server) -> None:
    """Then it is free, and the list knows."""
    async with shown(valkey, allow_release="host") as (dibs, app):
        lease = await dibs.try_hold("order:1", ttl=30)
        [row] = await rows(app)
        assert (await release(app, row)).json == {"outcome": "released", "said": "Released."}
        assert valkey.keys() == [] and lease is not None
        async with asyncio.timeout(20):
            while await rows(app):
                await asyncio.sleep(0.05)
        assert await lease.release() is False


async def test_a_successor_is_never_released(valkey: Server) -> None:
    """The lease that was shown has ended; its successor keeps the key."""
    async with shown(valkey, allow_release="host") as (dibs, app):
        async with dibs.hold("order:1", ttl=30):
            [row] = await rows(app)
        async with dibs.hold("order:1", ttl=30) as successor:
            answer = await release(app, row)
            assert answer.status == 409 and answer.json["outcome"] == "other"
            assert await dibs.peek("order:1") is not None and not successor.lost
        assert (await release(app, row)).json["outcome"] == "free"


async def test_one_permit_is_released_and_the_others_stay(valkey: Server) -> None:
    """Each has its own row in the list of its key."""
    async with shown(valkey, allow_release="host") as (dibs, app):
        first = await dibs.try_hold("gpu", ttl=30, limit=2)
        second = await dibs.try_hold("gpu", ttl=30, limit=2)
        assert first is not None and second is not None
        [row] = await rows(app, "permits")
        answer = await release(app, {"id": row["id"], "seen": row["permits"][0]["seen"]})
        assert answer.json["outcome"] == "released"
        assert sorted([await first.release(), await second.release()]) == [False, True]


async def test_who_may_read_may_not_release(valkey: Server) -> None:
    """It is a separate right; and a request from another origin has none, for every user."""
    async with shown(
        valkey, allow_release=lambda scope: (b"x-role", b"op") in scope["headers"]
    ) as (
        dibs,
        app,
    ):
        async with dibs.hold("order:1", ttl=30):
            [row] = await rows(app)
            row["seen"] = "guessed-1"
            assert (await release(app, row)).status == 403
            assert (await release(app, row, x_role="op")).status == 409
            assert (
                await release(app, row, x_role="op", origin="http://evil.example")
            ).status == 403
            assert (await release(app, row, x_role="op", x_dibs_console="")).status == 403
            assert valkey.keys() != []


async def test_a_row_that_another_worker_showed_is_found(valkey: Server) -> None:
    """The browser's POST may reach a process that has read nothing yet."""
    async with shown(valkey, allow_release="host") as (dibs, app):
        async with dibs.hold("order:1", ttl=30):
            [row] = await rows(app)
            worker = console(dibs, allow="host", allow_release="host")
            assert (await release(worker, row)).json["outcome"] == "released"
            assert (await release(worker, {"id": "0" * 24, "seen": "a-1"})).json[
                "outcome"
            ] == "lost"


async def test_a_long_body_is_refused(valkey: Server) -> None:
    """No more of it is read than a release needs."""
    async with shown(valkey, allow_release="host") as (_, app):
        assert (await release(app, {"id": "x" * 10_000, "seen": "a-1"})).status == 400


# ---- live updates


async def test_a_stream_sends_states_and_the_disconnect_is_noticed(valkey: Server) -> None:
    """A viewer that leaves is no longer counted."""
    async with shown(valkey) as (dibs, app):
        async with stream(app) as viewer:
            assert (await viewer.state())["server"]["sweep"]["counts"]["leases"] == 0
            async with dibs.hold("order:1", ttl=30):
                async with asyncio.timeout(20):
                    while not (await viewer.state())["server"]["sweep"]["counts"]["leases"]:
                        pass
            assert "1 viewers" in repr(app)
            assert viewer.headers["content-type"].startswith("text/event-stream")
        assert "0 viewers" in repr(app)


async def test_viewers_are_bounded_and_share_one_reading(valkey: Server) -> None:
    """One too many is told to ask now and then; however many they are, one sweep runs."""
    async with shown(valkey, most_viewers=3) as (_, app):
        async with stream(app) as one, stream(app) as two, stream(app) as three:
            for viewer in (one, two, three):
                await viewer.state()
            refused = await request(app, "/api/events")
            assert refused.status == 503 and refused.headers["retry-after"] == "5"
            tasks = [task for task in asyncio.all_tasks() if task.get_name() == "dibs console"]
            assert len(tasks) == 1
            assert (await request(app, "/api/state")).status == 200


async def test_viewers_of_the_same_share_one_state(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made once for all of them; other rows and other rights make another one."""
    made: list[tuple[Any, Any]] = []
    original = state_of

    def counting(*given: Any) -> Any:
        made.append(given[3:5])
        return original(*given)

    monkeypatch.setattr("dibs.console.asgi.state_of", counting)
    monkeypatch.setattr("dibs.console.key_rows.SAME_FOR", 3600.0)

    def may(scope: Any) -> bool:
        return any(value == b"operator=1" for _, value in scope["headers"])

    async with shown(valkey, allow_release=may) as (dibs, app):
        lease = await dibs.try_hold("job", ttl=600)
        for _ in range(3):
            await state(app, "group=leases")
        async with stream(app) as viewer:
            assert (await viewer.state())["token"] is None
        assert len(made) == 1
        await state(app, "group=claims")
        assert len(made) == 2
        for cookie in ("operator=1", "operator=1"):
            assert (await request(app, "/api/state", cookie=cookie)).json["may"]["release"]
        assert len(made) == 3 and lease is not None


async def test_nobody_looking_nothing_is_read(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading ends a while after the last viewer, and begins with the next one."""
    monkeypatch.setattr("dibs.console.asgi.WANTED_FOR", 0.2)
    async with shown(valkey) as (_, app):
        before = valkey.commands("scan")
        await asyncio.sleep(0.3)
        assert valkey.commands("scan") == before and not app.is_reading
        await state(app)
        async with asyncio.timeout(20):
            while app.is_reading:
                await asyncio.sleep(0.05)
        read = valkey.commands("scan")
        assert read > before
        app.survey.look_again()
        await _until(app, lambda seen: valkey.commands("scan") > read)


async def test_a_stream_ends_by_itself_and_the_page_opens_another(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So rights are asked for again, and a server that shuts down need not wait for viewers."""
    monkeypatch.setattr("dibs.console.asgi.BRIEF", 0.0)
    async with shown(valkey) as (_, app):
        async with stream(app) as viewer:
            await viewer.state()
            async with asyncio.timeout(20):
                while not viewer.is_over:
                    await asyncio.sleep(0.01)
            assert b"retry: 1000" in viewer.body


async def test_a_viewer_that_reads_nothing_loses_its_place(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else as many as may look at once would keep out all others, for ever."""
    monkeypatch.setattr("dibs.console.asgi.BRIEF", 0.1)
    monkeypatch.setattr("dibs.console.asgi.SLOWEST", 0.1)

    async def never(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async with shown(valkey) as (_, app):
        async with asyncio.timeout(30):
            await app(scope_of("GET", "/api/events", {}), receive, never)
        assert "0 viewers" in repr(app)


async def test_nothing_is_read_any_more_when_the_shutdown_is_complete(valkey: Server) -> None:
    """The application may close the client as soon as the shutdown is complete."""
    messages = ["lifespan.startup", "lifespan.shutdown"]
    said: list[tuple[str, bool]] = []

    async def receive() -> Any:
        return {"type": messages[len(said)]}

    async with shown(valkey) as (_, app):

        async def send(message: Any) -> None:
            said.append((message["type"], app.is_reading))

        await state(app)
        await app({"type": "lifespan"}, receive, send)
    assert said == [("lifespan.startup.complete", True), ("lifespan.shutdown.complete", False)]


async def test_uvicorn_ends_while_a_page_is_open(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for each response: a stream ends with it, however long it would have lasted."""
    monkeypatch.setattr("dibs.console.asgi.STREAM_FOR", 3600.0)
    monkeypatch.setattr("dibs.console.asgi.BRIEF", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    async with shown(valkey) as (_, app):
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off"))
        try:
            signal.signal(signal.SIGTERM, server.handle_exit)  # as it does itself when it serves
            async with stream(app) as viewer:
                for _ in range(2):
                    await viewer.state()
                    assert not viewer.is_over
                signal.raise_signal(signal.SIGTERM)
                async with asyncio.timeout(30):
                    while not viewer.is_over:
                        await viewer.state()
        finally:
            signal.signal(signal.SIGTERM, before)


async def test_a_server_that_is_out_is_said_and_its_return_is_noticed(own_server: Server) -> None:
    """What was read before is still shown; the outage is on the time line of this process."""
    async with shown(own_server) as (dibs, app):
        held = await dibs.try_hold("order:1", ttl=60)
        assert held is not None and len(await rows(app)) == 1
        own_server.kill()
        await _until(app, lambda seen: seen["server"]["failure"] is not None)
        await dibs.try_hold("order:2", ttl=5)
        seen = await state(app)
        assert len(seen["server"]["view"]["rows"]) == 1
        assert seen["process"]["breakers"][0]["state"] != "closed"
        assert seen["process"]["outages"][-1]["ended"] is None
        own_server.restart()
        await _until(app, lambda seen: seen["server"]["failure"] is None)
        seen = await _until(app, lambda seen: seen["process"]["outages"][-1]["ended"] is not None)
        assert seen["process"]["breakers"][0]["state"] == "closed"


async def test_every_node_of_a_cluster_is_shown_and_a_lost_one_is_named(
    start_server: Callable[..., Server],
) -> None:
    """Keys of all nodes, facts and a breaker for each; one that is gone is said to be missing."""
    servers = start_cluster(start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in servers)
    async with AsyncDibs(url) as dibs:
        app = console(dibs, allow="host")
        for number in range(30):
            assert await dibs.try_hold(f"order:{number}", ttl=60)
        seen = await _until(app, lambda seen: seen["server"]["sweep"]["complete"])
        assert seen["server"]["sweep"]["counts"]["leases"] == 30
        assert len(seen["server"]["nodes"]) == len(seen["process"]["breakers"]) == 3
        servers[2].kill()
        app.survey.look_again()
        seen = await _until(app, lambda seen: seen["server"]["sweep"]["unreachable"])
        assert seen["server"]["sweep"]["unreachable"] == [f"127.0.0.1:{servers[2].port}"]
        assert 0 < seen["server"]["sweep"]["counts"]["leases"] < 30
        await app.stop()


async def _until(app: Any, check: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(60):
        while not check(seen := await state(app)):
            await asyncio.sleep(0.05)
    return seen


# ---- the protocol


async def test_it_lives_at_any_root_path(valkey: Server) -> None:
    """Servers that name the root in the path, and servers that cut it off."""
    async with shown(valkey) as (_, app):
        assert (await request(app, "/", root="/admin/dibs")).status == 200
        assert (await request(app, "/api/state", root="/admin/dibs")).status == 200
        moved = await request(app, "", root="/admin/dibs")
        assert moved.status == 307 and moved.headers["location"] == "dibs/"
        cut_off = {"path": "/static/console.css", "root_path": "/dibs"}
        assert await _status(app, **cut_off) == 200
        assert await _status(app, path="/dibs-other/", root_path="/dibs") == 404


async def test_it_is_found_behind_a_proxy_that_cuts_off_its_prefix(valkey: Server) -> None:
    """Then the root path has two parts, and the path only the second one."""
    async with shown(valkey) as (_, app):
        for path in ("/dibs/", "/api/dibs/", "/dibs/static/console.js"):
            facts = {"path": path, "root_path": "/api/dibs", "app_root_path": "/api"}
            assert await _status(app, **facts) == 200
        facts = {"path": "/dibs-other/", "root_path": "/api/dibs", "app_root_path": "/api"}
        assert await _status(app, **facts) == 404


async def _status(app: Any, **facts: Any) -> int:
    answer = Answer()
    scope = {"type": "http", "method": "GET", "headers": [], "query_string": b"", **facts}
    await app(scope, lambda: asyncio.sleep(0, {"type": "http.disconnect"}), answer.send)
    return answer.status


async def test_head_has_no_body_and_a_websocket_is_closed(valkey: Server) -> None:
    """For any request of a proxy or a monitor there is an answer."""
    async with shown(valkey) as (_, app):
        head = await request(app, "/", "HEAD")
        assert (
            head.status == 200 and head.body == b"" and int(head.headers["content-length"]) > 1000
        )
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await app({"type": "websocket", "path": "/"}, None, send)
        assert sent == [{"type": "websocket.close", "code": 1000}]
