"""Routing of DeepSeek-V4's experts: which of them a token goes to and by what weight, and their sum at the end."""

from .op import combine, route
from .reference import combine_reference, route_reference

__all__ = ["combine", "combine_reference", "route", "route_reference"]
