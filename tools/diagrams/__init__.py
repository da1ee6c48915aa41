"""Pictures of the documentation that are drawn: bars of its tables, timelines of real runs.

    python -m tools.diagrams            draw all, from what is on the pages and in runs.json
    python -m tools.diagrams --record   have the runs again first, with real processes

`make pictures` does it, and takes the screenshots too.
"""
