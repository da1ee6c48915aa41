"""What several tests here ask for."""

from __future__ import annotations

import pytest

from .samples import Counted


@pytest.fixture
def counted() -> Counted:
    return Counted()
