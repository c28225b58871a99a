"""What a trace needs of a GPU where there is none: a driver for Triton to ask, and CPU memory for "cuda"."""

import contextlib
import dataclasses


@contextlib.contextmanager
def as_with_one(target: int, seen):
    """Triton as with a GPU of the target, and nothing launched; all of it taken back at the end.

    target: compute capability, e.g. 90. Launches are counted in `seen.launches` by name, breaks told to `seen.broke`.
    """
    import torch.utils._triton
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase
    from triton.runtime import JITFunction, driver
    from triton.runtime.autotuner import Autotuner

    def launched(self, *args, **kwargs):
        seen.launches[kernel_name(self)] += 1

    original = InstructionTranslatorBase.log_graph_break

    def log_graph_break(self, code_options, reason, exc):
        seen.broke(reason, exc)
        return original(self, code_options, reason, exc)

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (torch.utils._triton, "has_triton", lambda *args, **kwargs: True),
            (JITFunction, "run", launched),
            (Autotuner, "run", launched),
            (InstructionTranslatorBase, "log_graph_break", log_graph_break),
        ):
            stack.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, value)
        driver.set_active(_Driver(target))
        stack.callback(setattr, driver, "_active", None)
        yield


class _Driver:
    """Stands for a GPU's driver where Triton is only asked what it would compile for."""

    def __init__(self, target: int):
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", target, 32)

    def get_current_target(self):
        return self._target

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device=None) -> int:
        return 0


def on_cpu(copies: bool = False):
    """A mode in which asking torch for "cuda", or for pinned memory, gives ordinary CPU memory.

    copies: moving a tensor there gives a new one, as a transfer does; else the tensor itself.
    """
    import torch

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
                return args[0].clone() if copies else args[0]
            if copies and func is torch.Tensor.to and any(map(_is_cuda, (*args[1:], kwargs.get("device")))):
                kwargs["copy"] = True
            if _is_cuda(kwargs.get("device")):
                kwargs["device"] = "cpu"
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            if func is torch.Tensor.to and any(map(_is_cuda, args[1:])):
                args = tuple("cpu" if _is_cuda(a) else a for a in args)
            return func(*args, **kwargs)

    return OnCpu()


def given_on_cpu(step):
    """The step with its inputs drawn in CPU memory, though its author draws them for "cuda"."""

    def make_inputs(seed: int):
        with on_cpu(copies=True):
            return step.make_inputs(seed)

    return dataclasses.replace(step, make_inputs=make_inputs)


def _is_cuda(value) -> bool:
    import torch

    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"


def kernel_name(kernel) -> str:
    """A kernel's function name, through autotuners and heuristics around it."""
    while not hasattr(kernel, "__name__"):
        kernel = kernel.fn
    return kernel.__name__
