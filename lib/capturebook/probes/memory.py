"""Device memory around a capture: what the allocator handed out, what it reserved, and what the driver has left."""


def read() -> dict[str, int]:
    """Bytes now, on the current device. `driver_free` counts every process on the GPU, so it moves with them too."""
    import torch

    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "driver_free": torch.cuda.mem_get_info()[0],
    }


def settled() -> dict[str, int]:
    """The same with nothing pending and no free blocks cached, as torch.cuda.graph makes it before it begins."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return read()


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What one graph costs, in bytes: allocated, reserved, and driver_used (with graph objects and workspaces)."""
    return {
        "allocated": after["allocated"] - before["allocated"],
        "reserved": after["reserved"] - before["reserved"],
        "driver_used": before["driver_free"] - after["driver_free"],
    }
