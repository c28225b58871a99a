"""What a run asks and what it plans, from its parameters: the hypothesis, the question, the arms, the controls."""

from ..attribution.hypotheses import load_hypothesis
from ..records import Question


def ask(params) -> tuple[dict, Question, list[dict]]:
    """Hypothesis (as hypothesis.json holds it), question and planned arms of a run with these parameters.

    Raises ValueError, one line, for a hypothesis that cannot be read.
    """
    hypothesis = load_hypothesis(params.hypothesis)
    planned = [{"id": name, "arm": arm.model_dump()} for name, arm in hypothesis.probes(params)]
    return hypothesis.model_dump(), hypothesis.asks(params), planned


def controls(params) -> list:
    """The controls that every run needs, as probes."""
    from ..attribution import plan

    return plan.controls(params)
