"""Which kernels a step of the glue launches as on a GPU, on a machine without one: nothing is compiled or run.

The bodies of the package's operators run for tensors that say they are on a GPU, and each launch is noted instead of
made. Neither Dynamo nor the operators' CPU implementations have a part in it.
"""

import torch
from torch._library.triton import set_wrap_triton_enabled
from torch.overrides import TorchFunctionMode

from capturebook.kernels.glue import op, op_cache, op_heads, op_rows
from capturebook.measure.launches import recording
from capturebook.measure.unreal import Unreal

BODIES = {
    value._qualname: value._init_fn
    for module in (op, op_cache, op_heads, op_rows)
    for value in vars(module).values()
    if isinstance(value, torch._library.custom_ops.CustomOpDef)
}


class _AsOnGpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function == torch.Tensor.device.__get__:
            return torch.device("cuda", 0)
        body = BODIES.get(getattr(function, "_qualified_op_name", ""))
        if body:
            with self, set_wrap_triton_enabled(False):
                return body(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def kernels_of(step) -> list[str]:
    """Names of the kernels that one call of the step launches on an H200, in order."""
    inputs = step.make_inputs(0)
    with recording(90, Unreal()) as launches, _AsOnGpu():
        step.fn(*inputs)
    return [launch.name for launch in launches]
