"""The decode step over concurrency and context: for one kind of layer, every rung of switches checked, then timed.

Three layers of the kind with weights of their own make the step that is captured, so that no weight is still in the
cache when its turn comes again; a time is a third of it.
"""

from typing import Any

from ..probes import Probe
from ..records import Subject, finite
from . import timing
from .gpu_processes import foreign_processes, refusal
from .kv_capacity import LAYERS as MODEL

LAYERS = 3
"""Layers of a kind in the step that is timed."""

REPLAYS = 8
"""Replays a sample, each one token further: as many calls as positions are ready for (`decode_step.step.CALLS`)."""

DEFAULTS = {"size": "flash", "tp": 8, "routing": "score", "experts": "bf16", "cache": "bf16", "keys": "bf16"}
"""Of the step, where a point does not say."""

TOKENS = "batch / time of one layer of this kind: no other layer, no communication between ranks, no sampling"
"""What tok/s means here."""


def plan_decode_sweep(params: Any, options: dict, names: list[str] | None = None) -> list[Probe]:
    """One probe for each kind of layer, batch, context and maximum context of the parameters; each alone on the GPU.

    options: of the step, of which those in DEFAULTS are taken; layers there say which kinds. names: rungs of
    `decode_variants.LADDER`, by default all.
    """
    from .decode_variants import LADDER

    names = list(LADDER) if names is None else names
    return [
        Probe(
            kind="sweep",
            subject=Subject(
                target=params.subject,
                options={
                    "variants": {name: {"kernel": name, "tuning": "pinned"} for name in names},
                    "layer": kind,
                    "batch": batch,
                    "context": context,
                    "max_context": most,
                    "step": {name: value for name, value in options.items() if name in DEFAULTS},
                },
            ),
            job="capturebook.measure.decode_sweep:run",
            args={"samples": params.samples, "memory_gib": params.memory_gib},
            seed=params.seed,
            exclusive=True,
            deadline=max(params.deadline, 300.0),
            label=f"decode sweep: {kind}, batch {batch}, context {context} of {most}",
        )
        for kind in options.get("layers", MODEL)
        for most in params.max_contexts
        for context in params.contexts
        for batch in params.batches
        if context <= most
    ]


def run(ctx) -> dict:
    """Job: every variant of one point against float64, then timed in turn; GPU time by class from a profiled replay.

    `wrong` if one variant is: then none has a time. `not_run` beside another process on the GPU, `skipped` if it does
    not fit.
    """
    import torch

    found = foreign_processes()
    if found:
        return refusal(found)
    asked = ctx.probe.subject.options
    ctx.stage("build")
    try:
        point = Point(asked, ctx.seed)
        ctx.stage("verify")
        checks = [check for name in asked["variants"] for check in point.verify(name)]
        payload = {**{name: asked[name] for name in ("layer", "batch", "context", "max_context")}, **point.sizes()}
        payload["step"] = point.step
        bad = [check for check in checks if not check["ok"]]
        if bad:
            text = "; ".join(f"{c['call']}: {c['output']} is off by {c['error']}" for c in bad)
            return {"status": "wrong", "reason": f"{text} (not timed)", "checks": checks, "payload": payload}
        ctx.stage("time")
        samples = point.time(ctx.args["samples"])
        payload["ends_us"] = point.ends_us()
        payload["variants"] = {
            name: {**asked["variants"][name], **point.spread(samples[name]), **point.classes(name)} for name in samples
        }
    except torch.OutOfMemoryError as error:
        return {"status": "skipped", "reason": f"does not fit: {str(error).partition('. ')[0]}", "payload": {}}
    found = foreign_processes()
    if found:
        return {**refusal(found), "checks": checks}
    return {"status": "pass", "checks": checks, "payload": payload, "samples": samples}


class Point:
    """Three layers of one kind at one batch and context, and a captured graph of each variant."""

    def __init__(self, asked: dict, seed: int):
        import torch

        from ..subjects.decode_step.step import assemble, starts
        from .decode_variants import COMPILED, LADDER, function

        self.asked, self.batch = asked, asked["batch"]
        step = self.step = {**DEFAULTS, **asked["step"]}
        place = {"batch": self.batch, "context": asked["context"], "max_context": asked["max_context"]}
        self.stack = assemble([asked["layer"]] * LAYERS, **step, **place, device="cuda")
        self.positions = self.stack.requests.positions
        self.start = starts(self.batch, asked["context"]).cuda()
        shape = self.stack.layers[0].attention.shape
        self.heads, self.cache, self.fp8 = shape.heads, step["cache"], step["experts"] == "fp8"
        generator = torch.Generator().manual_seed(seed)
        streams = torch.randn(self.batch, 4, shape.hidden, generator=generator).to("cuda", torch.bfloat16)
        tokens = torch.randint(shape.vocabulary, (self.batch,), generator=generator).cuda()
        self.inputs = (streams, tokens)
        self.switches = {name: {**LADDER, **COMPILED}[name] for name in asked["variants"]}
        self.functions = {name: function(self.stack, one) for name, one in self.switches.items()}
        self.graphs, self.outputs, self.memory = {}, {}, {}

    def verify(self, name: str) -> list[dict]:
        """Checks of the second replay of a variant's graph into poisoned outputs, as records hold them."""
        import torch

        from ..subjects.decode_step import reference
        from ..subjects.decode_step.step import FP8_TOLERANCE, TOLERANCE

        tolerance = FP8_TOLERANCE if self.fp8 else TOLERANCE
        with torch.no_grad():
            self._capture(name)
            self.positions.copy_(self.start)
            self.graphs[name].replay()
            for output in self.outputs[name].values():
                output.fill_(torch.nan if output.is_floating_point() else -1)
            self.graphs[name].replay()
            torch.cuda.synchronize()
            self.positions.sub_(1)  # the reference takes the same token in again, in copies of the caches
            errors = reference.errors(self.stack, *self.inputs, self.outputs[name])
        return [
            {"call": name, "output": out, "error": finite(e), "tolerance": tolerance, "ok": e <= tolerance}
            for out, e in errors.items()
        ]

    def _capture(self, name: str) -> None:
        import torch

        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self._pin(name)
        self.positions.copy_(self.start)
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.functions[name](*self.inputs)
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        with torch.cuda.graph(graph, stream=stream):
            self.outputs[name] = self.functions[name](*self.inputs)
        torch.cuda.synchronize()
        self.memory[name] = before - torch.cuda.mem_get_info()[0]
        self.graphs[name] = graph

    def _pin(self, name: str) -> None:
        """The configurations pinned for the heads that this variant gives the kernel."""
        from ..subjects.decode_step.step import KERNEL_HEADS
        from .decode_variants import pin_all

        pin_all(KERNEL_HEADS if self.switches[name].padded else self.heads, self.batch, self.cache)

    def time(self, rounds: int) -> dict[str, list[float]]:
        """{variant: [us of one layer]}, variants in turn."""
        for graph in self.graphs.values():
            self._replays_ms(graph)
        found = timing.interleave(self.graphs, rounds, self._replays_ms)
        return {name: [ms * 1e3 / REPLAYS / LAYERS for ms in samples] for name, samples in found.items()}

    def _replays_ms(self, graph) -> float:
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.positions.copy_(self.start)
        torch.cuda._sleep(200_000)  # about 0.1 ms, so that launching the first replay is not part of it
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    def classes(self, name: str) -> dict:
        """us and launches of a layer by class, and the longest kernels; nothing where lanes run side by side."""
        import torch

        from .decode_variants import function
        from .kernel_classes import labelled, launched, profile, times

        if self.switches[name].overlap:
            return {"classes": None, "graph_bytes": self.memory[name]}
        plain = function(self.stack, self.switches[name], labelled)
        self._pin(name)
        with torch.no_grad():
            self.positions.copy_(self.start)
            order = launched(profile(lambda: plain(*self.inputs)))
            self.positions.copy_(self.start)
            seen = times(profile(self.graphs[name].replay), order)
        return {
            "classes": {group: us / LAYERS for group, us in seen["us"].items()},
            "launches": {group: count / LAYERS for group, count in seen["launches"].items()},
            "top": [{**one, "us": one["us"] / LAYERS} for one in seen["top"]],
            "graph_bytes": self.memory[name],
        }

    def ends_us(self) -> float:
        """Median us of the embedding and of all behind the last layer, on this rank: its part of the vocabulary."""
        import torch

        from ..subjects.decode_step.ends import draw_ends

        shape = self.stack.layers[0].attention.shape
        ends = draw_ends(shape, self.step["tp"], 0, "cuda", torch.bfloat16)
        streams, tokens = self.inputs
        with torch.no_grad():
            samples = timing.time_variants({"ends": [lambda: (ends.embed(tokens), ends.logits(streams))]}, 5)
        return timing.spread(samples["ends"])["median_us"]

    def spread(self, samples: list[float]) -> dict:
        """Median and spread of a layer's us, and tok/s."""
        middle = timing.spread(samples)
        return {**middle, "tokens_per_second": self.batch / middle["median_us"] * 1e6}

    def sizes(self) -> dict:
        """Bytes of a layer's weights and state, and what the numbers mean."""
        first = self.stack.layers[0].attention
        return {
            "layers": LAYERS,
            "weight_bytes": sum(w.numel() * w.itemsize for w in first.weights.values()),
            "state_bytes": sum(t.numel() * t.itemsize for t in first.state.tensors().values()),
            "tokens_per_second_means": TOKENS,
        }
