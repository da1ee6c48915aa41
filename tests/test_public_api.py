"""What users may import is what the reference names."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dibs

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference/api.md"
ROW = re.compile(r"^\| `(?P<module>dibs[\w.]*)` \| (?P<names>`[^|]*`) \|$", re.MULTILINE)
IMPORTS = {
    row["module"]: re.findall(r"`(\w+)`", row["names"])
    for row in ROW.finditer(REFERENCE.read_text("utf-8"))
}
STATEMENT = re.compile(r"^\s*from (dibs|dibs\.[\w.]+) import ([\w, ]+)", re.MULTILINE)
GUARDS = ["asgi", "wsgi", "starlette", "fastapi", "flask", "drf", "django"]


def test_the_reference_lists_every_integration() -> None:
    """The table of imports has a row for the package and one for each integration."""
    folder = Path(dibs.__file__).parent / "integrations"
    modules = {f"dibs.integrations.{path.stem}" for path in folder.glob("[a-z]*.py")}
    modules |= {"dibs.integrations.django"}
    others = {"dibs", "dibs.claims", "dibs.console", "dibs.events", "dibs.testing"}
    assert set(IMPORTS) == modules | others


def test_what_pages_import_is_in_the_reference() -> None:
    """No page shows an import that may change without notice."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        f"{module}.{name.partition(' as ')[0].strip()}"
        for page in pages
        for module, names in STATEMENT.findall(page.read_text("utf-8"))
        for name in names.split(",")
    }
    listed = {f"{module}.{name}" for module, names in IMPORTS.items() for name in names}
    modules = set(IMPORTS)  # from dibs.integrations import flask
    assert shown - listed - modules == set()


# Each module is imported by a process that has not imported dibs; its requirements are installed.
FRESH = """
import contextlib, importlib, io, json, os, sys, traceback

for library in ("redis.asyncio", "fastapi", "flask", "rest_framework", "celery", "pytest"):
    with contextlib.suppress(ImportError):
        importlib.import_module(library)
assert not any(name.partition(".")[0] == "dibs" for name in sys.modules)
for module, program in json.load(sys.stdin).items():
    if os.fork() == 0:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(program, {})
            answer = [module, printed.getvalue().split(), ""]
        except BaseException:
            answer = [module, [], traceback.format_exc()]
        print(json.dumps(answer), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, tuple[list[str], str]]:
    """`__all__` of each module, or [] if it has none, and the error of its import."""
    programs: dict[str, str] = {}
    for module, names in IMPORTS.items():
        program = f"import {module} as module; from {module} import {', '.join(names)}\n"
        program += "print(*sorted(getattr(module, '__all__', ())))"
        if ".django" in module or module.endswith(".drf"):  # these want settings before
            program = f"from django.conf import settings; settings.configure(); {program}"
        programs[module] = program
    done = subprocess.run(
        [sys.executable, "-c", FRESH],
        input=json.dumps(programs), capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = map(json.loads, done.stdout.splitlines())
    return {module: (names, error) for module, names, error in answers}


@pytest.mark.parametrize("module", IMPORTS)
def test_what_the_reference_names_can_be_imported(
    module: str, imported: dict[str, tuple[list[str], str]]
) -> None:
    """Every name in the table of imports exists; `__all__` has these names and no others."""
    names, error = imported[module]
    assert not error, error
    assert names in ([], sorted(IMPORTS[module]))


@pytest.mark.parametrize("name", GUARDS)
def test_every_guard_for_http_exports_policy(name: str) -> None:
    """A user can annotate a policy with a name from the module that takes it."""
    assert "Policy" in IMPORTS[f"dibs.integrations.{name}"]


def test_the_version_is_that_of_the_distribution() -> None:
    """`dibs.__version__` is what an installer says, and is defined without an installation."""
    assert dibs.__version__ == importlib.metadata.version("pydibs")


def test_names_that_are_not_there_are_an_attribute_error() -> None:
    """A typing mistake is the usual error, and `dir` lists what can be imported."""
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        dibs.nothing_of_the_kind  # noqa: B018
    assert dibs.Lease and set(dibs.__all__) <= set(dir(dibs))
    assert len(dir(dibs)) == len(set(dir(dibs)))
