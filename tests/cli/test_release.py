"""`dibs release`: frees what was shown to a person, and nothing else."""

from tests.cli.conftest import Shop
from tests.cli.program import Terminal, run

ENV = {"DIBS_NAMESPACE": "shop:"}


def test_it_asks_names_the_holder_and_says_what_may_go_wrong(shop: Shop) -> None:
    """Only a yes releases."""
    refused = Terminal(shop.url, "release", "job:nightly", "--force", env=ENV)
    refused.wait_for("[y/N]")
    assert shop.lease.token.partition("@")[2] in refused.text
    assert "two work at once" in " ".join(refused.text.split()) and "fence" in refused.text
    refused.type("\n")
    assert refused.end().code == 1 and shop.dibs.peek("job:nightly") is not None
    agreed = Terminal(shop.url, "release", "job:nightly", "--force", env=ENV)
    agreed.wait_for("[y/N]")
    agreed.type("y\n")
    done = agreed.end()
    assert done.code == 0 and "released" in done.out and shop.dibs.peek("job:nightly") is None


def test_a_successor_that_came_while_somebody_was_asked_is_not_hit(shop: Shop) -> None:
    """What was shown is compared."""
    asked = Terminal(shop.url, "release", "job:nightly", "--force", env=ENV)
    asked.wait_for("[y/N]")
    shop.lease.release()
    assert shop.dibs.try_hold("job:nightly", ttl=600)
    asked.type("yes\n")
    done = asked.end()
    assert done.code == 1 and "another holder" in done.out
    assert shop.dibs.peek("job:nightly") is not None


def test_a_claim_that_was_completed_meanwhile_keeps_its_record(shop: Shop) -> None:
    """Else the same submission would be executed once more, though nothing hung."""
    with shop.dibs.claim("order:bob:8", window=500, after="replay") as claim:
        seen = run(shop.url, "peek", "order:bob:8", "--json", env=ENV).json["entry"]["token_hint"]
        claim.complete("paid")
    words = ("release", "order:bob:8", "--force", "--yes", "--seen")
    done = run(shop.url, *words, seen, env=ENV)
    assert done.code == 1 and "completed" in done.out
    assert shop.dibs.peek("order:bob:8") is not None
    assert run(shop.url, *words, f"{seen}-done", env=ENV).code == 0


def test_without_a_terminal_it_needs_a_yes(shop: Shop) -> None:
    """Nothing is released by a script that does not say so."""
    done = run(shop.url, "release", "job:nightly", "--force", env=ENV)
    assert done.code == 2 and "--yes" in done.err and shop.dibs.peek("job:nightly")
    done = run(shop.url, "release", "job:nightly", "--force", "--yes", "--json", env=ENV)
    assert done.code == 0 and done.json == {"released": True, "outcome": "released"}
    done = run(shop.url, "release", "job:nightly", "--force", "--yes", "--json", env=ENV)
    assert done.code == 1 and done.json == {"released": False, "outcome": "free"}


def test_a_token_releases_its_own_key_only(shop: Shop) -> None:
    """As `lease.token` shows it."""
    other = shop.dibs.try_hold("job:other", ttl=600)
    assert other is not None
    words = ("--yes", "--token", shop.lease.token)
    done = run(shop.url, "release", "job:other", *words, env=ENV)
    assert done.code == 1 and "another holder" in done.out
    assert run(shop.url, "release", "job:nightly", *words, env=ENV).code == 0
    assert shop.dibs.peek("job:other") is not None


def test_one_of_several_permits_is_chosen_by_its_hint(shop: Shop) -> None:
    """Without a choice, they are listed."""
    done = run(shop.url, "release", "gpu:1", "--force", "--yes", env=ENV)
    assert done.code == 2 and done.err.count("--seen ") == 2
    hint = done.err.rpartition("--seen ")[2].split()[0]
    done = run(shop.url, "release", "gpu:1", "--force", "--seen", hint, "--yes", env=ENV)
    assert done.code == 0 and shop.dibs.try_hold("gpu:1", ttl=600, limit=2) is not None


def test_what_is_not_held_is_refused_before_anybody_is_asked(shop: Shop) -> None:
    """A cached value is invalidated instead."""
    done = Terminal(shop.url, "release", "menu:b1", "--force", env=ENV).end()
    assert done.code == 2 and "invalidate" in done.out and "[y/N]" not in done.out
