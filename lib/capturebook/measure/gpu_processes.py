"""Who else computes on this GPU: a timing beside another process measures both."""

import os
from pathlib import Path


def foreign_processes(device: int = 0) -> list[str]:
    """Compute processes on torch's `device` other than this one, e.g. ["pid 71 (python3)"]; [] when alone.

    Creates the CUDA context first, so that this process is one of those that NVML lists. In another pid namespace
    NVML gives pids that are not ours to read: then one of those listed is this process, and alone means one.
    A process that NVML hides from a container cannot be seen.
    """
    import pynvml
    import torch

    torch.cuda.synchronize(device)
    uuid = str(torch.cuda.get_device_properties(device).uuid).removeprefix("GPU-")
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        pids = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        return others(pids, os.getpid(), _name)
    finally:
        pynvml.nvmlShutdown()


def others(pids: set[int], own: int, name) -> list[str]:
    """The processes among `pids` that are not `own`, as text; `name(pid)` gives a command or ""."""
    if own in pids:
        pids = pids - {own}
    elif len(pids) <= 1:
        return []
    return [f"pid {pid} ({name(pid)})" if name(pid) else f"pid {pid}" for pid in sorted(pids)]


def _name(pid: int) -> str:
    """The command of a process without its path; "" for one of another pid namespace."""
    command = Path(f"/proc/{pid}/comm")
    return command.read_text().strip() if command.exists() else ""


def refusal(found: list[str]) -> dict:
    """The record fields of a timing that another process would spoil."""
    return {"status": "not_run", "reason": f"timing: the GPU is shared with {', '.join(found)}"}
