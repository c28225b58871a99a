"""What a run asks, plans, still has to run, and found: attribution's functions on a run folder."""

from ..attribution import Verdict, judge, load_hypothesis
from ..attribution import plan as attribution_plan
from ..params.plain import told
from ..records import OPTION, Question, Record
from . import parts
from .folder import DECIDED, RunFolder
from .runfiles import earlier


def ask(params) -> tuple[dict, Question, list[dict]]:
    """Hypothesis (as hypothesis.json holds it), question, and planned arms [{id, arm}] of a run with these parameters.

    Raises ValueError, one line, for a hypothesis that cannot be read, a question that has no arm, options of a
    built-in sweep that do not exist, or an option that is fixed and a factor as well.
    """
    parts.refuse_options(params)
    try:
        hypothesis = load_hypothesis(params.hypothesis)
    except OSError as exc:
        raise ValueError(f"hypothesis: given {params.hypothesis!r}: {exc.strerror or exc}") from None
    arms, question = hypothesis.probes(params), hypothesis.asks(params)
    for where, arm in [("the question", question.arm), *((f"arm {name} of the hypothesis", arm) for name, arm in arms)]:
        for name in sorted(arm.options.keys() & params.options.keys()):
            given = f"given {told({name: params.options[name]})}"
            raise ValueError(f"parameter options: {given}; allowed: no {name}, which {OPTION}{name} of {where} sets")
    return hypothesis.model_dump(), question, [{"id": name, "arm": arm.model_dump()} for name, arm in arms]


def standing(run: RunFolder) -> list[Record]:
    """Records that need not be made again: decided ones, and whatever this start or resume has recorded itself."""
    since = run.invocation["started"]

    def stands(record: Record) -> bool:
        decided = record.status in DECIDED and record.role != "control" and record.kind != "notebook"
        return decided or not earlier(record.started, since)

    return [record for record in run.records()[0] if stands(record)]


def pursue(run: RunFolder, pool, say, smallest: bool = False) -> None:
    """Run what the verdict (and the smallest failing set) still needs, until nothing is open or nothing can help.

    Raises RuntimeError where no record of a round counts: the same probes would be asked for again without end.
    """
    while probes := attribution_plan.next_probes(run.info, standing(run), smallest):
        say(f"{len(probes)} probes for the verdict: {'; '.join(dict.fromkeys(p.name for p in probes))[:160]}")
        counted = len(run.records()[0])
        pool.run(probes)
        whole, aside = run.records()
        if len(whole) == counted:
            raise RuntimeError(f"none of {len(probes)} probes left a record that counts: {aside[-1] if aside else ''}")


def verdict(run: RunFolder) -> Verdict:
    """The verdict from the run's files as they are now."""
    return judge(run.info, run.hypothesis(), run.records()[0])
