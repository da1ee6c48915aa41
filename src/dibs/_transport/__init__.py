"""Connections: redis-py opens them; dibs reads and writes on them itself."""
