"""Steps: the contract, how a user's is loaded, and the built-in ones."""

from .step import Step, outputs_by_name

__all__ = ["Step", "outputs_by_name"]
