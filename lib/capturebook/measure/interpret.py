"""Job: run a sparse-MLA kernel under Triton's interpreter on the CPU and compare it with the float64 reference.

This shows that the kernel's indexing, masks and softmax are right, not that it compiles or how fast it is. All is fp32
there (see kernels.sparse_mla.interpret). The probe's server starts with TRITON_INTERPRET=1, which Triton reads when
a kernel is decorated.
"""

from collections.abc import Iterable

from ..probes import Probe
from ..records import Subject
from .specialise import config_text

ENVIRONMENT = {"TRITON_INTERPRET": "1"}
TOLERANCE = 1e-4
"""All is fp32 there, so only the order of sums differs from float64: a few 1e-7, and more where softmax is peaked."""

TARGET = 90
"""Whose pinned configuration is interpreted: its block sizes count here, its warps and stages do not."""


def plan_interpret(
    kernels: Iterable[str] = ("mma", "simt"), seed: int = 0, deadline: float = 240.0, cache: str = "bf16"
) -> list[Probe]:
    """Two probes for each kernel: several splits with the combine kernel after them, and one split without it.

    cache: "fp8" means both formats in fp8, V4's, and V3.2's, which "mma" alone reads.
    """
    shapes = [
        {"batch": 2, "heads": 16, "context": 512, "window": 96, "topk": 64, "kind": "random"},
        {"batch": 1, "heads": 8, "context": 40, "window": 32, "topk": 16, "kind": "sink"},
    ]
    own = {} if cache == "bf16" else {"cache": cache}
    calls = [{"kernel": k, **shape, **own} for k in kernels if k in ("mma", "simt") for shape in shapes]
    if cache == "fp8" and "mma" in kernels:
        one_list = {"window": 0, "ratio": 1, "cache": "v32"}
        calls += [{"kernel": "mma", **shape, "topk": shape["window"] + shape["topk"], **one_list} for shape in shapes]
    return [
        Probe(
            kind="interpret",
            subject=Subject(target="capturebook.kernels.sparse_mla:decode", options=call),
            job="capturebook.measure.interpret:run",
            seed=seed,
            env=ENVIRONMENT,
            label=f"{call['kernel']} on {call.get('cache', 'bf16')} interpreted, batch {call['batch']}",
            deadline=deadline,
        )
        for call in calls
    ]


def run(ctx) -> dict:
    """Job: compare one call with float64; `wrong` if out or lse differ.

    The subject's options are kernel, and keywords of `inputs.make_inputs`; cache where it is not bf16.
    """
    import torch
    import triton

    from ..kernels.sparse_mla import decode_reference, launch, pinned, reference
    from ..kernels.sparse_mla.inputs import make_inputs
    from ..kernels.sparse_mla.interpret import interpret

    ctx.stage("build")
    shape = dict(ctx.probe.subject.options)
    kernel, batch, heads = shape.pop("kernel"), shape["batch"], shape["heads"]
    config = pinned.pinned_config(kernel, TARGET, heads, batch, shape.get("cache", "bf16"))
    inputs = make_inputs(ctx.seed, **shape, holes=0.2)
    ctx.stage("verify")
    out, lse = interpret(kernel, inputs.tensors(), inputs.scale, config)
    want, want_lse = decode_reference(*inputs.args())
    errors = {"out": reference.error(out, want), "lse": reference.lse_error(lse, want_lse)}
    checks = [check(name, error, TOLERANCE) for name, error in errors.items()]
    payload = {
        "kernel": kernel,
        **shape,
        "config": config_text(config),
        "splits": launch.split_count(kernel, batch, heads, shape["window"] + shape["topk"]),
        "operands": "fp32",
        "error": checks[0]["error"],
        "lse_error": checks[1]["error"],
        "tolerance": TOLERANCE,
        "triton": triton.__version__,
        "torch": torch.__version__,
    }
    bad = ", ".join(f"{name} {error:.1e}" for name, error in errors.items() if not error <= TOLERANCE)
    if bad:
        reason = f"{kernel} differs from float64: {bad}; allowed {TOLERANCE:g}"
        return {"status": "wrong", "reason": reason, "checks": checks, "payload": payload}
    return {"status": "pass", "checks": checks, "payload": payload}


def check(output: str, error: float, tolerance: float, call: str = "interpreted") -> dict:
    """A record's check of one output; an error that is not finite becomes None, as records hold it."""
    from ..records import finite

    return {
        "call": call,
        "output": output,
        "error": finite(error),
        "tolerance": tolerance,
        "ok": error <= tolerance,
    }
