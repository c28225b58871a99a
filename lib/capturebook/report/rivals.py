"""The rivals of a hypothesis: what each predicts for every arm, and, once arms ran, where each was right."""

from markupsafe import Markup

from ..attribution.scores import CONTRADICTED, HELD, RivalScore, ScoreRow, neither_right, score
from ..records import Record
from . import words
from .block import Block, details, paragraph, table

SYMBOLS = {HELD: "✓", CONTRADICTED: "✗"}


def statements(hypothesis: dict, scores: list[RivalScore] | None = None) -> Block:
    """Each rival's claim as its author states it, with its score if there is one."""
    told = {s.id: _tally(s) for s in scores or []}
    items = [(rival["id"], rival["statement"], told.get(rival["id"], "")) for rival in hypothesis["rivals"]]
    one = Markup('<div class="rival"><h3>Rival: {}</h3><p>{}</p><p class="score">{}</p></div>')
    html = Markup('<div class="rivals">{}</div>').format(Markup("").join(one.format(*item) for item in items))
    return Block(str(html), "\n".join(f"{name}: {text} {scored}".rstrip() for name, text, scored in items))


def _tally(s: RivalScore) -> str:
    return f"{s.held} of {s.total} predictions held, {s.contradicted} contradicted, {s.not_tested} not tested"


def predictions(hypothesis: dict) -> Block:
    """Arms by rivals, before anything ran; an arm on which rivals differ can tell them apart."""
    rivals = hypothesis["rivals"]
    rows = []
    for arm in hypothesis["arms"]:
        said = [_predicted(rival["predicts"].get(arm["id"])) for rival in rivals]
        rows.append([arm["id"], arm["why"], *said, "yes" if len(set(said)) > 1 else "no"])
    return table(["Arm", "Why it is run", *(rival["id"] for rival in rivals), "Tells them apart"], rows, stack=True)


def _predicted(prediction: dict | None) -> str:
    if not prediction:
        return "says nothing"
    word = words.STATUSES[prediction["status"]][1]
    return f"{word} with {prediction['code']}" if prediction.get("code") else word


def compared(hypothesis: dict, records: list[Record]) -> Block:
    """What was seen in each arm and what each rival had said, marked; arms where no rival was right stand out."""
    scores = score(hypothesis, records)
    neither = set(neither_right(scores))
    by_probe: dict[str, list[Record]] = {}
    for r in records:
        by_probe.setdefault(r.probe, []).append(r)
    rows = []
    for arm in hypothesis["arms"]:
        rated = [next((row for row in s.rows if row.arm == arm["id"]), None) for s in scores]
        first = next((row for row in rated if row), None)
        label, seen = (first.label, _seen(first, by_probe)) if first else ("", "no rival says anything")
        note = Markup('<br><span class="tag alone">neither was right</span>') if arm["id"] in neither else ""
        name = Markup('{}<br><span class="tag">{}</span>').format(arm["id"], label)
        rows.append([name, arm["why"], seen + note, *map(_rated, rated)])
    columns = ["Arm", "Why it was run", "Seen", *(s.id for s in scores)]
    return table(columns, rows, row_class=_row_class, stack=True)


def _seen(row: ScoreRow, by_probe: dict[str, list[Record]]) -> Markup:
    group = [r for probe in row.records for r in by_probe.get(probe, [])]
    return words.badge(words.worst(group) if group else "not_run", row.found)


def _rated(row) -> Markup | str:
    if row is None:
        return "says nothing"
    status = {HELD: "pass", CONTRADICTED: "fail"}.get(row.mark, "skipped")
    badge = Markup('<span class="badge {}">{}</span>').format(status, f"{SYMBOLS.get(row.mark, '○')} {row.mark}")
    return Markup("{}<br>{}").format(badge, Markup('<span class="tag">said: {}</span>').format(row.predicted))


def _row_class(row: list) -> str:
    return "neither" if "neither was right" in row[2] else ""


def blocks(hypothesis: dict, records: list[Record]) -> list[Block]:
    """The report's section: claims with their scores, then arm by arm; if no arm was tested, predictions alone."""
    scores = score(hypothesis, records)
    if not any(s.held + s.contradicted for s in scores):
        untested = paragraph("Stored before the first probe; no arm that tests them ran on this machine.")
        return [statements(hypothesis), untested, details("What each predicts, arm by arm", predictions(hypothesis))]
    return [statements(hypothesis, scores), compared(hypothesis, records)]
