"""Job: run the indexer's kernels under Triton's interpreter on the CPU and compare them with the float64 reference."""

from collections.abc import Iterable

from ..probes import Probe
from ..records import Subject
from .indexer_sweep import SELECT
from .interpret import ENVIRONMENT, TOLERANCE, check


def plan_indexer_interpret(
    kernels: Iterable[str] = ("stock", "bounded"), seed: int = 0, deadline: float = 240.0
) -> list[Probe]:
    """A probe for each kernel and format of the keys."""
    shape = {"batch": 3, "context": 900, "max_context": 1280, "topk": 48}
    return [
        Probe(
            kind="interpret",
            subject=Subject(target=SELECT, options={"kernel": kernel, "key_format": key_format, **shape}),
            job="capturebook.measure.indexer_interpret:run",
            seed=seed,
            env=ENVIRONMENT,
            label=f"{kernel} interpreted, {key_format} keys",
            deadline=deadline,
        )
        for kernel in kernels
        for key_format in ("bf16", "fp8")
    ]


def run(ctx) -> dict:
    """Job: compare the scores, and the selection of "bounded", with float64; `wrong` if one differs.

    The subject's options are kernel and what `kernels.indexer.inputs.make_inputs` takes; and topk.
    """
    import torch
    import triton

    from ..kernels.indexer import error, scores_reference
    from ..kernels.indexer.inputs import make_inputs
    from ..kernels.indexer.interpret import interpret

    ctx.stage("build")
    shape = dict(ctx.probe.subject.options)
    kernel, topk = shape.pop("kernel"), shape.pop("topk")
    inputs = make_inputs(ctx.seed, **shape)
    ctx.stage("verify")
    scores, slots = interpret(kernel, inputs.args(), topk)
    want = scores_reference(*inputs.args())
    errors = {"scores": max(_relative(scores[row, : len(one)], one) for row, one in enumerate(want))}
    if slots is not None:
        errors["selection"] = error(slots, want, inputs.page_table, inputs.lengths)
    checks = [check(name, value, TOLERANCE) for name, value in errors.items()]
    payload = {
        "kernel": f"{kernel}, {shape['key_format']} keys",
        **shape,
        "topk": topk,
        "operands": "fp32",
        "error": checks[0]["error"],
        "tolerance": TOLERANCE,
        "triton": triton.__version__,
        "torch": torch.__version__,
    }
    bad = ", ".join(f"{name} {value:.1e}" for name, value in errors.items() if not value <= TOLERANCE)
    if bad:
        reason = f"{kernel} differs from float64: {bad}; allowed {TOLERANCE:g}"
        return {"status": "wrong", "reason": reason, "checks": checks, "payload": payload}
    return {"status": "pass", "checks": checks, "payload": payload}


def _relative(scores, want) -> float:
    """The largest difference of a row's scores, relative to its largest score."""
    return float((scores - want).abs().max() / want.abs().max())
