"""axe-core finds nothing on the pages of local-line: `pytest tests/local_line/axe_examples.py`.

Not part of `make test`: it needs a registry of npm packages besides the one of Python's.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pictures import COFFEE

from .node_examples import NODE, NPM
from .stage import DESK, PHONE, Stage, expect, say, text
from .test_page_messages import IMAGEMAP, answers

AXE = "axe-core@4.14.0"


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its script, at the pinned version."""
    folder = tmp_path_factory.mktemp("axe")
    options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    command = [NODE, NPM, "install", *options, AXE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Path(folder, "node_modules", "axe-core", "axe.min.js").read_text("utf-8")


def findings(page: Any, axe: str) -> list[str]:
    """By day and by night: the rule, and where."""
    found: list[str] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate(axe)
        for each in page.evaluate("() => axe.run()")["violations"]:
            found += [f"{scheme} {each['id']} {node['target']}" for node in each["nodes"]]
    return found


@pytest.mark.parametrize("page", [PHONE, DESK], ids=["360px", "desk"], indirect=True)
def test_the_chat(page: Any, stage: Stage, axe: str) -> None:
    """Empty, with messages of many kinds, with all that can be sent, and with a sheet."""
    assert findings(page, axe) == []
    stage.show_menu("住家", "公司")
    cat = text("喵", "好", sender={"name": "小花貓", "iconUrl": "https://far.invalid/i.png"})
    answers(stage, IMAGEMAP, COFFEE, {"type": "coupon", "couponId": "x"}, cat)
    say(page, "嗨")
    expect(page.locator(".row.bot")).to_have_count(4)
    page.get_by_role("button", name="更多：").click()
    page.locator("#wire summary").first.click()
    expect(page.locator(".in-full")).to_be_visible()
    assert findings(page, axe) == []
    page.get_by_role("button", name="位置資訊").click()
    assert findings(page, axe) == []


@pytest.mark.parametrize("page", [PHONE, DESK], ids=["360px", "desk"], indirect=True)
def test_the_pad_and_the_menus(page: Any, stage: Stage, axe: str) -> None:
    """With a mistake, and with an event that is tried."""
    stage.show_menu("住家", "公司")
    page.goto(f"{stage.line.page_url}pad")
    page.get_by_role("button", name="Pay").click()
    expect(page.locator("#tried-json pre")).to_be_visible()
    assert findings(page, axe) == []
    page.locator("#json").fill('[{"type": "text"}]')
    expect(page.locator("#mistakes li")).to_have_count(1)
    assert findings(page, axe) == []
    page.goto(f"{stage.line.page_url}menus")
    page.get_by_role("button", name="公司").click()
    expect(page.locator("#tried-json pre")).to_be_visible()
    assert findings(page, axe) == []
