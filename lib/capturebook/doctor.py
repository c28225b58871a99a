"""What this machine can run: the preset that suits it and why, and what it cannot do, in plain lines."""

import importlib.util
import re
import shutil
import sysconfig
from pathlib import Path

from . import paths

PRESETS = ((r"\bH200\b", "sm_90", "h200"), (r"\bRTX PRO 6000 Blackwell\b", "sm_120", "rtx_pro_6000"))
"""GPUs with a preset of their own: name as the driver gives it, architecture, preset. (A GH200 is no H200.)"""

OLDEST = 80
"""bf16 matrix instructions begin with sm_80."""

ROOMY_GIB = 8.0
"""The shipped gpu preset's correctness probes, several at a time with a CUDA context each, stay below this."""


def choose_preset(facts: dict) -> tuple[str, str]:
    """The preset for a machine with these facts (provenance.collect()), and why: a name and one line."""
    if reason := unusable(facts):
        return "cpu", reason
    name, sm = facts["gpu"]["name"], facts["gpu"]["sm"]
    for pattern, architecture, preset in PRESETS:
        if re.search(pattern, name) and sm == architecture:
            return preset, f"the GPU is a {name} ({sm})"
    return "gpu", f"the GPU is a {name} ({sm}), which has no preset of its own"


def unusable(facts: dict) -> str:
    """Why no probe can use a GPU here; empty when one can."""
    gpu = facts["gpu"]
    if gpu is None:
        return f"no CUDA GPU: {facts['no_gpu']}"
    if facts["torch"] is None:
        return "torch is not installed"
    if facts["torch_cuda"] is None:
        return f"this torch ({facts['torch']}) is built without CUDA, so the {gpu['name']} stays unused"
    if _number(facts["driver_cuda"]) < _number(facts["torch_cuda"]):
        needs = ", which needs R580 or newer" if _number(facts["torch_cuda"]) == 13 else ""
        built = f"this torch ({facts['torch']}) is built for CUDA {facts['torch_cuda']}{needs}"
        return f"driver {facts['driver']} is for CUDA {facts['driver_cuda']} and older; {built}"
    if _sm(gpu) < OLDEST:
        return f"the {gpu['name']} is {gpu['sm']}; the kernels need sm_{OLDEST} or newer"
    return ""


def cannot(facts: dict) -> list[str]:
    """What does not run on a machine with these facts: one line each, with the reason. Empty: all of it runs."""
    lines = []
    if reason := unusable(facts):
        lines.append(f"CUDA graph capture, torch.compile for CUDA, every timing and so the verdict: {reason}")
    else:
        if facts["gpu"]["processes"]:
            lines.append(f"timings, while others use the GPU: {facts['gpu']['processes']} processes are on it now")
        if not any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
            lines.append("Triton kernels: no C compiler (cc, gcc or clang) is found to build their launchers with")
        if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
            lines.append("Triton kernels: Python.h, which their launchers include, is missing (Debian: python3-dev)")
    if facts["triton"] is None:
        lines.append("build check, interpreted kernels: triton is not installed (outside Linux there is none)")
    if not any(shutil.which(compiler) for compiler in ("c++", "g++", "clang++")):
        lines.append("torch.compile for the CPU: no C++ compiler (c++, g++ or clang++) is found")
    if re.search(r"[\s'\"\\]", str(paths.repository())):
        where = (
            "the path of this checkout holds a space, quote or backslash, at which torch splits its compiler's command"
        )
        lines.append(f"torch.compile for the CPU: {where}; give --run-dir a path without, or move the checkout")
    if importlib.util.find_spec("jupyterlab") is None:
        lines.append("the explorer in JupyterLab: jupyterlab is not installed (the extra `lab`)")
    return lines


def notes(facts: dict) -> list[str]:
    """What runs, but not as one might think."""
    lines = []
    gpu = facts["gpu"]
    if unusable(facts):
        lines.append(
            "runs here: kernels cross-compiled for each target, interpreted, and their torch twin compiled for the CPU"
        )
    elif gpu["free_gib"] < ROOMY_GIB:
        lines.append(
            f"{gpu['free_gib']} GiB of GPU memory are free: sweep points that do not fit are skipped, and say so"
        )
    if facts["dirty"]:
        lines.append(
            "lib/, notebooks/ or params/ differ from the commit; the code hash in a run's record is of the files"
        )
    return lines


def report(facts: dict) -> list[str]:
    """The lines that `capturebook doctor` prints."""
    preset, why = choose_preset(facts)
    gpu = facts["gpu"]
    named = [f"{name} {facts[name]}" if facts[name] else f"no {name}" for name in ("torch", "triton", "driver")]
    versions = ", ".join([f"Python {facts['python']}", *named])
    memory = f"GPU memory: {gpu['free_gib']} of {gpu['memory_gib']} GiB free" if gpu else "no GPU"
    lines = [f"preset {preset}: {why}", f"{versions}; {facts['cores']} cores; {memory}"]
    lines += [f"cannot run: {line}" for line in cannot(facts)] or ["everything runs here"]
    return lines + [f"note: {line}" for line in notes(facts)] + [f"next: {line}" for line in upcoming(facts)]


def upcoming(facts: dict) -> list[str]:
    """What to do next on this machine."""
    step = "traces your own step, no GPU needed" if unusable(facts) else "says whether your own step survives"
    return [
        f"capturebook run: the whole chain with preset {choose_preset(facts)[0]}, and a report",
        f"capturebook probe mine.py:build: {step}",
        "capturebook params: lists what --set takes",
    ]


def _number(version: str) -> int:
    """CUDA's major version: minor versions of one major are compatible with each other's drivers."""
    return int(version.split(".")[0])


def _sm(gpu: dict) -> int:
    return int(gpu["sm"].removeprefix("sm_"))
