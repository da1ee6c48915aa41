"""How Sphinx builds the site. `make docs` copies the pages into one folder and calls it.

PROJECT_URL: the address of the repository; pages then link to it. DOCS_URL: where the site is
published; search engines get canonical addresses, and the page for missing pages finds its way.
"""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

import dibs
from tools.docsite import api

project = "dibs"
author = "the dibs authors"
copyright = "the dibs authors"
release = version = dibs.__version__
language = "en"
needs_sphinx = "9.0"

extensions = [
    "myst_parser",
    "tools.docsite.pairs",
    "tools.docsite.wrapping",
    "tools.docsite.keywords",
]
templates_path = ["_templates"]
exclude_patterns = ["files/**/*.py"]
suppress_warnings = [
    "toc.not_included",  # what a page brings along need not be in the menu
    "misc.highlighting_failure",  # the examples are run; Pygments does not know all of Lua
]
nitpick_ignore_regex = api.NOT_LINKED

# Links go to headings as code hosts name them.
myst_heading_anchors = 6
myst_links_external_new_tab = False

add_module_names = False
python_maximum_signature_line_length = 72
toc_object_entries = False

html_theme = "furo"
html_title = f"dibs {version}"
html_baseurl = os.environ.get("DOCS_URL", "")
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_additional_pages = {"404": "404.html"}
html_context = {
    "site_root": urlsplit(html_baseurl).path.rstrip("/") + "/",
    "project_url": os.environ.get("PROJECT_URL", ""),
}
html_theme_options = {"navigation_with_keys": False}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
