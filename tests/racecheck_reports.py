"""What racecheck reports of the Gluon kernels, and which of it is the hand-over between their warps."""

import re
from importlib.util import find_spec
from pathlib import Path

_HEAD = re.compile(r"Race reported between (?:Read|Write) access at .* in (\S+:\d+)")
_OTHER = re.compile(r"and (?:Read|Write) access at .* in (\S+:\d+)")


def pairs(text: str) -> set[frozenset]:
    """The two places, as "file.py:line", of every race in racecheck's output. Raises ValueError for a race without."""
    found, first = set(), None
    for line in text.splitlines():
        if "Race reported" in line:
            head = _HEAD.search(line)
            if not head:
                raise ValueError(f"a race without its place: {line.strip()}")
            first = head[1]
        elif first and (other := _OTHER.search(line)):
            found.add(frozenset((first, other[1])))
        elif first and not line.strip(" ="):
            first = None
    return found


def handed_over(cache: str) -> set[frozenset]:
    """The pairs in `pairs` that are a hand-over by mbarrier.

    The producer's store of a tile's bias and the consumer's load of it, and what warp_specialize itself hands to the
    warps that it starts, which has the line of the kernel.
    """
    own, store = _lines(_module(f"gluon_{cache}"), f"def gluon_{cache}_kernel(", "bias.index(buffer).store(")
    (load,) = _lines(_module("gluon_consume"), "bias.index(buffer).load(")
    return {frozenset((store, load)), frozenset((own,))}


def textbook() -> frozenset:
    """The pair of planted_handover.py's hand-over."""
    path = Path(__file__).with_name("planted_handover.py")
    return frozenset(_lines(path, "values.index(buffer).store(", "values.index(buffer).load("))


def _module(name: str) -> Path:
    return Path(find_spec(f"capturebook.kernels.sparse_mla.{name}").origin)


def _lines(path: Path, *texts: str) -> list[str]:
    lines = path.read_text().splitlines()
    found = [[number for number, line in enumerate(lines, 1) if text in line] for text in texts]
    assert all(len(numbers) == 1 for numbers in found), (path.name, texts, found)
    return [f"{path.name}:{numbers[0]}" for numbers in found]
