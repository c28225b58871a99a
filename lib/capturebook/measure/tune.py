"""Pinned tunings: candidates timed side by side as points of the sweep, and the winners as entries of pinned.json.

A bucket is a kernel, a cache format, heads and a batch; its entry serves what lies between the next smaller bucket and
itself (see pinned.pinned_entry). It is timed on the lists of a model with such heads, full ones. Candidates are the
kernel's configurations that fit the GPU's shared memory, each with a few numbers of list entries a split. Every one is
checked against float64 before it is timed.
"""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ..probes import Probe
from ..records import Record
from . import sweep
from .limits import TABLE
from .rows import why

CONTEXT = 8192
"""Context of the timed points, which fills the lists of every shape."""

SHAPES = {"flash": 64, "tp8": 8, "pro": 128, "v32": 128}
"""Shapes of the timed points (see kernels.sparse_mla.shapes; a test holds them equal) and the heads that each has.

Those with a model's widest lists, which take the longest; other layers' shorter ones are served by the same entries.
"""

CTAS, MOST = 128, 1024
"""Programs that fill a large GPU, and more of them than any candidate needs: dozens of waves only cost tuning time."""

NEAR = 0.01
"""A candidate within this share of the fastest is as fast: of those the one with the fewest splits is taken."""


@dataclass(frozen=True)
class Bucket:
    """What one entry of pinned.json is for; shape: one of SHAPES, whose lists it is timed on."""

    kernel: str
    cache: str
    heads: int
    batch: int
    shape: str = "flash"

    def variants(self, sm: int) -> dict[str, dict]:
        """{name: variant} of the sweep: every candidate, named as the tables show it."""
        from .variants import given_text

        found = {}
        for config, entries in candidates(self, sm):
            kwargs = {"kwargs": config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
            variant = {"kernel": self.kernel, "tuning": "given", "config": kwargs, "entries": entries}
            found[given_text(variant)] = variant
        return found


def candidates(bucket: Bucket, sm: int) -> list[tuple]:
    """(triton.Config, entries a split) worth timing on an architecture. No GPU is needed to say so.

    Entries: those of `split_count`'s rule; as many as give CTAS programs, half and twice as many; and one tile. Each
    once, no split smaller than a tile, and no more than MOST programs where fewer are possible.
    """
    from ..kernels.sparse_mla import mma, mma_fp8, mma_v32
    from ..kernels.sparse_mla.launch import split_count
    from ..kernels.sparse_mla.op import tuner_of
    from ..kernels.sparse_mla.shapes import shape_of

    shared = {"bf16": mma, "fp8": mma_fp8, "v32": mma_v32}[bucket.cache].shared_bytes
    lists = shape_of(bucket.shape).inputs(CONTEXT)
    width = lists["window"] + lists["topk"]
    rule = -(-width // split_count(bucket.kernel, bucket.batch, bucket.heads, width))
    found = []
    for config in tuner_of(bucket.kernel, bucket.cache).configs:
        tile = config.kwargs["BLOCK_N"]
        if bucket.kernel == "mma" and shared(config, sm) > TABLE[sm].shared_per_cta:
            continue
        if config.kwargs.get("BLOCK_H", 0) >= max(2 * bucket.heads, 17):
            continue  # a tile of heads that is mostly empty: see mma.fitting
        unsplit = bucket.batch * -(-bucket.heads // config.kwargs.get("BLOCK_H", 1))
        full = -(-width // max(1, CTAS // unsplit))
        wanted = (rule, full // 2, full, 2 * full, tile)
        sizes = {max(1, -(-min(entries, width) // tile)) * tile for entries in wanted}
        few = [size for size in sizes if unsplit * -(-width // size) <= MOST]
        found += [(config, entries) for entries in sorted(few or [max(sizes)])]
    return found


def plan_tune(buckets: list[Bucket], params: Any) -> list[Probe]:
    """One point of the sweep for each bucket; its candidates are made where the GPU is (`run`)."""
    args = {"samples": params.samples, "memory_gib": params.memory_gib, "rates": {}}
    return [
        sweep.point_probe(
            {**asdict(b), "context": CONTEXT},
            args,
            params,
            job="capturebook.measure.tune:run",
        )
        for b in buckets
    ]


def run(ctx) -> dict:
    """Job: `sweep.measure` of a bucket's candidates. Those that are wrong or do not fit are left out and told."""
    import torch

    a = {**ctx.probe.subject.options, **ctx.args}
    major, minor = torch.cuda.get_device_capability()
    bucket = Bucket(a["kernel"], a["cache"], a["heads"], a["batch"], a["shape"])
    a["variants"] = bucket.variants(major * 10 + minor)
    return sweep.measure(a, ctx)


def winner(samples: dict[str, list[float]], variants: dict[str, dict]) -> str:
    """The name of the candidate to pin: the fastest by its median, fewest splits among those within NEAR of it.

    samples {name: us}; variants {name: what it was}.
    """
    times = {name: median(us) for name, us in samples.items()}
    best = min(times.values())
    near = [name for name in times if times[name] <= best * (1 + NEAR)]
    return min(near, key=lambda name: (-variants[name]["entries"], times[name]))


def entry(record: Record, facts: dict) -> dict:
    """The pinned entry that a bucket's record speaks for: configuration, entries a split, source and all times.

    facts: the run's provenance. Raises ValueError, one line, for a record that has no times.
    """
    if record.status != "pass":
        raise ValueError(f"{record.status.replace('_', ' ')}: {why(record)}")
    point = record.payload
    variants = point["variants"]
    name = winner(record.samples, variants)
    times = {other: round(median(us), 2) for other, us in record.samples.items()}
    source = (
        f"timed on an {facts['gpu']['name']} on {record.started[:10]} (torch {facts['torch']}, "
        f"triton {facts['triton']}): {times[name]:.2f} us at batch {point['batch']}, {point['heads']} heads, "
        f"{round(point['entries'])} entries cold in L2 ({point['lists']}), the best of {len(times)} candidates"
    )
    return {
        "config": variants[name]["config_kwargs"],
        "entries": variants[name]["entries"],
        "source": source,
        "timed": dict(sorted(times.items(), key=lambda item: item[1])),
    }


def merged(table: dict, name: str, sm: int, heads: int, found: dict[int, dict]) -> dict:
    """The table with a kernel's entries for `heads` on one architecture replaced by `found` {batch: entry}.

    name: as pinned.entry_name gives it. New entries serve batches up to their own, the last one every batch. Those for
    other numbers of heads stay as they are.
    """
    old = table.get(name, {}).get(str(sm), [])
    new = [
        {"max_heads": heads} | ({"max_batch": batch} if batch < max(found) else {}) | found[batch] for batch in found
    ]
    both = [e for e in old if e["max_heads"] != heads] + new
    both.sort(key=lambda e: (e["max_heads"], e.get("max_batch", 2**20)))
    return {**table, name: {**table.get(name, {}), str(sm): both}}
