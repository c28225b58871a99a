"""From a run's records to owner, class and fix, and from rivals' predictions to a score. Pure: no GPU, no torch."""

from .conclusions import explain
from .hypotheses import Hypothesis, load_hypothesis
from .scores import RivalScore, neither_right, score
from .verdict import Verdict, judge

__all__ = ["Hypothesis", "RivalScore", "Verdict", "explain", "judge", "load_hypothesis", "neither_right", "score"]
