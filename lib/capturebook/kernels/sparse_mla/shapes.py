"""The decode calls that models make: how many heads read how many tokens of which cache."""

from dataclasses import asdict, dataclass, replace

from .formats import FORMATS
from .inputs import EXTRA_PAGE


@dataclass(frozen=True)
class Shape:
    """What one kind of layer asks of `decode`, whatever batch and context.

    heads and cache None: as the caller says. `topk` extra tokens are chosen of context / ratio, 0 for none, None for
    all of them in a list padded to 64 (HCA). lengths: see `make_inputs`; "near" where steps and tests meet lengths
    that differ from seed to seed.
    """

    title: str
    heads: int | None = None
    topk: int | None = 512
    ratio: int = 4
    extra_page: int = EXTRA_PAGE
    lengths: str = "near"
    window: int = 128
    cache: str | None = None

    def inputs(self, context: int, full: bool = False) -> dict:
        """Keywords of `make_inputs` for a context, all but seed, batch, heads, cache and pools.

        full: lists hold all that there is, unless mixed lengths are what the shape is for.
        """
        wide = -(-(context // self.ratio) // 64) * 64 if self.topk is None else self.topk
        given = ("ratio", "extra_page", "lengths", "window")
        same = {name: value for name, value in asdict(self).items() if name in given}
        if full and self.lengths == "near":
            same["lengths"] = "full"
        return {"context": context, "topk": wide, **same}


SHAPES = {
    "flash": Shape("V4-Flash, 128 + 512 tokens"),
    "pro": Shape("V4-Pro, 128 + 1024 tokens", heads=128, topk=1024),
    "hca": Shape("HCA, 128 + context/128 tokens", topk=None, ratio=128, extra_page=2),
    "window": Shape("window alone, 128 tokens", topk=0),
    "mixed": Shape("V4-Flash, 1 to 640 tokens", lengths="uniform"),
    "v32": Shape("V3.2, 2048 tokens", heads=128, topk=2048, ratio=1, window=0, cache="v32"),
    "tp8": Shape("V4-Flash TP8, 128 + 512 tokens", heads=8),
}
"""By name. "mixed": lengths that differ from request to request, as one captured graph meets them."""


def shape_of(name: str) -> Shape:
    """The shape called `name`, "flash bf16" for one with its cache format. Raises ValueError naming the argument."""
    shape, _, cache = name.partition(" ")
    if shape not in SHAPES or cache and (cache not in FORMATS or SHAPES[shape].cache):
        raise ValueError(f"shape: {name!r}; allowed: {', '.join(SHAPES)}, those of V4 with a format too: flash bf16")
    return replace(SHAPES[shape], cache=cache) if cache else SHAPES[shape]
