"""The generated half is exactly what the generator makes of the async half, on every Python."""

from pathlib import Path
from textwrap import dedent

import pytest

from tools import unasync

ROOT = Path(__file__).parents[1]
SOURCE, GENERATED = "src/dibs/_async/hold.py", "src/dibs/_sync/hold.py"


def generated(source: str) -> str:
    """What is generated below the header."""
    header, _, text = unasync.generated(dedent(source), "a.py").partition("\n")
    assert header == "# Generated from a.py by unasync.py – do not edit."
    return text


def changed(source: str) -> str:
    """What a single line becomes."""
    return unasync.edited(f"{source}\n").removesuffix("\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree with one source and the file generated from it."""
    (tmp_path / SOURCE).parent.mkdir(parents=True)
    (tmp_path / SOURCE).write_text("async def one():\n    return 1\n\n\nTWO = 2\n", "utf-8")
    unasync.write(tmp_path)
    return tmp_path


def test_the_generated_half_of_this_checkout_is_up_to_date():
    """A change of the async half without `make generate` fails here."""
    assert unasync.problems(ROOT) == []


def test_a_fresh_tree_has_no_problems(tree: Path):
    """Generating and checking agree, and the generated file says where it comes from."""
    assert unasync.problems(tree) == []
    assert (tree / GENERATED).read_text("utf-8") == (
        f"# Generated from {SOURCE} by unasync.py – do not edit.\n"
        "def one():\n    return 1\n\n\nTWO = 2\n"
    )


def test_a_tree_without_sources_has_no_problems(tmp_path: Path):
    """Before there is anything to generate, there is nothing to complain about."""
    assert unasync.problems(tmp_path) == []
    assert unasync.write(tmp_path) == 0


@pytest.mark.parametrize("keep", [0, 1, -1])
def test_a_truncated_file_is_found(tree: Path, keep: int):
    """Whole bytes are compared, to the last one."""
    whole = (tree / GENERATED).read_bytes()
    (tree / GENERATED).write_bytes(whole[:keep])
    assert unasync.problems(tree) == [f"{GENERATED}: out of date"]


def test_a_longer_file_is_found(tree: Path):
    """… and nothing may follow."""
    with (tree / GENERATED).open("a") as file:
        file.write("\n")
    assert unasync.problems(tree) == [f"{GENERATED}: out of date"]


def test_a_missing_file_is_found_and_printed_again(tree: Path):
    """A source without its generated twin is a problem."""
    (tree / GENERATED).unlink()
    assert unasync.problems(tree) == [f"{GENERATED}: missing"]
    unasync.write(tree)
    assert unasync.problems(tree) == []


def test_a_stray_file_is_found_and_removed(tree: Path):
    """A generated file without a source is a problem, also in its own folder."""
    stray = tree / "src/dibs/_sync/deeper/old.py"
    stray.parent.mkdir()
    stray.write_bytes((tree / GENERATED).read_bytes())
    assert unasync.problems(tree) == ["src/dibs/_sync/deeper/old.py: stray, it has no source"]
    unasync.write(tree)
    assert not stray.exists()


def test_a_stray_file_written_by_hand_is_not_removed(tree: Path):
    """Handwritten files are not deleted: the generator stops before it writes anything."""
    stray = tree / "src/dibs/_sync/mine.py"
    stray.write_text("MINE = True\n")
    with pytest.raises(unasync.Refused, match=r"mine\.py: written by hand"):
        unasync.write(tree)
    assert stray.exists()


def test_other_files_are_left_alone(tree: Path):
    """Only Python is generated, and only Python is checked."""
    (tree / "src/dibs/_async/notes.txt").write_text("await")
    (tree / "src/dibs/_sync/py.typed").write_text("")
    unasync.write(tree)
    assert unasync.problems(tree) == []
    assert not (tree / "src/dibs/_sync/notes.txt").exists()


def test_the_command_fails_with_a_list(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """`--check` exits with 1 and names the files; after generating it exits with 0."""
    monkeypatch.setattr(unasync, "__file__", str(tree / "tools/unasync.py"))
    (tree / GENERATED).unlink()
    assert unasync.main(["--check"]) == 1
    assert f"{GENERATED}: missing" in capsys.readouterr().out
    assert unasync.main([]) == 0
    assert unasync.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = await self.link.call(a,  b)  # two", "x = self.link.call(a,  b)  # two"),
        ("return (await one()).two", "return (one()).two"),
        ("x = [await   y async for y in z]", "x = [y for y in z]"),
        ("class AsyncDibs(_AsyncBase[AsyncLease]): ...", "class Dibs(_Base[Lease]): ..."),
        ("Asynchronous = async_name = reasync", "Asynchronous = async_name = reasync"),
        ("from dibs._async.hold import AsyncLease", "from dibs._sync.hold import Lease"),
        ("from .._tasks import sleep", "from .._threads import sleep"),
        ("raise StopAsyncIteration", "raise StopIteration"),
        ("stack.enter_async_context(x.aclose)", "stack.enter_context(x.close)"),
    ],
)
def test_code_loses_its_colour_and_keeps_its_layout(source: str, expected: str):
    """Keywords go with the blank behind them, names lose `Async`, the rest stays to the byte."""
    assert changed(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""`async with AsyncDibs(u)`, `await x.y()`"""', '"""`with Dibs(u)`, `x.y()`"""'),
        ('"an async function is awaited"', '"an async function is awaited"'),
        ('x: "AsyncLease | None"', 'x: "Lease | None"'),
        (r'"\nAsyncLease \\AsyncLease"', r'"\nLease \\Lease"'),
        ("# see _async/hold.py: await lease.aclose()", "# see _sync/hold.py: lease.close()"),
    ],
)
def test_strings_and_comments_follow_the_code(source: str, expected: str):
    """What a sync user reads in a docstring, an example or a quoted type is sync, too."""
    assert changed(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('f"{await x}"; await y', 'f"{x}"; y'),
        ('f"鎖{await x!r:>{await w}}é{{await}}{{}}"; await y', 'f"鎖{x!r:>{w}}é{{await}}{{}}"; y'),
        ("""f"a{'b' + f'{AsyncDibs}'}" rf'\\d{await d}'""", """f"a{'b' + f'{Dibs}'}" rf'\\d{d}'"""),
        ("f'''\n{await x\n} {_tasks.t() = }'''; await y", "f'''\n{x\n} {_threads.t() = }'''; y"),
    ],
)
def test_f_strings_print_the_same_on_every_python(source: str, expected: str):
    """Python 3.11 sees one token, 3.12 many; the expected bytes are the same for both."""
    assert changed(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("f: Callable[[str], Awaitable[dict[str, int]]]", "f: Callable[[str], dict[str, int]]"),
        ("f: Coroutine[Any, Any, list[int]] | None", "f: list[int] | None"),
        ("f: Awaitable[Awaitable[AsyncLease]]", "f: Lease"),
        ("f: Coroutine[\n    Any,\n    Any,\n    int,  # why\n]", "f: int"),
    ],
)
def test_a_promised_value_becomes_the_value(source: str, expected: str):
    """`Awaitable[T]` and `Coroutine[Any, Any, T]` are T for those who do not wait."""
    assert changed(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from abc import Awaitable, Callable", "from abc import Callable"),
        ("from abc import Callable, Coroutine", "from abc import Callable"),
        ("from abc import Awaitable, Callable, Coroutine", "from abc import Callable"),
        ("from abc import AsyncIterator, Iterator", "from abc import Iterator"),
        ("from abc import AsyncX as A, X as A, X", "from abc import X as A, X"),
        ("import a\nfrom abc import Awaitable  # why\nimport b", "import a\nimport b"),
        ("from abc import (\n    A,\n    Awaitable,\n)", "from abc import (\n    A,\n)"),
        ("from abc import (\n    Awaitable,\n    B,\n)", "from abc import (\n    B,\n)"),
    ],
)
def test_imports_that_printing_makes_idle_are_dropped(source: str, expected: str):
    """The linter and the type checker read the generated half as well."""
    assert changed(source) == expected


def test_a_whole_module_is_generated():
    """Header first, then every line in its place."""
    source = '''\
        """Rooms."""

        async def rooms(dibs: AsyncDibs) -> AsyncIterator[str]:
            # One at a time.
            async with dibs.hold("a"):
                async for room in dibs:  # await each
                    yield await room.name(
                        1,
                    )
        '''
    assert generated(source) == dedent('''\
        """Rooms."""

        def rooms(dibs: Dibs) -> Iterator[str]:
            # One at a time.
            with dibs.hold("a"):
                for room in dibs:  # each
                    yield room.name(
                        1,
                    )
        ''')


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("def f(:\n    pass\n", r"^a\.py:1: "),
        ("def f(close, aclose): ...\n", r"^a\.py, generated:2: .*duplicate"),
        ("if x:\n    from abc import Awaitable\n", r"^a\.py, generated:2: "),
        ("x = 1\nisinstance(x, Awaitable)\n", r"^a\.py:2: Awaitable can be translated only as"),
        ("x: abc.Awaitable[int]\n", r"^a\.py:1: Awaitable can be translated only as"),
        ("x: Coroutine[int]\n", r"^a\.py:1: Coroutine\[…\] takes 3"),
    ],
)
def test_what_cannot_be_printed_is_refused(source: str, where: str):
    """Nothing doubtful is written: the answer is a file, a line and a reason."""
    with pytest.raises(unasync.Refused, match=where):
        unasync.generated(source, "a.py")


def test_one_refused_source_stops_the_whole_run(tree: Path):
    """The generated half is never half new."""
    before = (tree / GENERATED).read_bytes()
    (tree / SOURCE).write_text("async def two(): ...\n")
    (tree / SOURCE).with_name("broken.py").write_text("def f(close, aclose): ...\n")
    with pytest.raises(unasync.Refused, match=r"broken\.py, generated:2"):
        unasync.write(tree)
    assert (tree / GENERATED).read_bytes() == before
