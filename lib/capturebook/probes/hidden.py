"""State that a step keeps without declaring it: what its function reaches by closure, attribute or global name.

Only looked at after a wrong result. A step that gives other values from the same declared state either is not
deterministic or keeps such a state; putting this back before the second call tells which.
"""

import functools
import types

_MOST = 5000
"""Objects visited at most; what lies beyond is not put back."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Hidden:
    """Tensors, gradients, dicts, lists, closure cells and attributes that a function reaches, with their values."""

    def __init__(self, function):
        self._undo: list = []
        seen: set[int] = set()
        queue = [function]
        while queue and len(seen) < _MOST:
            item = queue.pop()
            if id(item) in seen or isinstance(item, _PLAIN):
                continue
            seen.add(id(item))
            queue += self._visit(item)

    def restore(self) -> None:
        """Put every value back, in place."""
        import torch

        with torch.no_grad():
            for undo in self._undo:
                undo()

    def _visit(self, item) -> list:
        """Remember one object's values; returns what it refers to."""
        import torch

        if isinstance(item, torch.Tensor):
            before = item.detach().clone()
            self._undo.append(lambda: item.copy_(before) if item.shape == before.shape else None)
            return self._gradient(item) if item.is_leaf and item.requires_grad else []
        if isinstance(item, (dict, list)):
            return self._container(item)
        if isinstance(item, types.CellType):
            return self._cell(item)
        if isinstance(item, (tuple, set, frozenset)):
            return list(item)
        if isinstance(item, types.FunctionType):
            named = [item.__globals__[n] for n in item.__code__.co_names if n in item.__globals__]
            return [*(item.__closure__ or ()), *(item.__defaults__ or ()), *filter(_is_data, named)]
        if isinstance(item, functools.partial):
            return [item.func, *item.args, *item.keywords.values()]
        if isinstance(item, types.MethodType):
            return [item.__self__, item.__func__]
        if isinstance(item, (type, types.ModuleType, torch.Generator)) or _foreign(item):
            return []
        return [vars(item)] if hasattr(item, "__dict__") else []

    def _gradient(self, item) -> list:
        before = item.grad
        self._undo.append(lambda: setattr(item, "grad", before))
        return [] if before is None else [before]

    def _container(self, item) -> list:
        before = item.copy()

        def undo():
            item.clear()
            item.update(before) if isinstance(item, dict) else item.extend(before)

        self._undo.append(undo)
        return list(item.values()) if isinstance(item, dict) else list(item)

    def _cell(self, cell) -> list:
        try:
            before = cell.cell_contents
        except ValueError:
            return []
        self._undo.append(lambda: setattr(cell, "cell_contents", before))
        return [before]


def _is_data(value) -> bool:
    """Globals worth following: data and the subject's own functions, not modules, classes and libraries' functions."""
    if isinstance(value, types.FunctionType):
        return not _foreign(value)
    return not isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType))


def _foreign(value) -> bool:
    """Of torch, triton or the standard library: what those keep is not the step's. A module of layers is followed."""
    import sys

    import torch

    if isinstance(value, torch.nn.Module):
        return False
    name = getattr(value if isinstance(value, types.FunctionType) else type(value), "__module__", None) or ""
    top = name.partition(".")[0]
    return top in ("torch", "triton", "numpy", "builtins") or top in sys.stdlib_module_names
