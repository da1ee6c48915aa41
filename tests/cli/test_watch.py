"""`dibs watch`: what is taken, freed and handed on; a table on a terminal, a log in a pipe."""

import json
import signal
import subprocess
from collections.abc import Callable
from unittest import mock

from dibs import Dibs
from dibs.testing import Server
from tests.cli.conftest import Shop
from tests.cli.program import COMMAND, Terminal, environment, run
from tests.topologies import start_cluster

WORDS = ("watch", "--interval", "0.2", "--namespace", "shop:")


def test_a_pipe_gets_a_json_line_for_each_change(shop: Shop) -> None:
    """Existing keys, new keys, a new holder, removed keys."""
    command = [*COMMAND, *WORDS, "--json", "--show-keys", "job:*"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(shop.url),
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None

        def next_change() -> tuple[str, str]:
            line = json.loads(child.stdout.readline())  # type: ignore[union-attr]
            assert set(line) == {"at", "change", "entry"}
            return line["change"], line["entry"]["key"]

        assert next_change() == ("present", "job:nightly")
        other = shop.dibs.try_hold("job:other", ttl=600)
        assert other is not None and next_change() == ("new", "job:other")
        shop.server.client().set("shop:job:other", shop.lease.token, px=600_000)
        assert next_change() == ("taken", "job:other")
        shop.server.client().delete("shop:job:other")
        assert next_change() == ("gone", "job:other")
        child.send_signal(signal.SIGINT)
        assert child.wait() == 0 and child.stderr.read() == ""


def test_a_reader_that_closes_the_pipe_ends_the_watch(shop: Shop) -> None:
    """`dibs watch | head -1`: also if nothing changes after that, and so nothing is written."""
    command = [*COMMAND, *WORDS, "job:*"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(shop.url),
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        assert "job:~" in child.stdout.readline()
        child.stdout.close()
        try:
            assert child.wait() == 141 and child.stderr.read() == ""
        finally:
            child.kill()


def test_a_terminal_gets_a_table_on_a_screen_of_its_own(shop: Shop) -> None:
    """Ctrl-C restores the screen."""
    shown = Terminal(shop.url, *WORDS, "--no-show-keys")
    shown.wait_for("job:~")
    assert "\x1b[?1049h" in shown.raw and "dibs watch: 4 keys" in shown.text
    shop.dibs.try_hold("door:1", ttl=600)
    shown.wait_for("door:~")
    shown.interrupt()
    assert shown.end().code == 0
    assert "\x1b[?1049l" in shown.raw and "Traceback" not in shown.text


def test_an_outage_is_reported_and_the_watch_goes_on(own_server: Server) -> None:
    """Once when it begins, once when it ends; keys that are not seen meanwhile are not gone."""
    own_server.client().set("job", "1")
    command = [*COMMAND, *WORDS[:3], "--all", "--json", "--budget", "0.5"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(own_server.url),
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        assert json.loads(child.stdout.readline())["change"] == "present"
        own_server.freeze()
        assert "unavailable" in child.stderr.readline()
        own_server.thaw()
        assert "answers again" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait() == 0 and child.stdout.read() == ""


def first_key(server: Server) -> bytes:
    """A key that every look reads first."""
    keys: list[bytes] = server.client().scan(count=500)[1]
    return keys[0]


def test_keys_beyond_the_limit_are_neither_new_nor_gone(valkey: Server) -> None:
    """Which keys are read first depends on all others; the log says that it cannot tell."""
    for number in range(40):
        valkey.client().set(f"job:{number}", "1")
    listing = ["watch", "--all", "--limit", "5", "--json", "--count", "3", "--interval", "0.2"]

    def next_look(_: float) -> None:
        valkey.client().delete(first_key(valkey))

    with mock.patch("time.sleep", next_look):
        done = run(valkey.url, *listing)
    assert {json.loads(line)["change"] for line in done.lines} == {"present"}
    assert done.err.count("--limit 0") == 1


def test_a_node_that_is_silent_takes_no_key_away(start_server: Callable[..., Server]) -> None:
    """It is named once; its keys are neither gone now nor new when it answers again."""
    nodes = start_cluster(start_server, config=("--cluster-require-full-coverage", "no"))
    with Dibs(f"redis+cluster://127.0.0.1:{nodes[0].port}", budget=5) as dibs:
        for number in range(20):
            assert dibs.try_hold(f"job:{number}", ttl=600)
    steps = iter([nodes[2].freeze, lambda: None, nodes[2].thaw, lambda: None])

    def next_step(_: float) -> None:
        next(steps)()

    with mock.patch("time.sleep", next_step):
        done = run(
            f"redis+cluster://127.0.0.1:{nodes[0].port}", "watch", "--json", "--count", "5",
            "--budget", "0.3",
        )  # fmt: skip
    assert [json.loads(line)["change"] for line in done.lines] == ["present"] * 20
    assert done.err.count("MISSING") == 1 and str(nodes[2].port) in done.err


def test_an_interval_that_makes_no_sense_is_refused() -> None:
    """Before any look: each one reads all keys."""
    for interval in ("0", "nan", "inf"):
        done = run("redis://127.0.0.1:1", "watch", "--interval", interval)
        assert done.code == 2 and "--interval" in done.err
