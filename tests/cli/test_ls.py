"""`dibs ls`: what the server holds, shortened, filtered, sorted, and never more than was asked."""

import subprocess
from collections.abc import Callable

import pytest

from dibs import Dibs
from dibs.testing import Server
from tests.cli.conftest import Shop
from tests.cli.program import COMMAND, Terminal, environment, run
from tests.topologies import start_cluster


def test_it_lists_what_is_held_and_hides_what_may_be_personal(shop: Shop) -> None:
    """By default keys are shortened; fences and tags are only counted."""
    done = run(shop.url, "ls", "--namespace", "shop:")
    assert done.code == 0
    heading, *rows = done.lines
    assert heading.split() == ["KEY", "WHAT", "HOLDER", "LEFT", "AGE", "SIZE", "DETAILS"]
    assert [row.split()[1] for row in rows] == ["cached", "permits", "done", "lease"]
    assert "alice" not in done.out and "job 17" not in done.out
    assert "4 keys" in done.err and "1 fence" in done.err and "--show-keys" in done.err


def test_a_person_at_a_terminal_sees_the_keys(shop: Shop) -> None:
    """What goes into a pipe may be kept, and read by others: there they are shortened."""
    shown = Terminal(shop.url, "ls", "--namespace", "shop:").end()
    assert "order:alice:7" in shown.out and "Keys are shortened" not in shown.out
    hidden = Terminal(shop.url, "ls", "--namespace", "shop:", "--no-show-keys").end()
    assert "alice" not in hidden.out and "Keys are shortened" in hidden.out
    assert "alice" not in run(shop.url, "ls", "--namespace", "shop:").out


def test_sentences_fit_the_terminal(shop: Shop) -> None:
    """No word is cut at its edge: of the remarks, of `why`, of an error."""
    for words in (("ls", "--no-show-keys"), ("why", "job:nightly")):
        shown = Terminal(shop.url, *words, env={"COLUMNS": "44"})
        shown.end()
        sentences = shown.text.split("\n\n")[-1] if words[0] == "ls" else shown.text
        assert all(len(line) <= 44 for line in sentences.splitlines()), sentences


def test_whole_keys_and_notes_are_shown_if_they_are_asked_for(shop: Shop) -> None:
    """`--all` adds fences and tags; keys of other namespaces never come."""
    env = {"DIBS_NAMESPACE": "shop:"}
    done = run(shop.url, "ls", "--show-keys", "--all", "--sort", "key", env=env)
    assert [line.split()[0] for line in done.lines[1:]] == [
        "fence:{shop:job:nightly}", "gpu:1", "job:nightly", "menu:b1", "order:alice:7",
        "tag:branch:7",
    ]  # fmt: skip
    assert "job 17" in done.out and "bank" not in done.out


def test_bytes_that_are_no_text_are_no_pattern(valkey: Server) -> None:
    """A shell passes them on as lone surrogates; as `?` they would match what was not meant."""
    valkey.client().set(b"bin:\xff", "1")
    for words in (["bin:\udcff*"], ["--namespace", "\udcff"]):
        done = run(valkey.url, "ls", "--all", *words)
        assert done.code == 2 and "Unicode" in done.err, words
    [entry] = run(valkey.url, "ls", "--all", "--json").json["entries"]
    done = run(valkey.url, "peek", entry["key"])
    assert done.code == 2 and "not text" in done.err


def test_a_limit_that_is_no_number_is_refused_in_words(valkey: Server) -> None:
    """Not with the name of a function."""
    for limit in ("-1", "many"):
        done = run(valkey.url, "ls", "--limit", limit)
        assert done.code == 2 and "0 or more" in done.err


def test_a_pipe_gets_no_colours_and_no_remarks(shop: Shop) -> None:
    """The table is the same; remarks go to stderr."""
    done = run(shop.url, "ls")
    assert "\x1b" not in done.out + done.err and "keys:" not in done.out


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["order:*"], ["order:alice:7"]),
        (["--kind", "lease", "--kind", "cached"], ["menu:b1", "job:nightly"]),
        (["--holder", "nobody*"], []),
        (["--sort", "left", "--reverse"], ["job:nightly", "order:alice:7", "gpu:1", "menu:b1"]),
        (["--sort", "size", "--kind", "done", "--kind", "cached"], ["order:alice:7", "menu:b1"]),
    ],
)
def test_it_filters_and_sorts(shop: Shop, words: list[str], keys: list[str]) -> None:
    """By pattern, kind and holder; by time, size, key."""
    done = run(shop.url, "ls", "--namespace", "shop:", "--json", "--show-keys", *words)
    assert [entry["key"] for entry in done.json["entries"]] == keys


def test_it_names_the_namespace_that_has_what_was_not_found(shop: Shop) -> None:
    """Forgotten, or without its colon: a held key is not taken for a free one."""
    for namespace in ("", "shop", "other:"):
        done = run(shop.url, "ls", "job:*", "--namespace", namespace)
        assert "There are such keys with --namespace shop:." in done.err, namespace
    assert "such keys" not in run(shop.url, "ls", "none:*").err


def test_what_may_be_personal_is_not_shown_as_a_namespace(shop: Shop) -> None:
    """Of what stands before the pattern, as of a key, the part before the first colon."""
    shop.server.client().set("user:ann:visit:7", "1")
    done = run(shop.url, "ls", "visit:*")
    assert "There are such keys behind user:…; --show-keys shows it." in done.err
    done = run(shop.url, "ls", "visit:*", "--show-keys")
    assert "There are such keys with --namespace user:ann:." in done.err


def test_without_a_namespace_it_says_what_may_be_one(shop: Shop) -> None:
    """Keys are shortened behind it, so none is recognised."""
    assert "If shop: is a namespace: --namespace shop:" in run(shop.url, "ls").err
    assert "is a namespace" not in run(shop.url, "ls", "--namespace", "shop:").err


def test_the_fields_of_json_are_these(shop: Shop) -> None:
    """They are documented, and do not change; times are seconds."""
    done = run(shop.url, "ls", "--namespace", "shop:", "--json", "--show-keys")
    assert set(done.json) == {"entries", "complete", "left_out", "unreachable"}
    assert done.json["complete"] is True and done.json["left_out"] == {"fence": 1, "tag": 1}
    found = {entry["key"]: entry for entry in done.json["entries"]}
    assert set(found["job:nightly"]) == {
        "key", "kind", "state", "remaining", "holder", "age", "size", "token_hint", "note",
        "fence", "permits", "taken", "loading", "took", "of", "runs", "due", "waiters",
        "worker", "used",
    }  # fmt: skip
    assert 500 < found["job:nightly"]["remaining"] <= 600
    assert found["order:alice:7"]["note"] == "job 17"
    assert [set(each) for each in found["gpu:1"]["permits"]] == [
        {"holder", "remaining", "token_hint"}
    ] * 2
    assert shop.lease.token.partition("@")[0] not in done.out


def test_it_says_where_it_stopped(shop: Shop) -> None:
    """`--limit` keys at most; then there is a word about the others."""
    done = run(shop.url, "ls", "--namespace", "shop:", "--limit", "2")
    assert len(done.lines) == 3 and "Stopped after 2 keys" in done.err
    assert run(shop.url, "ls", "--limit", "2", "--json").json["complete"] is False
    whole = run(shop.url, "ls", "--namespace", "shop:", "--limit", "4", "--json")
    assert whole.json["complete"] is True


def test_keys_of_other_programs_are_only_counted_without_a_namespace(shop: Shop) -> None:
    """With one, a foreign value is listed: it blocks the key."""
    assert "foreign" not in run(shop.url, "ls").out
    shop.server.client().set("shop:legacy", "1")
    done = run(shop.url, "ls", "--namespace", "shop:")
    assert done.lines[-1].split()[1:5] == ["foreign", "string", "no", "expiry"]


def test_what_a_key_contains_is_not_obeyed_by_the_terminal(shop: Shop) -> None:
    """Control characters are written out."""
    shop.server.client().set("shop:\x1b[31mred\n", "1")
    done = run(shop.url, "ls", "--namespace", "shop:", "--show-keys")
    assert r"\x1b[31mred\n" in done.out and "\x1b" not in done.out


def test_a_reader_that_closes_the_pipe_ends_it_quietly(shop: Shop) -> None:
    """`dibs ls | head -1` prints one line and no traceback."""
    shop.server.client().mset({f"shop:{number}:" + "x" * 60: "1" for number in range(3000)})
    command = " ".join([*COMMAND, "ls", "--namespace", "shop:", "--limit", "0", "--show-keys"])
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, env=environment(shop.url),
    )  # fmt: skip
    assert done.stdout.split()[0] == "KEY" and done.stdout.split()[-1] == "141"
    assert done.stderr == ""


def test_a_terminal_gets_colours_unless_they_are_not_wanted(shop: Shop) -> None:
    """NO_COLOR leaves the table and takes the colours away; TERM=dumb gets plain text."""
    shop.server.client().set("shop:legacy", "1")
    raw: list[str] = []
    for env in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = Terminal(shop.url, "ls", "--namespace", "shop:", env=env)
        assert shown.end().code == 0 and "lease" in shown.text
        raw.append(shown.raw)
    assert "\x1b[31m" in raw[0] and "\x1b[31m" not in raw[1] and "\x1b" not in raw[2]


def test_every_node_of_a_cluster_is_listed(start_server: Callable[..., Server]) -> None:
    """If one is out, the others are listed, it is named, and the exit code says so."""
    servers = start_cluster(start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    with Dibs(url, budget=5) as dibs:
        for number in range(20):
            dibs.try_hold(f"job:{number}", ttl=600)
    done = run(url, "ls", "--json", "--show-keys", "--sort", "key")
    assert {entry["key"] for entry in done.json["entries"]} == {f"job:{n}" for n in range(20)}
    gone = len(servers[2].keys())
    servers[2].kill()
    # From a node that knows it still as a part of the cluster.
    done = run(f"redis+cluster://127.0.0.1:{servers[0].port}", "ls", "--json")
    assert done.code == 3 and len(done.json["entries"]) == 20 - gone
    assert [each["node"] for each in done.json["unreachable"]] == [f"127.0.0.1:{servers[2].port}"]
    assert done.json["complete"] is False
    # A shortened key may be on the node that is silent: it is not said to be free.
    done = run(f"redis+cluster://127.0.0.1:{servers[0].port}", "peek", "job:~00000000")
    assert done.code == 3 and "unavailable" in done.err


def test_it_takes_sockets_and_tls(start_server: Callable[..., Server]) -> None:
    """As every target that a client takes."""
    server = start_server(tls=True)
    server.client().set("job", "1")
    for url in (f"unix://{server.unix_path}", server.tls_url):
        assert len(run(url, "ls", "--all", "--json").json["entries"]) == 1
