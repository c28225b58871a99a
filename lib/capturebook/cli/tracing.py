"""What `capturebook probe` still does without a GPU: Dynamo's trace on the CPU, and a word on what stays open."""

from ..attribution import plan as attribution_plan
from ..chain.folder import RunFolder
from ..records import Question, Record
from ..report import traced

UNDECIDED = [
    "whether the step survives capture and replay",
    "whether it stays right when replayed",
    "whose fault a failure is, and its class",
    "what fixes it, and what the fix gains",
]
"""What takes a CUDA GPU, so that nothing here says anything about it."""


def run(folder: RunFolder, pool) -> Record:
    """Trace the question's step."""
    arm = Question(**folder.info["question"]).arm
    (record,) = pool.run([attribution_plan.trace_probe(arm, folder.info["parameters"])])
    return record


def shown(record: Record) -> dict:
    """The trace as JSON: status, reason, root, and what was seen."""
    root = {"type": record.root.type, "text": record.root.text} if record.root else None
    said = {"status": record.status, "reason": record.reason, "root": root, "caveats": record.caveats}
    return {**said, **record.payload, "probe": record.probe}


def told(record: Record) -> list[str]:
    """The trace in lines for people."""
    lines = [f"Not decided without a CUDA GPU: {'; '.join(UNDECIDED)}."]
    seen = record.payload
    versions = [f"{name} {seen[name]}" for name in ("torch", "triton") if name in seen]
    target = [f"as for {seen['target']}"] if "target" in seen else []
    head = ", ".join(["Dynamo's trace on the CPU", *versions, *target])
    if record.status != "pass":
        lines.append(f"{head}: {record.status.replace('_', ' ')}: {traced.failure(record)}")
    if record.status != "pass" and not any(map(seen.get, ("graphs", "breaks", "launches"))):
        return lines
    if record.status == "pass":
        lines.append(f"{head}; no evidence for a verdict, and other versions trace streams otherwise:")
    counted = [
        _count(seen["graphs"], "graph"), _count(len(seen["breaks"]), "graph break"),
        _count(len(seen["recompiles"]), "recompile"),
    ]  # fmt: skip
    lines.append(f"  {', '.join(counted)} in {_count(seen['calls'], 'call')} with other seeds and advance")
    if seen["kernels"]:
        lines.append(f"  Triton kernels in the graphs: {', '.join(seen['kernels'])}")
    if seen["launches"]:
        lines.append(f"  Triton kernels outside them, where nothing is compiled: {', '.join(seen['launches'])}")
    lines += [f"    {line}" if line.startswith(traced.SUSPECT) else f"  {line}" for line in traced.found(record)]
    return lines + [f"  {caveat}" for caveat in record.caveats]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
