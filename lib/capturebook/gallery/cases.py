"""All cases of the gallery, by id."""

from . import cases_clean, cases_kernel, cases_stack
from .case import Case

CASES: dict[str, Case] = {case.id: case for part in (cases_kernel, cases_stack, cases_clean) for case in part.CASES}


def chosen(only: list[str], shard: str = "") -> list[Case]:
    """The cases of these ids (all, if none is given), of shard "i/n" every n-th from the i-th, cheap ones first.

    Raises ValueError, one line, for an id or a shard that is not one.
    """
    unknown = [name for name in only if name not in CASES]
    if unknown:
        raise ValueError(f"--only: no case {unknown[0]!r}; `capturebook gallery --list` names them")
    found = [CASES[name] for name in dict.fromkeys(only)] or list(CASES.values())
    if shard:
        part, slash, parts = shard.partition("/")
        if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
            raise ValueError(f"--shard: given {shard!r}; allowed: i/n, with i from 1 to n")
        found = found[int(part) - 1 :: int(parts)]
    return sorted(found, key=lambda case: case.cost)
