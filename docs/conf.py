"""Sphinx builds the documentation site from this folder: `make docs`."""

import sys
from pathlib import Path

from edgemask import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for the extension cli_reference

project = "edgemask"
author = "the edgemask authors"
copyright = author
release = version = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "cli_reference",
]
exclude_patterns = ["_build", "cli_reference.py"]
source_suffix = {".md": "markdown"}
nitpicky = False
suppress_warnings = ["myst.xref_ambiguous"]

# ---- Markdown --------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ---- API reference ---------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = True
default_role = "code"  # docstrings use `name` for code, as Markdown does
add_module_names = False
toc_object_entries_show_parents = "hide"

# ---- pages -----------------------------------------------------------------------------------------------

html_context = {"default_mode": "auto"}
html_theme = "pydata_sphinx_theme"
html_title = "edgemask"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "edgemask"},
    "github_url": "https://github.com/edgemask/edgemask",
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "collapse_navigation": True,
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
