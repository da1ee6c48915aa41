"""What is published: contents, metadata and pages of the wheels. `make dist` does more."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.dist.checks import sdist_problems, wheel_problems
from tools.dist.projects import (
    ROOT,
    Project,
    copy_for_release,
    projects,
    relative_links,
    with_absolute_links,
    with_urls,
)

URL = "https://code.example/dibs/dibs"


@pytest.fixture(scope="module", params=projects(), ids=lambda project: project.name)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Project, Path, Path]:
    """A project, its wheel and its sdist, as a release has them."""
    project, folder = request.param, tmp_path_factory.mktemp("release")
    copy_for_release(project, folder, url=URL, tag="v1")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder / "dist")]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    [wheel], [sdist] = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return project, wheel, sdist


def test_a_release_has_nothing_to_complain_about(built: tuple[Project, Path, Path]) -> None:
    """The files that git knows and no others, the licence, types, URLs, and absolute links."""
    project, wheel, sdist = built
    assert wheel_problems(project, wheel, published=True) == []
    assert sdist_problems(project, sdist) == []


def test_the_wheel_is_the_library(built: tuple[Project, Path, Path]) -> None:
    """No applications, no tests, no suite for other products."""
    project, wheel, _ = built
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}
    packages = {Path(package).name for package in project.packages}
    assert {each for each in folders if not each.endswith(".dist-info")} == packages
    assert not [name for name in names if "torture" in name and project.name == "pydibs"]


def test_a_wheel_is_installed_by_its_name_and_imported_by_that_of_its_package(
    built: tuple[Project, Path, Path], tmp_path: Path
) -> None:
    """`pip install pydibs`, then `import dibs`: the name on PyPI is not that of the package."""
    project, wheel, _ = built
    folder = tmp_path / "installed"
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    options = ["--quiet", "--no-index", "--no-deps", "--find-links", str(wheel.parent)]
    subprocess.run(
        [uv, "pip", "install", *options, "--target", str(folder), project.name], check=True
    )
    [package] = [Path(each).name for each in project.packages]
    program = f"""
import sys
sys.path.insert(0, {str(folder)!r})
import importlib.metadata, {package}
assert {package}.__file__.startswith({str(folder)!r}), {package}.__file__
assert importlib.metadata.distribution({project.name!r}).read_text("METADATA")
"""
    subprocess.run([sys.executable, "-I", "-c", program], check=True, cwd=tmp_path)


def test_old_readers_of_metadata_understand_ours(built: tuple[Project, Path, Path]) -> None:
    """The `packaging` of 2024 knows versions up to 2.4, and refuses newer ones."""
    _, wheel, _ = built
    with zipfile.ZipFile(wheel) as archive:
        [about] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert archive.read(about).startswith(b"Metadata-Version: 2.4\n")


def test_what_is_wrong_with_a_wheel_is_found(
    built: tuple[Project, Path, Path], tmp_path: Path
) -> None:
    """A file too many, a licence too few, and a page for a checkout."""
    project, wheel, _ = built
    worse = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as good, zipfile.ZipFile(worse, "w") as bad:
        for name in good.namelist():
            if not name.endswith(("LICENSE", "py.typed")):
                text = good.read(name).replace(b"Project-URL: Source", b"X-Source")
                bad.writestr(name, text + (b"[x](pages/y.md)\n" if "METADATA" in name else b""))
        bad.writestr("stray/notes.txt", b"")
    found = " ".join(wheel_problems(project, worse, published=True))
    for complaint in ("stray/notes.txt does not belong", "the licence is missing", "py.typed"):
        assert complaint in found
    assert "no URL for Source" in found
    assert "links to pages/y.md" in found


def test_links_become_absolute() -> None:
    """Pages and headings of the repository are found from a registry; programs stay as they are."""
    page = "[a](pages/a.md#b) ![c](d.png) [e](https://f) [g](#h)\n```sh\n[i](j)\n```\n"
    absolute = with_absolute_links(page, f"{URL}/{{kind}}/v1/")
    assert f"[a]({URL}/blob/v1/pages/a.md#b) ![c]({URL}/raw/v1/d.png)" in absolute
    assert "[e](https://f) [g](#h)\n```sh\n[i](j)\n```\n" in absolute
    assert relative_links(page) == ["pages/a.md#b", "d.png"]
    assert relative_links(absolute) == []
    assert 'Source = "https://code.example/dibs/dibs/tree/v1"' in with_urls("", URL, "v1")
