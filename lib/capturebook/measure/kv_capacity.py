"""How many tokens of context fit beside the weights of DeepSeek-V4-Flash: by GPUs, memory fraction, layers and format.

Arithmetic only, nothing is measured; ASSUMED is said beside every number.
"""

from dataclasses import dataclass

ASSUMED = (
    "weights as published (MXFP4 experts with a scale byte for 32 values, the matmuls of the backbone in fp8, "
    "compressors and router in bf16, mHC in fp32, embedding and head in bf16, MTP left out); tensor parallelism shares "
    "out experts, heads and vocabulary and repeats the rest, and with data-parallel attention each GPU has all heads "
    "and their output projections too; the memory fraction holds weights and caches, so that "
    "graphs, workspaces and fragmentation live in what is left; compressor rings in fp32"
)

LAYERS = {"swa": 2, "csa": 21, "hca": 20}
"""Layers of each kind in V4-Flash: the window only, an entry for 4 tokens, an entry for 128."""

RATIO = {"csa": 4, "hca": 128}
WINDOW, PAGE = 128, 256
HIDDEN, HEADS, HEAD_DIM, INDEX_DIM, Q_RANK, GROUPS, O_RANK = 4096, 64, 512, 128, 1024, 8, 1024
EXPERTS, EXPERT_WIDTH, VOCABULARY = 256, 2048, 129280
SEED_TOKENS, SEED_GPUS = 2.58e6, 8
"""The capacity that the story reports; on which GPU, at what fraction and with what pools it does not say."""

GPUS = {"H200": 139.8 * 2**30, "RTX PRO 6000": 95.6 * 2**30}
"""Bytes of memory of one GPU, about what its driver reports."""


@dataclass(frozen=True)
class Pools:
    """How the caches are kept.

    cache: "fp8" (584 bytes a row, pages padded to a multiple of 576) or "bf16" (1024). keys: of the indexer, "fp8"
    (132) or "bf16" (256). window: "evicted", 128 tokens a request and layer; "kept", a row for every token of the
    context in every layer, as a pool without eviction has. attention: "tensor", every GPU holds every token, for there
    is one latent head; "data", each GPU holds the requests that are its own, and all heads for them.
    """

    cache: str = "fp8"
    keys: str = "fp8"
    window: str = "evicted"
    attention: str = "tensor"

    def __post_init__(self):
        for name, allowed in (
            ("cache", ("fp8", "bf16")),
            ("keys", ("fp8", "bf16")),
            ("window", ("evicted", "kept")),
            ("attention", ("tensor", "data")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: {getattr(self, name)!r}; allowed: {', '.join(allowed)}")


def row_bytes(cache: str, page: int) -> float:
    """Bytes of one row of a latent cache, its part of a page's padding included. page: rows a page."""
    if cache == "bf16":
        return 2 * HEAD_DIM
    return -(-page * 584 // 576) * 576 / page


def token_bytes(kind: str, pools: Pools) -> float:
    """Bytes that each token of the context adds in one layer."""
    found = row_bytes(pools.cache, PAGE) if pools.window == "kept" else 0.0
    if kind == "swa":
        return found
    found += row_bytes(pools.cache, PAGE // RATIO[kind]) / RATIO[kind]
    if kind == "csa":
        found += {"fp8": INDEX_DIM + 4, "bf16": 2 * INDEX_DIM}[pools.keys] / RATIO[kind]
    return found


def request_bytes(kind: str, pools: Pools) -> float:
    """Bytes that a request takes in one layer whatever its context: the window, and fp32 rings of the compressors."""
    found = WINDOW * row_bytes(pools.cache, PAGE) if pools.window == "evicted" else 0.0
    values = {"swa": 0, "csa": 8 * 4 * (HEAD_DIM + INDEX_DIM), "hca": 128 * 2 * HEAD_DIM}[kind]
    return found + 4 * values


def weight_bytes(gpus: int, attention: str = "tensor") -> float:
    """Bytes of weights on each of `gpus` GPUs. attention: as in Pools."""
    found = parameters(attention).values()
    return sum(bytes_each * (shared / gpus + repeated) for bytes_each, shared, repeated in found)


def parameters(attention: str = "tensor") -> dict[str, tuple[float, int, int]]:
    """{what: (bytes a parameter, parameters that GPUs share out, parameters that each of them has)}; norms left out.

    attention: as in Pools; what is of its heads is shared out by "tensor" alone.
    """
    layers = sum(LAYERS.values())
    latents = layers * HIDDEN * (Q_RANK + HEAD_DIM)  # to the query's and the key-value's
    heads = layers * HEADS * HEAD_DIM * (Q_RANK + O_RANK)
    heads += layers * GROUPS * O_RANK * HIDDEN  # their output projections
    shared, repeated = (heads, 0) if attention == "tensor" else (0, heads)
    index_queries = LAYERS["csa"] * Q_RANK * HEADS * INDEX_DIM
    # values and gates, twice where windows overlap
    pooled = LAYERS["csa"] * 4 * (HEAD_DIM + INDEX_DIM) + LAYERS["hca"] * 2 * HEAD_DIM
    scores = LAYERS["csa"] * HEADS + layers * EXPERTS
    return {
        "experts": (4.25 / 8, layers * (EXPERTS + 1) * 3 * HIDDEN * EXPERT_WIDTH, 0),
        "backbone": (1.0, shared, repeated + latents + index_queries),
        "bf16": (2.0, 2 * VOCABULARY * HIDDEN, (pooled + scores) * HIDDEN),
        "mHC": (4.0, 0, layers * 2 * 24 * 4 * HIDDEN),
    }


def tokens(gpu_bytes: float, gpus: int, fraction: float, pools: Pools, context: int = 8192) -> float:
    """Tokens that fit, as whole caches of requests with `context` tokens each; 0 if the weights do not leave any room.

    Raises ValueError for a fraction outside 0 to 1.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction: {fraction}; allowed: above 0, up to 1")
    free = max(0.0, fraction * gpu_bytes - weight_bytes(gpus, pools.attention))
    request = sum(n * (context * token_bytes(k, pools) + request_bytes(k, pools)) for k, n in LAYERS.items())
    groups = gpus if pools.attention == "data" else 1
    return groups * free / request * context


def table(context: int = 8192, fractions: tuple[float, ...] = (0.8, 0.9)) -> list[dict]:
    """One row for each GPU, number of them, fraction and way to keep the caches: what a token takes, what fits, and
    that over the tokens that the story reports."""
    ways = [Pools(cache, cache, window, attention) for cache, window, attention in WAYS]
    return [
        {
            "gpu": name,
            "gpus": gpus,
            "fraction": fraction,
            "cache": pools.cache,
            "window": pools.window,
            "attention": pools.attention,
            "bytes_per_token": sum(n * token_bytes(kind, pools) for kind, n in LAYERS.items()),
            "tokens": (fits := tokens(size, gpus, fraction, pools, context)),
            "over_story": fits / SEED_TOKENS if gpus == SEED_GPUS else None,
        }
        for name, size in GPUS.items()
        for gpus in (1, 2, 4, 8)
        for fraction in fractions
        for pools in ways
    ]


WAYS = (
    ("fp8", "evicted", "tensor"),
    ("bf16", "evicted", "tensor"),
    ("fp8", "evicted", "data"),
    ("fp8", "kept", "tensor"),
    ("bf16", "kept", "tensor"),
)
"""(cache and keys, window, attention) of the table's rows."""


def kept() -> list[Pools]:
    """Each format with each way to keep the window, as in the table; on which GPUs makes no difference to a layer."""
    return list(dict.fromkeys(Pools(cache, cache, window) for cache, window, _ in WAYS))


def by_layer(pools: Pools, context: int) -> list[dict]:
    """One row for each kind of layer: how many there are, bytes a token in one, bytes of a request of `context` tokens
    in all of them, fixed part included, and that as a share of the model's."""
    rows = [
        {
            "layer": kind,
            "layers": n,
            "bytes_per_token": token_bytes(kind, pools),
            "request_bytes": n * (context * token_bytes(kind, pools) + request_bytes(kind, pools)),
        }
        for kind, n in LAYERS.items()
    ]
    total = sum(row["request_bytes"] for row in rows)
    return [row | {"share": row["request_bytes"] / total} for row in rows]
