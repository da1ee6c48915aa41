"""The playground, as a person meets it: a process, its address, its page."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from dibs.testing import Server, eventually

from .playground_process import ROOT, Playground, running

pytestmark = pytest.mark.only_on("linux", "darwin")


@pytest.fixture
def visitor(playground: Playground) -> Iterator[httpx.Client]:
    """A new visitor, with their own key."""
    with playground.visitor() as client:
        yield client


def hold(visitor: httpx.Client, person: str, **command: Any) -> httpx.Response:
    return visitor.post(f"/hold/{person}", json=command)


@contextmanager
def watching(visitor: httpx.Client) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """What the stream says, from now on: kind and message."""
    with visitor.stream("GET", "/hold/events") as stream:
        lines = stream.iter_lines()

        def messages() -> Iterator[tuple[str, dict[str, Any]]]:
            kind = ""
            for line in lines:
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield kind, json.loads(line.removeprefix("data: "))

        seen = messages()
        assert next(seen)[0] == "state"
        yield seen


# ------------------------------------------------------------------------------- hold


def test_the_second_is_told_when_to_come_back(visitor: httpx.Client) -> None:
    """Ann gets it; Ben is told that she has it, and the true remaining time."""
    first = hold(visitor, "ann", ttl=4)
    assert first.status_code == 200
    assert first.json()["guarded"] is True and 3 < first.json()["remaining"] <= 4
    second = hold(visitor, "ben", ttl=4)
    answer = second.json()
    assert second.status_code == 200 and answer["is"] == "refused"
    assert 3 < answer["retry_after"] <= 4
    assert answer["holder"] and answer["busy"].startswith("playground:* is held by")


def test_after_the_release_it_is_free(visitor: httpx.Client) -> None:
    """Ann releases, and Ben has it; a second release finds nothing to end."""
    hold(visitor, "ann", ttl=10)
    assert hold(visitor, "ben", ttl=2).json()["is"] == "refused"
    released = visitor.delete("/hold/ann")
    assert released.status_code == 200 and released.json()["how"] == "released"
    assert hold(visitor, "ben", ttl=2).json()["is"] == "in"
    assert visitor.delete("/hold/ann").status_code == 404


def test_after_its_ttl_it_is_free(visitor: httpx.Client) -> None:
    """Without a release, the lease ends by itself, at the time that was promised."""
    hold(visitor, "ann", ttl=2)
    refused = hold(visitor, "ben", ttl=2)
    time.sleep(refused.json()["retry_after"])
    assert hold(visitor, "ben", ttl=2).json()["is"] == "in"


def test_who_waits_is_woken(playground: Playground, visitor: httpx.Client) -> None:
    """Ben waits; Ann releases, and he has it: her lease has not expired."""
    hold(visitor, "ann", ttl=10)
    with ben_waiting(playground, visitor) as ben:
        assert visitor.delete("/hold/ann").status_code == 200
        answer = json.loads(ben.communicate()[0])
    assert answer["is"] == "in" and answer["ran_out"] is False
    assert answer["after_release"] > 0


def test_who_waits_may_stop(playground: Playground, visitor: httpx.Client) -> None:
    """Ben gives up, and leaves nothing behind: after Ann the key is free."""
    hold(visitor, "ann", ttl=10)
    with ben_waiting(playground, visitor) as ben:
        assert visitor.delete("/hold/ben").json()["how"] == "gave up"
        assert json.loads(ben.communicate()[0]) == {"stopped": "Ben stopped waiting."}
    visitor.delete("/hold/ann")
    assert hold(visitor, "ann", ttl=2).json()["is"] == "in"


def test_who_stops_before_the_request_has_begun(valkey: Server) -> None:
    """Both commands arrive at once: the person asks and leaves, and says so."""
    command = [sys.executable, "-m", "apps.playground.person", valkey.url]
    commands = [
        {"visitor": "v", "key": "hold:v", "ttl": 5, "wait": 5},
        {"visitor": "v", "leave": 1},
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as person:
        assert person.stdin is not None and person.stdout is not None
        assert json.loads(person.stdout.readline()) == {"ready": True}
        person.stdin.write("".join(json.dumps(each) + "\n" for each in commands))
        person.stdin.flush()
        watchdog = threading.Timer(20, person.kill)
        watchdog.start()
        said = [json.loads(person.stdout.readline() or '{"visit": {"is": "silent"}}')]
        said += [json.loads(person.stdout.readline() or '{"visit": {"is": "silent"}}')]
        watchdog.cancel()
        person.stdin.close()
    assert [each["visit"]["is"] for each in said] == ["waiting", "left"]


@contextmanager
def ben_waiting(playground: Playground, visitor: httpx.Client) -> Iterator[subprocess.Popen[str]]:
    """Ben's request, under way in another process; its answer is what that prints."""
    work = "import httpx2, sys; print(httpx2.post(sys.argv[1], json={'ttl': 5, 'wait': 10}, "
    work += "cookies={'dibs_playground': sys.argv[2]}, timeout=None, trust_env=False).text)"
    cookie = visitor.cookies["dibs_playground"]
    command = [sys.executable, "-c", work, f"{playground.url}/hold/ben", cookie]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ben:
        with watching(visitor) as seen:
            for kind, message in seen:
                if kind == "state" and message["people"]["ben"]["is"] == "waiting":
                    break
        yield ben


def test_visitors_do_not_meet(playground: Playground, visitor: httpx.Client) -> None:
    """Each has their own key."""
    hold(visitor, "ann", ttl=5)
    with playground.visitor() as other:
        assert hold(other, "ben", ttl=5).status_code == 200


def test_one_visit_at_a_time(visitor: httpx.Client) -> None:
    """A person who is in does not come in again."""
    hold(visitor, "ann", ttl=5)
    again = hold(visitor, "ann", ttl=5)
    assert again.status_code == 409 and again.json()["error"] == "Ann is still in, or still waits."


@pytest.mark.parametrize(
    "body",
    [b'{"ttl": 1}', b'{"ttl": 11}', b'{"ttl": "5"}', b'{"ttl": true}', b'{"ttl": NaN}',
     b'{"ttl": 5, "wait": -1}', b'{"wait": 11}', b"[]", b"{", b"[" * 1000, b"\xff"],
)  # fmt: skip
def test_bad_input_is_answered_in_one_sentence(visitor: httpx.Client, body: bytes) -> None:
    """400, and what would be right."""
    answer = visitor.post("/hold/ann", content=body)
    assert answer.status_code == 400
    assert re.fullmatch(r"[A-Za-z][^.]* must be [^.]*\.", answer.json()["error"])


def test_who_has_not_opened_the_page(playground: Playground, visitor: httpx.Client) -> None:
    """Unknown people, too many words, and visitors who have not opened the page."""
    assert hold(visitor, "eve").status_code == 404
    assert visitor.post("/hold/ann", content=b"x" * 5000).status_code == 413
    for path in ("/hold/ann", "/faults/stop"):
        answer = httpx.post(playground.url + path, json={}, trust_env=False)
        assert answer.status_code == 400 and "Open the page first" in answer.json()["error"]
        forged = {"dibs_playground": "x:y"}
        answer = httpx.post(playground.url + path, json={}, cookies=forged, trust_env=False)
        assert answer.status_code == 400


def test_the_stream_tells_what_happens(visitor: httpx.Client) -> None:
    """Events as they happen, by name and never by key; and the state on the server."""
    with watching(visitor) as seen:
        hold(visitor, "ann", ttl=2)
        hold(visitor, "ben", ttl=2)
        kinds: list[tuple[str, str]] = []
        for kind, message in seen:
            if kind == "dibs":
                assert message["name"] == "playground:*" and ":lease" not in json.dumps(message)
                kinds.append((message["who"], message["kind"]))
            elif message["held"]:
                assert 0 < message["held"]["remaining"] <= 2 and message["key"].endswith(":lease")
            if kinds[-1:] == [("ann", "late")]:
                break
    assert kinds == [("ann", "acquired"), ("ben", "busy"), ("ann", "late")]


# ------------------------------------------------------------------------------- outage


def guarded_again(visitor: httpx.Client) -> bool:
    answer = hold(visitor, "ann", ttl=2)
    visitor.delete("/hold/ann")
    return answer.json()["guarded"]


def test_an_outage_lets_holds_through_unguarded_until_it_ends(
    playground: Playground, visitor: httpx.Client
) -> None:
    """While it is stopped: let through within the budget, unguarded. Afterwards: as before."""
    assert hold(visitor, "ann", ttl=2).json()["guarded"] is True
    visitor.delete("/hold/ann")
    assert visitor.post("/faults/stop").status_code == 202
    during = hold(visitor, "ann", ttl=10)
    assert during.status_code == 200 and during.json()["guarded"] is False
    assert visitor.delete("/hold/ann").json()["how"] == "unguarded"
    eventually(lambda: guarded_again(visitor), within=90)


def test_a_crash_leaves_no_stopped_server() -> None:
    """The page is killed while the server is stopped: the server ends all the same."""
    with running() as playground:
        with playground.visitor() as visitor:
            assert visitor.post("/faults/stop").status_code == 202
        assert playground.servers()
        playground.process.kill()
        eventually(lambda: not playground.servers())


# ------------------------------------------------------------------------------- begin and end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stopped", [False, True])
def test_it_ends_when_told(number: signal.Signals, stopped: bool) -> None:
    """Ctrl-C and SIGTERM: exit 0 though people watch and wait, not a word, no server, no files."""
    with running() as playground, playground.visitor() as visitor, ExitStack() as stack:
        assert playground.line.startswith("The dibs playground is at http://127.0.0.1:")
        assert playground.servers()
        hold(visitor, "ann", ttl=10)
        stack.enter_context(watching(visitor))
        stack.enter_context(ben_waiting(playground, visitor))
        if stopped:
            visitor.post("/faults/stop")
        code, said, took = playground.end(number)
        assert (code, said) == (0, "") and took < 30
        assert not playground.servers() and not os.listdir(playground.folder)


def test_a_port_in_use_gets_one_line() -> None:
    """It says which one, and ends with 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(port) as playground:
            said = "".join(playground.process.communicate())
            assert playground.process.returncode == 1 and not playground.line
            assert said.count("\n") == 1 and f"port {port}" in said and "in use" in said


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--nonsense", 2)])
def test_help_starts_nothing(argument: str, code: int) -> None:
    """It is printed; so is what cannot be understood, with code 2."""
    command = [sys.executable, "-m", "apps.playground", argument]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == code
    assert (said.stdout or said.stderr).startswith("usage: python -m apps.playground")
    assert "is at http" not in said.stdout


# ------------------------------------------------------------------------------- in a browser


def test_a_person_sees_it(page: Any) -> None:
    """Ann holds; Ben sees a countdown and is invited when she releases; then he has it."""
    from playwright.sync_api import expect

    ann, ben = page.locator(".person.ann"), page.locator(".person.ben")
    page.locator("#ttl").fill("10")
    ann.get_by_role("button", name="Hold it").click()
    expect(ann.locator(".says")).to_have_text("Ann has it.")
    expect(page.locator("#held")).to_contain_text("is held by")

    ben.get_by_role("button", name="Try it").click()
    expect(ben.locator(".says")).to_contain_text("Busy – Ann has it.")
    seen = float(ben.locator(".clock").inner_text().removesuffix("s"))
    assert 5 < seen < 10
    eventually(lambda: float(ben.locator(".clock").inner_text().removesuffix("s")) < seen)

    ann.get_by_role("button", name="Let go").click()
    expect(ben.locator(".says")).to_have_text("It is free now: Ben’s turn?")
    ben.get_by_role("button", name="Try again").click()
    expect(ben.locator(".says")).to_have_text("Ben has it.")
    expect(page.locator(".events .kind")).to_have_text(["acquired", "released", "busy", "acquired"])
    expect(page.locator("#code .line.now")).to_contain_text("lease.guarded is True")


def test_by_keyboard_alone(page: Any) -> None:
    """Ann holds, Ben waits, Ann releases: he has it within milliseconds, and the focus is kept."""
    from playwright.sync_api import expect

    ann, ben = page.locator(".person.ann"), page.locator(".person.ben")
    ann.get_by_role("button", name="Hold it").focus()
    page.keyboard.press("Enter")
    expect(ann.get_by_role("button", name="Let go")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(ben.get_by_role("button", name="Stop waiting")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(ben.locator(".says")).to_have_text(
        re.compile(r"Ben has it, [\d.]+ ms after Ann let go\.")
    )
