"""`dibs peek`: who holds a key, what that means, also by its shortened name."""

from redis import Redis

from tests.cli.conftest import Shop
from tests.cli.program import run


def test_it_says_who_holds_a_key_and_what_that_means(shop: Shop) -> None:
    """The holder, the time, the fence; and of the token no more than a hint."""
    done = run(shop.url, "peek", "job:nightly", "--namespace", "shop:")
    assert done.code == 0 and done.lines[0] == "job:nightly"
    assert str(shop.lease.fence) in done.out and "Others get Busy" in done.out
    assert shop.lease.token.partition("@")[2] in done.out
    assert shop.lease.token.partition("@")[0] not in done.out


def test_a_key_as_ls_shows_it_can_be_looked_up(shop: Shop) -> None:
    """Copied from the list; the whole key is shown only if that is asked for."""
    env = {"DIBS_NAMESPACE": "shop:"}
    listed = run(shop.url, "ls", "--kind", "done", env=env).lines[1].split()[0]
    assert listed.startswith("order:~")
    done = run(shop.url, "peek", listed, env=env)
    assert done.code == 0 and done.lines[0] == listed and "hidden" in done.out
    whole = run(shop.url, "peek", listed, "--show-keys", env=env)
    assert whole.lines[0] == "order:alice:7" and "job 17" in whole.out


def test_a_key_that_nobody_holds_is_not_found(shop: Shop) -> None:
    """The exit code is 1, also for a shortened key that fits none."""
    done = run(shop.url, "peek", "job:other", "--namespace", "shop:")
    assert done.code == 1 and "not held" in done.out
    done = run(shop.url, "peek", "job:~00000000", "--namespace", "shop:", "--json")
    assert done.code == 1 and done.json == {"found": False, "entry": None, "elsewhere": []}


def test_a_schedule_that_has_not_run_yet_is_told_from_one_that_has(shop: Shop) -> None:
    """Did it run last night? The exit code is 1 until a run is over."""
    args = ("peek", "scheduled-last:nightly", "--namespace", "shop:")
    with Redis.from_url(shop.url) as raw:
        raw.set("shop:scheduled-last:nightly", "1794484800000 web-1:77 new", ex=3600)
        text, found = run(shop.url, *args), run(shop.url, *args, "--json")
        raw.set("shop:scheduled-last:nightly", "1794484800000 web-1:77", ex=3600)
        over = run(shop.url, *args)
    assert text.code == 1 and "schedule, new" in text.out and "No run is over yet" in text.out
    assert found.code == 1 and found.json["found"] is True
    assert found.json["entry"]["state"] == "new" and found.json["entry"]["age"] is None
    assert over.code == 0 and "The last run that is over" in over.out


def test_json_has_the_fields_of_ls(shop: Shop) -> None:
    """For permits, with each holder."""
    done = run(shop.url, "peek", "gpu:1", "--namespace", "shop:", "--json")
    assert done.json["found"] is True and done.json["entry"]["taken"] == 2
    assert done.json["entry"]["key"].startswith("gpu:~")
