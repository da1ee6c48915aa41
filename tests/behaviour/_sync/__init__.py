# Generated from tests/behaviour/_async/__init__.py by unasync.py – do not edit.
