"""The build check's jobs: list what can be compiled, and compile one kernel in one configuration for one target.

Each compilation has its own process: a compiler that aborts (a wgmma kernel for sm_120 does) makes a failed row.
"""

from pathlib import Path
from typing import Any

from . import build_cache, resources, sass, triton_versions
from .limits import TABLE, parse_target
from .occupancy import occupancy
from .specialise import Specialisation, config_text, specialise

SPARSE_MLA = "capturebook.kernels.sparse_mla.examples:examples"
SPARSE_MLA_FP8 = "capturebook.kernels.sparse_mla.examples:examples_fp8"
INDEXER = "capturebook.kernels.indexer.examples:examples"
GLUE = "capturebook.kernels.glue.examples:examples"
DECODE = "capturebook.subjects.decode_step.examples:examples"
"""Where the built-in kernels' example calls come from. Those of a user's step are recorded from a call of it."""


def plan(ctx) -> dict:
    """Job: what the subject's examples hold for args["targets"], as {"compilations", "unseen", "stopped"}.

    An entry is what `run` takes as its subject's options; `default` marks the first configuration of a kernel, the one
    that Triton tries first. `unseen`: what a call of a step did not show, a line each. `stopped`: where the call could
    not be followed any further, "" if it was to its end. Without any launch it is skipped if it was, else failed.
    """
    from .launches import RecordingError

    ctx.stage("build")
    found, unseen, stops = [], [], []
    for sm in ctx.args["targets"]:
        seen = set()
        try:
            examples, missed, stopped = examples_for(ctx, sm)
        except RecordingError as error:
            if not error.needs_gpu:
                raise
            return {"status": "skipped"}
        unseen += missed
        stops += [stopped] if stopped else []
        for index, example in enumerate(examples):
            found.append({**entry_of(example, sm), "index": index, "default": example.name not in seen})
            seen.add(example.name)
    unseen, stops = list(dict.fromkeys(unseen)), list(dict.fromkeys(stops))
    more = {"payload": {"unseen": unseen, "stopped": "; ".join(stops)}, "caveats": stops}
    if not found:
        reason = "; ".join(["no Triton kernel was launched by the call: there is nothing to build", *stops, *unseen])
        return {"status": "fail" if stops else "skipped", "reason": reason, **more}
    more["payload"]["compilations"] = found
    return {"status": "pass", **more}


def run(ctx) -> dict:
    """Job: compile one entry of `plan` (the subject's options) and return the figures as payload.

    The entry is in the record's subject, so a record says what was compiled even if the compiler aborts. `pass` means
    that it compiled; whether a GPU can hold it is the payload's `fits`. args: cache, a folder or "" for none; for a
    step `step`, the keywords of its build.
    """
    ctx.stage("build")
    entry = ctx.probe.subject.options
    ctx.fields["payload"] = dict(entry)
    sm = parse_target(entry["target"])
    examples, *_ = examples_for(ctx, sm)
    example = examples[entry["index"]] if entry["index"] < len(examples) else None
    now = entry_of(example, sm) if example else None
    if not now or not now.items() <= entry.items():
        raise RuntimeError(f"example {entry['index']} is no longer what was planned: now {now}")
    return {"status": "pass", "payload": {**entry, **cached_row(example, sm, ctx.args["cache"])}}


def examples_for(ctx, sm: int) -> tuple[list[Any], list[str], str]:
    """The subject's examples for a target, what was not seen, and where the call was stopped.

    A step's (args["step"] holds its build's keywords) are recorded from a call; else the subject is a function of the
    target that returns them. Each has what kernels.sparse_mla.examples.Example has: name, kernel, config, args, pinned.
    """
    from ..subjects.loader import load
    from .launches import RecordingError, record_step

    target = ctx.probe.subject.target
    if "step" not in ctx.args:
        return list(load(target)(sm)), [], ""
    try:
        recording = record_step(target, ctx.args["step"], sm)
    except RecordingError as error:
        ctx.fields["reason"] = str(error)
        raise
    return recording.examples, recording.unseen, recording.stopped


def entry_of(example: Any, sm: int) -> dict:
    """{kernel, config, target, pinned}: which compilation an example is."""
    return {
        "kernel": example.name,
        "config": config_text(example.config),
        "target": TABLE[sm].name,
        "pinned": bool(example.pinned),
    }


def cached_row(example: Any, sm: int, cache: str) -> dict:
    """`compile_row` of an example, or the same from the cache folder; `cached` says which."""
    import triton

    spec = specialise(example.kernel, example.args, example.config, sm)
    if not cache:
        return {**compile_row(spec, sm), "cached": False}
    name = build_cache.key(spec.key(), str(sm), triton.__version__, triton_versions.ptxas_version(sm))
    kept = build_cache.read(Path(cache), name)
    if kept is not None:
        return {**kept, "cached": True}
    row = compile_row(spec, sm)
    build_cache.write(Path(cache), name, row)
    return {**row, "cached": False}


def compile_row(spec: Specialisation, sm: int) -> dict:
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
