"""The metrics of several processes, added up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dibs.testing import Child, Server

Spawn = Callable[..., Child]


def _count_in_a_process(folder: str, url: str, order: str, outage: bool) -> None:
    """One worker of a service: an order that is done, one at work, and perhaps an outage."""
    import os

    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    from dibs import Dibs, Event
    from dibs.integrations.prometheus import PrometheusListener

    listener = PrometheusListener()
    with Dibs(url, listeners=[listener]) as dibs:
        with dibs.claim(f"order:{order}", window=9):
            pass
        # Not renewed while the test looks: an answer would end the outage.
        with dibs.claim(f"open:{order}", window=600, lease=600):
            if outage:
                listener(Event(kind="outage", name="order:*", at=0.0, cause="no answer"))
            print("open", flush=True)
            input()
    print("done", flush=True)
    input()


def _collected(folder: str) -> dict[str, float]:
    """What all processes have counted together."""
    import os

    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    ok = {"name": "order:*", "outcome": "ok"}
    return {
        "set": registry.get_sample_value("dibs_claims_set_total", ok),
        "held": registry.get_sample_value("dibs_hold_seconds_count", {"name": "order:*"}),
        "open": registry.get_sample_value("dibs_open_claims"),
        "outage": registry.get_sample_value("dibs_outage"),
    }


def test_processes_are_added_up(tmp_path: Path, valkey: Server, spawn: Spawn) -> None:
    """Counters and histograms of all, open claims of those that live, an outage of any."""
    workers = [
        spawn(_count_in_a_process, str(tmp_path), valkey.url, str(number), number == 0)
        for number in range(2)
    ]
    assert [worker.line(within=60) for worker in workers] == ["open", "open"]
    seen = spawn(_collected, str(tmp_path)).result()
    assert seen == {"set": 2, "held": 2, "open": 2, "outage": 1}
    for worker in workers:
        worker.tell()
    assert [worker.line(within=60) for worker in workers] == ["done", "done"]
    seen = spawn(_collected, str(tmp_path)).result()
    assert (seen["open"], seen["outage"]) == (0, 0)


def test_a_killed_worker_is_forgotten_when_another_one_starts(
    tmp_path: Path, valkey: Server, spawn: Spawn
) -> None:
    """Its open claims and its outage would be reported for ever; its counters are kept."""
    killed, other = [
        spawn(_count_in_a_process, str(tmp_path), valkey.url, str(number), number == 0)
        for number in range(2)
    ]
    assert [worker.line(within=60) for worker in (killed, other)] == ["open", "open"]
    killed.kill()
    started = spawn(_count_in_a_process, str(tmp_path), valkey.url, "2", False)
    assert started.line(within=60) == "open"
    seen = spawn(_collected, str(tmp_path)).result()
    assert seen == {"set": 3, "held": 3, "open": 2, "outage": 0}


def _start_with_the_file_of_a_predecessor(folder: str) -> dict[str, float]:
    """A container that was started again: its first process has the same id as before."""
    import os
    import subprocess
    import sys

    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    code = (
        "import os, sys; os.getpid = lambda: int(sys.argv[1]);"
        "from dibs.integrations.prometheus import PrometheusListener;"
        "from dibs import Event;"
        "PrometheusListener()(Event(kind='outage', name='n', at=0.0, cause='refused'))"
    )
    subprocess.run([sys.executable, "-c", code, str(os.getpid())], check=True)
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    from dibs.integrations.prometheus import PrometheusListener

    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    before = registry.get_sample_value("dibs_outage")
    PrometheusListener()
    return {"before": before, "after": registry.get_sample_value("dibs_outage")}


def test_a_worker_with_the_id_of_a_killed_one_begins_anew(tmp_path: Path, spawn: Spawn) -> None:
    """Where the folder was not emptied: an outage of the former process is not its own."""
    seen = spawn(_start_with_the_file_of_a_predecessor, str(tmp_path)).result()
    assert seen == {"before": 1, "after": 0}
