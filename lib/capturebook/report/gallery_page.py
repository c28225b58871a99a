"""gallery.html: the classes of failure, each with planted cases: symptom, cause, evidence, fix. Loads nothing."""

import re
from pathlib import Path

from markupsafe import Markup

from ..files import write_whole
from .block import table
from .classes import named
from .html import TEMPLATES, machine, page, when

SOUND = "sound"


def build(run_path: Path, info: dict, classes: dict[str, dict], exhibits: list[dict]) -> Path:
    """Write the page into a run's folder and return its path. `exhibits`: see capturebook.gallery.exhibit."""
    out = run_path / "gallery.html"
    write_whole(out, render(info, classes, exhibits))
    return out


def render(info: dict, classes: dict[str, dict], exhibits: list[dict]) -> str:
    groups = []
    for name in [*classes, None]:
        shown = [e for e in exhibits if e["class"] == name]
        if shown:
            groups.append({"id": name or SOUND, "about": classes.get(name), "cases": shown})
    right = sum(e["result"]["ok"] for e in exhibits)
    return page(
        "gallery.html.j2",
        "capturebook: gallery of failures",
        more_css=Markup((TEMPLATES / "gallery.css").read_text(encoding="utf-8")),
        groups=groups,
        right=right,
        count=len(exhibits),
        silent=sum(e["silent"] for e in exhibits),
        sound=sum(e["class"] is None for e in exhibits),
        symptoms=_symptoms(classes, exhibits),
        threads=_threads(exhibits),
        matrix=_matrix(exhibits),
        run=info["run"],
        when=when(info["started"]),
        machine=machine(info.get("provenance") or {}),
    )


def _symptoms(classes: dict[str, dict], exhibits: list[dict]):
    """From what one sees to its class, what fixes it and the cases: codes first, then messages, then silent ones.

    None without a case that fails.
    """
    found: dict[tuple, list[dict]] = {}
    for e in exhibits:
        if e["class"]:
            found.setdefault((e["symptom"], e["class"], e["fix"] or classes[e["class"]]["fix"]), []).append(e)

    def order(item: tuple) -> tuple:
        (symptom, cls, _), group = item
        code = re.search(r"\b[79]\d\d\b", symptom)
        return all(e["silent"] for e in group), code[0] if code else "999", symptom.lower(), cls

    rows = []
    for (symptom, cls, fix), group in sorted(found.items(), key=order):
        about = Markup('<a href="#{0}">{0}</a>{1}').format(cls, named(cls).removeprefix(cls))
        cases = Markup(", ").join(Markup('<a href="#{0}">{0}</a>').format(e["id"]) for e in group)
        rows.append([symptom + ("; no exception" if all(e["silent"] for e in group) else ""), about, fix, cases])
    return table(["What one sees", "Class", "What fixes it", "Cases"], rows, stack=True) if rows else None


def _matrix(exhibits: list[dict]):
    rows = [[Markup('<a href="#{}">{}</a>').format(e["id"], e["id"]), _class(e["result"]["expected"]),
             _got(e["result"]), e["asked"], e["rule"], _repaired(e), f"{e['result']['seconds']:.0f} s"]
            for e in exhibits]  # fmt: skip
    columns = ["Case", "Known to be", "Verdict", "Asked", "Rule", "Fix", "Processes"]
    return table(columns, rows, row_class=lambda row: "neither" if "wrong" in str(row[2]) else "")


def _threads(exhibits: list[dict]):
    """Cases that retell a public report: its address, the symptom, the verdict, and the fix. None without one."""
    rows = [[Markup('<a href="{}">{}</a>').format(e["report"], e["thread"]),
             Markup('<a href="#{}">{}</a>').format(e["id"], e["symptom"]),
             Markup("{} {}").format(_got(e["result"]), e["result"]["got"]["owner"]), e["fix"], _repaired(e)]
            for e in exhibits if e["report"]]  # fmt: skip
    columns = ["Thread", "Symptom", "Verdict", "Fix", "Fix run here"]
    return table(columns, rows, stack=True) if rows else None


def _class(said: dict) -> str:
    return said["class"] or said["owner"]


def _got(result: dict) -> Markup:
    css = "pass" if result["ok"] else "wrong"
    said = result["got"]
    return Markup('<span class="badge {}">{}</span>').format(css, said["class"] or said["owner"])


def _repaired(exhibit: dict) -> str:
    done = []
    if exhibit["result"]["got"].get("fixed"):
        done.append(f"arm: {exhibit['result']['got']['fixed']}")
    if exhibit["repaired"]:
        done.append("code: passes" if exhibit["repaired"]["ok"] else f"code: {exhibit['repaired']['got']['owner']}")
    return ", ".join(done)
