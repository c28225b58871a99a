"""Which values are not real while launches are recorded instead of made, and steps for CUDA on a machine without it."""

import contextlib
from collections.abc import Iterable

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_LIBRARY = ("aten", "prims", "prim", "inductor", "profiler")


class UnrealValue(BaseException):
    """The host asks for a value that a recorded launch would have computed: the recording ends there.

    No Exception: a step that catches its own errors would take this for one of them, and go on with a made-up value.
    """


class Unreal(TorchDispatchMode):
    """Follows what recorded launches would have written through torch's operators.

    A launch counts as writing all its tensors but the step's inputs, which servers read on the host as well (lengths,
    say): an input that a kernel changes is not followed. `silent` names custom operators that launched no kernel.
    `stop` is the first UnrealValue that was raised, whatever the step made of it: nothing after it is known.
    """

    def __init__(self):
        super().__init__()
        self.stop: UnrealValue | None = None
        self._held: dict[int, torch.UntypedStorage] = {}  # so that no address comes twice
        self._unreal: set[int] = set()
        self._inputs: set[int] = set()
        self._launches = 0
        self._operators: dict[str, int] = {}

    def called_with(self, inputs: tuple) -> None:
        """These are the inputs of the call that begins: nothing is unreal yet."""
        self._inputs = {_key(x) for x in _tensors(inputs)}
        self._unreal.clear()

    def launched(self, args: Iterable) -> None:
        """A launch with these arguments was recorded."""
        self._launches += 1
        for x in _tensors([getattr(x, "base", x) for x in args]):  # a TensorDescriptor has its tensor as base
            if _key(x) not in self._inputs:
                self._mark(x)

    def _mark(self, tensor: torch.Tensor) -> None:
        self._held[_key(tensor)] = tensor.untyped_storage()
        self._unreal.add(_key(tensor))

    @property
    def silent(self) -> list[str]:
        return [name for name, launches in self._operators.items() if not launches]

    def refuse(self, what: str, values) -> None:
        """Raises UnrealValue if one of `values` is not real."""
        if any(_key(x) in self._unreal for x in _tensors(values)):
            error = UnrealValue(f"{what} reads a value that a launch would have computed, so what follows is not known")
            self.stop = self.stop or error
            raise error

    def over(self) -> None:
        """The call has ended: what closes the step may read what it likes."""
        self._unreal.clear()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = (args, kwargs or {})
        if {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(function.tags):
            self.refuse(str(function), given)
        before = self._launches
        result = function(*args, **(kwargs or {}))
        launched = self._launches - before
        if function.namespace not in _LIBRARY and self.stop is None:
            self._operators[str(function)] = self._operators.get(str(function), 0) + launched
        if launched or {_key(x) for x in _tensors(given)} & self._unreal:
            for x in _tensors(result):
                self._mark(x)
        return result


class _HostReads(TorchFunctionMode):
    """What reaches the host without an operator; and, where there is no CUDA, "cuda" taken for "cpu"."""

    reads = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)

    def __init__(self, unreal: Unreal, without_cuda: bool):
        super().__init__()
        self._unreal, self._without_cuda = unreal, without_cuda

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in self.reads:
            self._unreal.refuse(f"Tensor.{function.__name__}", args)
        if self._without_cuda:
            if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
                return args[0]
            args = tuple(_here(x) for x in args)
            kwargs = {name: _here(x) for name, x in kwargs.items() if name != "pin_memory"}
        return function(*args, **kwargs)


@contextlib.contextmanager
def on_this_machine(unreal: Unreal):
    """Inside the block tensors that a step makes on "cuda" are made on the CPU if there is no GPU."""
    with _HostReads(unreal, without_cuda=not torch.cuda.is_available()):
        yield


def _here(x):
    """A CUDA device, given as torch.device or text, as the CPU; anything else as it is."""
    if isinstance(x, (torch.device, str)) and str(x).partition(":")[0] == "cuda":
        return torch.device("cpu")
    return x


def _tensors(values) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
