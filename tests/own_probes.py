"""The built-in decode step asked about by capturebook itself: verdicts, and no graph break, from one pool of probes."""

from dataclasses import replace
from pathlib import Path

from capturebook.attribution import judge
from capturebook.attribution import plan as attribution_plan
from capturebook.params import validate
from capturebook.params.declared import BUILT_IN
from capturebook.probes import ProbePool
from capturebook.records import Arm, Question
from test_probes import Run


def not_clean(folder: Path, asked: list[tuple[dict, Arm, list[Arm]]]) -> list[str]:
    """What is not clean, a line each. asked: (parameters of the step, the arm in question, further arms of it).

    Clean is a verdict of nobody's fault, over the controls and the arm with and without witnesses; no further arm that
    fails; and one graph, without a break, in every arm that is compiled.
    """
    runs = []
    for given, arm, further in asked:
        parameters = validate({"preset": "test", "subject": BUILT_IN, "deadline": 180.0, **given})
        info = {"nonce": Run.nonce, "question": Question(arm=arm).model_dump(), "parameters": parameters.model_dump()}
        probes = attribution_plan.next_probes(info, [])
        (step,) = (probe for probe in probes if probe.role == "arm")
        runs.append((given, info, probes + [replace(step, arm=other, label="") for other in further]))
    with ProbePool(Run(folder), on_event=lambda text: None) as pool:
        records = iter(pool.run([probe for *_, probes in runs for probe in probes]))
    said = []
    for given, info, probes in runs:
        found = [next(records) for _ in probes]
        verdict = judge(info, None, found)
        if (verdict.owner, verdict.status) != ("none", "pass"):
            said.append(f"{given}: {verdict.sentence}")
        for record in found:
            seen = {name: record.effective.get(name) for name in ("unique_graphs", "graph_breaks")}
            if record.arm.compile != "none" and seen != {"unique_graphs": 1, "graph_breaks": 0}:
                said.append(f"{given}: {record.arm.label()}: {seen}")
            if record.role == "arm" and record.status != "pass":
                said.append(f"{given}: {record.arm.label()}: {record.status} at {record.stage}, {record.reason}")
    return said
