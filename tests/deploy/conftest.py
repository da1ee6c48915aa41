"""What several tests here ask for."""

from __future__ import annotations

import pytest
import yaml

from .files import (
    DEPLOY,
    Json,
)


@pytest.fixture(scope="module")
def compose() -> Json:
    return yaml.safe_load((DEPLOY / "compose.yml").read_text("utf-8"))
