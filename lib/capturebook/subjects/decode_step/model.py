"""Layers put together over one batch of requests."""

from dataclasses import dataclass

from torch import Tensor

from .attention import Attention
from .lanes import Lanes
from .layer import Layer
from .moe import Moe
from .ops import Ops
from .rope import table
from .shapes import Shape
from .state import LayerState, Lists, Requests
from .weights import Weights


@dataclass(frozen=True)
class Stack:
    """Layers over one batch of requests."""

    layers: tuple[Layer, ...]
    requests: Requests
    lanes: Lanes

    def __call__(self, ops: Ops, streams: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """Each layer's outputs as "NAME.streams" and so on: the last one's streams are the step's. Positions advance.

        streams [B, 4, hidden], as the embedding or the layer before gives them; tokens [B] int64.
        """
        found = {}
        self.lanes.begin()
        lists = self.lists()
        for layer in self.layers:
            given = layer(ops, lists, streams, tokens)
            streams = given["streams"]
            found |= {f"{layer.name}.{name}": value for name, value in given.items()}
        self.requests.positions.add_(1)
        return found

    def lists(self) -> Lists:
        """Where the tokens of the next step go, and what they attend to."""
        kinds = [layer.attention.kind for layer in self.layers]
        return self.requests.lists(self.layers[0].attention.shape, kinds)

    def state(self) -> dict[str, Tensor]:
        """All that outlives a call, by name."""
        found = {"positions": self.requests.positions}
        for layer in self.layers:
            found |= {f"{layer.name}.{name}": value for name, value in layer.attention.state.tensors().items()}
        return found


def stack(
    shape: Shape,
    kinds: list[str],
    weights: list[Weights],
    states: list[LayerState],
    requests: Requests,
    positions: int,
    lanes: Lanes | None = None,
    padded: int = 0,
) -> Stack:
    """Layers of these kinds. positions: how many the rotary tables have. padded: heads given to the attention kernel,
    if more than the rank's."""
    lanes, padded = lanes or Lanes(), max(padded, shape.heads)
    device = requests.positions.device
    # layers of a kind share a table, and CSA and HCA have the same frequencies
    tables = {kind == "swa": table(shape, kind, positions, device) for kind in kinds}
    layers = []
    for number, (kind, weight, state) in enumerate(zip(kinds, weights, states, strict=True)):
        angles = tables[kind == "swa"]
        attention = Attention(shape, kind, weight, state, requests, angles, lanes, padded)
        layers.append(Layer(f"{number}.{kind}", attention, Moe(shape, weight, lanes)))
    return Stack(tuple(layers), requests, lanes)
