# Generated from src/dibs/integrations/_async/__init__.py by unasync.py – do not edit.
"""What integrations do with a client: written for asyncio, generated from that for threads."""
