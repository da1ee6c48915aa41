"""`python -m dibs.console`, as a person starts it: a process, an address, one browser."""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from dibs import Dibs
from dibs.console.command import OneBrowser, console, console_arguments
from dibs.testing import Server

pytestmark = pytest.mark.only_on("linux", "darwin")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def get(url: str, **headers: str) -> tuple[int, Any, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with _OPENER.open(urllib.request.Request(url, headers=named)) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@contextmanager
def started(*arguments: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """The printed address, the same without its token, and the process."""
    command = [sys.executable, "-m", "dibs", "console", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{64}", line)
            assert found, line
            parts = urlsplit(found[0])
            yield found[0], f"{parts.scheme}://{parts.netloc}", process
        finally:
            process.kill()


def test_the_address_lets_in_one_browser_and_nobody_else(valkey: Server) -> None:
    """A one-time token: the first browser is led to a path that nobody else knows; the second one,
    and every browser without a token, is refused. No cookie: other servers here would get it."""
    with Dibs(valkey.url) as dibs, dibs.hold("order:secret-42", ttl=60) as lease:
        with started("--url", valkey.url) as (address, base, _):
            assert get(base)[0] == 403 and get(f"{base}/api/state")[0] == 403
            assert get(f"{base}/?token={'0' * 64}")[0] == 403
            status, headers, _ = get(address)
            assert status == 303 and re.fullmatch("/[0-9a-f]{64}/", headers["Location"])
            assert headers["Server"] == "dibs" and headers["Set-Cookie"] is None
            inside = base + headers["Location"]
            assert get(address)[0] == 403 and get(base)[0] == 403 and get(inside[:-1])[0] == 403
            status, headers, page = get(inside)
            assert status == 200 and b"What the server holds" in page
            status, _, state = get(f"{inside}api/state")
            assert b"order:~" in state and b"secret-42" not in state
            assert lease.token.partition("-")[0].encode() not in state
            assert b'"process":null' in state and b'"release":false' in state
            assert get(inside, Host="evil.example")[0] == 403


def test_a_token_that_nobody_uses_ends() -> None:
    """Ten minutes after it was printed, in a scroll-back or a log."""
    now, answers = [0.0], list[str]()

    def start(status: str, *_: object) -> None:
        answers.append(status)

    for wait, status in ((599, "303 See Other"), (601, "403 Forbidden")):
        browser = OneBrowser(None, 80, lambda: now[0])
        now[0] += wait
        environ = {
            "HTTP_HOST": "localhost:80",
            "REQUEST_METHOD": "GET",
            "QUERY_STRING": f"token={browser.token}",
        }
        browser(environ, start)
        assert answers.pop() == status


def test_a_signal_ends_it(valkey: Server) -> None:
    """Ctrl-C or SIGTERM: exit code 0, and no further output."""
    with started("--url", valkey.url) as (_, _, process):
        process.send_signal(signal.SIGTERM)
        said, complaints = process.communicate()
        assert process.returncode == 0 and complaints == "" and "Traceback" not in said


@pytest.mark.parametrize("port", ["65536", "-1"])
def test_a_number_that_is_no_port_is_refused_in_words(
    port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, no traceback."""
    parser = argparse.ArgumentParser()
    console_arguments(parser)
    assert console(parser.parse_args(["--url", "redis://127.0.0.1:1", f"--port={port}"])) == 2
    assert "0 to 65535" in capsys.readouterr().err


def test_there_is_no_way_to_listen_elsewhere_than_on_this_machine() -> None:
    """Who may see it there would have to be decided first: by the application that mounts it."""
    parser = argparse.ArgumentParser()
    console_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--host", "0.0.0.0"])


@pytest.mark.parametrize("which", ["no server", "no such scheme", "a port that is taken"])
def test_what_cannot_be_started_says_why(which: str, valkey: Server) -> None:
    """One sentence, exit code 2, no traceback."""
    arguments, why = {
        "no server": ([], "say which server"),
        "no such scheme": (["--url", "nonsense://x"], "nonsense"),
        "a port that is taken": (
            ["--url", valkey.url, "--port", str(valkey.port)],
            "cannot be used",
        ),
    }[which]
    command = [sys.executable, "-m", "dibs", "console", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/bin"})
    assert ended.returncode == 2 and why in ended.stderr and "Traceback" not in ended.stderr
