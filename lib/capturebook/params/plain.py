"""What a run's files can hold: the values of JSON, and a line's words for any value."""

import json
import math
import reprlib

DEEPEST = 32
"""Levels of lists and mappings in a value: JSON's writers and readers end at some hundreds with a RecursionError."""

IN_JSON = f"text, finite numbers, true, false, null, lists and mappings with text keys, up to {DEEPEST} levels deep"


def in_json(value, level: int = 0) -> bool:
    """Whether JSON holds the value as it is: read back it is the same, and text is Unicode (a lone surrogate is none).

    A whole number is finite here as a float is, below 2**1024.
    """
    if isinstance(value, str):
        return is_unicode(value)
    if isinstance(value, dict):
        inner = [*value, *value.values()]
        return level < DEEPEST and all(isinstance(k, str) for k in value) and all(in_json(v, level + 1) for v in inner)
    if isinstance(value, list):
        return level < DEEPEST and all(in_json(item, level + 1) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool) or (isinstance(value, int) and value.bit_length() <= 1024)


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can write it: a file name of other bytes reaches Python as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def told(given) -> str:
    """A value in a line about it: as JSON writes it, where it can, and cut where it is long."""
    try:
        text = json.dumps(given, default=repr)
    except (TypeError, ValueError, RecursionError):  # keys of no text, a list in itself, a number of 5000 digits
        text = _Short().repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _Short(reprlib.Repr):
    """`repr` of a few levels and items; Python refuses to write a number of 4300 digits."""

    def repr_int(self, x, level):
        return super().repr_int(x, level) if x.bit_length() <= 1024 else f"a number of {x.bit_length()} bits"
