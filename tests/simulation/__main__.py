"""python -m tests.simulation: run seeds of the workloads, or show one.

python -m tests.simulation                            1000 seeds of each workload
python -m tests.simulation hold limit --seeds 5000    … of these two
python -m tests.simulation --seeds 910000-915000      these seeds
python -m tests.simulation hold --trace 910006        the shortest trace of a seed that fails
python -m tests.simulation --seconds 10               as many as that takes of CPU, of each a few
python -m tests.simulation --fixed                    the seeds of `make test` and `make test-long`
"""

import argparse
import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are in the same order in each run
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])

from . import system  # isort: skip  # noqa: F401 - before everything that imports dibs

from .batches import fixed, for_seconds, report, seeds_of
from .running import plan_of, run, shortest
from .tracing import trace_lines
from .workloads import VERBS, WORKLOADS


def main() -> int:
    """Returns 1 if a promise was broken."""
    arguments = _arguments()
    names = arguments.workloads or [each.name for each in VERBS]
    if arguments.list:
        print(*names)
        return 0
    if arguments.digests:
        for name in names:
            for seed in arguments.digests:
                print(name, seed, run(name, seed).digest)
        return 0
    if arguments.trace is not None:
        return max(_show(name, arguments.trace, whole=arguments.whole) for name in names)
    if arguments.fixed:
        first, _, last = arguments.fixed.partition("-")
        return report(fixed(names, arguments.jobs, int(first), int(last)))
    if arguments.seconds:
        return report(for_seconds(names, arguments.seconds, arguments.first))
    first, count = _range(arguments.seeds, arguments.first)
    return report(seeds_of(names, first, count, arguments.jobs))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("workloads", nargs="*", choices=[[], *WORKLOADS], metavar="workload")
    parser.add_argument("--seeds", default="1000", help="how many of each workload, or FIRST-LAST")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trace", type=int, metavar="SEED", help="run this seed, and show it")
    parser.add_argument("--whole", action="store_true", help="with --trace: do not shorten it")
    parser.add_argument("--seconds", type=float, help="of CPU, in place of a number of seeds")
    of_them = "the seeds of `make test` and `make test-long`, or some of them"
    parser.add_argument("--fixed", nargs="?", const="0-63", metavar="FIRST-LAST", help=of_them)
    parser.add_argument("--digests", type=int, nargs="+", metavar="SEED", help="of these runs")
    parser.add_argument("--list", action="store_true", help="the workloads")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args()


def _range(text: str, first: int) -> tuple[int, int]:
    begin, _, last = text.partition("-")
    return (int(begin), int(last) - int(begin) + 1) if last else (first, int(begin))


def _show(name: str, seed: int, *, whole: bool) -> int:
    plan = plan_of(name, seed)
    if run(name, seed, plan).violations and not whole:
        plan = shortest(name, seed)
    outcome = run(name, seed, plan, is_traced=True)
    print(*trace_lines(outcome, plan), sep="\n")
    return 1 if outcome.violations else 0


sys.exit(main())
