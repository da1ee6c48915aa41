# Printed from src/dibs/_async/__init__.py by tools/unasync.py – do not edit.
"""The doing, for asyncio: written by hand. `_sync` is printed from it."""
