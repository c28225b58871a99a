"""What a run ran with: interpreter, packages, driver, GPU, hash of the code. Imports no torch, names no host."""

import hashlib
import importlib.util
import os
import platform
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from . import paths

CODE = ("lib", "notebooks", "params")
"""Folders whose contents decide what a run does."""

SKIPPED = ("__pycache__", ".ipynb_checkpoints")
PACKAGES = ("papermill", "ipykernel", "nbconvert", "ipywidgets", "matplotlib", "pandas", "numpy", "pydantic", "psutil")


def collect() -> dict:
    """All of it, as JSON can hold it. What cannot be known is None; `gpu` is None with `no_gpu` saying why.

    torch_cuda and driver_cuda are CUDA versions ("13.0"): what torch was built for, and the newest the driver takes.
    Of the GPU: sizes in GiB, clocks in MHz, power limit in W, temperature in degrees Celsius. `executable` is relative
    to the repository, or the file's name alone.
    """
    import psutil

    root, executable = paths.repository(), Path(sys.executable)
    torch = _torch_version()
    driver, driver_cuda, gpu, no_gpu = _nvidia()
    return {
        "python": platform.python_version(),
        "executable": str(executable.relative_to(root)) if executable.is_relative_to(root) else executable.name,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _gib(psutil.virtual_memory().total),
        "torch": torch.get("__version__"),
        "torch_cuda": torch.get("cuda"),
        "triton": _version("triton"),
        "packages": {name: _version(name) for name in PACKAGES},
        "driver": driver,
        "driver_cuda": driver_cuda,
        "gpu": gpu,
        "no_gpu": no_gpu,
        "code": code_tree(),
        **_git(root),
    }


def code_tree() -> str:
    """Git's tree hash of lib/, notebooks/ and params/ as they are on disk, committed or not; needs no git.

    Equals `git write-tree` for an index with just these folders. File modes are left out (all count as 100644): they
    change when a checkout is copied to another machine.
    """
    root = paths.repository()
    return _tree([root / name for name in CODE if (root / name).is_dir()]).hex()


def _tree(paths_in_it: list[Path]) -> bytes:
    entries = []
    for path in paths_in_it:
        if path.is_dir():
            inside = [p for p in path.iterdir() if p.name not in SKIPPED and p.suffix not in (".pyc", ".egg-info")]
            if digest := _tree(inside) if inside else b"":
                entries.append((f"{path.name}/", b"40000 " + path.name.encode() + b"\0" + digest))
        else:
            entries.append((path.name, b"100644 " + path.name.encode() + b"\0" + _object(b"blob", path.read_bytes())))
    if not entries:
        return b""
    return _object(b"tree", b"".join(entry for _, entry in sorted(entries)))


def _object(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(kind + b" %d\0" % len(data) + data).digest()


def _git(root: Path) -> dict:
    """The commit, and whether CODE differs from it; None for both where there is no git or no checkout."""
    values = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", *CODE]):
        try:
            done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            return {"commit": None, "dirty": None}
        if done.returncode:
            return {"commit": None, "dirty": None}
        values.append(done.stdout.strip())
    return {"commit": values[0], "dirty": bool(values[1])}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _torch_version() -> dict:
    """torch/version.py, run by itself: importing torch takes seconds and would be in every command's way."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {}
    return runpy.run_path(str(Path(spec.submodule_search_locations[0]) / "version.py"))


def _nvidia() -> tuple[str | None, str | None, dict | None, str]:
    """Driver, its CUDA version, the GPU that CUDA calls device 0, and why there is none."""
    import pynvml

    from .probes.lease import gpu_uuid

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded) as exc:
        return None, None, None, f"no NVIDIA driver ({exc})"
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        driver, driver_cuda = _text(pynvml.nvmlSystemGetDriverVersion()), f"{cuda // 1000}.{cuda % 1000 // 10}"
        uuid = gpu_uuid()
        if uuid is None:
            hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
            why = "the driver finds no GPU" if hidden is None else f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU"
            return driver, driver_cuda, None, why
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return driver, driver_cuda, _gpu(pynvml, handle), ""
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml, handle) -> dict:
    def ask(function, *args):
        """None where this GPU does not tell (a MIG slice has no clocks)."""
        try:
            return function(handle, *args)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            return None

    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    power = ask(nvml.nvmlDeviceGetPowerManagementLimit)
    users = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
    return {
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "sm": f"sm_{major}{minor}",
        "id": hashlib.sha256(_text(nvml.nvmlDeviceGetUUID(handle)).encode()).hexdigest()[:12],
        "memory_gib": _gib(memory.total),
        "free_gib": _gib(memory.free),
        "processes": None if users is None else len(users),
        "clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        "clock_max_mhz": ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        "power_limit_w": None if power is None else power / 1000,
        "temperature_c": ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
    }


def _text(value: str | bytes) -> str:
    """Older NVML bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _gib(size: int) -> float:
    return round(size / 2**30, 1)
