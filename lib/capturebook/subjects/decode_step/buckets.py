"""One captured graph for each batch size, largest first, in one memory pool; smaller batches are padded to the next.

What servers do: graphs are captured at a few sizes, all over the same buffers, and a step takes the smallest that
holds its requests. Requests are the first rows; rows behind them are idle, and what a replay does there is nobody's.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from .model import Stack
from .ops import Ops


def narrowed(stack: Stack, batch: int) -> Stack:
    """The same stack over its first `batch` rows; caches are shared, and so is every row's state."""
    whole = stack.requests
    requests = replace(whole, **{name: getattr(whole, name)[:batch] for name in whole.__dataclass_fields__})
    layers = []
    for layer in stack.layers:
        state = layer.attention.state
        rings = {name: getattr(state, name) for name in ("ring", "key_ring")}
        state = replace(state, **{name: ring[:batch] for name, ring in rings.items() if ring is not None})
        layers.append(replace(layer, attention=replace(layer.attention, state=state, requests=requests)))
    return replace(stack, layers=tuple(layers), requests=requests)


class Buckets:
    """Graphs of a stack for several batch sizes. sizes: ascending, the last one the stack's own batch.

    prepare(size): called before a size is warmed up, to pin what it is tuned for. shared: one pool for all graphs, or
    each its own; ascending: smallest first, which no server does: to be compared.
    graph_bytes: {size: (bytes that torch's allocator took for the graph, bytes that the driver counts less)};
    capture_s: {size: seconds of its capture}.
    """

    def __init__(
        self,
        stack: Stack,
        ops: Ops,
        sizes: list[int],
        hidden: int,
        prepare: Callable[[int], object] | None = None,
        shared: bool = True,
        ascending: bool = False,
    ):
        batch = len(stack.requests.positions)
        if list(sizes) != sorted(set(sizes)) or sizes[-1] != batch:
            raise ValueError(f"sizes: {sizes}; allowed: ascending, up to the stack's batch, {batch}")
        device = stack.requests.positions.device
        self.stack, self.sizes, self.graph_bytes, self.capture_s = stack, list(sizes), {}, {}
        self._streams = torch.zeros(batch, 4, hidden, dtype=torch.bfloat16, device=device)
        self._tokens = torch.zeros(batch, dtype=torch.int64, device=device)
        self._graphs, self._outputs = {}, {}
        pool, stream = torch.cuda.graph_pool_handle() if shared else None, torch.cuda.Stream()
        start = stack.requests.positions.clone()
        for size in self.sizes if ascending else reversed(self.sizes):
            if prepare:
                prepare(size)
            self._capture(narrowed(stack, size), ops, size, pool, stream)
            stack.requests.positions.copy_(start)

    def _capture(self, stack: Stack, ops: Ops, size: int, pool, stream) -> None:
        inputs = (self._streams[:size], self._tokens[:size])
        with torch.no_grad():
            with torch.cuda.stream(stream):
                for _ in range(2):
                    stack(ops, *inputs)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
            began, graph = time.monotonic(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                self._outputs[size] = stack(ops, *inputs)
            self.capture_s[size] = time.monotonic() - began
        self._graphs[size] = graph
        self.graph_bytes[size] = torch.cuda.memory_reserved() - before[0], before[1] - torch.cuda.mem_get_info()[0]

    def bucket(self, batch: int) -> int:
        """The size that a batch of so many requests runs at. Raises ValueError if there is none."""
        found = [size for size in self.sizes if size >= batch]
        if batch < 1 or not found:
            raise ValueError(f"batch: {batch}; allowed: 1 to {self.sizes[-1]}")
        return found[0]

    def replay(self, size: int) -> None:
        """The graph of a size on what its buffers hold."""
        self._graphs[size].replay()

    def __call__(self, streams: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """One step of the first len(tokens) requests; outputs as the stack's, for these rows.

        They lie in the pool that all graphs share: the next step of any size may overwrite them.
        """
        batch = len(tokens)
        size = self.bucket(batch)
        self._streams[:batch].copy_(streams)
        self._tokens[:batch].copy_(tokens)
        self.stack.requests.positions[batch:size].zero_()
        self.replay(size)
        return {name: output[:batch] for name, output in self._outputs[size].items()}
