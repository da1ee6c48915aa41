"""Imports go one way, also those for type checkers."""

from pathlib import Path

import pytest

from tools import import_rules
from tools.import_rules import INTERFACES, LAYERS, MAY_IMPORT, PUBLIC, Imports

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def imports() -> Imports:
    return import_rules.read_imports(ROOT)


def test_every_import_goes_down_and_no_modules_import_each_other(imports: Imports) -> None:
    """Library, integrations, `testing` and applications. Exceptions are named, and exact."""
    assert import_rules.problems(imports) == []


def test_what_may_be_imported_lies_below() -> None:
    """The declared rules have no upward import themselves."""
    order = [package for _, packages in LAYERS for package in packages]
    assert sorted(order) == sorted(MAY_IMPORT)
    for package, others in MAY_IMPORT.items():
        for other in others:
            assert order.index(package) < order.index(other), f"{package} → {other}"


@pytest.mark.parametrize(
    "package", ["dibs.integrations", "dibs.cli", "dibs.scheduler", "dibs.doctor", "dibs.console"]
)
def test_above_the_public_api_only_declared_interfaces_are_used(package: str) -> None:
    """The core, the transport and the clients can change without a look at what uses them."""
    private = MAY_IMPORT[package] - PUBLIC - {"dibs.testing"}
    assert private <= INTERFACES


@pytest.mark.parametrize("part", ["dibs._core", "dibs.integrations", "dibs.testing", "apps.orders"])
def test_every_part_is_read(imports: Imports, part: str) -> None:
    """Nothing is left out because it was not found."""
    assert sum(module.startswith(f"{part}.") for module in imports) > 5


def test_imports_for_type_checkers_and_inside_functions_count(tmp_path: Path) -> None:
    """Each way to write one is found: absolute, relative, guarded, local, of a name in a module."""
    folder = tmp_path / "src/dibs/_core"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text("")
    for name in "bcdef":
        (folder / f"{name}.py").write_text("")
    (folder / "a.py").write_text(
        "import typing\n"
        "import dibs._core.b\n"
        "from . import c\n"
        "from .d import name\n"
        "if typing.TYPE_CHECKING:\n    from dibs._core.e import name\n"
        "def function():\n    from .. import _core\n    from .._core import f\n"
    )
    found = import_rules.read_imports(tmp_path)["dibs._core.a"]
    assert found == {"dibs._core", *(f"dibs._core.{name}" for name in "bcdef")}


def test_an_upward_import_is_a_problem() -> None:
    """It is named, unless it is a known exception. An exception that is not needed is a problem."""
    imports = {"dibs._core.keys": {"dibs._async.client"}, "dibs._async.client": set[str]()}
    assert import_rules.problems(imports, {}, []) == [
        "dibs._core.keys may not import dibs._async.client"
    ]
    exceptions = {"dibs._core.keys": {"dibs._async.client"}}
    assert import_rules.problems(imports, exceptions, []) == []
    imports["dibs._core.keys"].clear()
    assert import_rules.problems(imports, exceptions, []) == [
        "dibs._core.keys no longer imports dibs._async.client"
    ]


def test_a_cycle_is_a_problem() -> None:
    """Also a long one; and a known cycle has to be exactly as it is known."""
    a, b, c = (f"dibs._core.{name}" for name in "abc")
    imports = {a: {b}, b: {c}, c: {a}}
    assert import_rules.problems(imports, {}, []) == [f"they import each other: {a}, {b}, {c}"]
    assert import_rules.problems(imports, {}, [{a, b, c}]) == []
    imports[c] = set()
    assert import_rules.problems(imports, {}, [{a, b, c}]) == [
        f"they are no longer that cycle: {a}, {b}, {c}"
    ]


def test_a_module_without_a_layer_is_a_problem() -> None:
    """A new package has to be given its place."""
    [problem] = import_rules.problems({"dibs._new": set()}, {}, [])
    assert problem.startswith("dibs._new belongs to no layer")
