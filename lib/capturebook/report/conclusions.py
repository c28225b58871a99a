"""What a notebook concludes, computed from its records: a status for the chain and a sentence for people."""

from ..attribution.controls import examine
from ..attribution.evidence import Evidence
from ..records import Arm, Record
from . import measured, summary, traced, words
from .figures_decode_jobs import of_part

Conclusion = tuple[str, str]
WORST = ("fail", "not_run", "pass", "skipped")


def joined(*parts: Conclusion) -> Conclusion:
    """Several conclusions as one, with the worst status; a part that was skipped counts only if all were."""
    status = min((status for status, _ in parts), key=WORST.index)
    return status, " ".join(text for _, text in parts if text)


def completed(records: list[Record], what: str) -> Conclusion | None:
    """Why these probes are no evidence: some did not run or end, or all were skipped. None when they are.

    No probes at all: nothing was to be run, and nothing is said.
    """
    if not records:
        return "skipped", ""
    lost = [r for r in records if r.status in ("not_run", "timeout")]
    if lost:
        return "not_run", f"{len(lost)} of {len(records)} {what} did not run or end: {_reasons(lost)}."
    ran = [r for r in records if r.status in words.RAN]
    if not ran:
        return "skipped", f"All {len(records)} {what} skipped: {_reasons(records)}."
    return None


def _reasons(records: list[Record]) -> str:
    return "; ".join(dict.fromkeys(r.reason for r in records))


def predictions(hypothesis: dict) -> Conclusion:
    """Whether the hypothesis can be tested at all: some arm must be predicted differently by its rivals."""
    telling = [
        arm["id"]
        for arm in hypothesis["arms"]
        if len({str(rival["predicts"].get(arm["id"])) for rival in hypothesis["rivals"]}) > 1
    ]
    arms = len(hypothesis["arms"])
    if not telling:
        return "fail", f"None of the {arms} arms tells the rivals apart; the experiment would decide nothing."
    return "pass", f"{len(telling)} of {arms} arms tell the rivals apart: {words.listed(telling)}."


def builds(built) -> Conclusion:
    """What the build check (chain.parts.Builds) showed; a compiler that failed is a finding, one that never ran is not.

    Where nothing could be listed, the conclusion is as the listing's record: a call of the step that raises is a fail.
    """
    rows = built.rows
    if built.reason:
        return "not_run" if built.status == "timeout" else built.status, f"No build was checked: {built.reason}."
    lost = [row for row in rows if row["status"] in ("not_run", "timeout")]
    if lost:
        return "not_run", f"{len(lost)} of {len(rows)} builds did not run or end: {lost[0]['reason']}."
    broken = [f"{row['kernel']} on {row['target']} ({row['reason']})" for row in rows if row["status"] == "fail"]
    said = [summary.builds(rows)] if rows else ["No kernel was compiled."]
    misfits = [f"{row['kernel']} ({row['config']}) on {row['target']}" for row in rows if row.get("fits") is False]
    if misfits:
        said.append(f"Too large: {words.listed(misfits)}.")
    if broken:
        said.append(f"Did not compile: {words.listed(broken)}.")
    if built.left:
        said.append(f"{built.left} other builds were left out (all_configs is off).")
    if built.stopped:
        said.append(f"The recorded call {built.stopped}.")
    if built.unseen:
        said.append(f"Not seen in the recorded call: {'; '.join(built.unseen)}.")
    return "pass", " ".join(said)


def controls(records: list[Record]) -> Conclusion:
    """The controls must behave before anything else counts."""
    if gap := completed(records, "controls"):
        return gap
    found = examine(Evidence(records[0].nonce, records))
    if found.state != "ok":
        return "fail", f"The controls did not behave: {'; '.join(found.said)}."
    return "pass", "The controls behaved: a capture passes, a planted sync is refused, a baked scalar comes out wrong."


def outcomes(records: list[Record], what: str, base: Arm) -> Conclusion:
    """`14 compiled arms: 905 in 4 (...), 900 in 2 (...), pass in 8.`"""
    if gap := completed(records, what):
        return gap
    groups: dict[str, list[str]] = {}
    for r in records:
        if r.status in words.RAN:
            groups.setdefault(words.short(r), []).append(words.where(r.arm, base))
    failures = [f"{key} in {len(where)} ({'; '.join(where)})" for key, where in groups.items() if key != "pass"]
    told = [*failures, f"pass in {len(groups.get('pass', []))}"]
    return "pass", f"{len(records)} {what}: {', '.join(told)}."


def interpreted(records: list[Record]) -> Conclusion:
    """Under the interpreter every kernel must agree with float64; one that does not is a failed check."""
    if gap := completed(records, "interpreted kernels"):
        return gap
    bad = [r.payload.get("kernel") or r.kind for r in records if r.status != "pass"]
    if bad:
        return "fail", f"Wrong under Triton's interpreter: {words.listed(bad)}."
    return "pass", f"{words.counted(len(records), 'kernel')} right under Triton's interpreter, against float64."


def compiled_on_cpu(records: list[Record]) -> Conclusion:
    """What Inductor made of the step on a CPU, and Dynamo as for a GPU: right or not, graph breaks, suspicions."""
    if gap := completed(records, "compilations for the CPU"):
        return gap
    return "pass", " ".join(map(_compiled, records))


def _compiled(r: Record) -> str:
    if r.status not in words.RAN:
        return f"Not compiled for the CPU ({words.where(r.arm)}): {r.reason}."
    how = "Traced as for a GPU" if words.traced(r) else "Compiled for the CPU"
    seen = [traced.failure(r) or words.short(r), words.counted(r.effective.get("graph_breaks", 0), "graph break")]
    who = "the twin, " if r.arm.variant == "twin" else ""
    return f"{how} ({who}{words.used(r.arm)}): {'; '.join([', '.join(seen), *traced.found(r)])}."


def sweep(points: list[dict]) -> Conclusion:
    """How many points were timed, and the best throughput with its distance from the floor."""
    if not points:
        return "skipped", "No sweep was planned."
    lost = [p for p in points if p["status"] in ("not_run", "timeout")]
    why = "; ".join(dict.fromkeys(p["reason"] for p in points if p["reason"]))
    if lost:
        return "not_run", f"{len(lost)} of {words.counted(len(points), 'sweep point')} did not run or end: {why}."
    if not any(p["us"] for p in points):
        skipped = all(p["status"] == "skipped" for p in points)
        return "skipped" if skipped else "fail", f"None of {len(points)} sweep points was timed: {why}."
    return "pass", f"{measured.timed(points)} {measured.found(points)}"


def beside(records: list[Record]) -> Conclusion:
    """What batch buckets and torch.compile on the decode step came to; nothing where neither was asked for."""
    asked = [r for part in ("buckets", "compile") for r in of_part(records, part)]
    if gap := completed(asked, "jobs beside the sweep"):
        return gap
    return "pass", " ".join(measured.jobs(records))
