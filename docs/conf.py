"""Configure the website that `make site` builds from the pages of this repository into build/site.

The source folder is the root of the repository, so that a relative link leads to the same place on the website and in a
checkout. `site.rst` is the table of contents. A broken link, and a page that is not in the table of contents, are
warnings; the build makes warnings errors.
"""

project = "vcd"
extensions = ["myst_parser"]
root_doc = "docs/site"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = [
    *("docs/site.rst", "docs/**.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "grafana/README.md"),
    *("deploy/README.md", "deploy/chart/vcd/README.md", "examples/launch/README.md", "tests/reference/README.md"),
]
exclude_patterns = [".*", "build", "dist", "vcd", "migrations", "bench", "**/__pycache__"]
myst_heading_anchors = 4
html_theme = "furo"
html_extra_path = [f"../vcd/view/static/{name}" for name in ("runbooks.html", "style.css", "icon.svg")]  # for alerts
html_title = "vcd"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
highlight_language = "none"  # console blocks are what commands print
