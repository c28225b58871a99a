"""The lightning indexer of DeepSeek-V4: scores of all compressed keys, and the 512 best of them as cache slots."""

from .op import select
from .reference import error, scores_reference
from .twin import select_twin

__all__ = ["error", "scores_reference", "select", "select_twin"]
