"""What to probe next: the judge's open points as probes, until nothing is open and the fix was run.

Called again and again: `while probes := next_probes(info, hypothesis, records): run them`. A probe that was recorded,
however it ended, is not asked for twice.
"""

from dataclasses import replace

from ..probes.probe import Probe
from ..records import Arm, Record, Subject
from . import controls as control_rules
from .decision import Decision
from .evidence import Need
from .fixes import baseline, fix_arms, fix_records, timed
from .smallest import smallest

TIMING_SAMPLES = 30


def controls(params) -> list[Probe]:
    """The controls of every run, as probes. `params` is a Params or its dict."""
    given = params if isinstance(params, dict) else params.model_dump()
    needs = [
        Need("control", control_rules.CONTROL_ARM, why, control=name)
        for name, (_, _, why) in control_rules.EXPECTED.items()
    ]
    return [_probe(need, given, None) for need in needs]


def next_probes(info: dict, records: list[Record], with_smallest: bool = False) -> list[Probe]:
    """Probes that the verdict of a run still needs, most telling first; empty when it is decided or nothing helps.

    `info` is run.json's dict (nonce, question, parameters). The first call gives the controls and the question's arm,
    with and without witnesses; later ones what the first open rule needs, then the fix, then times of both.
    `with_smallest`: also what the smallest failing set still needs, beside the rest.
    """
    decision = Decision(info, records)
    needs = [*decision.controls.needs, *decision.finding.needs]
    searched = smallest(decision) if with_smallest else None
    if not needs:
        needs = _beyond(decision)
    needs += searched.needs() if searched else []
    found = decision.evidence
    recorded = {record.probe for record in (*found.records, *found.gains, *found.trivial)}
    subject = _subject_of(decision)
    probes = {p.id: p for p in (_probe(need, info["parameters"], subject) for need in needs)}
    return [p for name, p in probes.items() if name not in recorded]


def _beyond(decision: Decision) -> list[Need]:
    """What a decided verdict is worth beyond its owner: hazard of the default question, fix, gain."""
    needs = []
    asked = decision.question
    if (
        asked.follow_compiled
        and decision.first is None
        and decision.finding.owner in ("kernel", "stack", "environment")
    ):
        needs.append(Need("arm", asked.arm.changed(compile="default"), "the compiled arm, as a hazard"))
    if decision.finding.cls and not fix_records(decision):
        needs += [Need("fix", arm, "is it cured?") for arm in fix_arms(decision)]
    passed = [r for r in fix_records(decision) if r.status == "pass"]
    if passed and passed[0].role != "scrubbed":
        other = baseline(decision, passed[0].arm)
        if other is not None and not timed(decision, passed[0].arm, other):
            needs.append(Need("repeat", passed[0].arm, f"what does it gain beside {other.label()}?", beside=other))
    return needs


def subject(parameters: dict) -> Subject:
    """The subject that a run's parameters name; the built-in step also takes `heads` and `cache`."""
    options = dict(parameters["options"])
    if parameters["subject"].startswith("capturebook.subjects.sparse_mla:"):
        options.setdefault("heads", parameters["heads"])
        # The default is not said: runs made before it was a choice say none.
        if parameters.get("cache", "bf16") != "bf16":
            options.setdefault("cache", parameters["cache"])
    return Subject(target=parameters["subject"], options=options)


def _subject_of(decision: Decision) -> Subject | None:
    """The subject of the run's own records, so that a plan made later asks about the very same thing."""
    return next((r.subject for r in decision.evidence.records if r.role == "arm" and r.subject), None)


def _probe(need: Need, parameters: dict, known: Subject | None) -> Probe:
    if need.control:
        about = Subject(target=f"{control_rules.MODULE}:{need.control}")
    else:
        about = known or subject(parameters)
    env = {k: v for k, v in parameters["env"].items() if k not in need.scrub}
    how = _in_turns(need.beside) if need.beside else {"kind": "step", "args": {"trivial": True} if need.trivial else {}}
    return Probe(
        **how,
        subject=about,
        arm=need.arm,
        seed=parameters["seed"],
        role=need.role,
        watched=need.watched,
        # An empty value asks the server to start without the variable at all.
        env={**env, **dict.fromkeys(need.scrub, "")},
        preload=() if need.control else tuple(parameters["preload"]),
        deadline=parameters["deadline"],
        label=_label(need),
        repeat=need.repeat,
    )


def _in_turns(other: Arm) -> dict:
    """Fields of a probe that times its arm and another in turns, alone on the GPU."""
    args = {"samples": TIMING_SAMPLES, "beside": other.model_dump()}
    return {"kind": "gain", "job": "capturebook.measure.gain:run", "args": args, "exclusive": True}


def _label(need: Need) -> str:
    if need.control:
        return f"control {need.control}"
    return f"{need.arm.label()} ({need.why})"


def arm_probe(arm: Arm, parameters: dict, role: str = "arm", watched: bool = True, label: str = "") -> Probe:
    """The probe of one planned arm, the same as `next_probes` would ask for, so that neither repeats the other."""
    return _probe(Need(role, arm, label or "planned", watched=watched), parameters, None)


def trace_probe(arm: Arm, parameters: dict) -> Probe:
    """Dynamo's trace of the step on a CPU, as for the first of the run's targets; what it shows is no evidence."""
    about = arm.changed(capture="none", compile="eager", fullgraph=False)
    return replace(
        _probe(Need("arm", about, "traced on the CPU"), parameters, None),
        kind="trace",
        job="capturebook.probes.trace:run",
        args={"target": parameters["targets"][0]},
    )
