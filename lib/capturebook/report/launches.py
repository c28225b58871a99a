"""A launch as tables and figures: stages, timeline, what its log points to, the load, and a comparison of launches."""

from ..attribution.scores import RivalScore
from ..launch import classes
from ..records import Record
from . import draw, words
from .block import Block, details, link, paragraph, table

_STATUS = {"held": "pass", "failed": "fail", "entered": "timeout", "not entered": "not_run"}
SHOWN = 200
"""Characters of one piece of evidence; the record holds all of it."""


def blocks(records: list[Record]) -> list[Block]:
    """All launches of a run: a row each, and behind it stages, timeline and load. `records` are of kind launch."""
    return [overview(records), *(details(_name(r), _behind(r)) for r in records)]


def overview(records: list[Record]) -> Block:
    """One row each: what was launched, how it came out and in which stage, its class, and what to do."""
    rows = []
    for r in records:
        p = r.payload
        klass = f"{p['class']}: {classes.title(p['class'])}" if p["class"] else ""
        answered = [entry["at"] for entry in p.get("timeline", []) if entry["phase"] == "answered"]
        at = (
            f"answered after {answered[0]:g} s" if answered else f"after {p['seconds']:g} s" if p.get("seconds") else ""
        )
        rows.append([
            _name(r), p["where"], words.badge(r.status, r.status.replace("_", " ")), p["failed_stage"], klass,
            r.reason or at, p["todo"], link(r.log, "log") if r.log else None,
        ])  # fmt: skip
    columns = ["Launch", "Where", "Came out", "Stage", "Class", "Seen", "What to do", "Log"]
    return table(columns, rows, stack=True)


def _name(record: Record) -> str:
    """`NAME, round 2: load`: one launch may leave several records."""
    p = record.payload
    turn = f", round {p['round']}" if "round" in p else ""
    did = p.get("did", "load" if "sweep" in p else "stop" if "stopped" in p else "launch")
    return f"{p['name']}{turn}" + (f": {did}" if did != "launch" else "")


def _behind(record: Record) -> Block:
    return load(record) if "sweep" in record.payload else outcome(record) + stages(record) + timeline(record)


def stages(record: Record) -> Block:
    """One row a stage: whether it held, when it began (s since the launch began), how long it took, and by what."""
    rows = []
    for s in record.payload["stages"]:
        badge = words.badge(_STATUS[s["state"]], s["state"])
        held = [f"{s['at']:.2f}", f"{s['seconds']:.2f}", s["seen"] or _evidence(s["evidence"])] if "at" in s else []
        rows.append([s["name"], badge, *(held or [None, None, None])])
    return table(["Stage", "State", "At (s)", "Took (s)", "Evidence"], rows, stack=True)


def _evidence(evidence: dict) -> str:
    plain = {k: v for k, v in evidence.items() if not isinstance(v, dict)}
    counted = {k: f"{len(v)}" for k, v in evidence.items() if isinstance(v, dict)}
    return "; ".join(f"{name.replace('_', ' ')}: {str(value)[:SHOWN]}" for name, value in {**plain, **counted}.items())


def outcome(record: Record) -> Block:
    """How it came out: status, reason, class, what its log points to, and what to do."""
    payload = record.payload
    rows = [["Status", words.badge(record.status, record.status.replace("_", " "))], ["Reason", record.reason or None]]
    if payload["class"]:
        rows.append(["Class", f"{payload['class']}: {classes.title(payload['class'])}"])
    if root := record.root:
        rows.append(["Root", f"{root.code} {root.name}" if root.code else f"{root.type}: {root.text[:SHOWN]}"])
    if points := payload.get("points_to"):
        rows.append(["Points to", f"{' or '.join(points['classes']) or 'no class'}: {points['says']}"])
    rows.append(["What to do", payload["todo"] or None])
    rows += [["Caveat", text] for text in record.caveats]
    return table(["", "Outcome"], [row for row in rows if row[1] is not None])


def course(records: list[Record]) -> str:
    """What came of one launch, by all records of it: how far it got, and how it ended."""
    last = next((r for r in records if r.payload.get("stopped")), records[-1])
    mark = f"{words.STATUSES[last.status][0]} {last.status.replace('_', ' ')}"
    held = any(s["name"] == "ready" and s["state"] == "held" for r in records for s in r.payload["stages"])
    if not held or not any("timeline" in r.payload for r in records):
        return f"{mark}: {last.reason or 'as asked'}"
    began = {entry["phase"]: entry["at"] for r in records for entry in r.payload.get("timeline", [])}
    at = began.get("answered", began.get("ready"))
    seen = max(r.payload.get("seconds", 0.0) for r in records)
    said = [f"ready after {at:g} s" if at is not None else "ready"]
    said += ["answered" if "answered" in began else "by its log"]
    if last.payload.get("stopped"):
        code = last.payload["exit"].get("rc")
        said += [f"served {seen - at:.1f} s"] if at is not None else []
        said += ["stopped by you" + (f" (exit status {code})" if code else "")]
    elif last.status == "pass":
        said += [f"last seen running after {seen:g} s"]
    else:
        said += [last.reason]
    return f"{mark}: {', '.join(said)}"


def timeline(record: Record) -> Block:
    """The program's phases by its own log, in seconds since its start, up to where it was last seen."""
    phases = [entry for entry in record.payload.get("timeline", []) if entry["at"] is not None]
    if not phases:
        return paragraph(f"No timeline: nothing was started. {record.reason}")
    until = max(record.payload["seconds"], phases[-1]["at"])
    ends = [entry["at"] for entry in phases[1:]] + [until]
    rows = [
        [entry["phase"], f"{entry['at']:.2f}", f"{end - entry['at']:.2f}", entry.get("line", "")]
        for entry, end in zip(phases, ends)
    ]
    data = table(["Phase", "At (s)", "Lasted (s)", "Its line"], rows, stack=True)
    alt = "Phases over time: " + ", ".join(f"{row[0]} at {row[1]} s" for row in rows) + f"; seen until {until:.2f} s."
    ready = any(stage["name"] == "ready" and stage["state"] != "not entered" for stage in record.payload["stages"])
    last = "ready" if ready else "ended"
    if record.status != "pass":
        last = f"{'not ready' if ready else 'ended'} ({record.status.replace('_', ' ')})"
    asked = ", and when it first answered us" if any(entry["phase"] == "answered" for entry in phases) else ""
    caption = f"Phases as its own log names them{asked}; after {until:.2f} s: {last}."
    wide, narrow = (_bars(phases, ends, record.status, width) for width in (7.2, draw.NARROW))
    return draw.figure(wide, alt, caption, data, narrow)


def _bars(phases: list[dict], ends: list[float], status: str, width: float):
    with draw.canvas(width, 0.7 + 0.28 * len(phases)) as fig:
        axes = fig.subplots()
        for row, (entry, end) in enumerate(zip(phases, ends)):
            kind = "pass" if status == "pass" or row < len(phases) - 1 else status
            axes.barh(row, end - entry["at"], left=entry["at"], color=draw.FILL[kind], edgecolor=draw.EDGE[kind],
                      hatch=draw.HATCH[kind])  # fmt: skip
        axes.set_yticks(range(len(phases)), [entry["phase"] for entry in phases])
        axes.invert_yaxis()
        axes.set_xlabel("seconds since the program's start")
        axes.set_xlim(0, max(ends) * 1.02 or 1)
    return fig


LOAD = (
    ("Concurrency", "concurrency"), ("Requests", "requests"), ("Tokens", "tokens"), ("tok/s", "tokens_per_s"),
    ("TTFT p50 (ms)", "ttft_ms_p50"), ("TTFT p90", "ttft_ms_p90"), ("TTFT p99", "ttft_ms_p99"),
    ("TPOT p50 (ms)", "tpot_ms_p50"), ("TPOT p90", "tpot_ms_p90"), ("TPOT p99", "tpot_ms_p99"),
)  # fmt: skip


def load(record: Record | None) -> Block:
    """Tokens/s and time to the first token over concurrency, of a sweep's record. None: no load was asked."""
    if record is None:
        return paragraph("No load was asked: the server was not ready.")
    if record.status != "pass":
        return paragraph(f"No numbers: {record.reason}")
    rows = record.payload["sweep"]
    data = table([head for head, _ in LOAD], [[row[name] for _, name in LOAD] for row in rows], stack=True)
    best = max(rows, key=lambda row: row["tokens_per_s"])
    alt = f"Tokens a second over concurrency: most, {best['tokens_per_s']:g}, at {best['concurrency']}."
    counted = record.payload["metrics"]
    said = (
        f"no metrics: {counted['none']}" if "none" in counted else "; ".join(f"{k} {v:g}" for k, v in counted.items())
    )
    caption = f"Streamed completions, {rows[0]['requests']} at each concurrency. The server's own count: {said}."
    return draw.figure(_curves(rows, 1, 2), alt, caption, data, _curves(rows, 2, 1))


def _curves(rows: list[dict], below: int, beside: int):
    at = [row["concurrency"] for row in rows]
    with draw.canvas(7.2 if beside > 1 else draw.NARROW, 2.6 * below) as fig:
        speed, first = fig.subplots(below, beside)
        colour, marker, line = draw.SERIES[0]
        speed.plot(at, [row["tokens_per_s"] for row in rows], color=colour, marker=marker, linestyle=line)
        speed.set(title="Tokens a second", xlabel="concurrency")
        for share, (colour, marker, line) in zip((50, 90), draw.SERIES):
            values = [row[f"ttft_ms_p{share}"] for row in rows]
            first.plot(at, values, color=colour, marker=marker, linestyle=line, label=f"p{share}")
        first.set(title="Time to the first token (ms)", xlabel="concurrency")
        first.legend(frameon=False)
        for axes in (speed, first):
            axes.set_xscale("log", base=2)
            axes.set_xticks(at, [str(value) for value in at])
            axes.minorticks_off()
            axes.set_ylim(0, 1.08 * axes.dataLim.y1)
            axes.grid(True, axis="y")
    return fig


def comparison(compared) -> Block:
    """What each arm of a launch.servers.compare.Compared showed, and what each rival had said of it."""
    return paragraph("No comparison was asked.") if compared is None else scored(compared.scores())


def scored(scores: list[RivalScore]) -> Block:
    """Arms by rivals: what was found, what was predicted, and whether it held."""
    rows = [
        [row.arm, row.label, row.found, score.id, row.predicted, row.mark] for score in scores for row in score.rows
    ]
    return table(["Arm", "Changes", "Found", "Rival", "Predicted", "Mark"], rows, stack=True)
