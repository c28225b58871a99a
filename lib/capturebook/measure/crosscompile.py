"""The build check's jobs: list what can be compiled, and compile one kernel in one configuration for one target.

Each compilation has its own process: a compiler that aborts (a wgmma kernel for sm_120 does) makes a failed row.
"""

from pathlib import Path
from typing import Any

from . import build_cache, resources, sass, triton_versions
from .limits import TABLE
from .occupancy import occupancy
from .specialise import Specialisation, config_text, configs_of, specialise

SPARSE_MLA = "capturebook.kernels.sparse_mla.examples:examples"
"""Where the built-in kernels' example calls come from; a user's own is `file.py:function`, returning the same."""


def plan(ctx) -> dict:
    """Job: every kernel of args["examples"] with its configurations, as {"kernels": [...]} in the payload."""
    kernels = [
        {
            "kernel": example.name,
            "configs": [
                {"index": index, "config": config_text(config), "pinned": pinned}
                for index, (config, pinned) in enumerate(configurations(example))
            ],
        }
        for example in load_examples(ctx.args["examples"])
    ]
    return {"status": "pass", "payload": {"kernels": kernels}}


def run(ctx) -> dict:
    """Job: compile args {examples, kernel, index, target, cache} and return the row as payload.

    `pass` means that it compiled; whether a GPU can hold it is the row's `fits`. `cache` is a folder or "" for none.
    """
    ctx.stage("build")
    example = {e.name: e for e in load_examples(ctx.args["examples"])}[ctx.args["kernel"]]
    config, pinned = configurations(example)[ctx.args["index"]]
    row = cached_row(example, config, ctx.args["target"], ctx.args["cache"])
    return {"status": "pass", "payload": {**row, "pinned": pinned}}


def load_examples(where: str) -> list[Any]:
    """The examples that the function `where` (pkg.mod:function or file.py:function) returns: one, or several."""
    from ..subjects.loader import load

    examples = load(where)()
    return list(examples) if isinstance(examples, (list, tuple)) else [examples]


def configurations(example: Any) -> list[tuple[Any, bool]]:
    """(autotune configuration, is it the pinned one) of an example, in the order in which Triton would try them."""
    configs = configs_of(example.kernel)
    return [(config, config is not None and config.all_kwargs() == example.pinned) for config in configs]


def cached_row(example: Any, config: Any, sm: int, cache: str) -> dict:
    """`compile_row`, or the same row from the cache folder; `cached` says which."""
    import triton

    spec = specialise(example.kernel, example.args, example.kwargs, config, sm)
    if not cache:
        return {**compile_row(example.name, spec, config, sm), "cached": False}
    name = build_cache.key(spec.key(), str(sm), triton.__version__, triton_versions.ptxas_version(sm))
    kept = build_cache.read(Path(cache), name)
    if kept is not None:
        return {**kept, "kernel": example.name, "cached": True}
    row = compile_row(example.name, spec, config, sm)
    build_cache.write(Path(cache), name, row)
    return {**row, "cached": False}


def compile_row(name: str, spec: Specialisation, config: Any, sm: int) -> dict:
    """Compile and read the machine code.

    registers per thread; spills and stack in bytes per thread (ptxas: spill stores plus loads, and the frame);
    shared and shared_limit in bytes per CTA; instructions by family (static count); occupancy 0 to 1.
    Raises RuntimeError if ptxas and the cubin disagree on registers or stack.
    """
    import triton

    with resources.ptxas_log() as log:
        compiled = spec.compile()
    usage = resources.from_ptxas_log(log.getvalue())
    cubin = compiled.asm["cubin"]
    declared = sass.frame_and_registers(cubin)
    if declared != {"registers": usage.registers, "stack": usage.stack}:
        raise RuntimeError(f"ptxas says {usage}, the cubin says {declared}")
    limits, metadata = TABLE[sm], compiled.metadata
    columns = getattr(metadata, "tmem_size", None) or 0
    held = occupancy(limits, usage.registers, metadata.shared, metadata.num_warps, columns)
    return {
        "target": limits.name,
        "kernel": name,
        "config": config_text(config),
        "registers": usage.registers,
        "spills": usage.spills,
        "stack": usage.stack,
        "shared": metadata.shared,
        "shared_limit": limits.shared_per_cta,
        "tensor_columns": columns,
        "warps": metadata.num_warps,
        "instructions": sass.count(sass.disassemble(cubin)),
        "occupancy": round(held.share, 4),
        "ctas_per_sm": held.ctas,
        "limiter": held.limiter,
        "fits": held.ctas > 0,
        "triton": triton.__version__,
        "ptxas": triton_versions.ptxas_version(sm),
        "arguments": spec.arguments(),
    }
