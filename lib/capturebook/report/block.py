"""What a notebook cell or the report shows: a piece of HTML and its plain-text twin."""

import re
from dataclasses import dataclass
from itertools import zip_longest

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Block:
    """`html` is safe to embed as it stands; `text` says the same to a terminal, a log or a screen reader."""

    html: str
    text: str

    def __html__(self) -> str:
        return self.html

    def _repr_html_(self) -> str:
        """For JupyterLab, which aligns cells to the right and gives every column the same width, breaking names."""
        html = self.html.replace("<table>", '<table style="table-layout:auto">')
        return re.sub(r"<(t[dh]|caption)\b", r'<\1 style="text-align:left;overflow-wrap:normal"', html)

    def __repr__(self) -> str:
        return self.text

    def __add__(self, other: "Block") -> "Block":
        return Block(self.html + other.html, f"{self.text}\n\n{other.text}")


def paragraph(text: str) -> Block:
    return Block(str(Markup("<p>{}</p>").format(text)), text)


def heading(text: str) -> Block:
    return Block(str(Markup("<h3>{}</h3>").format(text)), text)


def table(columns: list[str], rows: list[list], caption: str = "", row_class=None, stack: bool = False) -> Block:
    """A table that scrolls sideways inside its own box. Cells are escaped unless they are Markup.

    `row_class(row) -> str` names a CSS class for a row. `stack`: on a narrow screen each row is a block, its cells
    below one another with their column's name. No rows: a word says so.
    """
    if not rows:
        return paragraph(f"{caption}: none." if caption else "None.")
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(c) for c in columns)
    body = Markup("").join(_row(row, columns, row_class(row) if row_class else "") for row in rows)
    title = Markup("<caption>{}</caption>").format(caption) if caption else ""
    html = Markup(
        '<div class="scroll{}" tabindex="0"><table>{}<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(" stack" if stack else " pairs" if len(columns) == 2 else "", title, head, body)
    return Block(str(html), _plain(columns, rows, caption))


def _row(cells: list, columns: list[str], css: str) -> Markup:
    first, rest = cells[0], zip(columns[1:], cells[1:])
    inner = Markup('<th scope="row">{}</th>').format(first)
    inner += Markup("").join(Markup('<td data-label="{}">{}</td>').format(name, _shown(cell)) for name, cell in rest)
    return Markup('<tr class="{}">{}</tr>').format(css, inner) if css else Markup("<tr>{}</tr>").format(inner)


def _shown(cell) -> str | Markup:
    return "" if cell is None else cell


def _plain(columns: list[str], rows: list[list], caption: str) -> str:
    lines = [[_text(cell) for cell in row] for row in [columns, *rows]]
    widths = [min(60, max(map(len, column))) for column in zip_longest(*lines, fillvalue="")]
    out = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    out.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(([caption] if caption else []) + out)


def _text(cell) -> str:
    if cell is None:
        return ""
    return " ".join((cell.striptags() if isinstance(cell, Markup) else str(cell)).split())


def details(summary: str, inner: Block) -> Block:
    html = Markup("<details><summary>{}</summary>{}</details>").format(summary, Markup(inner.html))
    return Block(str(html), f"{summary}\n{inner.text}")


def link(href: str, text: str) -> Markup:
    """A link to a file beside the report. `href` is a relative path; anything else is shown as text only."""
    if not href or ":" in href or href.startswith(("/", "\\")) or ".." in href.split("/"):
        return escape(text)
    return Markup('<a href="{}">{}</a>').format(href, text)
