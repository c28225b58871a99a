"""What a verdict's fix costs and gains, in words, from its JSON; figures only where they were recorded."""

from collections.abc import Mapping

COST = "with the fix: "
"""Begins a caveat of the verdict on what the fix costs."""


def overlap(verdict: Mapping) -> list[str]:
    """Whether the fix keeps the step's overlap, where its graph was looked at."""
    return [said.removeprefix(COST) for said in verdict["caveats"] if said.startswith(COST)]


def compared(gain: Mapping) -> str:
    """`compiling with the fix is slower than not compiling`; the same, where the ratio's quartiles hold 1."""
    low, high = gain["ratio_iqr"]
    how, than = ("as fast", "as") if low <= 1 <= high else ("faster" if low > 1 else "slower", "than")
    plain = "compile=none"
    asked = plain in gain["baseline"].split() and plain not in gain["fixed"].split()
    fixed, baseline = ("compiling with the fix", "not compiling") if asked else ("the fix", gain["baseline"])
    return f"{fixed} is {how} {than} {baseline}{', within the spread' if than == 'as' else ''}"


def told(verdict: Mapping) -> list[str]:
    """Lines for a terminal: overlap lost or kept, then the gain, or why there is none; [] where no fix passed."""
    if verdict["fixed"] != "fixed":
        return []
    gain = verdict["gain"]
    if gain is None:
        return [
            f"With the fix: {said}."
            for said in (*overlap(verdict), f"what it gains is not known: {verdict['gain_reason']}")
        ]
    ratio = f"{gain['ratio']:.2f} times as fast as {gain['baseline']}"
    times = f"{gain['fixed_us']:.1f} against {gain['baseline_us']:.1f} us"
    said = [*overlap(verdict), f"{ratio} ({times}): here {compared(gain)}"]
    return [f"With the fix: {line}." for line in said]
