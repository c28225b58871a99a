"""Dynamo's trace of a step on a CPU: graph breaks, recompiles, the Triton kernels it sees. No evidence for a verdict.

Dynamo recognises a Triton kernel only where Triton has a GPU, so `has_triton` is made true and a stub stands for the
driver of the target. Kernels are traced and never launched: what they would have written keeps whatever value it has.
Asking for "cuda" gives the CPU. Traces differ between torch versions (2.11 drops streams that 2.13 keeps): the record
names the one that made it.
"""

import contextlib
import re
from collections import Counter

from ..subjects.loader import as_step, load, options_for
from . import inputs, without_gpu
from .exceptions import text_of, walk
from .scrub import relative, scrub

CALLS = 4
"""Each with another seed's values and another `advance`: the first compiles, later ones show what recompiles."""

_NEEDS_CUDA = (
    "requires CUDA support",
    "not linked with support for cuda",
    "Found no NVIDIA driver",
    "Torch not compiled with CUDA",
    "driver version is insufficient",
    "No CUDA GPUs are available",
    "Cannot get CUDA generator",
)
"""What torch says, built with CUDA or without, where a GPU is missing."""


def run(ctx) -> dict:
    """Job: trace the probe's step CALLS times. payload: torch, triton, target, calls, graphs, breaks, recompiles,

    kernels (traced ones by name) and launches (kernels called outside the graphs).
    A step that needs a CUDA device to be built or called is skipped, with the reason.
    """
    import torch
    import triton

    arm = ctx.probe.arm
    seen = _Seen(ctx.run)
    ctx.fields["payload"] = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "target": f"sm_{ctx.args['target']}",
    }
    try:
        with without_gpu.as_with_one(ctx.args["target"], seen):
            ctx.stage("build")
            with seen.on_cpu:
                build = load(ctx.probe.subject.target)
                options, reason = options_for(build, ctx.probe.subject, arm)
                if reason:
                    return {"status": "skipped", "reason": reason}
                step = as_step(build(**options))
            if step.drive:
                return {"status": "skipped", "reason": "the step drives itself: there is no single function to trace"}
            ctx.stage("compile")
            try:
                _trace(ctx, step, seen, contextlib.nullcontext())
            except Exception as error:
                if not _asked_for_cuda(error):
                    raise
                ctx.fields["caveats"] = [
                    "the step asks for CUDA memory while it runs: traced under a mode that gives CPU's"
                ]
                seen.restart()
                _trace(ctx, step, seen, seen.on_cpu)
    except Exception as error:
        if missing := _needs_cuda(error):
            return {"status": "skipped", "reason": f"not traced without a GPU: {missing}"}
        raise
    finally:
        ctx.fields["payload"] |= seen.payload()
        ctx.fields["effective"] = {"device": "cpu", "torch": torch.__version__, "triton": triton.__version__}
        ctx.fields["effective"] |= seen.effective()
    return {"status": "pass"}


def _needs_cuda(error: BaseException) -> str:
    """The line that says so, where an error comes from the missing GPU and not from the step."""
    for one in walk(error):
        text = text_of(one)
        if any(known in text for known in _NEEDS_CUDA):
            return f"{type(one).__name__}: {text.partition(chr(10))[0][:200]}"
    return ""


def _asked_for_cuda(error: BaseException) -> bool:
    """The step itself named the device: torch has none, or fake CUDA and CPU tensors met in the trace."""
    return bool(_needs_cuda(error)) or "Unhandled FakeTensor Device Propagation" in text_of(error)


def _trace(ctx, step, seen: "_Seen", mode) -> None:
    """`mode` is entered around the traced calls as well. Dynamo traces through it."""
    import torch

    arm = ctx.probe.arm

    def compile_(fn):
        return torch.compile(fn, backend=seen.backend, dynamic=arm.dynamic)

    fn = step.compiled(compile_) if step.compiled else compile_(step.fn)
    with seen.on_cpu:
        given = inputs.make(step, ctx.seed)
    for number in range(CALLS):
        seen.call = number
        with seen.on_cpu, torch.no_grad():
            inputs.refill(given, inputs.make(step, ctx.seed + number), ctx.seed + number)
            if step.advance:
                step.advance(number)
        with mode, step.around() if step.around else torch.no_grad():
            fn(*given)
        seen.read_compilations()


class _Seen:
    """What the trace shows, gathered as it happens."""

    def __init__(self, run: str):
        self._run = run
        self.on_cpu = without_gpu.on_cpu()
        self.restart()

    def restart(self) -> None:
        """Forget what was seen and compiled so far."""
        import torch
        from torch._dynamo.utils import clear_compilation_metrics

        torch._dynamo.reset()
        clear_compilation_metrics()
        self.call = 0
        self.graphs = 0
        self.breaks: dict[tuple, dict] = {}
        self.recompiles: list[dict] = []
        self.kernels: Counter = Counter()
        self.launches: Counter = Counter()
        self._read = 0

    def backend(self, graph_module, example_inputs):
        """Dynamo's backend: the graph as it is, but for Triton kernels, which are counted and not launched."""
        import torch
        from torch._higher_order_ops.triton_kernel_wrap import (
            kernel_side_table,
            triton_kernel_wrapper_functional,
            triton_kernel_wrapper_mutation,
        )

        wrappers = (triton_kernel_wrapper_mutation, triton_kernel_wrapper_functional)
        for node in graph_module.graph.nodes:
            if node.target in wrappers:
                kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
                self.kernels[without_gpu.kernel_name(kernel)] += 1

        class Traced(torch.fx.Interpreter):
            def run_node(self, node):
                return None if node.target in wrappers else super().run_node(node)

        return lambda *args: Traced(graph_module).run(*args)

    def broke(self, reason: str, error: Exception) -> None:
        """One graph break, at the innermost line of the user's stack."""
        import torch

        stack = getattr(error, "real_stack", None) or torch._guards.TracingContext.extract_stack()
        # An operation of the step's goes through the mode: its break is raised there, and is the step's.
        own = [frame for frame in stack if frame.filename != without_gpu.__file__]
        if stack and not own:
            return  # the mode's own code, resumed after a break of the step's
        where = own[-1] if own else None
        file, line = (relative(where.filename, self._run), where.lineno) if where else ("", 0)
        text = (text_of(error) or reason).strip()
        key = (file, line, text.partition("\n")[0])
        found = {"file": file, "line": line, "function": where.name if where else "", "call": self.call}
        code = (where.line or "").strip() if where else ""
        self.breaks.setdefault(key, {**found, "code": code, "reason": _reason(scrub(text, self._run))})

    def read_compilations(self) -> None:
        """What Dynamo has compiled since the last look: graphs with operations; what has a reason is a recompile."""
        from torch._dynamo.utils import get_compilation_metrics

        metrics = get_compilation_metrics()
        for made in metrics[self._read :]:
            if made.co_filename == without_gpu.__file__:
                continue
            self.graphs += bool(made.graph_op_count)
            if made.recompile_reason:
                where = {"file": relative(made.co_filename or "", self._run), "line": made.co_firstlineno or 0}
                guard = _guard(scrub(made.recompile_reason, self._run))
                self.recompiles.append({"call": self.call, **where, "function": made.co_name or "", "guard": guard})
        self._read = len(metrics)

    def payload(self) -> dict:
        return {
            "calls": self.call + 1,
            "graphs": self.graphs,
            "breaks": list(self.breaks.values()),
            "recompiles": self.recompiles,
            "kernels": dict(self.kernels),
            "launches": dict(self.launches),
        }

    def effective(self) -> dict:
        """The same in the words of a step's record."""
        reasons = [f"{b['file']}:{b['line']} {b['reason']}"[:300] for b in self.breaks.values()]
        return {"graph_breaks": len(reasons), "graph_break_reasons": reasons[:8], "unique_graphs": self.graphs}


def _reason(text: str) -> str:
    """Dynamo's own words without the advice that is the same for all, without links and addresses."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Hint", "For more details"))]
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(kept))[:400]


def _guard(text: str) -> str:
    """The condition that failed: Dynamo puts the cache entry's number before it and its source after it."""
    return re.sub(r"^\d+/\d+: ", "", text.strip().partition("\n")[0]).partition("  # ")[0].strip()[:400]
