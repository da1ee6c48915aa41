"""The distributions beside dibs, in packages/: each can be built, installed and read by itself."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent for path in (ROOT / "packages").glob("*/pyproject.toml"))
MODULES = [path for package in PACKAGES for path in sorted(package.glob("src/**/*.py"))]


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT / "packages"))


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_a_package_declares_what_dibs_declares(package: Path) -> None:
    """The same licence, with its text, and the same Pythons; a README, and type hints."""
    own, dibs = project(package), project(ROOT)
    for name in ("license", "license-files", "authors", "requires-python", "readme"):
        assert own[name] == dibs[name], name
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (package / "README.md").read_text("utf-8").startswith(f"# {own['name']}\n")
    assert list(package.glob("src/*/py.typed"))


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_a_package_is_installed_by_make_setup(package: Path) -> None:
    """`make setup` installs it from this checkout, so that tests import what is built."""
    own = project(package)
    found = importlib.metadata.distribution(own["name"])
    assert found.version == own.get("version", found.version)


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_a_module_of_a_package_is_short_and_documented(path: Path) -> None:
    """The rules of the library hold here, too: under 700 lines, docstrings on what is public."""
    text = path.read_text("utf-8")
    assert len(text.splitlines()) < 700
    tree = ast.parse(text)
    assert ast.get_docstring(tree) or not tree.body
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_the_examples_of_a_readme_run(package: Path, tmp_path: Path) -> None:
    """What a reader of the package's page copies works."""
    text = (package / "README.md").read_text("utf-8")
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
