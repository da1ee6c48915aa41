"""What integrations do with a client: written for asyncio, generated from that for threads."""
