"""Fresh memory that holds NaN: a kernel that leaves part of an output or of a split buffer unwritten cannot pass."""

import contextlib


@contextlib.contextmanager
def fresh_memory_is_nan():
    """Inside the block every floating-point tensor that torch allocates starts as NaN (integers as their largest).

    This is torch's own filling of uninitialised memory, which reaches buffers inside an operator too.
    """
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = fill
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
