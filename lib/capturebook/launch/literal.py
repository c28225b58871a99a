"""Words that each match of a regular expression holds: found in megabytes of text far sooner than the match is."""

import re

SHORTEST = 3
"""Characters; a shorter word is in too many lines to save a look at them."""
_TIMES = re.compile(r"\{[0-9,]*\}")


def words_of(pattern: str) -> tuple[str, ...]:
    """Of these words each match of `pattern` holds one; () when none can be told by the pattern's text.

    Only what stands outside groups and character sets is read, and no pattern with flags of its own, looks around it,
    or characters by number.
    """
    if "(?" in pattern.replace("(?:", "") or re.search(r"\\[xuUN0-9]", pattern):
        return ()
    found = [max(_runs(branch), key=len, default="") for branch in _branches(pattern)]
    return tuple(found) if all(len(word) >= SHORTEST for word in found) else ()


def _branches(pattern: str) -> list[list[str]]:
    """The alternatives, each as its pieces: a character, an escaped one, or a whole group or set."""
    branches, pieces, at = [], [], 0
    while at < len(pattern):
        end = _end(pattern, at)
        if pattern[at] == "|":
            branches.append(pieces)
            pieces = []
        else:
            pieces.append(pattern[at:end])
        at = end
    return [*branches, pieces]


def _end(pattern: str, at: int) -> int:
    """Where the piece that begins at `at` ends."""
    if pattern[at] == "\\":
        return at + 2
    if times := _TIMES.match(pattern, at):
        return times.end()
    if pattern[at] == "[":
        # A ] that comes first is one of the set.
        first = at + 2 if pattern[at + 1 : at + 2] == "^" else at + 1
        at = first + (pattern[first : first + 1] == "]")
        while pattern[at] != "]":
            at = at + 2 if pattern[at] == "\\" else at + 1
        return at + 1
    if pattern[at] == "(":
        at += 1
        while pattern[at] != ")":
            at = _end(pattern, at)
    return at + 1


def _runs(pieces: list[str]) -> list[str]:
    runs = [""]
    for piece in pieces:
        if piece in "*?" or _TIMES.match(piece):
            # What it repeats may not be there at all.
            runs += [runs.pop()[:-1], ""]
        elif len(piece) == 1 and piece not in ".^$*+?)":
            runs[-1] += piece
        elif len(piece) == 2 and piece[0] == "\\" and not piece[1].isalnum():
            runs[-1] += piece[1]
        else:
            runs.append("")
    return runs
