"""The decode step of DeepSeek-V4-Flash as a subject: layers of each kind over static buffers, made to be captured."""

from .step import build

__all__ = ["build"]
