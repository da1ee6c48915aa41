"""Every cell of the matrix of ends, in process; see `end_matrix.py`."""

from pathlib import Path

import pytest

from dibs.testing import Server

from .end_matrix import CELLS, Cell, check

pytestmark = [
    pytest.mark.usefixtures("nothing_stays_open"),
    # Starlette 0.37 does not close the streams of an http middleware whose application raises.
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_the_work_of_a_request_counts_once_however_it_ends(
    valkey: Server, tmp_path: Path, cell: Cell
) -> None:
    """And a client that has a whole success can repeat it at once."""
    await check(cell, valkey, tmp_path)
