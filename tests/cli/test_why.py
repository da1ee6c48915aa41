"""`dibs why`: where a key is, who has it, whether that process lives, what can be done."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from dibs import Dibs
from dibs._internal_api import KeyInfo
from dibs._key_texts import Facts, Place, advice, listed, next_steps, places_of
from dibs.integrations._sync.jobs import UniqueJobs
from dibs.integrations._unique_jobs import UniqueKey, UniqueOptions
from dibs.testing import Child, Server, eventually
from tests.cli.conftest import Shop
from tests.cli.program import Done, run


def test_it_finds_the_namespace_by_itself(shop: Shop) -> None:
    """Also if it was forgotten, or lacks its colon; and says which it is."""
    for options in ([], ["--namespace", "shop"], ["--namespace", "other:"]):
        done = run(shop.url, "why", "job:nightly", *options)
        assert done.code == 0
        assert "--namespace shop:" in done.err and "There is a lease of " in done.err
        assert "namespace" in done.out and "shop:" in done.out
    done = run(shop.url, "why", "job:nightly", "--namespace", "shop:")
    assert done.code == 0 and done.err == ""


def test_it_says_what_a_person_needs_to_know(shop: Shop) -> None:
    """What, who, since when, whether the process lives, the fence, what is next, what to do."""
    done = run(shop.url, "why", "job:nightly", "--namespace", "shop:")
    said = done.out
    assert f":{os.getpid()}" in said and "is running, on this machine" in said
    assert str(shop.lease.fence) in said and "since" in said and "touched" not in said
    assert "Others get Busy or wait" in said
    assert "dibs release job:nightly --namespace shop: --force" in said
    assert shop.lease.token.partition("@")[0] not in said


def test_a_holder_that_has_ended_is_named(shop: Shop) -> None:
    """Its process has ended: the key expires, or can be freed now."""
    code = (
        "import sys; from dibs import Dibs; dibs = Dibs(sys.argv[1], namespace='shop:');"
        "print(dibs.try_hold('job:dead', ttl=600) is not None)"
    )
    subprocess.run([sys.executable, "-c", code, shop.url], check=True, stdout=subprocess.DEVNULL)
    done = run(shop.url, "why", "job:dead")
    assert "is not running on this machine any longer" in done.out
    assert "Its process has ended, so it is not renewed: it is free in " in done.out
    told = run(shop.url, "why", "job:dead", "--json").json["keys"][0]
    assert told["alive"] == "ended" and told["namespace"] == "shop:" and told["elsewhere"]
    assert told["entry"]["kind"] == "lease"
    words = told["advice"][0].split("`")[1].split()[1:]
    assert run(shop.url, *words, "--yes").code == 0, "the advice can be pasted"
    assert run(shop.url, "why", "job:dead").code == 1


def test_permits_of_processes_that_have_ended_are_named(shop: Shop) -> None:
    """Each holder is looked at; the advice frees a permit of one that has ended, as it stands."""
    code = (
        "import sys; from dibs import Dibs; dibs = Dibs(sys.argv[1], namespace='shop:');"
        "print(dibs.try_hold('paid-api', ttl=600, limit=3) is not None)"
    )
    for ttl in (300, 900):  # what expires first, and last, is held here
        assert shop.dibs.try_hold("paid-api", ttl=ttl, limit=3) is not None
    subprocess.run([sys.executable, "-c", code, shop.url], check=True, stdout=subprocess.DEVNULL)
    done = run(shop.url, "why", "paid-api")
    assert done.out.count("is not running on this machine any longer") == 1
    assert "1 of 3 holders has ended: its permit is free in " in done.out
    assert "two work at once" not in done.out
    told = run(shop.url, "why", "paid-api", "--json").json["keys"][0]
    assert [each["alive"] for each in told["entry"]["permits"]] == ["running", "ended", "running"]
    words = told["advice"][0].split("`")[1].split()[1:]
    assert run(shop.url, *words, "--yes").code == 0, "the advice can be pasted"
    told = run(shop.url, "why", "paid-api", "--json").json["keys"][0]
    assert [each["alive"] for each in told["entry"]["permits"]] == ["running", "running"]
    assert told["alive"] == "running" and "one more than the limit works" in told["advice"][1]
    words = told["advice"][1].split("`")[1].split()[1:]
    assert run(shop.url, *words, "--yes").code == 0, "so can that for one that is running"


def held_by_a_child(url: str) -> None:
    import time

    from dibs import Dibs

    with Dibs(url, namespace="shop:", budget=5) as dibs, dibs.hold("job:hung", ttl=600):
        print("held", flush=True)
        time.sleep(600)


@pytest.mark.only_on("linux")
def test_a_holder_that_is_stopped_is_named(shop: Shop, spawn: Callable[..., Child]) -> None:
    """It exists, but does not renew; nothing says that it is running."""
    child = spawn(held_by_a_child, shop.url)
    child.line()
    child.freeze()
    done = run(shop.url, "why", "job:hung")
    assert "is stopped, on this machine" in done.out and "is running" not in done.out
    assert "unless it goes on before" in done.out
    assert f"kill -CONT {child.pid}" in done.out and "Wait for its end" not in done.out
    child.thaw()


def test_a_run_that_failed_says_what_becomes_of_it(valkey: Server) -> None:
    """And where its traceback is; the record is not held, and does not become free."""
    failed = threading.Event()
    with Dibs(valkey.url, namespace="shop:", budget=5) as dibs:

        @dibs.scheduled(every=1, key="report:nightly")
        def report() -> None:
            failed.set()
            raise ValueError("disk full")

        with dibs.scheduler():
            assert failed.wait(60)
    said = run(valkey.url, "why", "report:nightly", "--namespace", "shop:").out
    assert "failed (ValueError) after" in said and "is not repeated" in said
    assert f"the log of {socket.gethostname()}:{os.getpid()}" in said
    assert "left" not in said and "disk full" not in said


def test_release_does_not_call_a_key_free_that_another_namespace_has(shop: Shop) -> None:
    """It says which; nothing is released."""
    done = run(shop.url, "release", "job:nightly", "--force", "--yes")
    assert done.code == 1 and "free" not in done.out and "--namespace shop:" in done.out
    assert shop.lease.extend(600)


def test_a_key_that_is_nowhere_is_said_to_be(shop: Shop) -> None:
    """Exit code 1; JSON says the same."""
    done = run(shop.url, "why", "job:none")
    assert done.code == 1 and "in any namespace of this server" in done.out
    assert run(shop.url, "why", "job:none", "--json").json == {"found": False, "keys": []}


@pytest.mark.parametrize("name", ["nightly:*", "nightly:{day}"])
def test_a_name_from_a_log_is_no_key(shop: Shop, name: str) -> None:
    """Logs, metrics and templates have names; `ls` finds the keys behind them."""
    done = run(shop.url, "why", name)
    assert done.code == 1 and "does not exist" not in done.out
    assert "dibs ls 'nightly:*'" in done.out


def test_a_lease_without_a_fence_says_that_its_beginning_is_not_known(shop: Shop) -> None:
    """The line is printed anyway, so that readers do not look for it."""
    with Dibs(shop.url, namespace="shop:", budget=5) as dibs, dibs.hold("job:plain", ttl=60):
        said = run(shop.url, "why", "job:plain", "--namespace", "shop:").out
    assert "unknown (recorded only with fence=True)" in said


def test_a_schedule_says_when_it_is_due(valkey: Server) -> None:
    """By what is stored: how long the record of its last run is kept."""
    ran = threading.Event()
    with Dibs(valkey.url, namespace="shop:", budget=5) as dibs:

        @dibs.scheduled("* * * * * *", key="tick")
        def tick() -> None:
            ran.set()

        with dibs.scheduler():
            assert ran.wait(60)
    key, client = "shop:scheduled-last:tick", valkey.client()
    eventually(lambda: " finished " in str(client.get(key)))
    client.pexpire(key, client.pttl(key) + 3_600_000)
    told = run(valkey.url, "why", "tick", "--json").json["keys"][0]
    assert 0 < told["entry"]["due"] <= 3601 and "The next one is due in " in told["next"]
    assert told["advice"] == []
    client.pexpire(key, client.pttl(key) - 10_800_000)
    told = run(valkey.url, "why", "tick", "--json").json["keys"][0]
    assert told["entry"]["due"] < -7000 and "The next one was due " in told["next"]
    lease = "'scheduled:{shop:scheduled-last:tick}'"
    assert f"Unless a holder of {lease} runs it now" in told["advice"][0]


def test_a_schedule_is_found_by_its_key(shop: Shop) -> None:
    """What it keeps has another name."""
    client = shop.server.client()
    client.set("shop:scheduled-last:nightly", "1700000000000 web-1:7")
    told = run(shop.url, "why", "nightly", "--json").json["keys"]
    assert ("shop:", "schedule") in [(each["namespace"], each["entry"]["kind"]) for each in told]
    client.set("shop:scheduled:{shop:scheduled-last:nightly}", "0123456789abcdef01-2@web-2:9")
    told = run(shop.url, "why", "nightly", "--json").json["keys"]
    assert ("lease", "web-2:9") in [
        (each["entry"]["kind"], each["entry"]["holder"]) for each in told
    ]


def test_peek_names_the_namespace_that_has_the_key(shop: Shop) -> None:
    """It never says that a key is free which is held under another namespace."""
    done = run(shop.url, "peek", "job:nightly")
    assert done.code == 1 and "not held" not in done.out
    assert "nothing in namespace ''" in done.out and "--namespace shop:" in done.out
    assert run(shop.url, "peek", "job:nightly", "--json").json["elsewhere"] == ["shop:"]
    with Dibs(shop.url, budget=5) as dibs:
        assert dibs.try_hold("plain:1", ttl=60)
        done = run(shop.url, "peek", "plain:1", "--namespace", "shop:")
        assert "with no --namespace" in done.out


def test_looking_for_a_key_changes_and_touches_nothing(shop: Shop) -> None:
    """Only names are read where the key is looked for."""
    client: Redis = shop.server.client()
    before = client.dbsize(), client.get("shop:job:nightly")
    done: Done = run(shop.url, "why", "job:nightly")
    assert done.code == 0
    assert (client.dbsize(), client.get("shop:job:nightly")) == before


def test_it_says_who_waits_and_since_when(shop: Shop) -> None:
    """As the server has noted it."""
    seconds, _ = shop.server.client().time()
    note = f"0123456789ab@web-2:99 {(seconds - 42) * 1000}"
    shop.server.client().zadd("shop:waiting:{shop:job:nightly}", {note: (seconds + 30) * 1000})
    said = run(shop.url, "why", "job:nightly").out
    assert "waits" in said and "web-2:99, for 4" in said
    told = run(shop.url, "why", "job:nightly", "--json").json["keys"][0]["entry"]["waiters"]
    assert [each["holder"] for each in told] == ["web-2:99"]
    listed = run(shop.url, "ls", "--namespace", "shop:", "--kind", "waiters")
    assert listed.code == 0 and "of job:~" in listed.out


def test_what_a_schedule_has_run_is_shown(shop: Shop) -> None:
    """By `why`, in any namespace; the last one by `ls`."""
    client, last = shop.server.client(), "1700000060000 web-1:7 failed:ValueError 1700000063000 250"
    client.set("shop:scheduled-last:nightly", last)
    first = "1700000000000 web-2:9 finished 1700000000000 4200"
    records = {first: 1700000000000, last: 1700000060000}
    client.zadd("shop:runs:{shop:scheduled-last:nightly}", records)
    said = run(shop.url, "why", "nightly").out
    assert "2023-11-14 22:14:20Z: failed (ValueError) after 0.2 s on web-1:7, 3.0 s late" in said
    assert "2023-11-14 22:13:20Z: finished in 4.2 s on web-2:9" in said
    client.zadd("shop:runs:{shop:scheduled-last:nightly}", {f"1700000120000 {first[14:]}": 17e11})
    assert (
        "1 of the 2 before it failed, the last one of 2023-11-14 22:14:20Z."
        in run(shop.url, "why", "nightly").out
    )
    listed = run(shop.url, "ls", "--namespace", "shop:", "--kind", "schedule").out
    assert "failed (ValueError) after 0.2 s" in listed


def test_the_next_runs_of_a_cron_expression_are_shown() -> None:
    """In its time zone and in UTC; no server is asked."""
    done = run("", "schedule", "0 3 * * *", "--timezone", "Asia/Taipei", "--count", "2")
    assert done.code == 0 and len(done.lines) == 2 and done.err == "at 03:00\n"
    assert re.search(r"Z  in (\d+ h \d+ min|\d+ min|\d+ s)$", done.lines[0])
    assert all("03:00:00+08:00" in line and "19:00:00Z" in line for line in done.lines)
    runs = run("", "schedule", "@daily", "--json").json["runs"]
    assert len(runs) == 5 and all(run.endswith("T00:00:00+00:00") for run in runs)
    assert run("", "schedule", "0 25 * * *").code == 2
    assert run("", "schedule", "0 3 * * *", "--timezone", "Mars/Base").code == 2


# ---- pure


def test_where_a_key_belongs() -> None:
    """The namespace is what stands before it."""
    assert places_of("shop:nightly:42", "nightly:42") == [Place("shop:", "nightly:42")]
    assert places_of("nightly", "nightly") == [Place("", "nightly")]
    assert places_of("shop:job:alone:a", "a") == [Place("shop:", "job:alone:a")]
    assert places_of("shop:job:slot:2:a", "a") == [Place("shop:", "job:slot:2:a")]
    assert places_of("shop:scheduled-last:a", "a") == [
        Place("shop:", "scheduled:{shop:scheduled-last:a}"),
        Place("shop:", "scheduled-last:a"),
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (KeyInfo("k", "lease", "held", 5, "a:1", token_hint="x-1"), "Wait for its end"),
        (KeyInfo("k", "lease", "held", None, "a:1", token_hint="x-1"), "Free it: `dibs release"),
        (KeyInfo("k", "done", "done", 90, token_hint="x-1-done"), "Wait 1m30s"),
        (KeyInfo("k", "cached", "value", 5), "dibs invalidate 'it is' --namespace n:"),
        (KeyInfo("k", "schedule", "new", 5), "See that a scheduler runs"),
        (KeyInfo("k", "lease", "held", 5, "a:1", token_hint="x-1"), "end process 1 on a first"),
        (
            KeyInfo("k", "lease", "held", 5, "a:1", token_hint="x-1"),
            "does not stop the work of a:1",
        ),
        (KeyInfo("k", "foreign", "string", None, token_hint="#1"), "redis-cli GET 'n:it is'"),
        (KeyInfo("k", "foreign", "string", None, token_hint="#1"), "if nothing needs it: `dibs"),
        (KeyInfo("k", "foreign", "string", 9, token_hint="#1"), "Another program wrote it"),
        (KeyInfo("k", "foreign", "list", None), "as a list, and may need it"),
        (KeyInfo("k", "rate", "counting", 5), "DEL lets a whole burst through"),
    ],
)
def test_there_is_advice_for_every_kind(entry: KeyInfo, said: str) -> None:
    """A command that can be pasted, where there is one."""
    found = Facts(Place("n:", "it is"), entry, False, "unknown")
    assert any(said in line for line in advice(found)), advice(found)
    assert next_steps(found) and listed(found, whole=True)


def report(account: int) -> None: ...


def jobs_of(dibs: Dibs, **terms: Any) -> UniqueJobs:
    options = UniqueOptions(**terms)
    return UniqueJobs(dibs, UniqueKey("report:{account}", report, options, "report"))


def test_a_job_that_was_fetched_is_not_to_be_freed(shop: Shop) -> None:
    """Freed, it would run twice: its message is in a worker. Its id is shown."""
    with Dibs(shop.url, namespace="shop:") as dibs:
        jobs = jobs_of(dibs)
        with jobs.queueing("report:1", "job-17") as sending:
            pass
        jobs.fetched("report:1", sending.token)
        done = run(shop.url, "why", "report:1", "--namespace", "shop:", "--show-keys")
    assert "claim, fetched" in done.out and "job-17" in done.out
    assert "has fetched the message of this job" in done.out
    assert "release" not in done.out
    entry = KeyInfo("a", "claim", "running", 5.0, "h:1", note="job-17", worker="w")
    dead = Facts(Place("", "a"), entry, is_elsewhere=False, alive="ended")
    assert "takes the key" in next_steps(dead) and "Send the job again" in advice(dead)[0]


def test_it_says_how_many_jobs_wait_for_a_key(shop: Shop) -> None:
    """With `queue=True`; also if nobody has the key at this moment."""
    with Dibs(shop.url, namespace="shop:") as dibs:
        jobs = jobs_of(dibs, queue=True)
        assert jobs.turns is not None
        for job_id in "abc":
            jobs.turns.send("report:1", job_id, "", lambda *_: None)
    done = run(shop.url, "why", "report:1", "--namespace", "shop:")
    assert done.code == 0 and "2 jobs wait for that key" in done.out
    listed = run(shop.url, "ls", "job:queue:*", "--namespace", "shop:", "--kind", "waiters")
    assert listed.out.count("2 jobs of") == 1
