"""A step's declared state: snapshots, restoring them in place, and tensors whose shape a call changes."""

from ..subjects.loader import SubjectError
from .compare import clone, copy_into
from .metric import same_bits


class State:
    """What `step.state()` gives, asked anew each time: a step may hold other tensors after a call than before.

    reshaped: {name: [shape before, shape after]} of tensors that a call has left with another shape. Those cannot be
    restored in place, since what else refers to them is the step's own business.
    """

    def __init__(self, step):
        self._ask = step.state
        self.reshaped: dict[str, list[list[int]]] = {}
        self._first, self._restored = self.snapshot(), 0

    def live(self) -> dict:
        """The tensors as they are now. Raises SubjectError when they are not tensors by name."""
        import torch

        if self._ask is None:
            return {}
        found = self._ask()
        if not isinstance(found, dict):
            raise SubjectError(f"state: returned {type(found).__name__}; allowed: {{name: tensor}}")
        for name, value in found.items():
            if not isinstance(value, torch.Tensor):
                raise SubjectError(f"state: {name!r} is {type(value).__name__}; allowed: a tensor")
        return dict(found)

    def snapshot(self) -> dict:
        return clone(self.live())

    def restore(self) -> None:
        """The values from before the first call, but for tensors of another shape.

        Raises SubjectError when what was written does not stay: `state` then gives copies, which restore nothing.
        """
        copy_into(self.live(), self._first)
        self._restored += 1
        if self._restored == 2:
            for name, tensor in self.live().items():
                before = self._first.get(name)
                if before is not None and before.shape == tensor.shape and not same_bits(before, tensor):
                    raise SubjectError(f"state: {name!r} is a copy; allowed: the tensor that the step itself reads")

    def put(self, snapshot: dict) -> None:
        copy_into(self.live(), snapshot)

    def note_shapes(self, before: dict, after: dict) -> set[str]:
        """Remember which shapes a call changed; returns the names of those."""
        changed = {n for n in before if n in after and before[n].shape != after[n].shape}
        for name in changed:
            self.reshaped[name] = [list(before[name].shape), list(after[name].shape)]
        return changed

    def shapes(self) -> dict:
        return {name: list(tensor.shape) for name, tensor in self.live().items()}

    def note_captured(self, before: dict) -> None:
        """The same for the captured call, of which only the host's part has happened: nothing is read there."""
        for name, shape in self.shapes().items():
            if name in before and before[name] != shape:
                self.reshaped[name] = [before[name], shape]

    def storages(self) -> set[int]:
        return {t.untyped_storage().data_ptr() for t in self.live().values()}
