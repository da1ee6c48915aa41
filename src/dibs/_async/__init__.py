"""The doing, for asyncio: written by hand. `_sync` is printed from it."""
