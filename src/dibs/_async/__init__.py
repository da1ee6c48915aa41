"""The verbs with their I/O: written for asyncio, and generated from that for threads."""
