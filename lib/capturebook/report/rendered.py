"""Executed notebooks as HTML pages that load nothing: nbconvert's body, cleaned, in the report's own page."""

import json
import re
from pathlib import Path

import nbformat
from bleach.sanitizer import Cleaner
from markupsafe import Markup
from nbconvert import HTMLExporter
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

from ..files import write_whole
from .html import page

TAGS = set(
    "a abbr b blockquote br caption code col dd details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img li "
    "ol p picture pre s source span strong sub summary sup table tbody td tfoot th thead tr ul wbr".split()
)
SHOWN = ["text/html", "image/png", "image/jpeg", "text/markdown", "text/plain"]
"""Kinds of output, the best first. Others (scripts, widgets, loose SVG) have a plain-text twin beside them."""

IMAGE = re.compile(r"data:image/(png|jpeg|svg\+xml);base64,[A-Za-z0-9+/=\s]*")


def render_notebooks(run_path: str | Path) -> list[Path]:
    """Write `notebooks/NAME.html` beside each executed notebook of a run; returns their paths, sorted.

    Scripts, styles, frames, foreign images and widgets are left out or shown as text: an output may hold anything.
    Raises ValueError naming a notebook that does not parse.
    """
    folder = Path(run_path) / "notebooks"
    return [_render(path, Path(run_path).name) for path in sorted(folder.glob("*.ipynb"))]


def _render(path: Path, run: str) -> Path:
    try:
        notebook = nbformat.read(path, as_version=4)
    except (json.JSONDecodeError, nbformat.reader.NotJSONError, nbformat.validator.NotebookValidationError) as exc:
        raise ValueError(f"{path.name} in {run} does not parse: {exc}") from None
    shown = Config({"NbConvertBase": {"display_data_priority": SHOWN}})
    body, _ = HTMLExporter(template_name="basic", config=shown).from_notebook_node(notebook)
    colours = HtmlFormatter().get_style_defs(".notebook .highlight")
    out = path.with_suffix(".html")
    html = page(
        "notebook.html.j2",
        f"{path.stem}, run {run}",
        run=run,
        name=path.stem,
        body=_from_below(clean(body)),
        more_css=Markup(colours),
    )
    write_whole(out, html)
    return out


def _from_below(html: Markup) -> Markup:
    """Links to logs lead from the run's folder; the page lies one below it."""
    return Markup(html.replace(Markup('href="logs/'), Markup('href="../logs/')))


def clean(html: str) -> Markup:
    """HTML with nothing left that runs or loads: known tags only, images only as data, the rest shown as text."""
    cleaner = Cleaner(tags=TAGS, attributes=_allowed, protocols={"http", "https", "mailto", "data"}, strip=False)
    return Markup(cleaner.clean(html))


def _allowed(tag: str, name: str, value: str) -> bool:
    if name == "srcset":
        return tag == "source" and IMAGE.fullmatch(value) is not None
    if name == "src":
        return tag == "img" and IMAGE.fullmatch(value) is not None
    if name == "href":
        return tag == "a" and not value.strip().lower().startswith("data:")
    return name in (
        "alt",
        "data-label",
        "media",
        "class",
        "id",
        "title",
        "width",
        "height",
        "scope",
        "colspan",
        "rowspan",
        "tabindex",
    )
