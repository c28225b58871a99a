"""Fill with NaN what a correct step does not rely on: its outputs before a replay, and memory that is free."""

_SMALL = 1 << 20
"""The largest request that the caching allocator serves from its small pool (c10/cuda: kSmallSize)."""

_PINNED_SIZES = tuple(1 << n for n in range(9, 23))


def fill(outputs: list, kept: list, pool) -> None:
    """Outputs that lie in the graph's own memory pool and share no storage with `kept` (inputs and state), and all
    free blocks of the allocators. An output elsewhere (a row of a table, say) is not the graph's to fill.

    A graph that reads freed memory, device or pinned, then computes with NaN instead of stale, right values.
    """
    import gc

    import torch

    gc.collect()
    blocks = []
    # Other allocators (cudaMallocAsync, a pluggable one) cannot say what they hold: "snapshot ... is not meaningful".
    if torch.cuda.get_allocator_backend() == "native":
        with torch.no_grad():
            _fill_outputs(outputs, {t.untyped_storage().data_ptr() for t in kept}, tuple(pool or ()))
        blocks = [_nan(torch.empty(size, dtype=torch.uint8, device="cuda")) for size in _free_blocks()]
    pinned = [_nan(torch.empty(size // 4, dtype=torch.float32, pin_memory=True)) for size in _PINNED_SIZES]
    torch.cuda.synchronize()
    del blocks, pinned


def _fill_outputs(outputs: list, storages: set[int], pool: tuple) -> None:
    import torch

    segments = torch.cuda.memory_snapshot()
    own = [(s["address"], s["address"] + s["total_size"]) for s in segments if _pool(s) == pool]
    for tensor in outputs:
        start = tensor.untyped_storage().data_ptr()
        if start not in storages and any(low <= start < high for low, high in own):
            _nan(tensor)


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
        if _pool(segment) == (0, 0):
            most = _SMALL if segment.get("segment_type") == "small" else None
            for block in segment["blocks"]:
                if block["state"] == "inactive":
                    sizes += _pieces(block["size"], most)
    return sizes


def _pieces(size: int, most: int | None) -> list[int]:
    """Requests that fill a free block. A larger one than the small pool serves would go to the other pool."""
    if most is None or size <= most:
        return [size]
    return [most] * (size // most) + ([size % most] if size % most else [])


def _pool(segment: dict) -> tuple:
    return tuple(segment.get("segment_pool_id", (0, 0)))
