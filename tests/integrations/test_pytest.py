"""`dibs.integrations.pytest`: its fixtures, in their own pytest sessions."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text("utf-8")


def shown(name: str) -> str:
    """What the documentation shows as the file *name*."""
    found = re.search(rf"^```python no-run\n# {name}\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None
    return found[1]


def menu() -> str:
    """The application of the page about `cached`, with the server of a test."""
    page = (Path(__file__).parents[2] / "docs/cached.md").read_text("utf-8")
    found = re.search(r"^```python\n# menu.py.*?\n(.*?)^```$", page, re.M | re.S)
    assert found is not None
    return "import os\n" + found[1].replace('"redis://localhost:6379"', 'os.environ["REDIS_URL"]')


def session(pytester: pytest.Pytester, test: str, *arguments: str) -> pytest.RunResult:
    """What pytest says about *test*."""
    pytester.makeconftest(shown("conftest.py"))
    pytester.makepyfile(test_it=test, test_checkout=shown("test_checkout.py"))
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", *arguments)


def test_the_applications_of_the_page_are_tested_in_one_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose functions are decorated at import; and an async test."""
    monkeypatch.delenv("DIBS_DISABLED", raising=False)
    pytester.makeconftest(shown("conftest.py"))
    names = ("test_menu", "test_checkout_async")
    pytester.makepyfile(menu=menu(), **{name: shown(f"{name}.py") for name in names})
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error")
    result.assert_outcomes(passed=2)


def test_each_test_has_an_empty_server(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dibs`, `async_dibs` and `dibs_server` are on one server, which stays for the session.

    A busy machine, on which nothing answers for seconds, does not disturb them.
    """
    monkeypatch.delenv("DIBS_DISABLED", raising=False)
    test = """
        import threading
        import pytest
        from dibs import AsyncDibs, Busy, Dibs

        pids = []

        @pytest.mark.parametrize("number", range(3))
        def test_sync(dibs: Dibs, dibs_server, number):
            pids.append(dibs_server.pid)
            assert dibs_server.keys() == [] and len(set(pids)) == 1
            assert dibs.try_hold("checkout:42", ttl=60).guarded

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_async(async_dibs: AsyncDibs, dibs: Dibs, dibs_server):
            assert dibs_server.keys() == [] and dibs_server.pid in pids
            async with async_dibs.hold("checkout:42", ttl=60):
                with pytest.raises(Busy), dibs.hold("checkout:42", ttl=60):
                    pass

        def test_busy(dibs: Dibs, dibs_server):
            dibs_server.freeze()
            later = threading.Timer(2.5, dibs_server.thaw)
            later.start()
            assert dibs.try_hold("checkout:42", ttl=60).guarded
            later.join()

        def test_server(dibs_server):
            with Dibs(dibs_server.url) as mine:
                assert mine.try_hold("checkout:42", ttl=60).guarded
            assert dibs_server.keys() == ["checkout:42"]
    """
    session(pytester, test).assert_outcomes(passed=7)


def test_a_test_that_went_on_unguarded_fails(pytester: pytest.Pytester) -> None:
    """In an outage the fixture raises; where a call is open all the same, the test is an error."""
    test = """
        import pytest
        from dibs import Dibs

        @pytest.fixture
        def killed(dibs, dibs_server):
            dibs.try_hold("warm:up", ttl=5)
            dibs_server.kill()
            yield
            dibs_server.restart()

        def test_closed(dibs, killed):
            dibs.try_hold("checkout:42", ttl=5)

        def test_open(dibs, killed):
            assert not dibs.try_hold("checkout:42", ttl=5, on_outage="open").guarded

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_open_tasks(async_dibs, dibs_server):
            await async_dibs.try_hold("warm:up", ttl=5)
            dibs_server.kill()
            try:
                lease = await async_dibs.try_hold("checkout:42", ttl=5, on_outage="open")
                assert not lease.guarded
            finally:
                dibs_server.restart()

        def test_own(dibs_server):
            dibs_server.kill()
            with Dibs(dibs_server.url) as mine:
                assert not mine.try_hold("checkout:42", ttl=5).guarded
            dibs_server.restart()
    """
    result = session(pytester, test)
    result.assert_outcomes(failed=1, passed=4, errors=3)
    result.stdout.fnmatch_lines(["*Unavailable*"])
    assert result.stdout.str().count("not guarded by dibs: checkout:") >= 2


def test_a_process_in_which_dibs_is_disabled_fails_too(pytester: pytest.Pytester) -> None:
    """DIBS_DISABLED=1 in the environment would make every test of a lock pass."""
    test = """
        def test_it(dibs):
            dibs.try_hold("checkout:42", ttl=5)
    """
    os.environ["DIBS_DISABLED"] = "1"
    try:
        result = session(pytester, test)
    finally:
        del os.environ["DIBS_DISABLED"]
    result.assert_outcomes(passed=1, failed=1, errors=2)


def test_workers_of_xdist_have_servers_of_their_own(pytester: pytest.Pytester) -> None:
    """No test empties the server of another one."""
    test = """
        import os, pathlib, pytest, time

        @pytest.mark.parametrize("number", range(4))
        def test_it(dibs, dibs_server, number):
            with dibs.hold("checkout:42", ttl=60) as lease:
                for _ in range(20):
                    time.sleep(0.01)
                    assert dibs_server.keys() == ["checkout:42"]
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path(f"{worker}-{dibs_server.pid}").touch()
    """
    session(pytester, test, "-n", "2").assert_outcomes(passed=5)
    servers = [path.name.split("-") for path in Path(pytester.path).glob("gw*-*")]
    assert len({worker for worker, _ in servers}) == len({pid for _, pid in servers})


def test_who_does_not_ask_for_it_pays_nothing() -> None:
    """Nothing is registered by an installation: pytest imports no part of dibs by itself."""
    code = (
        "import pytest, sys; pytest.main(['--collect-only', '-q', '--noconftest', '/dev/null']);"
        "print([name for name in sys.modules if name.startswith('dibs')])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout.splitlines()[-1] == "[]"
