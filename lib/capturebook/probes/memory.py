"""Device memory around a capture: what the allocator handed out, what it reserved, and what the driver has left."""


def read() -> dict[str, int]:
    """Bytes now, on the current device; a pluggable allocator tells only the driver's part.

    `driver_free` counts every process on the GPU, so it moves with them too.
    """
    import torch

    now = {"driver_free": torch.cuda.mem_get_info()[0]}
    if torch.cuda.get_allocator_backend() != "pluggable":
        now |= {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    return now


def shortages() -> dict[str, int]:
    """How often the caching allocator gave up so far, and how often it tried again; nothing of a pluggable one."""
    import torch

    if torch.cuda.get_allocator_backend() == "pluggable":
        return {}
    stats = torch.cuda.memory_stats_as_nested_dict()
    counted = {"allocations failed": "num_ooms", "allocations tried again": "num_alloc_retries"}
    return {what: stats[name] for what, name in counted.items() if name in stats}


def settled() -> dict[str, int]:
    """The same with nothing pending and no free blocks cached, as torch.cuda.graph makes it before it begins."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return read()


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What one graph costs, in bytes: allocated, reserved, and driver_used (with graph objects and workspaces)."""
    cost = {name: after[name] - before[name] for name in ("allocated", "reserved") if name in before}
    return {**cost, "driver_used": before["driver_free"] - after["driver_free"]}
