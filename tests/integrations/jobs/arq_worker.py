"""python -m tests.integrations.jobs.arq_worker SETTINGS: what `arq SETTINGS` does.

arq 0.25 takes the current event loop of the main thread. Python 3.14 makes none.
"""

import asyncio

from arq.cli import cli

asyncio.set_event_loop(asyncio.new_event_loop())
cli()
