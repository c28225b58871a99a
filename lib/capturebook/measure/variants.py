"""What a sweep of sparse MLA decode times: our kernels (tuned live, pinned or as given) and peers, checked first."""

from collections.abc import Callable
from functools import partial

from ..records import finite
from . import peers
from .peers import PEERS
from .poison import fresh_memory_is_nan

TUNINGS = ("live", "pinned", "given")

LSE_TOLERANCE = 1e-3
"""Absolute: scores are sums of 512 bf16 products in fp32."""


def prepare(variant: dict, heads: int, batch: int, cache: str = "bf16") -> Callable:
    """`setup(inputs) -> call` of a variant; `call() -> (out, lse)` is what is timed.

    variant: {"kernel", "tuning"}, a peer's name or ours. tuning "live": autotuned in this process; "pinned": the
    autotuner is left the pinned configuration; "given": launched with the variant's own `config` (kwargs of
    triton.Config) and `entries` (of the lists a split, 0 for the rule), without an autotuner. Raises ValueError.
    """
    if variant["kernel"] in PEERS:
        return PEERS[variant["kernel"]].setup
    if variant["kernel"] in ("gluon", "auto"):
        return partial(_ours, variant["kernel"])
    if variant["tuning"] not in TUNINGS:
        raise ValueError(f"tuning: {variant['tuning']!r}; allowed: {', '.join(TUNINGS)}")
    if variant["tuning"] == "given":
        return partial(_given, variant, cache)
    if variant["tuning"] == "pinned":
        _pin(variant["kernel"], heads, batch, cache)
    return partial(_ours, variant["kernel"])


def _ours(kernel: str, inputs) -> Callable:
    from ..kernels.sparse_mla import decode

    return partial(decode, *inputs.args(), kernel=kernel)


def _pin(kernel: str, heads: int, batch: int, cache: str) -> None:
    import torch

    from ..kernels.sparse_mla import pinned
    from ..kernels.sparse_mla.op import tuner_of

    major, minor = torch.cuda.get_device_capability()
    pinned.pin_entry(tuner_of(kernel, cache), pinned.pinned_entry(kernel, major * 10 + minor, heads, batch, cache))


def _given(variant: dict, cache: str, inputs) -> Callable:
    import torch
    import triton

    from ..kernels.sparse_mla import launch
    from ..kernels.sparse_mla.combine import combine_kernel
    from ..kernels.sparse_mla.op import tuner_of

    major, minor = torch.cuda.get_device_capability()
    constants = launch.constants_of(variant["kernel"], cache, major * 10 + minor)
    return partial(
        launch.run,
        tuner_of(variant["kernel"], cache).fn,
        combine_kernel,
        variant["kernel"],
        inputs.tensors(),
        inputs.scale,
        entries=variant["entries"],
        **constants,
        **triton.Config(**variant["config"]).all_kwargs(),
    )


def missing(kernel: str, cache: str, heads: int, sm: int) -> str:
    """Why a variant, a peer or ours, cannot be timed here, or ""."""
    from ..kernels.sparse_mla.arguments import reads

    if kernel in PEERS:
        return peers.missing(kernel, cache, heads, sm)
    return "" if reads(kernel, cache) else f"{kernel} has no kernel for a {cache} cache"


def chosen(variant: dict, heads: int, batch: int, widths: tuple[int, int], cache: str = "bf16") -> str:
    """What a variant ran with: its configuration, the autotuner's winners of this process, or what the peer is.

    widths: of the window list and of the extra list.
    """
    from ..kernels.sparse_mla import pinned
    from ..kernels.sparse_mla.op import tuner_of
    from .specialise import config_text

    if variant["kernel"] in PEERS:
        return PEERS[variant["kernel"]].what
    if variant["tuning"] == "given":
        return given_text(variant)
    if variant["kernel"] in ("gluon", "auto"):
        return _pinned_text(variant["kernel"], heads, batch, widths, cache)
    tuner = tuner_of(variant["kernel"], cache)
    configs = tuner.configs if len(tuner.configs) == 1 else tuner.cache.values()
    text = "; ".join(dict.fromkeys(config_text(config) for config in configs))
    entries = pinned.pinned_entries(variant["kernel"], cache)
    return f"{text}, {entries} entries a split" if entries else text


def _pinned_text(kernel: str, heads: int, batch: int, widths: tuple[int, int], cache: str) -> str:
    """What "gluon" and "auto" launch, which have no autotuner."""
    import torch

    from ..kernels.sparse_mla import gluon_plan, paths, pinned
    from .specialise import config_text

    major, minor = torch.cuda.get_device_capability()
    path = paths.path_of(major * 10 + minor, batch, heads, cache, sum(widths)) if kernel == "auto" else kernel
    if path == "gluon":
        plan = gluon_plan.plan(batch, heads, *widths, cache)
        return f"gluon BLOCK_H={plan.block_h} {config_text(plan.config)}"
    entry = pinned.pinned_entry(path, major * 10 + minor, heads, batch, cache)
    return f"{path} {given_text({'config': entry['config'], 'entries': entry.get('entries', 0)})}"


def given_text(variant: dict) -> str:
    """A given configuration as `chosen` tells it."""
    import triton

    from .specialise import config_text

    text = config_text(triton.Config(**variant["config"]))
    return f"{text}, {variant['entries']} entries a split" if variant["entries"] else text


def padded_heads(variant: dict, heads: int, config: str) -> int:
    """Heads that a variant computes for `heads`: tl.dot takes tiles of 16 or more, FlashMLA 64 or 128."""
    if variant["kernel"] in PEERS:
        return PEERS[variant["kernel"]].padded(heads)
    tile = next((int(word.removeprefix("BLOCK_H=")) for word in config.split() if word.startswith("BLOCK_H=")), 1)
    return -(-heads // tile) * tile


def verify(name: str, call: Callable, inputs, reference_of: Callable | None = None) -> list[dict]:
    """Checks of out and lse of one call into poisoned memory against float64, as records hold them.

    reference_of(*args): `decode_reference`, or one that remembers, for many variants of the same inputs.
    """
    from ..kernels.sparse_mla import decode_reference, reference

    with fresh_memory_is_nan():
        out, lse = call()
    want, want_lse = (reference_of or decode_reference)(*inputs.args())
    found = (
        ("out", reference.error(out, want), reference.TOLERANCE),
        ("lse", reference.lse_error(lse, want_lse), LSE_TOLERANCE),
    )
    return [
        {"call": name, "output": output, "error": finite(error), "tolerance": tolerance, "ok": error <= tolerance}
        for output, error, tolerance in found
    ]
