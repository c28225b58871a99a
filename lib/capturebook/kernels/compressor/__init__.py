"""A compressor of DeepSeek-V4: one entry of 512 values, or one key of the indexer, for every 4 or 128 tokens."""

from .op import compress
from .reference import compress_reference

__all__ = ["compress", "compress_reference"]
