"""A failing record as a script of its own: torch, triton and the subject's source, run to prove that it fails alike."""

from .prove import Proof, prove
from .script import ReproError, needs_gpu, write

__all__ = ["Proof", "ReproError", "needs_gpu", "prove", "write"]
