# Generated from src/dibs/_async/__init__.py by unasync.py – do not edit.
"""The verbs with their I/O: written for asyncio, and generated from that for threads."""
