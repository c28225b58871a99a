"""Input sets for timing a user's own step: distinct, cold in L2 as far as memory allows; and the bytes of a call."""

from dataclasses import dataclass, field

from . import timing

MOST_SETS = 2048
"""A graph of more calls takes longer to capture than a point is worth."""

ALONE_SETS = 4
"""For steps that are timed call by call: the cache is overwritten before each, so only the values need to vary."""


@dataclass(frozen=True)
class Inputs:
    """`sets`: what make_inputs gave for each seed. `left_out`: what was not possible; `problem`: why there is none."""

    sets: list[tuple]
    left_out: list[str] = field(default_factory=list)
    problem: str = ""


def draw(step, seed: int, alone: bool, memory_gib: float) -> Inputs:
    """make_inputs(seed), (seed + 1) and so on: as many sets as make three times L2, within the memory a point may use.

    memory_gib: that memory, 0 for 70 % of what is free. alone: the step is timed call by call.
    """
    import torch

    free, _ = torch.cuda.mem_get_info()
    budget = int(memory_gib * 2**30 or 0.7 * free)
    first = step.make_inputs(seed)
    each = distinct_bytes([first])
    if each > budget:
        return Inputs([], problem=f"needs {each / 2**30:.1f} GiB of GPU memory, {budget / 2**30:.1f} may be used")
    count = sets_for(each, timing.l2_bytes(), budget, alone)
    sets = [first, *(step.make_inputs(seed + i) for i in range(1, count))]
    return Inputs(sets, [] if alone else warm(distinct_bytes(sets), len(sets), timing.l2_bytes()))


def sets_for(each: int, l2_bytes: int, budget: int, alone: bool) -> int:
    """How many sets of `each` bytes: cold ones if they fit into `budget` bytes and a graph, else fewer; 1 at least."""
    wanted = ALONE_SETS if alone else min(timing.cold_sets(each, l2_bytes), MOST_SETS)
    return max(1, min(wanted, budget // max(1, each)))


def warm(total: int, sets: int, l2_bytes: int) -> list[str]:
    """A line when `total` bytes of inputs are less than three times L2: then calls may find theirs there."""
    if total >= 3 * l2_bytes:
        return []
    return [f"inputs of {sets} calls are {total / 1e6:.1f} MB, L2 holds {l2_bytes / 1e6:.0f}: they may be found there"]


def distinct_bytes(sets: list[tuple]) -> int:
    """Bytes of the tensors in all sets; one that comes again counts once."""
    return sum({(x.data_ptr(), x.nbytes): x.nbytes for one in sets for x in _tensors(one)}.values())


def traffic(side, inputs: tuple) -> int:
    """Bytes of one call's inputs, outputs and state, each tensor once: the least it moves if it uses all of them."""
    from ..subjects.step import outputs_by_name

    side.begin()
    outputs = outputs_by_name(side.call(side.step.fn, inputs))
    return distinct_bytes([(*inputs, *outputs.values(), *side.state().values())])


def cost(step, inputs: tuple) -> tuple[int, int] | None:
    """(bytes, flops) that the step says a call on `inputs` must move and compute; None if it has no `cost`.

    Raises SubjectError unless they are two whole numbers, the bytes above 0.
    """
    from ..subjects.step import SubjectError

    if step.cost is None:
        return None
    given = step.cost(*inputs)
    whole = isinstance(given, (tuple, list)) and len(given) == 2 and all(type(n) is int and n >= 0 for n in given)
    if not whole or not given[0]:
        raise SubjectError(f"cost: returned {given!r:.80}; allowed: (bytes, flops), whole numbers, bytes above 0")
    return tuple(given)


def _tensors(values: tuple) -> list:
    import torch
    from torch.utils._pytree import tree_leaves

    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]
