"""What the tests at every edge have in common."""

from typing import Any

import pytest

from .edges import EDGES

KEYED = {"idempotency-key": "0b4e2f9c-5d6a-4a52-9d0e-2f4a5f0c9a11"}
REPLAY: dict[str, Any] = {"after": "replay", "key": "required"}
every_edge = pytest.mark.parametrize("edge", EDGES)
