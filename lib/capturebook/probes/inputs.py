"""A step's inputs: made once, kept at their addresses, refilled with another seed's values before each call."""

from ..subjects.loader import SubjectError

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def make(step, seed: int) -> tuple:
    """make_inputs(seed), which must be a tuple. Raises SubjectError."""
    made = step.make_inputs(seed)
    if not isinstance(made, tuple):
        raise SubjectError(f"make_inputs: returned {type(made).__name__}; allowed: a tuple")
    return made


def refill(inputs: tuple, fresh: tuple, seed: int) -> None:
    """Write another seed's values into `inputs` in place. Raises SubjectError when anything but values varies."""
    import torch
    from torch.utils._pytree import tree_flatten

    (mine, shape), (new, new_shape) = tree_flatten(inputs), tree_flatten(fresh)
    if shape != new_shape:
        raise SubjectError(f"make_inputs: {_count(fresh)} for seed {seed}, {_count(inputs)} before")
    with torch.no_grad():
        for index, (old, now) in enumerate(zip(mine, new)):
            if not isinstance(old, torch.Tensor):
                if isinstance(old, _PLAIN) and (type(old) is not type(now) or old != now):
                    raise SubjectError(
                        f"make_inputs: input {index} is {now!r} for seed {seed}; it must not vary: {old!r}"
                    )
                continue
            _same_form(old, now, index, seed)
            _dense(old).copy_(_dense(now))


def _count(inputs: tuple) -> str:
    return f"{len(inputs)} inputs"


def _same_form(old, now, index: int, seed: int) -> None:
    """Shape, dtype, device, strides and pinning are baked into a graph; values are not."""
    for what, of in (
        ("type", lambda x: "tensor" if hasattr(x, "untyped_storage") else type(x).__name__),
        ("shape", lambda x: x.shape),
        ("dtype", lambda x: x.dtype),
        ("device", lambda x: x.device),
        ("strides", lambda x: x.stride()),
        ("pinned memory", pinned),
    ):
        if of(old) != of(now):
            raise SubjectError(f"make_inputs: {what} of input {index} is {of(now)} for seed {seed}; before: {of(old)}")


def pinned(tensor) -> bool:
    """Whether a host tensor is page-locked; CUDA is not initialised by asking."""
    import torch

    return tensor.device.type == "cpu" and torch.cuda.is_initialized() and tensor.is_pinned()


def _dense(tensor):
    """One element for each address: an expanded tensor cannot be written as it is."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def copies(inputs: tuple) -> tuple:
    """Copies that a plain call can take for the originals: pinned if those are, leaves that require a gradient too."""
    import torch
    from torch.utils._pytree import tree_map_only

    def copy(x):
        if pinned(x):
            new = torch.empty_like(x, pin_memory=True).copy_(x)
        else:
            new = x.detach().clone()
        return new.requires_grad_(x.requires_grad)

    return tree_map_only(torch.Tensor, copy, inputs)


def tensors(inputs: tuple) -> list:
    """All tensors of the inputs, nested ones too, in order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)]
