"""Sparse MLA decode of DeepSeek-V4 and V3.2: index lists, attention sink, in Triton and in torch."""

from .op import decode
from .reference import decode_reference, error
from .twin import decode_twin

__all__ = ["decode", "decode_reference", "decode_twin", "error"]
