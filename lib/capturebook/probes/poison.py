"""Fill with NaN what a correct step does not rely on: its outputs before a replay, and memory that is free."""

_PINNED_SIZES = tuple(1 << n for n in range(9, 23))


def fill(outputs: list, kept: list) -> None:
    """Outputs that share no storage with `kept` (inputs and state), and all free blocks of the allocators.

    A graph that reads freed memory, device or pinned, then computes with NaN instead of stale, right values.
    """
    import gc

    import torch

    storages = {t.untyped_storage().data_ptr() for t in kept}
    for tensor in outputs:
        if tensor.untyped_storage().data_ptr() not in storages:
            _nan(tensor)
    gc.collect()
    blocks = [_nan(torch.empty(size, dtype=torch.uint8, device="cuda")) for size in _free_blocks()]
    pinned = [_nan(torch.empty(size // 4, dtype=torch.float32, pin_memory=True)) for size in _PINNED_SIZES]
    torch.cuda.synchronize()
    del blocks, pinned


def _nan(tensor):
    """Every byte 0xFF: a NaN in every floating-point type, -1 in the integers."""
    import torch

    if tensor.numel():
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))
        elif tensor.dtype is torch.uint8:
            tensor.fill_(255)
    return tensor


def _free_blocks() -> list[int]:
    """Sizes of the free blocks in the default pool; the pools of captured graphs are their own."""
    import torch

    sizes = []
    for segment in torch.cuda.memory_snapshot():
        if tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0):
            sizes += [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
    return sizes
