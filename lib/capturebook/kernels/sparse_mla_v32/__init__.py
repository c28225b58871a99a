"""Sparse MLA decode of DeepSeek-V3.2: one index list, queries and keys 576 wide, values the first 512, in Triton."""

from .op import decode_v32
from .reference import decode_v32_reference

__all__ = ["decode_v32", "decode_v32_reference"]
