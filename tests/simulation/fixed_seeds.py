"""The seeds that every test run has."""

FIXED = 60
"""So many of each workload, from 0 on."""

KNOWN: dict[str, tuple[int, ...]] = {}
"""Seeds among them that show a defect which is there; they are left out until it is mended."""

ONCE_FAILED: dict[str, tuple[int, ...]] = {}
"""Seeds that have shown a defect which was mended."""
