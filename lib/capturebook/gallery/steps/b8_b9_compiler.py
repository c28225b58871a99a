"""B8: the compiler makes a right step wrong. B9: it fails on a right step. Both by a graph pass of the server's."""

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

from capturebook.gallery.inputs import vector
from capturebook.subjects import Step


class FusesWrongly(CustomGraphPass):
    """Takes `a - b` for `a + b`: a fusion pass whose pattern does not look at the operator's name."""

    def __call__(self, graph):
        for node in graph.nodes:
            if node.target is torch.ops.aten.sub.Tensor:
                node.target = torch.ops.aten.add.Tensor

    def uuid(self):
        return "gallery-fuses-wrongly-1"


class GivesUp(CustomGraphPass):
    """Expects a layer norm in every graph."""

    def __call__(self, graph):
        if not any("layer_norm" in str(node.target) for node in graph.nodes):
            raise AssertionError("no layer norm to fuse")

    def uuid(self):
        return "gallery-gives-up-1"


def with_pass(graph_pass) -> Step:
    if graph_pass is not None:
        torch._inductor.config.post_grad_custom_post_pass = graph_pass

    def fn(x):
        return torch.sigmoid(x) - x

    common = {"make_inputs": vector, "reference": lambda x: torch.sigmoid(x.double()) - x.double()}
    return Step(fn=fn, twin=Step(fn=fn, **common), **common)


def wrong_fusion() -> Step:
    """A custom Inductor pass of the serving stack rewrites the graph to another result."""
    return with_pass(FusesWrongly())


def failing_pass() -> Step:
    """A custom Inductor pass of the serving stack raises on a graph that it did not expect."""
    return with_pass(GivesUp())


def pass_fixed() -> Step:
    """The pass is off."""
    return with_pass(None)
