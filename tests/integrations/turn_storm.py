"""A hundred jobs with one key and `queue=True`, two workers, one of which is killed.

    python -m tests.integrations.turn_storm [celery|dramatiq|rq …] [--jobs 100]

Prints, for each framework: how many ran, how many of them once, whether that was in the order of
sending, and the longest time between two starts, in seconds. The job that is killed may run again.
"""

import argparse
import sys
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from dibs.testing import Server
from tests.integrations.jobs.conftest import running
from tests.integrations.jobs.job_control import JobControl
from tests.integrations.jobs.test_turns_in_workers import WORKERS, app_of, celery, dramatiq, rq

OPENED = {"celery": celery, "rq": rq, "dramatiq": dramatiq}


def storm(framework: str, jobs: int) -> bool:
    """Try one framework; print a line. True: all ran, in order."""
    with Server.start() as broker, ExitStack() as stack:
        control, key = JobControl(broker.url), uuid.uuid4().hex
        workers = [stack.enter_context(running(broker, *WORKERS[framework])) for _ in range(2)]
        app = app_of(framework, broker)
        with OPENED[framework](app, broker) as (send, _):
            ids = [send("in_turn" if at % 2 else "also_in_turn", key) for at in range(jobs)]
            starts = list[tuple[str, float]]()
            killed = ""
            while set(ids) - {each for each, _ in starts if each != killed}:
                started = control.started(key)
                starts.append((started.id, time.monotonic()))
                if len(starts) == jobs // 3:
                    killed = started.id
                    is_here = [started.pid in {each.pid, *_children(each.pid)} for each in workers]
                    workers[is_here.index(True)].kill()
                    ids = [each for each in ids if each != killed]
                else:
                    control.send(key)
        control.close()
    others = [each for each, _ in starts if each != killed]
    once = sum(number == 1 for number in Counter(others).values())
    gaps = [later - before for (_, before), (_, later) in pairwise(starts)]
    in_order = list(dict.fromkeys(others)) == ids
    print(
        f"{framework}: {jobs} jobs, {len(set(others))} of the {len(ids)} others ran, {once} once, "
        f"{'in order' if in_order else 'NOT in order'}; the killed one was started "
        f"{sum(each == killed for each, _ in starts)} times; the longest gap {max(gaps):.1f} s, "
        f"the usual one {sorted(gaps)[len(gaps) // 2]:.2f} s",
        flush=True,
    )
    return in_order and once == len(ids)


def _children(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    direct = {int(each) for each in text.split()}
    return direct.union(*(_children(each) for each in direct))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frameworks", nargs="*", default=["celery", "dramatiq"])
    parser.add_argument("--jobs", type=int, default=100)
    options = parser.parse_args()
    went_well = [storm(each, options.jobs) for each in options.frameworks]
    return 0 if all(went_well) else 1


if __name__ == "__main__":
    sys.exit(main())
