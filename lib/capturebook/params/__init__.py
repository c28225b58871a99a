"""Parameters: declared once, read from presets and the command line, written into the notebooks."""

from .cells import parameters_cell, stale_cells, unknown_names, write_cells
from .declared import ParameterError, Params, allowed, describe, unknown, validate
from .presets import apply_sets, load_preset, preset_names

__all__ = [
    "ParameterError",
    "Params",
    "allowed",
    "apply_sets",
    "describe",
    "load_preset",
    "parameters_cell",
    "preset_names",
    "stale_cells",
    "unknown",
    "unknown_names",
    "validate",
    "write_cells",
]
