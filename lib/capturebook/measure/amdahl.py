"""Whether the story's own numbers can be true together: arithmetic on shares of a step's time and what a fix gains.

Only this refutes one of them; that a machine does not reproduce it does not.
"""

STORY = {
    "mma": (2.2, 2.9),  # gain of the whole step from the MMA kernel, over all concurrencies
    "indexer": 17.0,  # gain from bounding the indexer, at concurrency 64
    "attention": (0.57, 0.10),  # its share before and after the MMA kernel
    "glue": 0.69,  # its share after both
    "fused": 2.0,  # gain from fusing the glue
}
"""What the story reports of a decode step."""


def gain(share: float, factor: float) -> float:
    """How much faster a step gets if a part of it, `share` of its time, gets `factor` times faster (inf: for nothing).

    Amdahl's law. Raises ValueError for a share outside 0 to 1 or a factor that is not above 0.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share: {share}; allowed: 0 to 1")
    if not factor > 0:
        raise ValueError(f"factor: {factor}; allowed: above 0")
    rest = 1 - share + share / factor
    return 1 / rest if rest else float("inf")


def share_needed(gained: float) -> float:
    """The least share that a part must have for a step to get `gained` times faster by that part alone."""
    return 1 - 1 / gained


def factor_of(before: float, after: float) -> float:
    """How much faster a part got whose share fell from `before` to `after`, all else as it was."""
    return before * (1 - after) / (after * (1 - before))


def verdicts(story: dict = STORY) -> list[dict]:
    """Pairs of the story's numbers, taken to be of one step: what they say together, as of, claims, status and text.

    of: keys of those numbers in `decode_story.story`. status: "possible", or "inconsistent with itself", which numbers
    of two different steps (another concurrency, say) may be without either being false.
    """
    low, high = story["mma"]
    before, after = story["attention"]
    most = gain(before, float("inf"))
    got = gain(before, factor_of(before, after))
    needed = share_needed(story["indexer"])
    fused = story["fused"]
    least = share_needed(fused)
    return [
        _verdict(
            ("mma", "before"),
            "the MMA kernel's gain and attention's share before it",
            high <= most,
            f"attention at {before:.0%} can give {most:.2f}x at most, and {low}x to {high}x is claimed: {high}x needs "
            f"{share_needed(high):.0%}",
        ),
        _verdict(
            ("mma", "before", "after"),
            "attention's shares before and after, and the gain",
            low <= got,
            f"from {before:.0%} to {after:.0%} the kernel got {factor_of(before, after):.1f}x faster and the step "
            f"{got:.2f}x; {low}x to {high}x is claimed",
        ),
        _verdict(
            ("indexer", "before"),
            "the indexer's gain and attention's share, both before either fix",
            before <= 1 - needed,
            f"{story['indexer']:g}x needs the indexer at {needed:.1%} of the step, which leaves {1 - needed:.1%} for "
            f"attention's {before:.0%}",
        ),
        _verdict(
            ("glue", "fused"),
            "the glue's share after both fixes and the gain from fusing it",
            least <= story["glue"],
            f"{fused:g}x needs {least:.0%} at least; at {story['glue']:.0%} the glue must get "
            f"{story['glue'] / (1 / fused - 1 + story['glue']):.1f}x faster",
        ),
        _verdict(
            ("after", "glue"),
            "attention's and the glue's shares after both fixes",
            after + story["glue"] <= 1,
            f"{after:.0%} and {story['glue']:.0%} leave {1 - after - story['glue']:.0%} for matmuls and the indexer",
        ),
    ]


INCONSISTENT = "inconsistent with itself"


def _verdict(of: tuple[str, ...], claims: str, possible: bool, text: str) -> dict:
    return {"of": of, "claims": claims, "status": "possible" if possible else INCONSISTENT, "text": text}
