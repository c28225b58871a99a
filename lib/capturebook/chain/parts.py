"""What each notebook runs: its part of the plan as probes, taken through the session so that nothing is run twice."""

from dataclasses import dataclass, field

from .. import doctor
from ..attribution import load_hypothesis
from ..attribution.plan import arm_probe, subject, trace_probe
from ..records import SUBJECT_FACTORS, Arm, Record

BUILT_IN = "capturebook.subjects.sparse_mla:"
INDEXER = "capturebook.subjects.indexer:"
GLUE = "capturebook.subjects.glue"  # mHC, and the chain of a layer
DECODE = "capturebook.subjects.decode_step:"


@dataclass(frozen=True)
class Builds:
    """Build rows (see measure.rows), how many configurations were left out, and why there are no rows, or "".

    `status`: with a reason, that of the listing's record. `unseen`: kernels and operators that the recorded call did
    not show, a line each; `stopped`: where that call could not be followed any further, or "".
    """

    rows: list[dict]
    left: int
    reason: str = ""
    status: str = ""
    unseen: list[str] = field(default_factory=list)
    stopped: str = ""


def asked(session) -> Arm:
    """The arm that the run's question is about, whose factors the other arms are named against."""
    return session.question.arm


def arms(session, compiled: bool) -> list[Record]:
    """The hypothesis's arms, with torch.compile or without, and the question's arm with those it belongs to.

    The question's arm runs once more without witnesses, beside the others: the verdict asks for that in any case.
    """
    planned = load_hypothesis(session.params.hypothesis).probes(session.params)
    if asked(session) not in [arm for _, arm in planned]:
        planned.insert(0, ("asked", asked(session)))
    wanted = [(name, arm) for name, arm in planned if (arm.compile != "none") == compiled]
    parameters = session.params.model_dump()
    probes = [arm_probe(arm, parameters, label=name) for name, arm in wanted]
    again = [
        arm_probe(arm, parameters, role="unwatched", watched=False, label=f"{name}, witnesses off")
        for name, arm in wanted
        if arm == asked(session)
    ]
    return session.outcomes(probes + again)[: len(probes)]


def chosen(records: list[Record], **factors) -> list[Record]:
    """The records whose arm has these factors, such as warmup="warm2"."""
    return [r for r in records if r.arm and all(getattr(r.arm, name) == value for name, value in factors.items())]


def builds(session) -> Builds:
    """Every kernel of the subject cross-compiled for the run's targets.

    Of a user's own step those that one call launches, recorded and not made; where that cannot be, there are no rows,
    and the reason says so.
    """
    from ..measure import crosscompile
    from ..measure.build import BuildError, build_rows

    params = session.params
    decode = crosscompile.SPARSE_MLA if params.cache == "bf16" else crosscompile.SPARSE_MLA_FP8
    ours = {BUILT_IN: decode, INDEXER: crosscompile.INDEXER, GLUE: crosscompile.GLUE, DECODE: crosscompile.DECODE}
    examples = next((where for subject, where in ours.items() if params.subject.startswith(subject)), None)
    own = examples is None
    try:
        result = build_rows(
            session.outcomes,
            params.targets,
            params.all_configs,
            examples=examples or params.subject,
            step=own_options(session) if own else None,
            deadline=3 * params.deadline,
            env=params.env,
            preload=tuple(params.preload),
        )
    except BuildError as exc:
        if not own:
            raise
        return Builds([], 0, str(exc), exc.status)
    return Builds(result.rows, result.left, unseen=result.unseen, stopped=result.stopped)


def built_in(session) -> bool:
    """Whether the run is about the built-in decode step, whose kernels have examples and a sweep of their own."""
    return session.params.subject.startswith(BUILT_IN)


def refuse_options(params) -> None:
    """Raises ValueError, one line, for what the built-in sweeps are not there for: a shape, a peer, a tuning, a format.

    Otherwise notebook 04 would say so, after all that comes before it.
    """
    from ..measure.indexer_sweep import plan_indexer_sweep
    from ..measure.sweep import plan_sweep

    plans = {BUILT_IN: plan_sweep, INDEXER: plan_indexer_sweep}
    try:
        for subject_name, planned in plans.items():
            if params.subject.startswith(subject_name):
                planned(params, {})
    except ValueError as exc:
        raise ValueError(f"options: {exc}") from None


def own_options(session) -> dict:
    """Keywords for the build of a user's own step: the options, and the factors that the question sets, over them."""
    factors = {name: getattr(asked(session), name) for name in SUBJECT_FACTORS}
    set_there = {name: value for name, value in factors.items() if value is not None}
    return {**session.params.options, **asked(session).options, **set_there}


def interpreted(session) -> list[Record]:
    """On a machine without a GPU, the built-in kernels under Triton's interpreter; elsewhere nothing."""
    from ..measure.indexer_interpret import plan_indexer_interpret
    from ..measure.interpret import plan_interpret

    if without_gpu(session) and session.params.subject.startswith(INDEXER):
        return session.outcomes(plan_indexer_interpret(session.params.kernels, session.params.seed))
    if not without_gpu(session) or not built_in(session):
        return []
    return session.outcomes(plan_interpret(session.params.kernels, session.params.seed, cache=session.params.cache))


def sweep(session) -> list[Record]:
    """The records of the throughput sweep, and before them those of the floors if the parameters give no rates.

    Of the built-in step and of the indexer the kernels are timed, of the decode step the rungs of its switches on a
    layer of each kind; of a user's own the step and its twin, compiled too where the question compiles. What
    build takes is read by a probe; where that fails, one point is left and fails alike.
    """
    from ..measure.decode_plan import before, plan_decode
    from ..measure.floors import plan_floors
    from ..measure.indexer_sweep import plan_indexer_sweep
    from ..measure.own_sweep import plan_describe, plan_own_sweep
    from ..measure.sweep import plan_sweep, rates

    params = session.params
    if params.subject.startswith(DECODE):
        return session.outcomes(plan_decode(params, params.options), before(params, params.options))
    found = rates(params, session.outcomes(plan_floors(params)))
    if built_in(session):
        return session.outcomes(plan_sweep(params, found))
    if params.subject.startswith(INDEXER):
        return session.outcomes(plan_indexer_sweep(params, found))
    (described,) = session.outcomes([plan_describe(params)])
    mode = asked(session).compile
    if mode == "none":
        mode = "default" if session.question.follow_compiled else ""
    takes = described.payload.get("takes", [])
    return session.outcomes(plan_own_sweep(params, own_options(session), takes, mode, found))


def counters(session) -> list[dict]:
    """What `capturebook counters` added to this run about points of its sweep; [] as long as it was not called."""
    from ..measure.rows import counters_of

    return counters_of(session.run.records()[0])


def compiled_for_cpu(session) -> list[Record]:
    """On a machine without a GPU, the step and its twin compiled by Inductor for the CPU; elsewhere nothing.

    Kind `trace`, so that the judge, who asks about CUDA, does not take them for evidence. Small sizes: it is the
    compilation that is looked at. The step with a graph break in the middle shows that breaks are counted. Of a
    user's own subject only the twin: the built-in operator has an implementation for the CPU, a Triton call has none;
    the step itself is traced by Dynamo as for a GPU, and not run. Of the decode step's layers the simplest, which takes
    Inductor 50 s on two busy cores; all three took it more than five minutes.
    """
    from ..probes import Probe

    if not without_gpu(session):
        return []
    plain = Arm(compile="default", capture="none", warmup="warm1", options=asked(session).options)
    wanted = [plain.changed(variant="twin")]
    if built_in(session):
        wanted = [arm.changed(batch=2, context=512) for arm in (plain, *wanted, plain.changed(graph_break="between"))]
    about = subject(session.params.model_dump())
    if session.params.subject.startswith(DECODE):
        about = about.model_copy(update={"options": about.options | {"layers": ["swa"]}})
    probes = [
        Probe(
            kind="trace",
            subject=about,
            arm=arm,
            seed=session.params.seed,
            args={"device": "cpu"},
            env=session.params.env,
            preload=tuple(session.params.preload),
            deadline=session.params.deadline,
            label=f"on the CPU, {arm.label()}",
        )
        for arm in wanted
    ]
    if not built_in(session):
        probes.append(trace_probe(asked(session), session.params.model_dump()))
    return session.outcomes(probes)


def without_gpu(session) -> str:
    """Why no probe can use a GPU here, or ""."""
    return doctor.unusable(session.run.info["provenance"])
