"""The playground's `machines` panel: a schedule and a leader on five processes; limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest

from dibs.testing import eventually

from .playground_process import Playground

pytestmark = pytest.mark.only_on("linux", "darwin")


@pytest.fixture
def visitor(playground: Playground) -> Iterator[httpx.Client]:
    with playground.visitor() as client:
        client.timeout = httpx.Timeout(120)
        yield client


def standing(visitor: httpx.Client) -> dict[str, Any]:
    """How the machines stand: the first message of the stream."""
    with visitor.stream("GET", "/machines/events") as answer:
        data = next(line for line in answer.iter_lines() if line.startswith("data: "))
    return json.loads(data.removeprefix("data: "))


def leaders(visitor: httpx.Client) -> list[str]:
    return [each["name"] for each in standing(visitor)["machines"] if each["fence"] is not None]


def test_one_machine_leads_and_another_takes_over(visitor: httpx.Client) -> None:
    """Runs come, each on one machine; the leader's process is killed, and another leads."""
    eventually(lambda: len(leaders(visitor)) == 1, within=120)
    eventually(lambda: standing(visitor)["runs"], within=120)
    [first] = leaders(visitor)
    answer = visitor.post(f"/machines/kill/{first.removeprefix('machine ')}")
    assert answer.status_code == 202, answer.text
    eventually(lambda: [each for each in leaders(visitor) if each != first], within=120)
    eventually(lambda: all(each["alive"] for each in standing(visitor)["machines"]), within=120)
    assert visitor.post("/machines/kill/6").status_code == 404


def test_three_at_a_time(visitor: httpx.Client) -> None:
    """Of four calls at once, one is refused and learns when to try again; the others are served."""

    def answers() -> list[dict[str, Any]]:
        with ThreadPoolExecutor(4) as pool:
            return [each.json() for each in pool.map(visitor.post, ["/machines/call"] * 4)]

    def is_one_refused(found: list[dict[str, Any]]) -> bool:
        refused = [each for each in found if "busy" in each]
        assert len(refused) <= 1 and all(each["retry_after"] > 0 for each in refused)
        assert [each for each in found if "done" in each] == [{"done": 3.0}] * (4 - len(refused))
        return bool(refused)

    # On a busy machine the fourth may come when a place is free again.
    eventually(lambda: is_one_refused(answers()), within=120)


def test_five_in_ten_seconds(visitor: httpx.Client) -> None:
    """A refusal comes at the latest when all are used up and none has come back."""
    answers = [visitor.post("/machines/message").json() for _ in range(40)]
    assert answers[0]["left"] == 4
    refused = [each for each in answers if "busy" in each]
    assert refused and 0 < refused[0]["retry_after"] <= 2.1
