"""A process forks while its other threads are in the middle of something."""

from collections.abc import Callable

import pytest

from dibs.testing import Child, Server

Spawn = Callable[..., Child]

pytestmark = [
    pytest.mark.only_on("linux", "darwin"),
    pytest.mark.usefixtures("real_interpreters"),
]


def fork_while_threads_count(kind: str) -> list[int]:
    """How each of some children ended that count what threads of their parent are counting."""
    import itertools
    import os
    import signal
    import threading
    from collections.abc import Callable

    def prometheus() -> Callable[[], object]:
        from prometheus_client import CollectorRegistry

        from dibs.integrations.prometheus import PrometheusListener

        listener = PrometheusListener(CollectorRegistry())
        count = listener.counter("released", "user:*", guarded=True)
        return lambda: [count(0.1) for _ in range(1000)]  # then they are added up

    def opentelemetry() -> Callable[[], object]:
        from dibs.integrations.opentelemetry import OpenTelemetryListener

        listener = OpenTelemetryListener()
        return lambda: [listener.counter("hit", "user:*", guarded=None)(None) for _ in range(9)]

    def names() -> Callable[[], object]:
        from dibs._event_counting import Names

        known, numbers = Names(100_000), itertools.count()
        return lambda: [known(f"{next(numbers)}") for _ in range(9)]

    def statistics() -> Callable[[], object]:
        from dibs.console.statistics import Statistics

        listener = Statistics()
        for number in range(100):
            listener.counter("hit", f"user:{number}", guarded=None)(None)
        return listener.facts

    made = [prometheus, opentelemetry, names, statistics]
    work = next(each for each in made if each.__name__ == kind)()
    is_over = False

    def again_and_again() -> None:
        while not is_over:
            work()

    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            work()
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    threads = [threading.Thread(target=again_and_again) for _ in range(2)]
    for thread in threads:
        thread.start()
    codes = [fork()]
    while len(codes) < 12 and not any(codes):
        codes.append(fork())
    is_over = True
    for thread in threads:
        thread.join()
    return codes


@pytest.mark.parametrize("kind", ["prometheus", "opentelemetry", "names", "statistics"])
def test_a_forked_child_can_count_though_its_parent_was_counting(spawn: Spawn, kind: str) -> None:
    """No lock of a listener stays locked because another thread had it at the moment of the fork:
    the child would hang at its first event, or when its figures are read."""
    assert spawn(fork_while_threads_count, kind).result(within=90) == [0] * 12


def fork_while_threads_hold(url: str) -> list[int]:
    """How each of some children ended that uses what threads of their parent are using."""
    import os
    import signal
    import threading

    from prometheus_client import CollectorRegistry

    from dibs import Busy, Dibs, Duplicate
    from dibs.console.statistics import Statistics
    from dibs.integrations.prometheus import PrometheusListener

    listeners = [PrometheusListener(CollectorRegistry()), Statistics()]
    dibs = Dibs(url, budget=30, listeners=listeners)
    is_over = False

    @dibs.cached("value:{number}", ttl=0.01, stale=1)
    def value(number: int) -> int:
        return number

    def use(key: str) -> None:
        try:
            with dibs.hold(key, ttl=5, wait=0.01, renew=True, fence=True):
                value(1)
            with dibs.claim(f"{key}:claim", window=1):
                pass
        except (Busy, Duplicate):
            pass

    def again_and_again(key: str) -> None:
        while not is_over:
            use(key)

    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            try:
                use("mine")
                with dibs.hold("alone", ttl=5) as lease:
                    code = 0 if lease.guarded else 1
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    keys = ["same", "same", "other"]
    threads = [threading.Thread(target=again_and_again, args=[key]) for key in keys]
    for thread in threads:
        thread.start()
    codes = [fork() for _ in range(6)]
    is_over = True
    for thread in threads:
        thread.join()
    dibs.close()
    return codes


def test_a_forked_child_can_hold_though_its_parent_was_holding(
    valkey: Server, spawn: Spawn
) -> None:
    """Threads of the parent wait, hold, renew, claim and load at the moment of the fork."""
    assert spawn(fork_while_threads_hold, valkey.url).result(within=90) == [0] * 6


def imported_by_the_first_calls(url: str) -> list[str]:
    """The modules that are imported after a Dibs was created."""
    import sys

    from dibs import Dibs

    with Dibs(url, budget=30) as dibs:
        before = set(sys.modules)

        @dibs.cached("value:{number}", ttl=1, stale=1, local=1)
        def value(number: int) -> int:
            return number

        value(1)
        with dibs.hold("user:1", ttl=5, wait=1, renew=True), dibs.claim("order:1", window=1):
            return sorted(set(sys.modules) - before)


def test_the_first_calls_import_nothing(valkey: Server, spawn: Spawn) -> None:
    """Python locks a module while a thread imports it. In a child that is forked at that moment it
    stays locked: name resolution, which imports a codec, would hang in each of its connections."""
    assert spawn(imported_by_the_first_calls, valkey.url).result(within=60) == []
