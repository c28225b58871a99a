"""One point of the decode step's sweep: layers of one kind, a captured graph of each variant, checks and times."""

import contextlib
import statistics
import time

from ..records import finite
from . import timing

LAYERS = 3
"""Layers of a kind in the step that is timed."""

REPLAYS = 8
"""Replays a sample, each one token further: as many calls as positions are ready for (`decode_step.step.CALLS`)."""

SAMPLE_MS = 60.0
"""A sample is of fewer replays where so many would take longer: a step may take a hundred times another's time."""

DEFAULTS = {"size": "flash", "tp": 8, "routing": "score", "experts": "bf16", "cache": "bf16", "keys": "bf16"}
"""Of the step, where a point does not say."""

METHOD = {
    3: "A third of a captured step of three layers of one kind, each with weights of its own, eight replays a "
    f"sample, or fewer where they take over {SAMPLE_MS:g} ms",
    1: f"A captured step of one layer, eight replays a sample, or fewer where they take over {SAMPLE_MS:g} ms",
}
"""How a layer is timed, by the layers in the step."""

TOKENS = "batch / time of one layer of this kind: no other layer, no communication between ranks, no sampling"
"""What tok/s means here."""


class Point:
    """Layers of one kind at one batch and context, and a captured graph of each variant. seconds: what each took.

    weights: of a point of the same layers, which may be at another batch and context.
    """

    def __init__(self, asked: dict, seed: int, layers: int = LAYERS, weights: list | None = None):
        self.asked, self.batch, self.layers, self.seconds = asked, asked["batch"], layers, {}
        with self.clock("build"):
            self._build(seed, weights)

    def _build(self, seed: int, weights: list | None) -> None:
        import torch

        from ..subjects.decode_step.step import assemble, starts
        from .decode_variants import RUNGS, function

        asked = self.asked
        step = self.step = {**DEFAULTS, **asked["step"]}
        place = {"batch": self.batch, "context": asked["context"], "max_context": asked["max_context"]}
        self.stack = assemble([asked["layer"]] * self.layers, **step, **place, device="cuda", weights=weights)
        self.weights = [layer.attention.weights for layer in self.stack.layers]
        self.positions = self.stack.requests.positions
        self.start = starts(self.batch, asked["context"]).cuda()
        shape = self.stack.layers[0].attention.shape
        self.heads, self.cache, self.fp8 = shape.heads, step["cache"], step["experts"] == "fp8"
        generator = torch.Generator().manual_seed(seed)
        streams = torch.randn(self.batch, 4, shape.hidden, generator=generator).to("cuda", torch.bfloat16)
        tokens = torch.randint(shape.vocabulary, (self.batch,), generator=generator).cuda()
        self.inputs = (streams, tokens)
        self.switches = {name: RUNGS[name] for name in asked["variants"]}
        self.functions = {name: function(self.stack, one) for name, one in self.switches.items()}
        self.graphs, self.outputs, self.first_call_s, self.replays = {}, {}, {}, {}

    def verify(self, name: str, keep: bool = False) -> list[dict]:
        """Checks of the second replay of a variant's graph into poisoned outputs, as records hold them.

        keep: the graph's nodes can be read afterwards.
        """
        import torch

        with torch.no_grad(), self.clock("capture"):
            self._capture(name, keep)
        with torch.no_grad(), self.clock("reference"):
            self.positions.copy_(self.start)
            self.graphs[name].replay()
            for output in self.outputs[name].values():
                output.fill_(torch.nan if output.is_floating_point() else -1)
            self.graphs[name].replay()
            torch.cuda.synchronize()
            return self.checks(name, self.outputs[name])

    def checks(self, call: str, outputs: dict) -> list[dict]:
        """What the step just gave, against float64 from where it started; positions are one back afterwards."""
        from ..subjects.decode_step import reference
        from ..subjects.decode_step.step import FP8_TOLERANCE, TOLERANCE

        tolerance = FP8_TOLERANCE if self.fp8 else TOLERANCE
        self.positions.sub_(1)  # the reference takes the same token in again, in copies of the caches
        return [
            {"call": call, "output": out, "error": finite(e), "tolerance": tolerance, "ok": e <= tolerance}
            for out, e in reference.errors(self.stack, *self.inputs, outputs).items()
        ]

    def _capture(self, name: str, keep: bool) -> None:
        import torch

        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph(keep_graph=keep)
        self.pin(name)
        self.positions.copy_(self.start)
        began = time.monotonic()
        with torch.cuda.stream(stream):
            self.functions[name](*self.inputs)
            torch.cuda.synchronize()
            self.first_call_s[name] = time.monotonic() - began
            self.functions[name](*self.inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            self.outputs[name] = self.functions[name](*self.inputs)
        if keep:
            graph.instantiate()
        torch.cuda.synchronize()
        self.graphs[name] = graph

    def pin(self, name: str) -> None:
        """The configurations pinned for the heads that this variant gives the kernel."""
        from ..subjects.decode_step.step import KERNEL_HEADS
        from .decode_variants import pin_all

        heads = KERNEL_HEADS if self.switches[name].padded else self.heads
        pin_all(heads, self.batch, self.cache, self.step["keys"])

    @contextlib.contextmanager
    def clock(self, what: str):
        """Adds to `seconds` what runs inside."""
        began = time.monotonic()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - began

    def time(self, rounds: int) -> dict[str, list[float]]:
        """{variant: [us of one layer]}, variants in turn. replays: how many a sample of each has."""
        with self.clock("time"):
            for name, graph in self.graphs.items():
                once = self._replays_ms(graph, 1)
                self.replays[name] = max(1, min(REPLAYS, int(SAMPLE_MS / once)))
                self._replays_ms(graph, self.replays[name])
            found = timing.interleave(
                {name: (graph, self.replays[name]) for name, graph in self.graphs.items()},
                rounds,
                lambda timed: self._replays_ms(*timed) / timed[1],
            )
        return {name: [ms * 1e3 / self.layers for ms in samples] for name, samples in found.items()}

    def called_us(self, calls: int = 5) -> dict[str, dict[str, float]]:
        """{variant: median, least and most us of one layer} without a graph, launched from Python, variants in turn;
        the first call does not count. It is the host's time: on one host calls of a step took 6 to 17 ms a layer.
        """
        import torch

        found = {}
        with torch.no_grad(), self.clock("called"):
            taken = timing.interleave({name: name for name in self.graphs}, 1 + calls, self._call_ms)
        for name, (_, *samples) in taken.items():
            us = [ms * 1e3 / self.layers for ms in samples]
            found[name] = {
                "called_us": statistics.median(us),
                "called_least_us": min(us),
                "called_most_us": max(us),
            }
        return found

    def _call_ms(self, name: str) -> float:
        import torch

        self.pin(name)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.positions.copy_(self.start)
        torch.cuda.synchronize()
        start.record()
        self.functions[name](*self.inputs)
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    def _replays_ms(self, graph, count: int) -> float:
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.positions.copy_(self.start)
        torch.cuda._sleep(200_000)  # about 0.1 ms, so that launching the first replay is not part of it
        start.record()
        for _ in range(count):
            graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    def described(self, name: str) -> dict:
        """Of a variant's graph, kept by `verify`: nodes of a layer (all that are launched, and waits), and branches."""
        from ..probes.graph import describe

        seen = describe(self.graphs[name].raw_cuda_graph())
        return {"nodes": sum(seen["nodes"].values()) / self.layers, "parallel": seen["parallel"]}

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
            "layers": self.layers,
            "weight_bytes": sum(w.numel() * w.itemsize for w in first.weights.values()),
            "state_bytes": sum(t.numel() * t.itemsize for t in first.state.tensors().values()),
            "method": METHOD[self.layers],
            "tokens_per_second_means": TOKENS,
        }
