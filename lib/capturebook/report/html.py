"""report.html: one file that says what a run found, and loads nothing from anywhere."""

import json
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .. import provenance
from ..attribution import costs
from ..files import write_whole
from . import classes, summary, words
from .run_data import BUILT_IN, RunData, sample_run
from .sections import sections

TEMPLATES = Path(__file__).parent / "templates"


def environment() -> Environment:
    """Templates with every value escaped unless it is a Block or Markup, and a missing name an error."""
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)


def page(template: str, title: str, **values) -> str:
    css = Markup((TEMPLATES / "style.css").read_text(encoding="utf-8"))
    return environment().get_template(template).render(title=title, css=css, **values)


def build(run_path: str | Path) -> Path:
    """Write `report.html` into a run folder and return its path.

    Raises FileNotFoundError or ValueError, one line, when the folder holds no run or a damaged one.
    """
    data = RunData.open(Path(run_path))
    out = data.path / "report.html"
    write_whole(out, render(data, sample_run(data)))
    return out


def render(data: RunData, sample: RunData | None = None) -> str:
    """The report's HTML. `sample`: the genuine H200 run of the same question, shown apart where no GPU decided."""
    headline, head = summary.headline(data), _head(data)
    return page(
        "report.html.j2",
        f"{headline}: {head['heading']}",
        data=data,
        subject=_subject(data),
        headline=headline,
        **head,
        sample=_sample(sample) if sample is not None and data.unusable and not data.decided else None,
        sections=sections(data),
        when=when(data.info["started"]),
        machine=machine(data.info.get("provenance") or {}),
    )


def _head(data: RunData) -> dict:
    """What stands above the sections: the question and its verdict, or what a run without a question measured."""
    if data.purpose:
        asked, *found = summary.unasked(data)
        return {
            "heading": "How fast is the step?"
            if "throughput" in data.purpose
            else "Does the step compile, and does it fit?",
            "story": asked,
            "label": "Measured",
            "kind": "measured",
            "says": found,
            "done": [],
            "rows": [],
        }
    return {
        "heading": data.hypothesis["title"],
        "story": data.hypothesis["story"],
        "label": "Verdict",
        "kind": data.verdict["owner"],
        "says": [_says(data), *_compared(data)]
        if data.decided
        else [summary.why_undecided(data), summary.skipped(data)],
        "done": [] if data.decided else [*summary.done(data.records), *summary.suspected(data.records)],
        "rows": _verdict_rows(data),
    }


def _says(data: RunData) -> str:
    """The finding as a sentence; a name such as torch.compile keeps its small letter."""
    if data.verdict["owner"] == "none":
        return data.verdict["sentence"]
    first, _, rest = data.finding.partition(" ")
    return f"{first if '.' in first else first.capitalize()} {rest}."


def _subject(data: RunData) -> dict | None:
    """The user's own step: file or module, build, and its options. None for the one that the workbook comes with."""
    if data.subject == BUILT_IN:
        return None
    where, _, build = data.subject.rpartition(":")
    if Path(where).is_absolute():  # neither in the checkout nor in the home folder: the machine's folders say nothing
        where = "/".join(Path(where).parts[-2:])
    options = data.info["parameters"].get("options") or {}
    if data.purpose:  # a sweep has its own, several of each
        options = {name: value for name, value in options.items() if name not in ("batch", "context", "max_context")}
    return {"where": where, "build": build, "options": ", ".join(f"{k}={json.dumps(v)}" for k, v in options.items())}


def _question(data: RunData) -> str:
    question = data.verdict["question"]
    then = " And if so, compiled too?" if question["follow_compiled"] and data.asked.compile == "none" else ""
    expected = question.get("error")
    return words.asked(data.asked) + then + (f" Reported there: {expected}." if expected else "")


def _verdict_rows(data: RunData) -> list[tuple]:
    """The verdict's fields that say something, in the order in which people ask for them."""
    verdict = data.verdict
    tried = {"fixed": "", "not fixed": "run here, and it does not cure it"}
    rows = [
        ("Question", _question(data)),
        ("Root", _root(verdict["root"])),
        ("Class", _class(verdict) if verdict["class"] else ""),
        ("Fix", verdict["fix"]),
        ("Fix tried", tried.get(verdict["fixed"], verdict["fixed"])),
        ("With the fix", "; ".join(costs.overlap(verdict))),
        ("Gain", _gain(verdict["gain"]) or (f"not known: {verdict['gain_reason']}" if verdict["gain_reason"] else "")),
        ("Evidence", _deciding(verdict["records"]) if verdict["records"] else ""),
    ]
    return [(name, value) for name, value in rows if value]


def _class(verdict: dict) -> Markup:
    told = Markup('<a href="#classes">{}</a>{} (rule {})')
    name, phrase = verdict["class"], classes.named(verdict["class"])
    return told.format(name, phrase.removeprefix(name), verdict["rule"])


def _deciding(records: list[str]) -> Markup:
    ids = Markup(", ").join(Markup("<code>{}</code>").format(probe) for probe in records)
    return Markup("{}: {}").format(words.counted(len(records), "deciding record"), ids)


def _compared(data: RunData) -> list[str]:
    gain = data.verdict["gain"]
    if not gain:
        return []
    said = costs.compared(gain)
    return [f"{said[0].upper()}{said[1:]} ({gain['ratio']:.2f} times as fast)."]


def _gain(gain: dict | None) -> str:
    if not gain:
        return ""
    low, high = gain["ratio_iqr"]
    ratio = f"{gain['ratio']:.2f} (quartiles {low:.2f} to {high:.2f})"
    return (
        f"{gain['fixed']} is {ratio} times as fast as {gain['baseline']}: "
        f"{gain['fixed_us']:.1f} µs a step against {gain['baseline_us']:.1f} µs, medians of replays in turns in one "
        f"process (interquartile ranges {gain['fixed_iqr_us']:.1f} and {gain['baseline_iqr_us']:.1f} µs)"
    )


def _root(root: dict | None) -> str:
    """Code, name and the first line: what follows in torch's messages is advice that is the same for all of them."""
    if not root:
        return ""
    named = f"{root['code']} {root['name']}: " if root.get("code") else ""
    return f"{named}{words.message(root.get('text') or '')[0].partition(chr(10))[0]}"


def _sample(sample: RunData) -> dict:
    same = sample.info.get("code") == provenance.code_tree()
    code = f"{sample.info.get('code')}, {'the present code' if same else 'which is not the present code'}"
    return {
        "headline": f"{sample.gpu}: {summary.headline(sample)}",
        "lines": [_says(sample)] if sample.decided else summary.opening(sample)[1:],
        "rows": [
            ("Recorded", f"{when(sample.info['started'])} on {machine(sample.info.get('provenance') or {})}"),
            ("Code tree", code),
            *_verdict_rows(sample),
        ],
    }


def when(stamp: str) -> str:
    """A record's stamp as people read it: `30 November 2026, 14:46 UTC`."""
    return f"{datetime.fromisoformat(stamp):%d %B %Y, %H:%M} UTC"


def machine(facts: dict) -> str:
    """GPU, driver, torch and triton of a run's provenance, as far as it has them."""
    gpu = (facts.get("gpu") or {}).get("name") or "no CUDA GPU"
    return ", ".join([gpu, *(f"{name} {facts[name]}" for name in ("driver", "torch", "triton") if facts.get(name))])
