"""The documentation as a site: `python -m tools.docsite`, or `make docs`.

The Markdown of this repository is written for readers of the repository: plain links from file to
file, no directives. `sources` copies it into a folder for Sphinx and adapts the links, `navigation`
makes the menu of the site from the lists in docs/index.md, `api` writes pages from docstrings, and
`pairs` shows code for threads and for asyncio as tabs.
"""
