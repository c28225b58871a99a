"""What a DeepSeek-V4 layer measures: the sizes of V4-Flash, one rank's share of them, and small ones for a CPU."""

from dataclasses import dataclass, replace

KINDS = ("swa", "csa", "hca")
"""Sliding window only; compressed sparse attention (an entry for 4 tokens, 512 of them chosen by the indexer); heavily
compressed attention (an entry for 128 tokens, all of them read)."""

RATIO = {"csa": 4, "hca": 128}
PAGE = 256
"""Tokens of the context that a page of any cache stands for: 256 rows of the window, 64 entries of CSA, 2 of HCA."""


@dataclass(frozen=True)
class Shape:
    """Sizes of one layer on one rank; the defaults are V4-Flash on one GPU.

    active: experts that a token goes to; width: of one expert (the shared one's too); groups: of the output projection.
    extended: yarn on the rotary frequencies of the compressed layers, as (factor, tokens it was trained on), or None.
    """

    hidden: int = 4096
    heads: int = 64
    head_dim: int = 512
    rope: int = 64
    q_rank: int = 1024
    groups: int = 8
    o_rank: int = 1024
    window: int = 128
    index_heads: int = 64
    index_dim: int = 128
    topk: int = 512
    experts: int = 256
    active: int = 6
    width: int = 2048
    vocabulary: int = 129280
    theta: float = 10000.0
    compressed_theta: float = 160000.0
    extended: tuple[float, int] | None = (16.0, 65536)
    routed_scaling: float = 1.5
    limit: float = 10.0

    def rank(self, tp: int) -> "Shape":
        """One rank of `tp`: heads, output groups and the experts' width are shared out, all else is on every rank.

        Raises ValueError if they cannot be.
        """
        for name in ("heads", "groups", "width"):
            if tp < 1 or getattr(self, name) % tp:
                raise ValueError(f"tp: {tp}; allowed: a divisor of {name}, {getattr(self, name)}")
        return replace(self, heads=self.heads // tp, groups=self.groups // tp, width=self.width // tp)


SIZES = {
    "flash": Shape(),
    # What the operators fix (512 values a head, 64 x 128 in the indexer, hidden a multiple of 1024), and little else.
    "small": Shape(
        hidden=1024,
        heads=16,
        q_rank=128,
        groups=8,
        o_rank=64,
        topk=16,
        experts=8,
        active=3,
        width=1024,
        vocabulary=512,
    ),
}
